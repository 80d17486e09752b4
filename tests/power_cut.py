#!/usr/bin/env python3
"""A machine whose power fails while it records with --backing, in an emulator that is killed.

given  a virtual machine with an ext4 disk that records the program `emitter` onto it, and now and then writes everything back
       (`sync`), after it has noted what had been appended
when   the emulator is killed at a random time, and the disk is mounted by a second boot that runs `tompion recover`
then   everything that was appended before the last sync is in the trace, once and whole, but for what recovery counts
       as missing, which is at most one record a ring (one that ends in another page than it begins in) or, without
       restartable sequences, every such record; and nothing is there that was not appended

Exits with 77 where an emulator, a kernel, or a tool is missing.
"""

import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TOMPION_BUILD", ROOT / "target/debug"))
ROUNDS = 18 if os.environ.get("TOMPION_FULL") == "1" else 4
KERNEL = "linux-image-cloud-amd64"
RT_KERNEL = "linux-image-rt-amd64"
# Where they are unpacked, beside what was built.
CACHES = {KERNEL: "power-cut", RT_KERNEL: "rt-kernel"}
MODULES = """crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 virtio virtio_ring virtio_pci_modern_dev
virtio_pci_legacy_dev virtio_pci virtio_blk""".split()
# Sizes of the rings, the emitter's pause, whether it has restartable sequences, and the mode: large
# rings are recovered from their first lap, small ones from a later; a flight recorder's pages may
# be of many laps.
SETTINGS = [
    ("4M", 4, 3000, 1, "discard"),
    ("64K", 4, 30000, 1, "discard"),
    ("4M", 4, 3000, 0, "discard"),
    ("16K", 4, 2000, 1, "overwrite"),
    ("64K", 4, 30000, 0, "discard"),
    ("64K", 4, 3000, 0, "overwrite"),
]
WAIT_TIMEOUT = 300

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec > /dev/ttyS0 2>&1
# In whatever order they need one another.
for again in 1 2 3 4 5; do for module in /modules/*; do insmod $module 2>/dev/null; done; done
mkdir /disk
mount -t ext4 /dev/vda /disk || { echo BROKEN no disk; poweroff -f; }
cd /disk
for word in $(cat /proc/cmdline); do case $word in do=*|size=*|count=*|pause=*|rseq=*|mode=*) eval $word ;; esac; done
$do
sync
poweroff -f
"""

RECORD = """
export GLIBC_TUNABLES=glibc.pthread.rseq=$rseq
dd if=/dev/zero of=/tmp/progress bs=4096 count=1 2>/dev/null
tompion record --backing rings --mode $mode --subbuf-size $size --subbufs $count -o trace -- emitter /tmp/progress $pause 0 0 &
# On a slow machine nothing may have been appended yet, and there would be nothing to recover.
until hexdump -v -s 64 -n 256 -e '1/1 "%02x"' /tmp/progress | grep -q '[^0]'; do usleep 50000; done
while :; do
    state=$(hexdump -v -n 320 -e '1/1 "%02x"' /tmp/progress)
    sync
    echo "SYNCED $state"
    usleep 100000
done
"""

RECOVER = """
tompion recover trace && echo RECOVERED
tompion recover trace
ls rings
tar cf /dev/vdb trace && echo PACKED
"""


def left_out(why):
    print(f"{Path(sys.argv[0]).stem}: left out: {why}", file=sys.stderr)
    sys.exit(77)


def run(*words, **options):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def kernel(cache, name):
    """The newest kernel of a package, unpacked and not installed."""
    cache.mkdir(parents=True, exist_ok=True)
    # Scripts run side by side, and two of them want the same one: the second one finds it whole.
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return unpacked(cache, name)


def in_vm(test, name, tools=()):
    """Does a test with a folder and the newest kernel of a package, unless something is missing that it needs."""
    for tool in ("qemu-system-x86_64", "busybox", "cpio", "cc", "strip", "ldd", "tar", *tools):
        if not shutil.which(tool):
            left_out(f"{tool} is missing (apt install qemu-system-x86 busybox-static cpio e2fsprogs systemd)")
    try:
        vmlinuz = kernel(BUILD.parent / CACHES[name], name)
    except (subprocess.CalledProcessError, OSError, StopIteration):
        left_out(f"no kernel: apt-get download of {name} failed")
    with tempfile.TemporaryDirectory(prefix=f"tompion-{Path(sys.argv[0]).stem}-") as work:
        test(Path(work), vmlinuz)


def results(folder):
    """Of each command its exit code, and what it said."""
    return {
        path.stem: (int(path.read_text()), path.with_suffix(".out").read_text(), path.with_suffix(".err").read_text())
        for path in folder.glob("*.code")
    }


def unpacked(cache, name):
    found = sorted(cache.glob("boot/vmlinuz-*"))
    if not found:
        depends = run("apt-cache", "depends", name)
        package = next(line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line)
        run("apt-get", "download", "-qq", package, cwd=cache, stderr=subprocess.DEVNULL)
        run("dpkg-deb", "-x", next(cache.glob("*.deb")), cache)
        found = sorted(cache.glob("boot/vmlinuz-*"))
    return found[-1]


def libraries(*programs):
    """The shared libraries of programs, as files."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(BUILD)}
    for program in programs:
        for line in run("ldd", program, env=environment).splitlines():
            yield from (Path(word) for word in line.split() if word.startswith("/"))


def put(source, target, mode=0o755):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(mode)


def program(work, name, *flags):
    """One of the end-to-end tests' programs, built."""
    source, output = ROOT / f"crates/cli/tests/programs/{name}.c", work / name
    run("cc", "-O2", "-pthread", "-I", ROOT / "include", *flags, source, "-L", BUILD, "-ltompion", "-o", output)
    return output


def initramfs(work, vmlinuz, programs, scripts, wanted):
    """A file system in memory with the command, the library, programs, scripts, modules, and what they need."""
    root = work / "root"
    for name in ("proc", "sys", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    put(shutil.which("busybox"), root / "bin/busybox")
    # Without what debuggers want to know, which is most of a debug build and would not fit into the
    # virtual machine's memory.
    (root / "bin").mkdir(exist_ok=True)
    run("strip", "--strip-debug", "-o", root / "bin/tompion", BUILD / "tompion")
    for path in programs:
        put(path, root / "bin" / path.name)
    put(BUILD / "libtompion.so", root / "lib/x86_64-linux-gnu/libtompion.so.0")
    for library in set(libraries(BUILD / "tompion", *programs)):
        folder = "lib64" if library.name.startswith("ld-") else "lib/x86_64-linux-gnu"
        if not library.name.startswith("libtompion"):
            put(library, root / folder / library.name)
    modules = Path(str(vmlinuz.parent.parent / "lib/modules"))
    for number, name in enumerate(wanted):
        for module in modules.rglob(f"{name}.ko"):
            put(module, root / f"modules/{number:02}-{name}.ko", 0o644)
    for name, text in scripts.items():
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    image = work / "initramfs"
    names = run("find", ".", cwd=root)
    with image.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], input=names.encode(), stdout=out, cwd=root, check=True)
    return image


class Vm:
    """A running emulator; its serial line is read as it comes."""

    def __init__(self, vmlinuz, image, disks, words, *options):
        command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "512", "-nodefaults"]
        command += ["-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", vmlinuz, "-initrd", image]
        command += ["-append", f"console=ttyS0 quiet panic=-1 tsc=reliable clocksource=tsc {words}"]
        command += options
        for disk in disks:
            command += ["-drive", f"file={disk},format=raw,if=virtio,cache=writeback"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.began = time.monotonic()
        self.lines, self.times = [], []
        self.wait_timeout = WAIT_TIMEOUT
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.times.append(time.monotonic() - self.began)
            self.lines.append(line.decode(errors="replace").strip())

    def last(self):
        """The last lines, each with the seconds since the start."""
        return "\n".join(f"{time:6.1f} {line}" for time, line in list(zip(self.times, self.lines))[-30:])

    def wait_for(self, count, begin):
        """Waits until so many lines begin with a word."""
        until = time.monotonic() + self.wait_timeout
        while sum(line.startswith(begin) for line in self.lines) < count:
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise AssertionError("the guest did not get there:\n" + self.last())
            time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def finish(self):
        try:
            self.process.wait(self.wait_timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise AssertionError("the guest did not end:\n" + self.last()) from error
        self.reader.join()
        return self.lines


def proof(number):
    length = 700 - number % 50 if number % 97 == 0 else 1 + number % 48
    return chr(ord("a") + number % 26) * length


def events(trace):
    """(source, number) of each event; each is held against its own proof."""
    if not list(trace.rglob("metadata")):
        return  # The power failed before the first event.
    text = run(BUILD / "tompion", "print", "--clock-seconds", "--no-delta", trace)
    for line in text.splitlines():
        source = int(line.split("{ source = ", 1)[1].split(",", 1)[0])
        fields = dict(part.split(" = ", 1) for part in line.rstrip(" }").split(", ") if " = " in part)
        number = int(fields["number"])
        expected = (number + source) * 0x9E3779B97F4A7C15 % 2**64
        assert int(fields["sum"], 16) == expected, f"torn: {line}"
        assert fields["text"] == f'"{proof(number)}"', f"torn: {line}"
        yield source, number


def appended(line):
    words = struct.unpack("<40Q", bytes.fromhex(line.split()[1]))
    return [words[8 * (1 + source)] for source in range(4)]


def check(trace, synced, rseq, mode, what):
    found = list(events(trace))
    stat = json.loads(run(BUILD / "tompion", "stat", "--json", trace)) if found else {"lost": {}}
    lost = stat["lost"]
    missing, full = lost.get("not_on_medium", 0), lost.get("full", 0)
    causes = {"total", "not_on_medium", "full"}
    if mode == "overwrite" and not rseq:
        causes.add("unfinished")  # A writer was stopped in its event for as long as the others needed for a lap.
    assert set(lost) <= causes, f"{what}: {lost}"
    assert len(set(found)) == len(found), f"{what}: an event stands there twice"
    absent = 0
    if mode == "overwrite":
        synced = [0] * len(synced)  # All may have been overwritten since. What is there is whole.
    for source, until in enumerate(synced):
        numbers = [number for event, number in found if event == source]
        assert numbers == sorted(numbers), f"{what}: source {source} is out of order"
        absent += len(set(range(1, until + 1)) - set(numbers))
    assert absent <= full + (min(missing, 2) if rseq else missing), f"{what}: {absent} of {synced} are absent, {lost}"
    print(f"power_cut: {what}: {len(found)} events, {sum(synced)} before the last sync, {absent} of them absent, lost {lost}", flush=True)


def cut(work, vmlinuz, image, number):
    size, count, pause, rseq, mode = SETTINGS[number % len(SETTINGS)]
    chance = random.Random(number)
    disk, tape = work / "disk", work / "tape"
    for file, length in ((disk, 512 << 20), (tape, 256 << 20)):
        file.unlink(missing_ok=True)
        with file.open("wb") as out:
            out.truncate(length)
    run("mkfs.ext4", "-q", "-F", disk)
    vm = Vm(vmlinuz, image, [disk], f"do=record_now size={size} count={count} pause={pause} rseq={rseq} mode={mode}")
    vm.wait_for(3 + chance.randrange(12), "SYNCED")
    time.sleep(chance.random() * [0.3, 3][number // 2 % 2])
    vm.kill()
    synced = appended([line for line in vm.lines if line.startswith("SYNCED") and len(line) == 7 + 640][-1])
    second = Vm(vmlinuz, image, [disk, tape], "do=recover_now")
    lines = second.finish()
    said = "\n".join(lines[-12:])
    assert "RECOVERED" in lines and "PACKED" in lines, said
    assert any("nothing to recover, recovered already" in line for line in lines), said
    shutil.rmtree(work / "trace", ignore_errors=True)
    run("tar", "xf", tape, "-C", work)
    check(work / "trace", synced, rseq, mode, f"round {number}, {size} x {count}, rseq {rseq}, {mode}")


def test(work, vmlinuz):
    scripts = {"init": INIT, "bin/record_now": "#!/bin/sh" + RECORD, "bin/recover_now": "#!/bin/sh" + RECOVER}
    image = initramfs(work, vmlinuz, [program(work, "emitter")], scripts, MODULES)
    for number in range(ROUNDS):
        cut(work, vmlinuz, image, number)


if __name__ == "__main__":
    in_vm(test, KERNEL, ["mkfs.ext4"])
