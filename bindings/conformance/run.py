#!/usr/bin/env python3
"""Runs the conformance suite of the language bindings: docs/design/python.md.

    run.py TARGET [LANGUAGE…]

TARGET is the folder with the command `tompion` and its libraries. A language whose tools are
missing is skipped with a reason. `TOMPION_PYTHON` names another interpreter for the program in
Python.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Seconds after which a program that does not answer fails its case.
TIMEOUT = 60
LINE = re.compile(r"\[[^]]*\] \([^)]*\) .*?:\(\d+\) (\S+): \{ cpu_id = \d+ \}, \{ [^}]*\}, (.*)")

Case = dict[str, Any]


class Language:
    """How a program of the suite is built and started."""

    def __init__(self, target: pathlib.Path, scratch: pathlib.Path) -> None:
        self.target = target
        self.scratch = scratch

    def command(self, argument: str) -> list[str]:
        """Returns the command that performs a case."""
        raise NotImplementedError

    def environment(self, with_library: bool = True) -> dict[str, str]:
        """Returns the environment in which the program finds the library, or doesn't."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOMPION_")}
        if with_library:
            environment["LD_LIBRARY_PATH"] = str(self.target)
        return environment


class C(Language):
    """The header; without the library as TOMPION_OPTIONAL has it."""

    def __init__(self, target: pathlib.Path, scratch: pathlib.Path) -> None:
        super().__init__(target, scratch)
        self.program = scratch / "suite_in_c"
        common = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", str(HERE / "program.c")]
        subprocess.run([*common, "-o", self.program, f"-L{target}", "-ltompion", "-lpthread"], check=True)
        optional = ["-DWITHOUT_LIBRARY", "-o", f"{self.program}_alone", "-lpthread", "-ldl"]
        subprocess.run([*common, *optional], check=True)

    def command(self, argument: str) -> list[str]:
        return [str(self.program), argument]


class Alone(C):
    """The same without the library."""

    def command(self, argument: str) -> list[str]:
        return [f"{self.program}_alone", argument]


class Python(Language):
    """The package of `bindings/python`, built for the interpreter."""

    def __init__(self, target: pathlib.Path, scratch: pathlib.Path) -> None:
        super().__init__(target, scratch)
        self.interpreter = os.environ.get("TOMPION_PYTHON", sys.executable)
        self.packages = scratch / "packages"
        source = ROOT / "bindings/python"
        backend = [self.interpreter, str(source / "build/backend.py"), "extension"]
        shutil.copytree(source / "tompion", self.packages / "tompion")
        subprocess.run([*backend, str(self.packages / "tompion")], check=True, stdout=subprocess.DEVNULL)

    def command(self, argument: str) -> list[str]:
        return [self.interpreter, str(HERE / "program.py"), argument]

    def environment(self, with_library: bool = True) -> dict[str, str]:
        return {**super().environment(with_library), "PYTHONPATH": str(self.packages)}


LANGUAGES: dict[str, type[Language]] = {"c": C, "python": Python}


def events(printed: str) -> list[tuple[str, str]]:
    """Returns names and payloads of the lines of `tompion print`."""
    return [match.groups() for match in map(LINE.fullmatch, printed.splitlines()) if match]  # type: ignore[misc]


