"""Stands in for the extension where it can't be imported: everything does nothing.

Names are checked as the extension does, so that a program doesn't behave in another way with it.
"""

from __future__ import annotations

from typing import Any

from . import _describe

#: Why the extension is absent.
reason = "the extension tompion._tompion is not there"

_decorator: Any = None
_known: set[tuple[Any, ...]] = set()


def _check(kind: int, name: str, level: Any, names: Any, values: Any) -> None:
    key = (kind, name, level, names, tuple(map(type, values)))
    if key not in _known and len(_known) < 8192:
        _describe.by_values(kind, name, level, names, values)
        _known.add(key)


def event(name: str, level: Any = None, /, **fields: Any) -> None:
    """Does nothing."""
    _check(_describe.INSTANT, name, level, tuple(fields), tuple(fields.values()))


def counter(name: str, value: Any, level: Any = None, /) -> None:
    """Does nothing."""
    _check(_describe.COUNTER, name, level, None, (value,))


def flow(name: str, id: int, level: Any = None, /) -> None:
    """Does nothing."""
    _check(_describe.FLOW, name, level, None, (id,))


def mark(name: str, format: str, /, *arguments: Any, level: Any = None) -> None:
    """Does nothing."""
    _check(_describe.MARK, name, level, format, arguments)


def snapshot() -> bool:
    """Returns that there is no flight recorder."""
    return False


class Span:
    """Context manager and decorator that does nothing."""

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> bool:
        return False

    def again(self) -> Span:
        """Returns itself."""
        return self

    def __call__(self, function: Any) -> Any:
        return function


def span(name: str, level: Any = None, /, **fields: Any) -> Span:
    """Returns a span that does nothing."""
    _check(_describe.BEGIN, name, level, tuple(fields), tuple(fields.values()))
    return Span()


def job(name: str, deadline_ns: int, level: Any = None, /, **fields: Any) -> Span:
    """Returns a span that does nothing."""
    _check(_describe.JOB, name, level, tuple(fields), (deadline_ns, *fields.values()))
    return Span()


class Event:
    """An event that is never recorded."""

    enabled = False

    def __init__(self, description: bytes, enumerations: tuple[bytes, ...], names: tuple[str, ...]) -> None:
        self.fields = names

    def __call__(self, *values: Any, **named: Any) -> None:
        wrong = [name for name in named if name not in self.fields[len(values) :]]
        if wrong or len(values) + len(named) != len(self.fields):
            raise TypeError(f"expected a value for each of {self.fields}")


#: Tasks keep their coroutines.
Steps = None


def _status() -> tuple[None, str, int, int, int, str]:
    return None, reason, 0, 0, 0, ""


def _nothing(*_: Any) -> Any:
    return None


_add_state_dump = _remove_state_dump = lambda function: False
_set_describer = _set_decorator = _set_task_events = _function = _nothing
_stop_functions = _start_functions_of_thread = _nothing


def _start_functions(describe: Any) -> Any:
    return None


def _current_task() -> int:
    return 0
