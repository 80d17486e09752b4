"""Descriptions of events, as docs/design/events.md defines them.

An event is described once; from then on the extension records it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from . import _types
from ._levels import DEFAULT
from ._types import FieldType

#: Kinds of events. A reader that doesn't know one takes it as an instant.
INSTANT, BEGIN, END, COUNTER, FLOW, JOB, MARK, RESUME, SUSPEND = range(9)

#: Kinds that the extension asks for: begins of spans within a task, see src/span.c.
BEGIN_IN_TASK, JOB_IN_TASK = 7, 8

#: Flag of an event that describes the initial state, which flight recorders keep.
INIT = 1

#: Longest name of an event, without the ending of a span's.
MAX_NAME = 240
MAX_FIELDS = 64

#: A description, and those of its enumerations.
Description = "tuple[bytes, tuple[bytes, ...]]"
Fields = Sequence["tuple[str, FieldType]"]

_FORMAT_ATTRIBUTE = 1
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CONVERSION = re.compile(r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?:\.(?P<precision>\d*))?[hlL]?(?P<letter>.|\Z)", re.DOTALL)


def _name(name: str, what: str) -> bytes:
    encoded = name.encode("utf-8", "backslashreplace")
    if not encoded or len(encoded) > MAX_NAME + 10 or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise ValueError(f"expected the name of {what} with 1 to {MAX_NAME} bytes of text, found {name!r}")
    return encoded + b"\0"


def split(name: str) -> tuple[str, str]:
    """Splits `provider:name`."""
    if not isinstance(name, str):
        raise TypeError(f"expected a name like 'app:request', found {name!r}")
    provider, colon, event = name.partition(":")
    if not (provider and colon and event):
        raise ValueError(f"expected a name like 'app:request', found {name!r}")
    return provider, event


def _enumeration(kind: FieldType) -> bytes:
    name, labels = kind.labels or ("", ())
    encoded = _name(name, "an enumeration")
    body = struct.pack("<HHH", 1, len(labels), len(encoded)) + encoded
    for label, low, high in labels:
        text = _name(label, "a label")
        mask = (1 << 64) - 1
        body += struct.pack("<QQH", low & mask, high & mask, len(text)) + text
    return b"TEN1" + struct.pack("<I", len(body) + 8) + body


def _fields(fields: Fields, enumerations: list[bytes]) -> bytes:
    described = b""
    names = set()
    for name, kind in fields:
        if not _IDENTIFIER.match(name):
            raise ValueError(f"expected letters, digits and _ as a field's name, found {name!r}")
        if name in names:
            raise ValueError(f"two fields are called {name!r}")
        names.add(name)
        encoded = _name(name, "a field")
        size = 12 + len(encoded)
        described += struct.pack(
            "<HBBIHH", size, kind.code, kind.element, kind.count, kind.flags, len(encoded)
        ) + encoded
        if kind.labels is not None:
            enumerations.append(_enumeration(kind))
        described += _fields(kind.members, enumerations)
    return described


def _total(fields: Fields) -> int:
    return sum(1 + _total(kind.members) for _, kind in fields)


def describe(
    kind: int, name: str, fields: Fields = (), level: int | None = None, format: str | None = None, flags: int = 0
) -> tuple[bytes, tuple[bytes, ...]]:
    """Returns the description of an event, and those of its enumerations.

    Raises ValueError for a name that can't be one, and for more than 64 fields.
    """
    provider, event = (_name(part, "an event") for part in split(name))
    number = DEFAULT if level is None else level
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 14:
        raise ValueError(f"expected a tompion.Level for {name}, found {level!r}")
    if _total(fields) > MAX_FIELDS:
        raise ValueError(f"{name} has more than {MAX_FIELDS} fields")
    enumerations: list[bytes] = []
    body = struct.pack("<HBBHHHH", 1, kind, number, flags, len(fields), len(provider), len(event))
    body += provider + event + _fields(fields, enumerations)
    if format is not None:
        text = format.encode("utf-8", "backslashreplace") + b"\0"
        body += struct.pack("<HB", len(text) + 3, _FORMAT_ATTRIBUTE) + text
    return b"TEV1" + struct.pack("<I", len(body) + 8) + body, tuple(enumerations)


def _conversions(format: str) -> list[FieldType]:
    """Returns the types of a mark's arguments, for conversions that printf and Python share."""
    kinds = {letter: _types.i64 for letter in "diuoxXc"}
    kinds.update({letter: _types.f64 for letter in "eEfFgG"})
    kinds["s"] = _types.text
    found = []
    for match in _CONVERSION.finditer(format):
        letter = match["letter"]
        if letter == "%":
            continue
        if letter not in kinds:
            raise ValueError(f"expected one of %d %u %o %x %c %e %f %g %s in the format, found {match[0]!r}")
        found.append(kinds[letter])
    return found


