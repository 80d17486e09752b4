"""Tompion: events, spans and asyncio tasks of Python programs, beside the kernel's on one clock.

    import tompion

    tompion.event("app:request", status=200, path="/x")
    with tompion.span("app:load", rows=3):
        ...

Record it with `tompion record -- python3 app.py`. Without a recording an event costs a look-up;
without the native library, everything does nothing, and `tompion.status()` says so. The guide is
docs/guide/python.md.
"""

from __future__ import annotations

import sys as _sys
from typing import TYPE_CHECKING, Any

try:
    from . import _tompion
except ImportError as _error:
    from . import _absent

    _absent.reason = str(_error)
    # The other modules of the package take it from here.
    _sys.modules[__name__ + "._tompion"] = _absent
    _tompion = _absent  # type: ignore[assignment]

from . import _decorate, _describe, _types
from ._dumps import remove_state_dump, state_dump
from ._levels import Level
from ._status import Status
from ._types import (
    FieldType, array, array_text, boolean, data, enumeration, f32, f64, i8, i16, i32, i64, n16, n32,
    n64, ni16, ni32, ni64, nx16, nx32, nx64, sequence, sequence_text, struct, text, u8, u16, u32,
    u64, x8, x16, x32, x64,
)  # fmt: skip

if TYPE_CHECKING:
    from ._gc import record_gc, stop_gc
    from ._functions import record_functions, stop_functions
    from ._logging import LogHandler, record_logging
    from ._tasks import current_task, record_tasks, wrap

__version__ = "0.1.0"

_tompion._set_describer(_describe.by_values)
_tompion._set_decorator(_decorate.decorate)

event = _tompion.event
span = _tompion.span
job = _tompion.job
counter = _tompion.counter
flow = _tompion.flow
mark = _tompion.mark
snapshot = _tompion.snapshot

#: Imported when it is used first, so that a program without asyncio doesn't get it from here.
_LATER = {
    "record_gc": "_gc",
    "stop_gc": "_gc",
    "record_functions": "_functions",
    "stop_functions": "_functions",
    "LogHandler": "_logging",
    "record_logging": "_logging",
    "record_tasks": "_tasks",
    "current_task": "_tasks",
    "wrap": "_tasks",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'tompion' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def Event(name: str, level: int | None = None, /, *, init: bool = False, **types: Any) -> _tompion.Event:
    """Declares an event with types of fields, and returns what records it when called.

        request = tompion.Event("app:request", status=tompion.u16, path=str)
        request(200, "/x")
        request(status=200, path="/x")

    With `init`, the event describes the initial state, which a flight recorder keeps. A value that
    has no form in its field keeps the event from being recorded; `status()` counts that.

    Raises ValueError for a name that can't be one, TypeError for a type that isn't one.
    """
    fields = [(field, _types.declared(kind)) for field, kind in types.items()]
    flags = _describe.INIT if init else 0
    description = _describe.describe(_describe.INSTANT, name, fields, level, flags=flags)
    return _tompion.Event(*description, tuple(types))


def status() -> Status:
    """Returns what this package does in this process: print it to see why nothing is recorded."""
    return Status(*_tompion._status())
