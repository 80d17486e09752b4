#!/usr/bin/env python3
"""The monitor's unit under a running systemd, in an emulator: with no more than the privileges that it names.

given  this machine's systemd and journal in Debian's real-time kernel, the unit as `./x install --prefix /usr` puts it, and
       nothing else
when   the service is started, its process is killed, a user says `reset` and then `stop`, it is started again, stopped by
       systemd, and started with another command line that keeps what is late and hears jobs
then   it counts, serves its page and keeps a history that root alone can read; it has the three capabilities that it asks for
       and nothing in the way; systemd begins it again after the kill, and what came meanwhile is counted; after `stop` it stays
       ended and isn't called failed; after systemd's stop the kernel counts on; the journal has its messages and, by a field of
       its own, each incident; jobs of other services are heard

Exits with 77 where an emulator, the kernel, systemd, or a tool is missing.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from power_cut import BUILD, ROOT, RT_KERNEL, Vm, in_vm, initramfs, left_out, libraries, program, put, results, run
from rt_kernel import MODULES

UNITS = Path("/usr/lib/systemd/system")
# The least that a system has: units by name, and which of them want which.
WANTED = {
    "multi-user.target": [],
    "sysinit.target": ["systemd-journald.service"],
    "sockets.target": ["systemd-journald.socket", "systemd-journald-dev-log.socket"],
    "basic.target": [],
    "slices.target": [],
    "paths.target": [],
    "timers.target": [],
    "shutdown.target": [],
    "umount.target": [],
    "local-fs.target": [],
    "local-fs-pre.target": [],
    "swap.target": [],
    "emergency.target": [],
}
SYSTEMD = Path("/usr/lib/systemd/systemd")
# Those which systemd needs and which there are only in some versions.
PROGRAMS = ["systemd", "systemd-journald", "systemd-executor"]
COMMANDS = ["systemctl", "journalctl"]
SERVICE = "tompion-monitor"
# It waits for systemd, for its restarts, and for an emulator, in seconds.
WAIT_TIMEOUT = 480

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec > /dev/ttyS0 2>&1
for again in 1 2 3; do for module in /modules/*; do insmod $module 2>/dev/null; done; done
echo 0 > /proc/sys/kernel/printk
mkdir /new
mount -t tmpfs -o size=600M,mode=755 root /new
cd /new
mkdir -p usr proc sys dev run var/log var/lib root tmp home
cp -a /etc .
cp -a /bin /lib /lib64 usr
[ -d /usr ] && cp -a /usr/. usr
for name in bin lib lib64; do ln -s usr/$name $name; done
ln -s bin usr/sbin
ln -s usr/bin sbin
umount /sys /proc
exec switch_root /new /usr/lib/systemd/systemd --log-target=journal-or-kmsg
"""

# What runs in the virtual machine, as a service of systemd's.
CHECK = """#!/bin/sh
mkdir /tmp/results
cd /tmp/results
try() { name=$1; shift; echo "STEP $name"; "$@" > $name.out 2> $name.err; echo $? > $name.code; }
state() { try state-$1 systemctl show tompion-monitor -p ActiveState,Result,NRestarts,ExecMainStatus; }
# Two threads that are woken fifty times.
nap() { tompion test cyclic --loops 50 -i 5ms --json > /dev/null; }
page() { wget -q -O - http://127.0.0.1:9464/$1; }
wait_until() { for again in $(seq 400); do "$@" > /dev/null 2>&1 && return; usleep 200000; done; }
is() { [ "$(systemctl is-active tompion-monitor)" = $1 ]; }
main() { systemctl show -P MainPID tompion-monitor; }

# It counts.
try start systemctl enable --now tompion-monitor
wait_until page metrics
state started
try privileges cat /proc/$(main)/status
nap
try metrics page metrics
try report page api/report

# It is killed; systemd begins it again.
kill -9 $(main)
nap
wait_until is activating
state killed
wait_until is active
wait_until page metrics
nap
state again
try resumed page api/report

# Reports begin again.
try reset tompion monitor reset
nap
try after-reset page api/report

# A user ends it.
try stop tompion monitor stop
wait_until is inactive
sleep 8
state ended
try left ls -A /sys/fs/bpf

# A new start has it count; systemd's stop leaves counting alone.
try second systemctl start tompion-monitor
wait_until page metrics
nap
try systemd-stop systemctl stop tompion-monitor
state stopped
nap
try counted tompion monitor --once --json
try history tompion monitor report --json
try stranger su -s /bin/sh stranger -c 'cat /var/lib/tompion/history.sqlite'

# With another command line.
mkdir -p /etc/systemd/system/tompion-monitor.service.d
cat > /etc/systemd/system/tompion-monitor.service.d/more.conf << END
[Service]
ExecStart=
ExecStart=/usr/bin/tompion monitor --listen 127.0.0.1:9464 --history --job motor:* --threshold victim=30ms --cooldown 1s \\
    --incidents /var/lib/tompion --exec /usr/bin/reported
END
try reload systemctl daemon-reload
try more systemctl start tompion-monitor
wait_until page metrics
late &
late=$!
# Again and again: the first ones may be over before the monitor looks. (The shell has a command of
# that name, too.)
(while true; do /bin/jobs; usleep 100000; done) &
jobs=$!
# A monitor whose machine is busy may answer that it is.
heard() { page metrics > /tmp/page && grep -q '^tompion_job_activations_total{name="motor:control".* [1-9]' /tmp/page; }
wait_until heard
try heard cat /tmp/page
kept() { [ $(cat /var/lib/tompion/reported | wc -l) -ge 2 ]; }
wait_until kept
kill $late $jobs
try more-stop systemctl stop tompion-monitor
state more
try journal journalctl -o json --all -u tompion-monitor
try failed systemctl --failed --no-legend --plain
cp -a /var/lib/tompion var
tar cf /dev/vda * && echo PACKED > /dev/ttyS0
sync
poweroff -f
"""

