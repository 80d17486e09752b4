"""What the tests share: programs that are recorded, and their events."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Any

#: Folder with the command and its libraries, as `./x test python` builds them.
BUILD = pathlib.Path(os.environ.get("TOMPION_BUILD", "target/debug")).resolve()
SOURCE = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 60

Event = dict[str, Any]


class Recorded(unittest.TestCase):
    """A test that records programs in a folder of its own."""

    maxDiff = None

    def setUp(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tompion-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Returns an environment in which the package and the library are found."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TOMPION_")}
        return {**kept, "PYTHONPATH": str(BUILD / "python"), "LD_LIBRARY_PATH": str(BUILD), **more}

    def write(self, program: str, name: str = "program.py") -> pathlib.Path:
        """Writes a program into the folder."""
        path = self.folder / name
        path.write_text(textwrap.dedent(program))
        return path

    def run_program(self, program: str, environment: dict[str, str] | None = None) -> str:
        """Runs a program without a recorder; it must end well. Returns what it prints."""
        command = [sys.executable, str(self.write(program))]
        return self.finish(command, environment or self.environment()).stdout

    def finish(self, command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command that must end well."""
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT
        )
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done

    def record(self, program: str, *options: str, environment: dict[str, str] | None = None) -> list[Event]:
        """Records a program, and returns its events."""
        command = [str(BUILD / "tompion"), "record", "-o", "trace", "--subbuf-size", "1M", *options, "--"]
        self.recorder = self.finish(
            [*command, sys.executable, str(self.write(program))], environment or self.environment()
        )
        return self.events()

    def events(self) -> list[Event]:
        """Returns the events of the trace, as `tompion print --format json` shows them."""
        shown = self.finish([str(BUILD / "tompion"), "print", "--format", "json", "trace"]).stdout
        return [json.loads(line) for line in shown.splitlines()]


def fields(events: list[Event], name: str) -> list[dict[str, Any]]:
    """Returns the fields of the events with a name, and the numbers of spans in tasks."""
    numbers = ("span", "parent", "task")
    return [
        {**{key: value for key, value in event["context"].items() if key in numbers}, **event["fields"]}
        for event in events
        if event["event"] == name
    ]


def names(events: list[Event], provider: str = "") -> list[str]:
    """Returns the names of a provider's events, in order."""
    return [event["event"] for event in events if event["event"].startswith(provider)]
