"""The programs and commands of docs/guide/python.md, executed."""

from __future__ import annotations

import re
import shutil
import sys
import unittest

from support import BUILD, SOURCE, Recorded, names

ROOT = SOURCE.parent.parent
GUIDE = (ROOT / "docs/guide/python.md").read_text()


def blocks(language: str) -> list[str]:
    """Returns the guide's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


class Guide(Recorded):
    """What the guide says works."""

    def environment(self, **more: str) -> dict[str, str]:
        """Returns an environment in which `tompion` and `python3` are those under test."""
        tools = self.folder / "bin"
        if not tools.exists():
            tools.mkdir()
            (tools / "tompion").symlink_to(BUILD / "tompion")
            (tools / "python3").symlink_to(sys.executable)
        environment = super().environment(**more)
        return {**environment, "PATH": f"{tools}:{environment['PATH']}"}

    def test_the_first_programs_events_are_the_ones_that_are_shown(self) -> None:
        events = self.record(blocks("python")[0])
        self.assertEqual(names(events), ["app:started", "app:load_begin", "app:rows", "app:load_end"])
        self.assertIn("a recording takes 4 of 4 events", self.recorder.stdout)

    def test_all_programs_run_recorded_and_unrecorded(self) -> None:
        whole = "\n".join(blocks("python"))
        self.run_program(whole, self.environment())
        found = set(names(self.record(whole)))
        for name in (
            "app:slow", "app:query_begin", "app:answer_end", "app:cycle_begin", "app:queue",
            "app:request", "mark:loaded", "robot:sample",
        ):  # fmt: skip
            self.assertIn(name, found)

    def test_the_commands_run(self) -> None:
        self.write(blocks("python")[0], "hello.py")
        self.write("import logging; logging.warning('x')", "app.py")
        shutil.copy(ROOT / "examples/python/service.py", self.folder / "service.py")
        typed = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
        environment = self.environment()
        self.assertGreaterEqual(len(typed), 5)
        for command in typed:
            if command.startswith("tompion view"):
                continue
            if " -k " in command:
                # The kernel's events need rights that a test may not have.
                command = command.replace(" -k ", " ").replace("service.py 2", "service.py 0.6")
            self.finish(["sh", "-c", command], environment)
        self.assertIn("service:request_done", "".join(self.shown("service-trace", environment)))

    def shown(self, trace: str, environment: dict[str, str]) -> str:
        """Returns what `tompion print` shows of a trace."""
        return self.finish(["tompion", "print", trace], environment).stdout


if __name__ == "__main__":
    unittest.main()
