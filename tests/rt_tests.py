#!/usr/bin/env python3
"""The real-time tests, the latency monitor and the shield in a PREEMPT_RT kernel, in an emulator.

given  Debian's real-time kernel with the same binary
when   npt, cyclic by every way of waking and under every scheduler (while the monitor counts), preempt and hwgap run in it,
       `doctor --rt` looks at it, and a command runs behind a shield; with TOMPION_FULL=1, while the monitor keeps what makes a
       thread late, one above it has its CPU for 60 ms, and a job takes longer than its deadline
then   each gives its result as it does elsewhere: loops and events are as many as asked for, the monitor has seen every
       wake-up and its sums agree, priorities hold, the kernel's own tracers have looked, the kernel is known as a
       real-time one, the shielded command had its CPU for itself and everything is as it was before; each incident has its
       folder, and those of the late thread that the emulator has not made itself are charged to the thread above, as are missed
       deadlines to the job that waited; the late thread's cgroup has its wake-ups

The emulator's times say nothing, and are not judged. Exits with 77 where an emulator, the kernel, or a tool is missing.
"""

import json
import os
import time
from pathlib import Path

from power_cut import BUILD, RT_KERNEL, Vm, in_vm, initramfs, left_out, program, put, results, run
from rt_kernel import MODULES

