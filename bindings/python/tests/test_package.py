"""The package by itself: names, types, and programs that run without what they could have."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest
import venv

from support import SOURCE, Recorded

#: Uses of everything, which must do the same whatever there is.
USE_ALL = """
import tompion, sys
{before}
tompion.event("t:event", a=1, b="x", c=None)
tompion.event("t:event", tompion.Level.ERR, a=1)
with tompion.span("t:span", a=1), tompion.job("t:job", 10):
    tompion.counter("t:counter", 2.5)
    tompion.flow("t:flow", 7)
    tompion.mark("marked", "n %d", 3)
typed = tompion.Event("t:typed", n=tompion.u8, t=str)
typed(1, "x")
typed(n=1, t="x")
@tompion.span("t:decorated")
def decorated(n): return n + 1
assert decorated(1) == 2
tompion.state_dump(lambda: None)
assert tompion.snapshot() in (False, True)
tompion.record_gc(); tompion.record_functions(); tompion.record_logging(); tompion.record_tasks()
import asyncio, logging
async def main(): return await asyncio.gather(asyncio.sleep(0, 5), asyncio.sleep(0.001, 6))
assert asyncio.run(main()) == [5, 6]
logging.getLogger("t").warning("message")
for wrong in [lambda: tompion.event("no_colon"), lambda: tompion.event("t:e", tompion.Level.ERR, 5),
              lambda: tompion.mark("m", "%d %d", 1), lambda: tompion.mark("marked", "n %d"),
              lambda: typed(1), lambda: typed(1, no="x")]:
    try:
        wrong()
    except (ValueError, TypeError):
        continue
    raise SystemExit("not refused")
tompion.counter("t:c", True)
{after}
print(tompion.status())
"""


class Absent(Recorded):
    """Programs run on without the library, without the extension, in sub-interpreters."""

    def use(self, before: str = "", after: str = "", **more: str) -> str:
        """Runs the program that uses everything, and returns what it prints."""
        return self.run_program(USE_ALL.format(before=before, after=after), self.environment(**more))

    def test_without_a_recorder_the_library_is_named(self) -> None:
        # Another test may be recording every program of the user.
        nothing = r"no recording takes any of \d+ events \(library: /.*\)"
        self.assertRegex(self.use(), rf"^tompion: ({nothing}|a recording takes \d+ of \d+ events)\n$")

    def test_a_library_that_is_disabled_is_named(self) -> None:
        self.assertEqual(self.use(TOMPION_DISABLE="1"), "tompion records nothing: TOMPION_DISABLE=1\n")

    def test_a_library_that_is_absent_is_named(self) -> None:
        said = self.use(LD_LIBRARY_PATH="")
        self.assertRegex(said, r"^tompion records nothing: libtompion\.so\.0 was not found \(.*\)\n$")

    def test_an_extension_that_is_absent_is_named(self) -> None:
        program = USE_ALL.format(before="", after="")
        hidden = "import sys; sys.modules['tompion._tompion'] = None\n" + program
        said = self.run_program(hidden)
        self.assertRegex(said, r"^tompion records nothing: .*_tompion.*\n$")

    def test_without_the_extension_no_value_makes_an_event_raise(self) -> None:
        self.run_program("""
            import sys
            sys.modules['tompion._tompion'] = None
            import tompion
            for value in ["text", None, True, object()]:
                tompion.counter("t:c", value)
                tompion.event("t:e", value=value)
                with tompion.job("t:job", value): pass
        """)

    def test_what_records_nothing_slows_nothing(self) -> None:
        program = """
            import sys, threading
            {before}
            import gc, logging, tompion
            inner = logging.Logger.callHandlers
            tompion.record_functions(); tompion.record_gc(); tompion.record_logging(); tompion.record_tasks()
            assert tompion.status().library is None
            assert threading._profile_hook is None, threading._profile_hook
            assert sys.getprofile() is None and logging.Logger.callHandlers is inner
            assert not [note for note in gc.callbacks if "tompion" in note.__module__], gc.callbacks
        """
        self.run_program(program.format(before="sys.modules['tompion._tompion'] = None"))
        self.run_program(program.format(before=""), self.environment(TOMPION_DISABLE="1"))

    def test_other_profilers_stay(self) -> None:
        self.run_program("""
            import sys, threading, tompion
            def own(*_): pass
            sys.setprofile(own); threading.setprofile(own)
            tompion.stop_functions()
            assert sys.getprofile() is own and threading._profile_hook is own
            sys.setprofile(None); threading.setprofile(None)
            tompion.record_functions(include=["none"])
            sys.setprofile(own); threading.setprofile(own)
            tompion.stop_functions()
            assert sys.getprofile() is own and threading._profile_hook is own
        """)

    @unittest.skipUnless(sys.version_info[:2] in {(3, 9), (3, 10), (3, 11), (3, 12)}, "_xxsubinterpreters is gone")
    def test_sub_interpreters_are_refused(self) -> None:
        said = self.run_program("""
            import _xxsubinterpreters as interpreters, tompion
            tompion.event("t:main")
            one = interpreters.create()
            interpreters.run_string(one, "import tompion; tompion.event('t:e', a=1); print(tompion.status())")
            interpreters.destroy(one)
            tompion.event("t:main")
            print(tompion.status().library is not None)
        """)
        self.assertRegex(said, r"^tompion records nothing: .*sub-?interpreters.*\nTrue\n$")


class Wheel(Recorded):
    """The package as it is installed."""

    wheels: tuple[pathlib.Path, pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        """Builds the wheel twice."""
        scratch = tempfile.TemporaryDirectory(prefix="tompion-wheels-")
        cls.addClassCleanup(scratch.cleanup)
        folders = [pathlib.Path(scratch.name, name) for name in ("one", "two")]
        backend = [sys.executable, str(SOURCE / "build/backend.py"), "wheel"]
        builds = [subprocess.Popen([*backend, folder], stdout=subprocess.PIPE, text=True) for folder in folders]
        names = [build.communicate()[0].strip() for build in builds]
        cls.wheels = (folders[0] / names[0], folders[1] / names[1])

    def test_two_builds_are_the_same_bytes(self) -> None:
        one, two = self.wheels
        self.assertEqual(one.read_bytes(), two.read_bytes())

    @unittest.skipUnless(importlib.util.find_spec("pip"), "pip is missing")
    def test_it_works_in_a_clean_environment(self) -> None:
        venv.create(self.folder / "env")
        python = str(self.folder / "env/bin/python")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
        self.finish([*pip, str(self.wheels[0])])
        program = self.write("import tompion; tompion.event('t:e'); print(tompion.__file__)")
        command = [python, str(program)]
        environment = {name: value for name, value in self.environment().items() if name != "PYTHONPATH"}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        self.assertIn("env/lib", said)


if __name__ == "__main__":
    unittest.main()
