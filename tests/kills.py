#!/usr/bin/env python3
"""Recorders and their supervisor, killed at random instants under a high rate of events.

given  `tompion serve` with a lingering session for each of four programs, each of which emits numbered events at a steady rate
       from a thread that the kernel would kill (seccomp) if it made any system call but the one that it sleeps by
when   a recorder is killed at a random instant, or the supervisor, or both, again and again; a killed supervisor is started
       again at once, as a service manager would do
then   each program's numbers are in its trace from the first to the last, each of them once, none is counted as lost, and each
       session has a single trace

TOMPION_FULL=1: 1,000 kills, and 1,000,000 events a second in all. Prints how long recorders were away.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TOMPION_BUILD", ROOT / "target/debug"))
FULL = os.environ.get("TOMPION_FULL") == "1"
PROGRAMS = 4
KILLS, RATE = (1000, 250_000) if FULL else (16, 20_000)
# A recorder that is killed again within two seconds is a hard case; most are killed later, when the
# supervisor's pause is the first one again.
MIN_PAUSE, MAX_PAUSE = (0.3, 0.8) if FULL else (0.1, 0.6)
WAIT_TIMEOUT = 60

EMITTER = r"""
/* `NAME RATE`: emits numbered events until SIGTERM, and prints the last number. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <tompion/tompion.h>

static atomic_int state;	/* 1: to end, 2: has ended */
static uint64_t last, rate;

static void sleep_until(struct timespec *at)
{
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL) == EINTR)
		;
}

static void allow_only_sleep(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clock_nanosleep, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("seccomp");
		_exit(3);
	}
}

static void *emit(void *unused)
{
	struct timespec at;
	(void)unused;
	TOMPION_EVENT(kills, tick, (u64, number, ++last));
	allow_only_sleep();
	clock_gettime(CLOCK_MONOTONIC, &at);
	while (!atomic_load(&state)) {
		for (uint64_t count = rate / 1000; count; count--)
			TOMPION_EVENT(kills, tick, (u64, number, ++last));
		at.tv_nsec += 1000000;
		if (at.tv_nsec >= 1000000000)
			at.tv_nsec -= 1000000000, at.tv_sec++;
		sleep_until(&at);
	}
	atomic_store(&state, 2);
	for (;;) {
		at.tv_sec += 1000;
		sleep_until(&at);
	}
}

int main(int count, char **arguments)
{
	sigset_t term;
	pthread_t thread;
	int number;
	rate = count > 1 ? strtoull(arguments[1], NULL, 10) : 0;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	for (int tries = 0; !TOMPION_EVENT_ENABLED(kills, tick); tries++) {
		if (tries == 20000)
			return fputs("no session\n", stderr), 2;
		usleep(1000);
	}
	if (pthread_create(&thread, NULL, emit, NULL))
		return 3;
	sigwait(&term, &number);
	atomic_store(&state, 1);
	while (atomic_load(&state) != 2)
		usleep(1000);
	printf("%llu\n", (unsigned long long)last);
	return 0;
}
"""

# Reads the text of a trace, and prints how many numbers it has from 1 without a gap, and how many
# lines were not the next one.
CHECKER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	static char line[1 << 16];
	unsigned long long next = 1, wrong = 0;
	while (fgets(line, sizeof line, stdin)) {
		char *found = strstr(line, "number = ");
		if (found && strtoull(found + 9, NULL, 10) == next)
			next++;
		else
			wrong++;
	}
	printf("%llu %llu\n", next - 1, wrong);
	return 0;
}
"""


def environment(work):
    """Variables that keep these recorders apart from others."""
    names = {"CONTROL": "control", "SESSIONS": "sessions", "SOCKET": "join", "SYSTEM": "system", "GRANTS": "grants"}
    own = {f"TOMPION_{name}": str(work / folder) for name, folder in names.items()}
    return {**os.environ, "LD_LIBRARY_PATH": str(BUILD), **own}


def compiled(work, name, source, *flags):
    file = work / f"{name}.c"
    file.write_text(source)
    subprocess.run(["cc", "-O2", "-pthread", file, "-o", work / name, *flags], check=True)
    return work / name


def wait_for(what, condition):
    end = time.monotonic() + WAIT_TIMEOUT
    while not (found := condition()):
        if time.monotonic() > end:
            sys.exit(f"expected {what}, found none for {WAIT_TIMEOUT} s")
        time.sleep(0.002)
    return found