CYCLIC = [("nanosleep", "fifo"), ("timerfd", "rr"), ("timer", "deadline"), ("futex", "other")]

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tracefs nodev /sys/kernel/tracing
mount -t debugfs nodev /sys/kernel/debug
mount -t cgroup2 nodev /sys/fs/cgroup
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=200M tmp /tmp
mkdir -p /run /usr/bin
ln -s /bin/busybox /usr/bin/env
exec > /dev/ttyS0 2>&1
for again in 1 2 3; do for module in /modules/*; do insmod $module 2>/dev/null; done; done
echo 0 > /proc/sys/kernel/printk
mkdir /tmp/results
cd /tmp/results
try() { name=$1; shift; "$@" > $name.out 2> $name.err; echo $? > $name.code; }
try doctor tompion doctor --rt --json
try npt tompion test npt --loops 20k --rate 50k --json
try npt-user tompion test npt --trace user --loops 20k --rate 20k --json
try npt-kernel tompion test npt --trace kernel --loops 20k --rate 50k --json
try begun tompion monitor --once --json
%s
try monitor tompion monitor --once --json
%stry stopped tompion monitor stop
try left ls -A /sys/fs/bpf /run
try preempt tompion test preempt --rounds 50 --json
try hwgap tompion test hwgap --duration 1s --threshold 100us --json
before=$(cat /proc/irq/default_smp_affinity)
try shield tompion shield 1 -- sh -c 'grep Cpus_allowed_list /proc/self/status; cat /sys/fs/cgroup/tompion-shield/cpuset.cpus.partition'
try restored echo $before $(cat /proc/irq/default_smp_affinity) $(ls -d /sys/fs/cgroup/tompion-shield 2>/dev/null)
tar cf /dev/vda * && echo PACKED
sync
poweroff -f
"""


# Takes as long as the emulator stands still, so with TOMPION_FULL=1 only.
LATE = """mkdir /sys/fs/cgroup/robot
sh -c 'echo 0 > /sys/fs/cgroup/robot/cgroup.procs; exec late' &
late=$!
try late timeout 150 tompion monitor --threshold victim=30ms --max-incidents 8 --cooldown 0s --incidents late --cgroup robot
kill $late
try grouped tompion monitor --once --json
# Again and again: the first ones may be over before the monitor looks. (The shell has a command of
# that name, too.)
(while true; do /bin/jobs; done) &
jobs=$!
try missed timeout 150 tompion monitor --job 'motor:*' --deadline-misses --max-incidents 2 --cooldown 0s --incidents missed
kill $jobs
"""
IS_FULL = os.environ.get("TOMPION_FULL") == "1"


def succeeded(found, name):
    code, out, err = found[name]
    assert code == 0, f"{name} ended with {code}: {err} {out}"
    return json.loads(out)


def check_npt(found):
    for name in ("npt", "npt-user", "npt-kernel"):
        result = succeeded(found, name)
        assert result["loops"] == 20000 == sum(count for _, count in result["histogram"]), (name, result["loops"])
        assert result["setup"]["fifo"] == 80 and result["setup"]["locked"], (name, result["setup"])
        if name == "npt-user":
            assert result["events"] + result["lost"] == 20000 and result["events"] > 0, (result["events"], result["lost"])
    assert succeeded(found, "npt-kernel")["trace_has"]["others"] > 0


def check_cyclic(found):
    for wakeup, policy in CYCLIC:
        result = succeeded(found, f"cyclic-{wakeup}")
        assert [cpu["late"]["count"] for cpu in result["cpus"]] == [50, 50], (wakeup, policy)
        lacks = [line for cpu in result["cpus"] for line in cpu["prepared"]["could_not"]]
        assert not lacks, (wakeup, policy, lacks)


def check_monitor(found):
    """Of each cyclic thread under a real-time scheduler all wake-ups: two CPUs, 50 each."""
    succeeded(found, "begun")
    report = succeeded(found, "monitor")
    # An interrupt in a program of a wakeup's whose handler wakes a thread is reported as one that
    # was not started.
    woken, missed = report["wakeups"]["woken"], report["not_started"]
    assert report["wakeups"]["difference"] == 0 and missed * 100 <= woken, (report["wakeups"], missed)
    threads = [thread for thread in report["threads"] if thread["name"] == "tompion"]
    real_time = [thread for thread in threads if thread["priority"] in ("rt 80", "deadline") and thread["count"] >= 40]
    assert len(real_time) == 6, [(thread["name"], thread["priority"], thread["count"]) for thread in report["threads"]]
    # More than 50 where it waits for locks of the kernel, which sleep there, or is throttled
    # (deadlines).
    assert all(thread["count"] <= 500 and thread["max_us"] > 0 for thread in real_time), real_time
    for cpu in report["cpus"]:
        kinds = cpu["kinds"]
        # Timers of real-time threads go off in interrupts there; all others' in threads (ktimers),
        # which are woken, too.
        assert kinds["missed-timer"]["count"] > 0 and kinds["timer-wakeup-all"]["count"] > 0, kinds.keys()
        for kind in kinds.values():
            assert sum(count for _, count in kind["histogram"]) == kind["count"], kind
    assert any(thread["name"].startswith("ktimers/") for thread in report["threads"]), "no thread of timers"
    assert found["stopped"][0] == 0 and "tompion" not in found["left"][1], found["left"]
    return woken


def incidents(folder, kept):
    """The incidents in a folder, as `explain` tells them."""
    folders = sorted(path for path in folder.iterdir() if path.name.startswith("tompion-incident-"))
    assert len(folders) == kept, folders
    for path in folders:
        incident = json.loads(run(BUILD / "tompion", "monitor", "explain", "--json", path))
        assert sum(segment["end"] - segment["begin"] for segment in incident["segments"]) == incident["latency_ns"], incident
        yield incident, run(BUILD / "tompion", "monitor", "explain", path)
        # The folder is a trace.
        events = run(BUILD / "tompion", "print", path)
        assert "sched_switch" in events and "sched_waking" in events, events[-400:]


def check_late(found, folder):
    """The emulator may stand still at any time, which is charged otherwise; but some of it the thread above has done."""
    code, out, err = found["late"]
    assert code == 0 and len(out.splitlines()) == 8 and "8 incidents saved of " in err, found["late"]
    reported = list(incidents(folder / "late", 8))
    for incident, text in reported:
        assert incident["thread"]["name"] == "victim" and incident["thread"]["priority"] == "rt 80", text
    firsts = [text for incident, text in reported if incident["causes"][0]["cause"] == "thread-interference"]
    assert sum("hog (thread " in text.splitlines()[0] for text in firsts) >= 2, [text for _, text in reported]
    groups = succeeded(found, "grouped")["groups"]
    kinds = groups[0]["kinds"]
    assert groups[0]["cgroup"] == "/robot" and kinds["timer-wakeup-all"]["max_us"] >= 30000, groups
    longest = kinds["timer-wakeup-all"]["worst"]
    assert longest["name"] in ("victim", "hog"), longest


def check_missed(found, folder):
    code, out, err = found["missed"]
    assert code == 0 and "2 incidents saved of " in err, found["missed"]
    for incident, text in incidents(folder / "missed", 2):
        assert incident["job"]["name"] == "motor:control" and incident["class"] == "job", incident
        assert incident["latency_ns"] > incident["limit_ns"] == 400_000_000, incident
        assert "motor:control" in text and "of 400 ms at most" in text, text


def check_machine(found):
    # Exit code 1: something is bad for real time, an emulator's machine at least.
    code, out, err = found["doctor"]
    assert code in (0, 1), err
    findings = {finding["name"]: finding for finding in json.loads(out)}
    assert findings["preemption"]["state"] == "good" and "PREEMPT_RT" in findings["preemption"]["found"], findings["preemption"]
    preempt = succeeded(found, "preempt")
    for way in ("by_thread", "by_timer"):
        assert preempt[way]["rounds"] == preempt[way]["preempted"] == 50, (way, preempt[way])
    hwgap = succeeded(found, "hwgap")
    assert len(hwgap["cpus"]) == 2 and all(cpu["looked_ns"] > 0 for cpu in hwgap["cpus"])
    tracers = {reported["tracer"]: reported["samples"] for reported in hwgap["tracers"]}
    assert set(tracers) == {"hwlat", "osnoise"} and tracers["osnoise"], (tracers.keys(), hwgap["could_not"])
    return len(findings), sum(map(len, tracers.values()))


def check_shield(found):
    code, out, err = found["shield"]
    assert code == 0 and out.split() == ["Cpus_allowed_list:", "1", "isolated"], (code, out, err)
    assert "CPUs 1 are free" in err, err
    restored = found["restored"][1].split()
    assert len(restored) == 2 and restored[0] == restored[1], restored


def test(work, vmlinuz):
    cyclic = "\n".join(
        f"try cyclic-{wakeup} tompion test cyclic --loops 50 -i 5ms --wakeup {wakeup} --policy {policy} --json"
        for wakeup, policy in CYCLIC
    )
    put(BUILD / "libtompion-npt.so", work / "root/bin/libtompion-npt.so")
    tape, folder = work / "tape", work / "results"
    with tape.open("wb") as out:
        out.truncate(64 << 20)
    programs = [program(work, "late"), program(work, "jobs", "-DJOB=control")]
    image = initramfs(work, vmlinuz, programs, {"init": INIT % (cyclic, LATE if IS_FULL else "")}, MODULES)
    begin = time.monotonic()
    lines = Vm(vmlinuz, image, [tape], "loglevel=0").finish()
    assert "PACKED" in lines, "\n".join(lines[-40:])
    folder.mkdir()
    run("tar", "xf", tape, "-C", folder)
    found = results(folder)
    check_npt(found)
    check_cyclic(found)
    wakeups = check_monitor(found)
    if IS_FULL:
        check_late(found, folder)
        check_missed(found, folder)
    settings, samples = check_machine(found)
    check_shield(found)
    print(
        f"rt_tests: {len(found)} commands, {settings} settings, {samples} samples of the kernel's tracers, {wakeups} wake-ups; "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    if not (BUILD / "libtompion-npt.so").exists():
        left_out("libtompion-npt.so is not built")
    in_vm(test, RT_KERNEL)