def _mark(name: str, level: int | None, format: str, values: Sequence[object]) -> list[tuple[bytes, tuple[bytes, ...]]]:
    kinds = _conversions(format)
    if len(kinds) != len(values):
        raise ValueError(f"the format {format!r} has {len(kinds)} conversions, found {len(values)} arguments")
    fields = [(f"arg{number}", kind) for number, kind in enumerate(kinds, 1)]
    return [describe(MARK, f"mark:{name}", fields, level, format)]


_NUMBER = _types.FieldType("context", _types.U64, flags=_types.CONTEXT)
#: Fields of a span within a task: its number, that of the task's span around it, and the task.
_NUMBERS = (("span", _NUMBER), ("parent", _NUMBER), ("task", _NUMBER))


def _by_kinds(
    kind: int, name: str, level: int | None, names: Sequence[str] | str | None, kinds: list[FieldType]
) -> list[tuple[bytes, tuple[bytes, ...]]]:
    if kind == COUNTER:
        return [describe(kind, name, [("value", kinds[0])], level)]
    if kind == FLOW:
        return [describe(kind, name, [("id", _types.x64)], level)]
    fields = list(zip(names or (), kinds))
    if kind == INSTANT:
        return [describe(kind, name, fields, level)]
    numbered = kind in (BEGIN_IN_TASK, JOB_IN_TASK)
    if kind in (JOB, JOB_IN_TASK):
        fields = [("deadline_ns", _types.u64), *zip(names or (), kinds[1:])]
    begin = JOB if kind in (JOB, JOB_IN_TASK) else BEGIN
    own = _NUMBERS if numbered else ()
    return [
        describe(begin, name + "_begin", [*fields, *own], level),
        describe(END, name + "_end", own[:1], level),
    ]


def _of_counter(value: object) -> FieldType:
    found = _types.of_value(value)
    if found is _types.boolean:
        return _types.i64
    if found.code not in (_types.I64, _types.F64):
        raise TypeError(f"a counter's value is a number, found {type(value).__name__}")
    return found


def by_values(
    kind: int, name: str, level: int | None, names: Sequence[str] | str | None, values: Sequence[object]
) -> list[tuple[bytes, tuple[bytes, ...]]] | bytes:
    """Describes an event by its first values; the begin of a span with its end.

    The extension calls it once for each call and each combination of types. Returns bytes that say
    why values of such types are not recorded, if they can't be. Raises for names that can't be.
    """
    if kind == MARK:
        return _mark(name, level, str(names), values)
    reason = b""
    try:
        kinds = [_of_counter(values[0])] if kind == COUNTER else [_types.of_value(value) for value in values]
        return _by_kinds(kind, name, level, names, kinds)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # of a name, or of a value's type
        reason = _reason(error)
    _by_kinds(kind, name, level, names, [_types.i64] * len(values))
    return reason


def _reason(error: Exception) -> bytes:
    try:
        said = str(error)
    except Exception as another:  # what a program's exception says is its own code
        said = type(another).__name__
    text = f"a value has no form in its field: {type(error).__name__}: {said}"
    return text.encode("utf-8", "backslashreplace")[:240].replace(b"\0", b" ")