class Sessions:
    """The supervisor, its sessions, and what is known of their recorders."""

    def __init__(self, work):
        self.work, self.environment = work, environment(work)
        (work / "sessions").mkdir()
        for number in range(PROGRAMS):
            # Two seconds of the rate on one CPU: a record takes 24 bytes.
            size, count = ("4M", 4) if FULL else ("512K", 4)
            text = f"output = '{work}/traces'\nstart = 'boot'\nprograms = ['name=kills-{number}']\n[channel.main]\n"
            text += f"linger = '30s'\nsubbuf-size = '{size}'\nsubbufs = {count}\n"
            (work / f"sessions/kills-{number}.toml").write_text(text)
        self.supervisor = None
        self.start()

    def start(self):
        self.supervisor = subprocess.Popen(
            [BUILD / "tompion", "serve"],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stderr=open(self.work / "supervisor.log", "ab"),
        )

    def run(self, *words):
        command = [BUILD / "tompion", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)

    def recorders(self):
        """Process ids of the recorders that run, by their sessions."""
        answer = self.run("status", "--json").stdout
        listed = (json.loads(answer).get("supervisor") or {}).get("sessions", []) if answer else []
        channels = {session["name"]: session["channels"][0] for session in listed}
        return {name: channel["pid"] for name, channel in channels.items() if channel.get("pid")}

    def trace(self, number):
        """The trace of a session, which has one."""
        traces = list((self.work / "traces").glob(f"kills-{number}-*"))
        if len(traces) != 1:
            log = (self.work / "supervisor.log").read_text()
            sys.exit(f"kills-{number}: expected one trace, found {len(traces)}\n{log[-3000:]}")
        return traces[0]

    def restarts(self, number):
        manifest = self.trace(number) / "tompion.json"
        return json.loads(manifest.read_text()).get("restarts", 0) if manifest.exists() else -1

    def end(self):
        self.supervisor.kill()
        self.supervisor.wait()
        for number in range(PROGRAMS):
            self.run("stop", f"kills-{number}")


def kill_again_and_again(sessions, chance):
    """Kills, and returns for how long recorders were away, in seconds."""
    pids = wait_for("recorders", lambda: found if len(found := sessions.recorders()) == PROGRAMS else 0)
    away, order = [], []
    for _ in range(KILLS):
        # Each of them in turn, so that most have worked for two seconds; some are killed again.
        order = order or chance.sample(range(PROGRAMS), PROGRAMS)
        number = order[-1] if chance.random() < 0.1 else order.pop()
        kind = chance.choice(["recorder"] * 7 + ["supervisor", "supervisor", "both"])
        before = sessions.restarts(number)
        if kind != "recorder":
            sessions.supervisor.kill()
        if kind != "supervisor":
            os.kill(pids[f"kills-{number}"], signal.SIGKILL)
        begin = time.monotonic()
        if kind != "recorder":
            sessions.supervisor.wait()
            sessions.start()
        if kind != "supervisor":
            wait_for("a recorder", lambda: sessions.restarts(number) > before)
            away.append(time.monotonic() - begin)
        name = f"kills-{number}"
        pids[name] = wait_for("its process", lambda: sessions.recorders().get(name))
        time.sleep(chance.uniform(MIN_PAUSE, MAX_PAUSE) * (0.1 if chance.random() < 0.2 else 1))
    return away


def check(sessions, checker, number, last):
    """The faults of a trace, and its number of restarts."""
    trace = sessions.trace(number)
    printing = subprocess.Popen([BUILD / "tompion", "print", trace], stdout=subprocess.PIPE, env=sessions.environment)
    counted = subprocess.run([checker], stdin=printing.stdout, capture_output=True, text=True, check=True)
    printed = printing.wait()
    found, wrong = map(int, counted.stdout.split())
    stat = json.loads(sessions.run("stat", "--json", str(trace)).stdout)
    facts = {
        "numbers without a gap": (found, last),
        "other lines": (wrong, 0),
        "exit status of print": (printed, 0),
        "events lost": (stat["lost"]["total"], 0),
        "damages": (len(stat["damages"]), 0),
    }
    return [f"kills-{number}: {name}: expected {right}, found {got}" for name, (got, right) in facts.items() if got != right]


def main():
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    with tempfile.TemporaryDirectory(prefix="tompion-kills-", dir=os.environ.get("TOMPION_DISK")) as folder:
        work = Path(folder)
        library = ("-I", ROOT / "include", "-L", BUILD, "-ltompion")
        names = [f"kills-{number}" for number in range(PROGRAMS)]
        programs = [compiled(work, name, EMITTER, *library) for name in names]
        checker = compiled(work, "checker", CHECKER)
        sessions = Sessions(work)
        wait_for("the recorders", lambda: len(sessions.recorders()) == PROGRAMS)
        command = {"env": sessions.environment, "stdout": subprocess.PIPE, "text": True}
        running = [subprocess.Popen([program, str(RATE)], **command) for program in programs]
        begin = time.monotonic()
        try:
            away = kill_again_and_again(sessions, random.Random(seed))
        finally:
            for process in running:
                process.terminate()
            lasts = [process.communicate(timeout=60)[0] for process in running]
            seconds = time.monotonic() - begin
            sessions.end()
        faults = [f"{name}: ended by {process.returncode}" for name, process in zip(names, running) if process.returncode]
        for number, last in enumerate(lasts):
            faults += check(sessions, checker, number, int(last or 0))
        events = sum(int(last or 0) for last in lasts)
        rate = f"{events:,} events, {events / seconds:,.0f} a second"
        times = f"away for {statistics.median(away) * 1e3:.0f} ms (median), {max(away) * 1e3:.0f} ms at most"
        print(f"{KILLS} kills, seed {seed}: {rate}; recorders {times}")
        for fault in faults:
            print(fault)
        sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
