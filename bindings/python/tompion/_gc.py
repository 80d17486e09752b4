"""Garbage collections as spans: `python:gc`, with the generation, and what was found at the end."""

from __future__ import annotations

import gc

from . import _describe, _tompion, _types
from ._status import has_library

_begin = _tompion.Event(
    *_describe.describe(_describe.BEGIN, "python:gc_begin", [("generation", _types.u8)]),
    ("generation",),
)
_found = ("collected", "uncollectable")
_end = _tompion.Event(
    *_describe.describe(_describe.END, "python:gc_end", [(name, _types.u64) for name in _found]),
    _found,
)


def _note(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _begin(info["generation"])
    else:
        _end(info["collected"], info["uncollectable"])


def record_gc() -> None:
    """Records every collection of the cyclic garbage collector, from now on."""
    if has_library() and _note not in gc.callbacks:
        gc.callbacks.append(_note)


def stop_gc() -> None:
    """Ends what record_gc() has begun."""
    if _note in gc.callbacks:
        gc.callbacks.remove(_note)
