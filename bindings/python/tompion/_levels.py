"""Log levels, from the most severe: the same numbers as in <tompion/tompion.h>."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """Level of an event. Events without one have `DEBUG_LINE`."""

    EMERG = 0
    ALERT = 1
    CRIT = 2
    ERR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6
    DEBUG_SYSTEM = 7
    DEBUG_PROGRAM = 8
    DEBUG_PROCESS = 9
    DEBUG_MODULE = 10
    DEBUG_UNIT = 11
    DEBUG_FUNCTION = 12
    DEBUG_LINE = 13
    DEBUG = 14


DEFAULT = Level.DEBUG_LINE
