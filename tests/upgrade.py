#!/usr/bin/env python3
"""Two versions of Tompion that take over from each other while programs are recorded.

given  the folder of another version's build in TOMPION_OTHER (the command and its library)
when   a recorder of one version is killed and the other one continues its trace; and when a session's supervisor and its
       recorder are killed one after the other, and the other version takes the session over
then   the program's numbers are in the trace from the first to the last, each of them once, none is lost; in both directions,
       with programs that use either library, in one trace, in chunks, and with counts

Exits with 77 without another version. Two versions with other layouts of shared memory refuse each other in one line instead,
and the trace is completed by `tompion recover` of the version that began it.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kills import BUILD, CHECKER, ROOT, compiled, environment, wait_for

OTHER = os.environ.get("TOMPION_OTHER")
# The program's events, one each millisecond.
EVENTS = 3000
SETTINGS = [[], ["--rotate", "500ms"], ["--count", "count upgrade:tick by parity"]]

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <tompion/tompion.h>

int main(int count, char **arguments)
{
	unsigned long last = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
	for (int tries = 0; !TOMPION_EVENT_ENABLED(upgrade, tick) && tries < 10000; tries++)
		usleep(1000);
	for (unsigned long number = 1; number <= last; number++) {
		TOMPION_EVENT(upgrade, tick, (u32, parity, number & 1), (u64, number, number));
		usleep(1000);
	}
	return 0;
}
"""


class Version:
    """A build, and how it is named in messages."""

    def __init__(self, name, folder):
        self.name, self.folder, self.command = name, Path(folder), Path(folder) / "tompion"


def start(command, work, log):
    return subprocess.Popen(
        command,
        cwd=work,
        env=environment(work),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=open(work / log, "ab"),
        start_new_session=True,
    )


def faults_of(title, trace, work):
    """The faults of a trace, read by this build."""
    printing = subprocess.Popen([OWN.command, "print", "-e", "upgrade:tick", trace], stdout=subprocess.PIPE)
    counted = subprocess.run([work / "checker"], stdin=printing.stdout, capture_output=True, text=True, check=True)
    printing.wait()
    found, wrong = map(int, counted.stdout.split())
    stat = json.loads(subprocess.run([OWN.command, "stat", "--json", trace], capture_output=True, text=True).stdout)
    facts = {"numbers": (found, EVENTS), "other lines": (wrong, 0), "lost": (stat["lost"]["total"], 0)}
    counts = trace / "counts.json"
    if counts.exists():
        entries = json.loads(counts.read_text())["aggregations"][0]["entries"]
        facts["counted"] = (sorted(entry["count"] for entry in entries), [EVENTS // 2, EVENTS // 2])
    return [f"{title}: {name}: expected {right}, found {got}" for name, (got, right) in facts.items() if got != right]


def continue_by(first, second, library, settings, work):
    """Kills a recorder of one version, and continues its trace with another one."""
    title = f"{first.name} recorder, then {second.name}, library {library.name}, {' '.join(settings[:1]) or 'plain'}"
    trace = work / title.replace(" ", "-").replace(",", "")
    program = ["env", f"LD_LIBRARY_PATH={library.folder}", work / "program", str(EVENTS)]
    command = [first.command, "record", "--linger", "20s", *settings, "-o", trace, "--", *program]
    recorder = start(command, work, "first.log")
    time.sleep(1.5)
    recorder.kill()
    recorder.wait()
    ended = start([second.command, "record", "--resume", "-o", trace], work, "second.log").wait(timeout=60)
    said = [] if ended == 0 else [f"{title}: record --resume ended with {ended}: {(work / 'second.log').read_text()[-500:]}"]
    return said + faults_of(title, trace, work)


def take_session_over(first, second, work):
    """Kills supervisor and recorder of one version, and has the other one's supervisor go on."""
    title = f"{first.name} supervisor, then {second.name}"
    name = f"upgrade-{first.name}"
    (work / "sessions").mkdir(exist_ok=True)
    text = f"output = '{work}/traces'\nstart = 'boot'\nprograms = ['name={name}']\n[channel.main]\nlinger = '20s'\n"
    (work / f"sessions/{name}.toml").write_text(text)
    (work / name).write_bytes((work / "program").read_bytes())
    (work / name).chmod(0o755)

    def pid(version):
        said = subprocess.run([version.command, "status", "--json"], env=environment(work), capture_output=True, text=True)
        sessions = (json.loads(said.stdout or "{}").get("supervisor") or {}).get("sessions", [])
        return next((one["channels"][0].get("pid") for one in sessions if one["name"] == name), None)

    supervisor = start([first.command, "serve"], work, "serve.log")
    recorder = wait_for("a recorder", lambda: pid(first))
    program = subprocess.Popen([work / name, str(EVENTS)], env=environment(work))
    time.sleep(0.8)
    supervisor.kill()
    supervisor.wait()
    supervisor = start([second.command, "serve"], work, "serve.log")
    wait_for("the same recorder", lambda: pid(second) == recorder)
    os.kill(recorder, signal.SIGKILL)
    wait_for("another recorder", lambda: pid(second) not in (None, recorder))
    program.wait(timeout=60)
    time.sleep(1)
    subprocess.run([second.command, "stop", name], env=environment(work), capture_output=True)
    supervisor.kill()
    supervisor.wait()
    (work / f"sessions/{name}.toml").unlink()
    traces = list((work / "traces").glob(f"{name}-*"))
    if len(traces) != 1:
        return [f"{title}: expected one trace, found {len(traces)}: {(work / 'serve.log').read_text()[-500:]}"]
    return faults_of(title, traces[0], work)


OWN = Version("own", BUILD)


def main():
    if not OTHER:
        print("left out: TOMPION_OTHER names no build of another version")
        sys.exit(77)
    other = Version("other", OTHER)
    with tempfile.TemporaryDirectory(prefix="tompion-upgrade-") as folder:
        work = Path(folder)
        compiled(work, "program", PROGRAM, "-I", ROOT / "include", "-L", BUILD, "-ltompion")
        compiled(work, "checker", CHECKER)
        faults, tried = [], 0
        for first, second in ((other, OWN), (OWN, other)):
            for library in (OWN, other):
                for settings in SETTINGS:
                    faults += continue_by(first, second, library, settings, work)
                    tried += 1
            faults += take_session_over(first, second, work)
            tried += 1
        print(f"{tried} take-overs, {len(faults)} faults")
        for fault in faults:
            print(fault)
        sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
