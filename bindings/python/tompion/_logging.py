"""Messages of the module logging as events `logging:debug` to `logging:critical`."""

from __future__ import annotations

import functools
import logging
from typing import Any

from . import _describe, _tompion, _types
from ._levels import Level
from ._status import has_library

_FIELDS = (
    ("logger", _types.text),
    ("message", _types.text),
    ("file", _types.text),
    ("line", _types.u32),
    ("function", _types.text),
)
_LEVELS = (
    (logging.CRITICAL, "critical", Level.CRIT),
    (logging.ERROR, "error", Level.ERR),
    (logging.WARNING, "warning", Level.WARNING),
    (logging.INFO, "info", Level.INFO),
    (0, "debug", Level.DEBUG_PROGRAM),
)
_names = tuple(name for name, _ in _FIELDS)
_events = [
    (number, _tompion.Event(*_describe.describe(_describe.INSTANT, f"logging:{name}", _FIELDS, level), _names))
    for number, name, level in _LEVELS
]


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}: str() raises {type(error).__name__}>"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # logging itself prints such an error and goes on
        return f"{_text(record.msg)} ({type(error).__name__}: {_text(error)})"


def emit(record: logging.LogRecord) -> None:
    """Records a message at the level of logging's that is the next below it."""
    for number, event in _events:
        if record.levelno >= number:
            if event.enabled:
                event(record.name, _message(record), record.pathname, record.lineno, record.funcName or "")
            return


class LogHandler(logging.Handler):
    """Handler that records each message: `logging.getLogger().addHandler(tompion.LogHandler())`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Records a message."""
        emit(record)


def record_logging() -> None:
    """Records what any logger takes, without a handler: what handlers print stays the same."""
    inner = logging.Logger.callHandlers
    if getattr(inner, "_tompion", False) or not has_library():
        return

    @functools.wraps(inner)
    def call_handlers(self: logging.Logger, record: logging.LogRecord) -> Any:
        emit(record)
        return inner(self, record)

    call_handlers._tompion = True  # type: ignore[attr-defined]
    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign]
