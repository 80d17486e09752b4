#!/usr/bin/env python3
"""The kernel's events in a PREEMPT_RT kernel of another version than this machine's, in an emulator.

given  Debian's real-time kernel (6.1) with the same binary
when   a program's events and system calls are recorded with switches and wake-ups, probes of the kernel and of a
       program beside them, while the emulator's monitor injects NMIs, whose messages hit a probe
       (and once more with a filter)
then   each call lies between the events around it, nothing is lost that is not counted, all traces can be read, the
       state at the start is complete, events of all kinds have their stacks, and when a recorder has ended or was
       killed, no program of ours is left

Exits with 77 where an emulator, the kernel, or a tool is missing.
"""

import collections
import json
import os
import socket
import threading
import time
from pathlib import Path

import power_cut
from power_cut import BUILD, RT_KERNEL, Vm, in_vm, initramfs, program, run

MODULES = "virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk".split()
ROUNDS = 20000 if os.environ.get("TOMPION_FULL") == "1" else 1500

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tracefs nodev /sys/kernel/tracing
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=300M tmp /tmp
exec > /dev/ttyS0 2>&1
for again in 1 2 3; do for module in /modules/*; do insmod $module 2>/dev/null; done; done
echo 0 > /proc/sys/kernel/printk
echo KERNEL $(uname -rv)
cd /tmp
echo BEFORE $(bpf_count)
echo NMIS on
big="--subbuf-size 4M --subbufs 4"
# A program waits 50 ms for its session, and this machine may have slept meanwhile.
for again in 1 2 3 4 5; do
rm -rf order
tompion record -o order $big -k 'syscall_*_getpgid,sched_switch,sched_w*,lttng_statedump_*' \\
    -k 'kprobe:vprintk_store(facility: i32, level: i32)' -k 'kretprobe:vprintk_store' -- order %d
status=$?
tompion stat order | grep -q order:before && break
done
echo RECORDED order $status
echo AFTER $(bpf_count)
tompion record -o usual -k -k 'usdt:marks:shop:sale(round: i32, what: str)' -k 'uprobe:marks:nine(a: i32)' -- marks 200
echo RECORDED usual $?
# Detaching from each tracepoint waits for a grace period, which NMIs make long here.
echo NMIS off
tompion record -o few -k 'sched_*,syscall_*,x86_exceptions_*,irq_handler_*,kmem:kmem_cache_*' \\
    -k 'usdt:marks:shop:sale(round: i32, what: str)' \\
    --filter 'round >= 100 || prev_comm == "marks" || filename == "/*" || ret < -1 || $comm == "nobody"' -- marks 200
echo RECORDED few $?
echo NMIS on
tompion record -o stacks $big -k '*,sched_stat_runtime,kprobe:vprintk_store,uprobe:marks:nine(a: i32)' \\
    -c kstack,ustack,comm,prio,cgroup -- marks 50
echo RECORDED stacks $?
echo NMIS off
tompion record -o killed --mode overwrite -k -k 'uprobe:marks:nine' -- sleep 100 &
recorder=$!
for again in $(seq 500); do grep -qs perf /proc/$recorder/fdinfo/* && break; usleep 20000; done
echo DURING $(bpf_count)
kill -9 $recorder
wait $recorder
echo KILLED $?
usleep 500000
echo AFTER $(bpf_count)
tar cf /dev/vda order usual few stacks && echo PACKED
sync
poweroff -f
"""


def inject(path, vm, counted):
    """Injects NMIs, one after the other, while the guest asks for them."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(str(path))
        while vm.process.poll() is None:
            time.sleep(0.05)
            if not wants_nmis(vm.lines):
                continue
            try:
                monitor.sendall(b"nmi\n")
                monitor.recv(4096)
            except OSError:
                return
            counted.append(1)


def wants_nmis(lines):
    said = [line for line in lines if line.startswith("NMIS ")]
    return said[-1:] == ["NMIS on"]


def numbers(lines, word):
    return [int(line.split()[1]) for line in lines if line.startswith(word + " ")]


def events(trace):
    text = run(BUILD / "tompion", "print", "--format", "json", trace)
    return [json.loads(line) for line in text.splitlines()]


def lost(trace):
    return json.loads(run(BUILD / "tompion", "stat", "--json", trace))["lost"]


def check_order(trace):
    """Of all calls; of whatever else happened meanwhile, names alone."""
    found = events(trace)
    names = collections.Counter(event["event"] for event in found)
    wanted = ["order:before", "syscall_entry_getpgid", "syscall_exit_getpgid", "order:after"]
    path = [event for event in found if event["event"] in wanted]
    assert len(path) == 4 * ROUNDS, f"{len(path)} events of {4 * ROUNDS}; lost: {lost(trace)}"
    for number, event in enumerate(path):
        assert event["event"] == wanted[number % 4], f"round {number // 4}: {event}"
    assert lost(trace)["total"] == 0, lost(trace)
    assert names["sched_switch"] > 100 and names["lttng_statedump_end"] == 1, names
    state = [event for event in found if event["event"] == "lttng_statedump_process_state"]
    assert any(event["fields"]["name"].startswith("irq/") for event in state), "no thread of an interrupt"
    # A return in the middle of another probe of the kernel's is dropped there.
    assert names["vprintk_store"] > 0 and names["vprintk_store_return"] > 0, names
    return names


def check_usual(trace):
    found = events(trace)
    sales = [event["fields"] for event in found if event["event"] == "shop:sale"]
    total = lost(trace)["total"]
    if total == 0:
        assert [(sale["round"], sale["what"]) for sale in sales] == [(round, f"thing {round}") for round in range(200)]
        assert sum(event["event"] == "marks:nine" for event in found) == 401
    assert len(sales) + total >= 200, (len(sales), total)
    return len(found), total


def check_few(trace):
    """What a filter in the kernel has taken."""
    found = [event for event in events(trace) if not event["event"].startswith("lttng_statedump_")]
    rounds = [event["fields"]["round"] for event in found if event["event"] == "shop:sale"]
    assert lost(trace)["total"] or rounds == list(range(100, 200)), rounds
    for event in found:
        fields = event["fields"]
        expected = [fields.get("round", 0) >= 100, fields.get("prev_comm") == "marks", fields.get("ret", 0) < -1]
        assert any(expected) or fields.get("filename", "").startswith("/"), event
    return len(found)


def check_stacks(trace):
    """All programs with all that events can have beside their own; functions of the kernel were named in the guest."""
    kernel, user = collections.Counter(), collections.Counter()
    for event in events(trace):
        if event["event"].startswith(("lttng_statedump", "tompion_")):
            continue
        context, stacks = event["context"], event.get("stacks", {})
        assert context["procname"] and -100 <= context["prio"] < 40, event
        kernel[event["event"]] += "kernel" in stacks
        user[event["event"]] += bool(stacks.get("user"))
        if event["event"].startswith("syscall_entry") and "kernel" in stacks:
            assert any(function.startswith("do_syscall_64") for function in stacks["kernel"]), event
    for name in ("sched_switch", "sched_stat_runtime", "vprintk_store", "syscall_entry_write"):
        assert kernel[name] > 0, (name, kernel)
    # No stack led from the kernel to a place in a program.
    assert user["marks:nine"] > 0 and kernel["marks:nine"] == 0, user
    return sum(kernel.values())


def run_emulator(vmlinuz, image, tape, monitor):
    """Runs the emulated machine to its end. Returns its lines and the injected NMIs.

    Now and then it stops under NMIs and prints nothing more. It is started once more then, and a
    line says so.
    """
    for is_last in (False, True):
        monitor.unlink(missing_ok=True)
        vm = Vm(vmlinuz, image, [tape], "loglevel=0", "-monitor", f"unix:{monitor},server=on,wait=off")
        vm.wait_timeout = 240
        injected = []
        try:
            vm.wait_for(1, "BEFORE")
            threading.Thread(target=inject, args=(monitor, vm, injected), daemon=True).start()
            return vm.finish(), injected
        except AssertionError as error:
            if is_last:
                raise
            print(f"rt_kernel: once more, after {len(injected)} NMIs: {error}", flush=True)


def test(work, vmlinuz):
    tape, monitor = work / "tape", work / "monitor"
    with tape.open("wb") as out:
        out.truncate(400 << 20)
    programs = [program(work, name) for name in ("order", "marks", "bpf_count")]
    image = initramfs(work, vmlinuz, programs, {"init": INIT % ROUNDS}, MODULES)
    begin = time.monotonic()
    lines, injected = run_emulator(vmlinuz, image, tape, monitor)
    said = "\n".join(lines[-40:])
    assert "PACKED" in lines and any("PREEMPT_RT" in line for line in lines), said
    for recording in ("order", "usual", "few", "stacks"):
        assert f"RECORDED {recording} 0" in lines, said
    assert "KILLED 137" in lines, said
    before, after, during = (numbers(lines, word) for word in ("BEFORE", "AFTER", "DURING"))
    assert len(after) == 2 and all(count == before[0] for count in after) and during[0] > before[0] + 10, said
    run("tar", "xf", tape, "-C", work)
    names = check_order(work / "order")
    count, total = check_usual(work / "usual")
    few = check_few(work / "few")
    with_stacks = check_stacks(work / "stacks")
    print(
        f"rt_kernel: {ROUNDS} calls in order among {sum(names.values())} events, {names['vprintk_store']} of them inside "
        f"{len(injected)} NMIs; {count} events of the usual, {total} lost; {few} behind a filter; "
        f"{with_stacks} with stacks; {time.monotonic() - begin:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    in_vm(test, RT_KERNEL)