class Suite(unittest.TestCase):
    """The cases for one language; its subclasses are made below."""

    maxDiff = None
    language: Language
    target: pathlib.Path

    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.language.scratch))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def tompion(self, *words: str) -> list[str]:
        """Returns a command line of the command under test."""
        return [str(self.target / "tompion"), *words]

    def finish(self, command: list[str], environment: dict[str, str] | None = None) -> str:
        """Runs a program that must end well, and returns its output."""
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT
        )
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def printed(self, trace: str) -> list[tuple[str, str]]:
        """Returns the events of a trace in the test's folder."""
        return events(self.finish(self.tompion("print", trace)))

    def recorded(self, case: Case) -> list[tuple[str, str]]:
        """Records a case's program, and returns the events."""
        command = self.language.command(case.get("program", case["name"]))
        words = self.tompion("record", "-o", "trace", *case.get("record", []), "--", *command)
        self.finish(words, self.language.environment())
        return self.printed("trace")

    def run_record(self, case: Case) -> None:
        """The lines, in order."""
        lines = [f"{name}: {payload}" for name, payload in self.recorded(case)]
        self.assertEqual("\n".join(lines), case["expect"].strip())

    def run_sorted(self, case: Case) -> None:
        """The lines, in any order."""
        lines = sorted(f"{name}: {payload}" for name, payload in self.recorded(case))
        self.assertEqual("\n".join(lines), case["expect"].strip())

    def run_counted(self, case: Case) -> None:
        """How often each event is there, with payloads that all differ."""
        found = self.recorded(case)
        counts = collections.Counter(name for name, _ in found)
        lines = [f"{count} × {name}" for name, count in sorted(counts.items())]
        self.assertEqual("\n".join(lines), case["expect"].strip())
        self.assertEqual(len(set(found)), len(found), "each event once")

    def start(self, case: Case) -> subprocess.Popen[str]:
        """Starts a case's program by itself; it ends with the test."""
        command = self.language.command(case.get("program", case["name"]))
        pipe = subprocess.PIPE
        environment = self.language.environment()
        program = subprocess.Popen(command, env=environment, cwd=self.folder, stdin=pipe, stdout=pipe, text=True)
        self.addCleanup(self.end, program)
        return program

    @staticmethod
    def end(program: subprocess.Popen[str]) -> None:
        """Ends a program that this test has started, unless it has ended."""
        if program.poll() is None:
            program.kill()
        program.wait()
        for stream in (program.stdin, program.stdout, program.stderr):
            if stream:
                stream.close()

    def record_running(self, pid: int, trace: str, options: list[str]) -> subprocess.Popen[str]:
        """Records a running program until the recorder is interrupted."""
        words = self.tompion("record", "-o", trace, *options, "-p", str(pid))
        recorder = subprocess.Popen(words, cwd=self.folder, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.end, recorder)
        deadline = time.monotonic() + TIMEOUT
        while not self.takes_part(recorder.pid, pid):
            self.assertIsNone(recorder.poll(), f"{words} ended")
            self.assertLess(time.monotonic(), deadline, f"{words} did not begin")
            time.sleep(0.02)
        return recorder

    def takes_part(self, recorder: int, pid: int) -> bool:
        """Returns whether a process is part of a recording and has its rules."""
        words = self.tompion("status", "--json", str(recorder))
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
        recordings = json.loads(done.stdout)["recordings"] if done.returncode == 0 else []
        processes = [process for recording in recordings for process in recording["processes"]]
        return any(process["pid"] == pid and process["rules"] == "current" for process in processes)

    def step(self, program: subprocess.Popen[str], count: int) -> None:
        """Has a program record so many steps."""
        assert program.stdin and program.stdout
        for _ in range(count):
            program.stdin.write("\n")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline(), "ready\n")

    def interrupt(self, recorder: subprocess.Popen[str]) -> None:
        """Ends a recording."""
        recorder.send_signal(signal.SIGINT)
        self.assertEqual(recorder.wait(TIMEOUT), 0)

    def leave(self, program: subprocess.Popen[str]) -> None:
        """Closes a program's input; it must end well."""
        assert program.stdin
        program.stdin.close()
        self.assertEqual(program.wait(TIMEOUT), 0)

    def numbers(self, trace: str) -> str:
        """Returns the numbers of a trace's steps."""
        found = [re.search(r"number = (\d+)", payload) for name, payload in self.printed(trace) if name == "suite:step"]
        return " ".join(match[1] for match in found if match)

    def run_attach(self, case: Case) -> None:
        """Recorders that come and go while the program runs, two of them at once."""
        program = self.start(case)
        assert program.stdout
        self.assertEqual(program.stdout.readline(), "ready\n")
        before, with_first, with_both, with_second = case["steps"]
        self.step(program, before)
        first = self.record_running(program.pid, "first", case["recorders"][0])
        self.step(program, with_first)
        second = self.record_running(program.pid, "second", case["recorders"][1])
        self.step(program, with_both)
        self.interrupt(first)
        self.step(program, with_second)
        self.interrupt(second)
        self.leave(program)
        self.assertEqual([self.numbers("first"), self.numbers("second")], case["expect"])

    def run_absent(self, case: Case) -> None:
        """Without the library, and with it but without a recorder."""
        argument = case.get("program", case["name"])
        absent = Alone(self.target, self.folder) if isinstance(self.language, C) else self.language
        self.finish(absent.command(argument), absent.environment(with_library=False))
        self.finish(self.language.command(argument), self.language.environment())

    def run_killed(self, case: Case) -> None:
        """Killed while it records: no event is torn, and none is missing between two."""
        command = self.language.command(case["program"])
        words = self.tompion("record", "-o", "trace", "--subbuf-size", "1M", "--subbufs", "16", "--", "sh", "-c")
        # The shell's child says `progress`, and the shell kills it. The recorder reports that.
        script = '"$@" | { read line; echo "$line"; }; exit 0'
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        environment = self.language.environment()
        words += [script, "sh", *command]
        recorder = subprocess.Popen(
            words, env=environment, cwd=self.folder, stdout=pipe, stderr=nothing, text=True
        )
        self.addCleanup(self.end, recorder)
        assert recorder.stdout
        self.assertEqual(recorder.stdout.readline(), "progress\n")
        self.kill_child(recorder.pid, command[0])
        recorder.wait(TIMEOUT)
        found = [payload for name, payload in self.printed("trace") if name == "suite:torn"]
        self.assertGreaterEqual(len(found), 10000)
        pattern = re.compile(r'\{ number = (\d+), text = "a text that could be torn", again = \1 \}')
        whole = [pattern.fullmatch(payload) for payload in found]
        self.assertTrue(all(whole))
        numbers = [int(match[1]) for match in whole if match]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[:10000], list(range(10000)))

    def kill_child(self, pid: int, program: str) -> None:
        """Kills the descendant of a process that runs a program."""
        path = os.path.realpath(shutil.which(program) or program)
        waiting = [pid]
        while waiting:
            children = pathlib.Path(f"/proc/{waiting[0]}/task/{waiting.pop(0)}/children").read_text().split()
            for child in map(int, children):
                if os.path.realpath(f"/proc/{child}/exe") == path:
                    os.kill(child, signal.SIGKILL)
                    return
                waiting.append(child)
        self.fail(f"{program} is no descendant of {pid}")

    def run_recorder(self, case: Case) -> None:
        """The recorder is killed; another one comes."""
        program = self.start(case)
        assert program.stdout
        self.assertEqual(program.stdout.readline(), "ready\n")
        first = self.record_running(program.pid, "first", ["-e", "suite:step"])
        self.step(program, 2)
        first.kill()
        first.wait(TIMEOUT)
        self.step(program, 2)
        second = self.record_running(program.pid, "second", ["-e", "suite:step"])
        self.step(program, 2)
        self.interrupt(second)
        self.leave(program)
        self.assertEqual(self.numbers("second"), "4 5")


def suite_of(name: str, target: pathlib.Path, scratch: pathlib.Path, cases: list[Case]) -> unittest.TestSuite:
    """Returns a language's tests."""
    language = LANGUAGES[name](target, scratch)

    def test(case: Case) -> Any:
        def run(self: Suite) -> None:
            getattr(self, f"run_{case['run']}")(case)

        run.__doc__ = f"{name}: {case['name']}: {case['does']}"
        return run

    methods = {f"test_{case['name']}": test(case) for case in cases}
    made = type(f"Suite_{name}", (Suite,), {**methods, "language": language, "target": target})
    return unittest.TestSuite(made(method) for method in methods)


def main(target: str, *languages: str) -> int:
    """Runs the suite, and returns the exit code."""
    cases = tomllib.loads((HERE / "cases.toml").read_text())["case"]
    folder = pathlib.Path(target).resolve()
    with tempfile.TemporaryDirectory(prefix="tompion-bindings-") as scratch:
        tests = unittest.TestSuite()
        for name in languages or LANGUAGES:
            own = pathlib.Path(scratch, name)
            own.mkdir()
            tests.addTest(suite_of(name, folder, own, cases))
        result = unittest.TextTestRunner(verbosity=1).run(tests)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
