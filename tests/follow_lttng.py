#!/usr/bin/env python3
"""`tompion print --follow` on a trace that another tracer writes.

given  a session of LTTng that records numbers which a program counts up until it is ended, from which
       sub-buffers are taken every fifth of a second
when   `tompion print --follow` reads its folder, from before there is a trace until after the session's end, and the
       session is rotated meanwhile, or writes a ring of files
then   it prints numbers while the program goes on, each once, and in the end the very lines that `tompion print` prints;
       after a rotation in any order, and of a ring at least those, with a warning for each packet that was overwritten

Every wait has an end. It needs a daemon that is root's, so it runs with TOMPION_FULL=1 alone, and exits with 77 where
that is not set, or LTTng is missing, or a daemon of it runs already.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TOMPION_BUILD", ROOT / "target/debug"))
# Seconds that anything may take.
WAIT_TIMEOUT = 120

PROGRAM = r"""
#include <lttng/tracef.h>
#include <poll.h>
#include <stdio.h>
int main(void)
{
    struct pollfd input = { 0, POLLIN, 0 };
    int n = 0;
    do
        lttng_ust_tracef("number %d", n++);
    while (poll(&input, 1, 1) == 0);
    printf("%d\n", n);
}
"""


def leave_out(why):
    print(f"left out: {why}", file=sys.stderr)
    sys.exit(77)


def run(*command, **how):
    how = {"check": True, "stdout": subprocess.DEVNULL, "timeout": WAIT_TIMEOUT} | how
    return subprocess.run([str(word) for word in command], **how)


def wait_until(what, happened):
    end = time.monotonic() + WAIT_TIMEOUT
    while not happened():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {WAIT_TIMEOUT} s")
        time.sleep(0.1)


def stop(process, how=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(WAIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Follower:
    """`tompion print --follow`, and the lines that it printed so far."""

    def __init__(self, folder):
        self.lines, self.warnings = [], []
        command = [str(BUILD / "tompion"), "print", "--follow", "--no-delta", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pipes = ((self.lines, self.process.stdout), (self.warnings, self.process.stderr))
        self.readers = [threading.Thread(target=lines.extend, args=(pipe,), daemon=True) for lines, pipe in pipes]
        for reader in self.readers:
            reader.start()

    def end(self):
        stop(self.process, signal.SIGINT)
        for reader in self.readers:
            reader.join(WAIT_TIMEOUT)
        return self.lines


def numbers(lines):
    found = (re.search(r'msg = "number (\d+)"', line) for line in lines)
    return [int(number[1]) for number in found if number]


def build_program(shop):
    program = shop / "numbers"
    (shop / "numbers.c").write_text(PROGRAM)
    build = run("cc", "-o", program, shop / "numbers.c", "-llttng-ust", "-ldl", check=False, stderr=subprocess.PIPE)
    if build.returncode:
        leave_out("the headers of LTTng's user-space tracer are missing (apt install liblttng-ust-dev)")
    return program


def record(program, folder, channel, rotations=0):
    """Records numbers while a follower reads; returns the follower, which has ended, and how many numbers there were."""
    folder.mkdir()
    follower = Follower(folder)
    try:
        run("lttng", "create", "follow", f"--output={folder}")
        run("lttng", "enable-channel", "-u", "numbers", "--switch-timer=200000", *channel)
        run("lttng", "enable-event", "-u", "-c", "numbers", "lttng_ust_tracef:*")
        run("lttng", "start")
        recorded = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(1)
            # Only now LTTng writes the description.
            run("lttng", "stop")
            run("lttng", "start")
            for count in range(1, rotations + 1):
                wait_until("events between rotations", lambda: len(numbers(follower.lines)) > 500 * count)
                run("lttng", "rotate", "follow")
            wait_until("events of a program that goes on", lambda: len(numbers(follower.lines)) > 2000)
            total = int(recorded.communicate(timeout=WAIT_TIMEOUT)[0])
        finally:
            stop(recorded)
        run("lttng", "destroy", "follow")
        wait_until("the last event", lambda: total - 1 in numbers(follower.lines[-100:]))
        # Packets that don't come are reported after ten rounds.
        time.sleep(6)
    finally:
        follower.end()
    return follower, total


def check(shop):
    program = build_program(shop)
    small = ("--subbuf-size=4096", "--num-subbuf=16")
    for name, channel, rotations in (
        ("plain", ("--subbuf-size=16k", "--num-subbuf=8"), 0),
        ("rotated", small, 1),
        ("rotated-often", small, 4),
    ):
        folder = shop / name
        follower, total = record(program, folder, channel, rotations)
        followed, found = follower.lines, sorted(numbers(follower.lines))
        # While the session is stopped, there are none.
        assert found == sorted(set(found)) and found[0] == 0 and found[-1] == total - 1, f"{name}: each event once"
        reported = run(BUILD / "tompion", "print", "--no-delta", folder, stdout=subprocess.PIPE, text=True).stdout
        assert sorted(followed) == sorted(reported.splitlines(keepends=True)), f"{name}: the lines of `tompion print`"
        assert not follower.warnings, f"{name}: {follower.warnings}"
        print(f"{name}: followed {len(followed)} events of LTTng's")
    check_ring(program, shop / "ring")


def check_ring(program, folder):
    ring = ("--subbuf-size=4096", "--num-subbuf=16", "--tracefile-size=16384", "--tracefile-count=3")
    follower, total = record(program, folder, ring)
    found = sorted(numbers(follower.lines))
    assert found == sorted(set(found)) and found[0] == 0 and found[-1] == total - 1, "ring: each event once"
    reported = run(BUILD / "tompion", "print", "--no-delta", folder, stdout=subprocess.PIPE, text=True).stdout
    missing = set(reported.splitlines(keepends=True)) - set(follower.lines)
    assert not missing, f"ring: {len(missing)} lines of `tompion print` are missing"
    overwritten = sum(int(count) for count in re.findall(r"discarded (\d+) packet", "".join(follower.warnings)))
    gaps = sorted(after - before - 1 for before, after in zip(found, found[1:]) if after - before > 1)
    print(f"ring: followed {len(found)} of {total} events; {overwritten} packets were reported as overwritten")
    # While the session was stopped, none were recorded. A packet has less than 100 of these events.
    assert sum(gaps[:-1]) <= 100 * overwritten, f"ring: {gaps} are missing, and {overwritten} packets were reported"


def main():
    if os.environ.get("TOMPION_FULL") != "1":
        leave_out("it starts a daemon (TOMPION_FULL=1 runs it)")
    missing = [tool for tool in ("lttng", "lttng-sessiond", "cc") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        leave_out(f"{' and '.join(missing) or 'root'} is missing (apt install lttng-tools liblttng-ust-dev)")
    if run("lttng", "--no-sessiond", "list", check=False, stderr=subprocess.DEVNULL).returncode == 0:
        leave_out("a session daemon of LTTng runs already")
    with tempfile.TemporaryDirectory(prefix="tompion-follow-") as shop:
        shop = Path(shop)
        os.environ["LTTNG_HOME"] = str(shop)
        log = open(shop / "daemon", "w")
        daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel"], stdout=log, stderr=log)
        try:
            list_sessions = ("lttng", "--no-sessiond", "list")
            alive = lambda: run(*list_sessions, check=False, stderr=subprocess.DEVNULL).returncode == 0
            wait_until("the session daemon", alive)
            check(shop)
        finally:
            stop(daemon)


main()