REPORTED = """#!/bin/sh
echo $TOMPION_THREAD $TOMPION_INCIDENT >> /var/lib/tompion/reported
"""

CHECK_UNIT = """[Unit]
Description=What the test does
[Service]
Type=oneshot
TimeoutStartSec=infinity
# Whatever becomes of it, the machine ends.
ExecStart=/bin/sh -c '/bin/sh /usr/bin/check > /dev/ttyS0 2>&1; poweroff -f'
"""

def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def system(root):
    """Puts systemd and the journal into a folder, with the few units that they need, and the monitor's."""
    found = [SYSTEMD.parent / name for name in PROGRAMS if (SYSTEMD.parent / name).exists()]
    for path in found:
        put(path, root / str(path)[1:])
    commands = [Path(shutil.which(name)) for name in COMMANDS]
    for path in commands:
        put(path, root / "bin" / path.name)
    for library in set(libraries(*found, *commands)):
        if "systemd" in library.parent.name:
            put(library, root / str(library.resolve())[1:])
        elif not library.name.startswith("ld-"):
            put(library, root / "lib/x86_64-linux-gnu" / library.name)
    units = root / "usr/lib/systemd/system"
    for target, wanted in WANTED.items():
        for name in [target, *wanted]:
            put(UNITS / name, units / name, 0o644)
        for name in wanted:
            link = units / f"{target}.wants" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../{name}")
    put(ROOT / f"integrations/systemd/{SERVICE}.service", units / f"{SERVICE}.service", 0o644)
    write(units / "check.service", CHECK_UNIT)
    (units / "default.target").symlink_to("multi-user.target")
    (units / "multi-user.target.wants").mkdir()
    (units / "multi-user.target.wants/check.service").symlink_to("../check.service")
    write(root / "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
    write(root / "etc/os-release", "ID=guest\n")
    write(root / "etc/passwd", "root:x:0:0::/root:/bin/sh\nstranger:x:65534:65534::/:/bin/sh\n")
    write(root / "etc/group", "root:x:0:\nnogroup:x:65534:\nsystemd-journal:x:101:\n")
    write(root / "etc/nsswitch.conf", "passwd: files\ngroup: files\n")


def lines_of(found, name, between):
    """What a command said, as pairs."""
    return dict(line.split(between, 1) for line in found[name][1].splitlines() if between in line)


def state(found, name):
    reported = lines_of(found, f"state-{name}", "=")
    return reported["ActiveState"], reported["Result"], int(reported["ExecMainStatus"])


def report(found, name, naps):
    """A report in which so many of the napping threads are."""
    code, out, err = found[name]
    assert code == 0, (name, err)
    reported = json.loads(out)
    assert reported["wakeups"]["difference"] == 0, (name, reported["wakeups"])
    nappers = [thread["count"] for thread in reported["threads"] if thread["name"] == "tompion" and thread["count"] >= 40]
    assert len(nappers) == 2 * naps, (name, nappers)
    return reported


def is_same(one, other):
    """Two times in nanoseconds, each made of two clocks."""
    return abs(one - other) < 10_000_000


def check_counting(found):
    assert state(found, "started")[:2] == ("active", "success"), found["state-started"]
    status = {name: value.strip() for name, value in lines_of(found, "privileges", ":").items()}
    # BPF, PERFMON, SYSLOG.
    capabilities = f"{1 << 39 | 1 << 38 | 1 << 34:016x}"
    assert status["CapEff"] == status["CapBnd"] == capabilities, status
    assert (status["NoNewPrivs"], status["Seccomp"], status["Umask"]) == ("1", "2", "0077"), status
    begun = report(found, "report", 1)
    assert "tompion_wakeups_total" in found["metrics"][1]
    assert state(found, "killed")[:2] == ("activating", "signal"), found["state-killed"]
    assert state(found, "again")[:2] == ("active", "success") and "NRestarts=1" in found["state-again"][1], found["state-again"]
    # One while it counted, one while there was no reader, one since.
    resumed = report(found, "resumed", 3)
    assert is_same(resumed["counting_since_ns"], begun["counting_since_ns"]), (begun, resumed)
    since_reset = report(found, "after-reset", 1)
    assert is_same(since_reset["counting_since_ns"], begun["counting_since_ns"]) and since_reset["from_ns"] > resumed["to_ns"], since_reset
    return resumed["wakeups"]["woken"]


def check_ends(found):
    """After `stop` it stays ended, with the exit status that says so; after systemd's, counting goes on."""
    assert state(found, "ended") == ("inactive", "success", 3), found["state-ended"]
    assert found["left"][1] == "", found["left"]
    assert state(found, "stopped") == ("inactive", "success", 0), found["state-stopped"]
    report(found, "counted", 2)
    code, out, err = found["stranger"]
    assert code != 0 and out == "" and "Permission denied" in err, (code, out, err)
    code, out, err = found["history"]
    assert code == 0, err
    history = json.loads(out)
    # The killed process wrote nothing; the others did when they ended.
    assert len(history["starts"]) == 3 and history["coverage"]["rows"] == 2, history
    assert [event["kind"] for event in history["events"]] == ["not-counted"], history["events"]
    assert history["wakeups"]["woken"] > 0 and history["wakeups"]["difference"] == 0, history["wakeups"]


def check_more(found, folder):
    """Incidents and jobs, from within the same walls."""
    assert state(found, "more") == ("inactive", "success", 0), found["state-more"]
    assert 'tompion_job_activations_total{name="motor:control"' in found["heard"][1], found["heard"]
    reported = [line.split() for line in (folder / "var/reported").read_text().splitlines()]
    assert len(reported) >= 2 and all(thread == "victim" for thread, _ in reported), reported
    for _, path in reported:
        incident = json.loads(run(BUILD / "tompion", "monitor", "explain", "--json", folder / "var" / Path(path).name))
        assert incident["thread"]["name"] == "victim" and incident["latency_ns"] > 30_000_000, incident
    logged = [json.loads(line) for line in found["journal"][1].splitlines()]
    own = [entry for entry in logged if entry.get("_SYSTEMD_UNIT") == f"{SERVICE}.service"]
    fields = [entry["TOMPION_INCIDENT"] for entry in own if "TOMPION_INCIDENT" in entry]
    assert {path for _, path in reported} <= set(fields), (reported, fields)
    messages = [entry["MESSAGE"] for entry in own]
    for words in ("http://127.0.0.1:9464/metrics", "the monitor was stopped", "has all counts until now", "victim"):
        assert any(words in message for message in messages), (words, messages)
    assert found["failed"][1] == "", found["failed"]
    return len(fields)


def test(work, vmlinuz):
    system(work / "root")
    tape, folder = work / "tape", work / "results"
    with tape.open("wb") as out:
        out.truncate(128 << 20)
    programs = [program(work, "late"), program(work, "jobs", "-DJOB=control")]
    image = initramfs(work, vmlinuz, programs, {"init": INIT, "bin/check": CHECK, "bin/reported": REPORTED}, MODULES)
    begin = time.monotonic()
    vm = Vm(vmlinuz, image, [tape], "loglevel=3", "-m", "1024")
    vm.wait_timeout = WAIT_TIMEOUT
    lines = vm.finish()
    assert "PACKED" in lines, "\n".join(lines[-40:])
    folder.mkdir()
    run("tar", "xf", tape, "-C", folder)
    found = results(folder)
    try:
        woken = check_counting(found)
        check_ends(found)
        incidents = check_more(found, folder)
    except AssertionError:
        print("\n".join(json.loads(line).get("MESSAGE", "") for line in found["journal"][1].splitlines()), file=sys.stderr)
        raise
    print(
        f"monitor_service: {len(found)} commands, {woken} wake-ups over a kill, {incidents} incidents in the journal; "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    if not SYSTEMD.exists() or not (UNITS / "basic.target").exists():
        left_out("systemd is missing (apt install systemd)")
    in_vm(test, RT_KERNEL, COMMANDS)
