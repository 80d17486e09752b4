"""Functions that record the program's state when a recording begins."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from . import _tompion

#: Functions that the library may call. They stay until it has let them go.
_functions: dict[int, Callable[[], object]] = {}


def state_dump(function: Callable[[], object]) -> Callable[[], object]:
    """Has `function()` called for each recording of this process: for those that there are, and
    when another one begins. It records the program's state as ordinary events; only the recording
    that begins gets them, and it keeps them.

    A thread of the library calls it, with the GIL, on a stack of 256 KiB. May be used as a
    decorator.
    """
    if _tompion._add_state_dump(function):
        _functions[id(function)] = function
    return function


def remove_state_dump(function: Callable[[], object]) -> bool:
    """Has it not called any more, and waits for a call. False if it was not known."""
    is_removed = _tompion._remove_state_dump(function)
    _functions.pop(id(function), None)
    return is_removed


@atexit.register
def _remove_all() -> None:
    # No thread may enter an interpreter that is going away.
    for function in list(_functions.values()):
        remove_state_dump(function)
