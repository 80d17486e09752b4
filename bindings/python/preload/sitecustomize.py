"""Begins what `tompion record --preload python` records, before the program's own code.

Python imports this module at its start because its folder is first in PYTHONPATH. It gives way at
once: the program's own sitecustomize is imported in its place, and the folder leaves the path. The
folder of the package `tompion` goes to the end of the path, in case the program has none.

TOMPION_PYTHON says what is recorded: some of functions, gc, logging, asyncio, with commas between.
TOMPION_PYTHON_INCLUDE and TOMPION_PYTHON_EXCLUDE have globs of modules or functions.
"""

import os
import sys


def _give_way() -> None:
    """Imports the sitecustomize that would have been found without this one."""
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # There must be one when the import of this one ends.
        sys.modules.setdefault("sitecustomize", this)


def _globs(variable: str, default: str) -> "list[str]":
    return [glob for glob in os.environ.get(variable, default).split(",") if glob]


def _when_imported(functions: "dict[str, object]") -> None:
    """Calls a function once a module has been imported; the program decides when that is."""
    import importlib.abc
    import importlib.util

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
            function = functions.pop(name, None)
            if function is None:
                return None
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                return None
            execute = spec.loader.exec_module

            def exec_module(module):  # type: ignore[no-untyped-def]
                execute(module)
                function()

            spec.loader.exec_module = exec_module
            return spec

    for name in [name for name in functions if name in sys.modules]:
        functions.pop(name)()
    if functions:
        sys.meta_path.insert(0, Finder())


def _begin() -> None:
    import tompion

    if tompion.status().library is None:
        return
    wanted = _globs("TOMPION_PYTHON", "functions,gc,logging,asyncio")
    later = {}
    if "logging" in wanted:
        later["logging"] = lambda: tompion.record_logging()
    if "asyncio" in wanted:
        later["asyncio"] = lambda: tompion.record_tasks()
    _when_imported(later)
    if "gc" in wanted:
        tompion.record_gc()
    if "functions" in wanted:
        tompion.record_functions(_globs("TOMPION_PYTHON_INCLUDE", "*"), _globs("TOMPION_PYTHON_EXCLUDE", ""))


_own = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _own]
sys.path.append(os.path.dirname(_own))
try:
    _begin()
except Exception as error:
    print(f"tompion: Python is not recorded: {type(error).__name__}: {error}", file=sys.stderr)
_give_way()
