"""Entries and exits of Python functions, by sys.monitoring (3.12 on) or a profile function.

A function is a span with its own name, `python:MODULE.QUALNAME`, so that the rules of a recording
select functions like other events.
"""

from __future__ import annotations

import fnmatch
import sys
import threading
import types
from collections.abc import Iterable
from typing import Any

from . import _describe, _tompion
from ._levels import Level
from ._status import has_library

#: Functions that are never recorded: this package's own, and those of imports.
_ALWAYS_EXCLUDED = ("tompion", "tompion.*", "importlib._bootstrap*", "sitecustomize")
#: Most functions with a name of their own; later ones are not recorded, and counted.
MAX_FUNCTIONS = 16384

_include: tuple[str, ...] = ("*",)
_exclude: tuple[str, ...] = ()
#: Descriptions by name: functions that are made anew have the same.
_known: dict[str, Any] = {}
_tool: int | None = None
left_out = 0


def _matches(patterns: Iterable[str], module: str, name: str) -> bool:
    return any(fnmatch.fnmatchcase(module, glob) or fnmatch.fnmatchcase(name, glob) for glob in patterns)


def _describe_function(code: types.CodeType, module: str | None) -> Any:
    """Returns the descriptions of a function's begin and end; None for one that is left out."""
    global left_out
    module = module or "unknown"
    name = f"{module}.{getattr(code, 'co_qualname', code.co_name)}"
    if _matches(_ALWAYS_EXCLUDED, module, name) or _matches(_exclude, module, name):
        return None
    if not _matches(_include, module, name):
        return None
    name = name.encode("utf-8", "backslashreplace")[: _describe.MAX_NAME - 10].decode("utf-8", "ignore")
    if name in _known:
        return _known[name]
    if len(_known) >= MAX_FUNCTIONS:
        left_out += 1
        return None
    level = Level.DEBUG_FUNCTION
    try:
        begin = _describe.describe(_describe.BEGIN, f"python:{name}_begin", (), level)
        end = _describe.describe(_describe.END, f"python:{name}_end", (), level)
    except ValueError:  # a module's name with control characters
        left_out += 1
        return None
    _known[name] = _tompion._function([begin, end])
    return _known[name]


def _start_thread(*_: object) -> None:
    """Is the profile function of a new thread, until its first call."""
    _tompion._start_functions_of_thread()


def _start_monitoring(callbacks: tuple[Any, ...]) -> None:
    global _tool
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    free = [tool for tool in (monitoring.PROFILER_ID, 3, 4) if monitoring.get_tool(tool) is None]
    if not free:
        raise RuntimeError("no tool of sys.monitoring is free")
    _tool = free[0]
    monitoring.use_tool_id(_tool, "tompion")
    events = monitoring.events
    enter, throw, leave, unwind = callbacks
    chosen = {
        events.PY_START: enter,
        events.PY_RESUME: enter,
        events.PY_THROW: throw,
        events.PY_RETURN: leave,
        events.PY_YIELD: leave,
        events.PY_UNWIND: unwind,
    }
    for event, callback in chosen.items():
        monitoring.register_callback(_tool, event, callback)
    monitoring.set_events(_tool, sum(chosen))
    # Code that was left out by an earlier start may be wanted now.
    monitoring.restart_events()


def record_functions(include: Iterable[str] = ("*",), exclude: Iterable[str] = ()) -> None:
    """Records entries and exits of functions whose module or `module.qualname` matches a glob.
    Another call chooses anew.

    Before Python 3.12: of this thread, and of threads that `threading` starts from now on.
    """
    global _include, _exclude
    if not has_library():
        return
    _include, _exclude = tuple(include), tuple(exclude)
    stop_functions()
    callbacks = _tompion._start_functions(_describe_function)
    if callbacks is None:
        threading.setprofile(_start_thread)
    else:
        _start_monitoring(callbacks)


def stop_functions() -> None:
    """Ends what record_functions() has begun; before Python 3.12 in this and later threads."""
    global _tool
    if _tool is None:
        # Another profiler's functions stay.
        if threading._profile_hook is _start_thread:  # type: ignore[attr-defined]
            threading.setprofile(None)  # type: ignore[arg-type]
        _tompion._stop_functions()
        return
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    monitoring.set_events(_tool, 0)
    monitoring.free_tool_id(_tool)
    _tool = None
