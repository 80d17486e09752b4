"""asyncio's tasks as async contexts: which thread ran which task, and when.

A task's coroutine is wrapped when the task is made. Between `asyncio:task_resume` and
`asyncio:task_suspend`, the thread runs the task, and what it records belongs to the task.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any

from . import _describe, _tompion, _types
from ._status import has_library

_OUTCOME = _types.enumeration("task_outcome", {"returned": 0, "raised": 1, "cancelled": 2}, _types.u8)
_ID = ("async_id", _types.u64)
_tompion._set_task_events(
    [
        _describe.describe(_describe.RESUME, "asyncio:task_resume", [_ID]),
        _describe.describe(_describe.SUSPEND, "asyncio:task_suspend", [_ID]),
        _describe.describe(_describe.INSTANT, "asyncio:task_end", [_ID, ("outcome", _OUTCOME)]),
    ]
)
_CREATED = (
    _ID,
    ("parent", _types.u64),
    ("coroutine", _types.text),
    ("file", _types.text),
    ("line", _types.u32),
)
_created = _tompion.Event(
    *_describe.describe(_describe.INSTANT, "asyncio:task_create", _CREATED),
    tuple(name for name, _ in _CREATED),
)
_STARTED = (_ID, ("name", _types.text))
_started = _tompion.Event(
    *_describe.describe(_describe.INSTANT, "asyncio:task_start", _STARTED),
    tuple(name for name, _ in _STARTED),
)
if _tompion.Steps is not None:
    Coroutine.register(_tompion.Steps)


def _start(number: int) -> None:
    """Records a task's name at its first step: before, it may not have the name that it gets."""
    task = asyncio.current_task() if _started.enabled else None
    if task is not None:
        _started(number, task.get_name())


def wrap(coroutine: Any) -> Any:
    """Returns a coroutine that runs the given one, and records when a thread does so.

    For loops that are no asyncio.BaseEventLoop: give it to the task instead of the coroutine.
    """
    if _tompion.Steps is None or isinstance(coroutine, _tompion.Steps) or not asyncio.iscoroutine(coroutine):
        return coroutine
    steps = _tompion.Steps(coroutine, _start)
    if _created.enabled:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        label = getattr(coroutine, "__qualname__", type(coroutine).__qualname__)
        file, line = (code.co_filename, code.co_firstlineno) if code else ("", 0)
        _created(steps.id, steps.parent, label, file, line)
    return steps


def record_tasks() -> None:
    """Records the tasks that are made from now on, in any event loop of asyncio's own."""
    loop = asyncio.BaseEventLoop
    inner = loop.create_task
    if getattr(inner, "_tompion", False) or not has_library():
        return

    @functools.wraps(inner)
    def create_task(self: asyncio.BaseEventLoop, coro: Any, **kwargs: Any) -> Any:
        return inner(self, wrap(coro), **kwargs)

    create_task._tompion = True  # type: ignore[attr-defined]
    loop.create_task = create_task  # type: ignore[method-assign]


def current_task() -> int:
    """Returns the number of the recorded task that this thread runs, or 0."""
    return _tompion._current_task()
