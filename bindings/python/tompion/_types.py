"""Types of fields that a program declares: those of <tompion/tompion.h>."""

from __future__ import annotations

import dataclasses
import enum
import sys
import weakref
from collections.abc import Mapping
from typing import Union

#: Codes of types, as descriptions have them.
F32, F64, BOOL, STR, BYTES, ARRAY, SEQUENCE, ENUM, STRUCT = 13, 14, 15, 16, 18, 19, 20, 21, 22
I64, U8, U64 = 4, 5, 8
#: Flags of fields, as descriptions have them.
NETWORK, TEXT, CONTEXT = 1, 2, 4

#: A label's value, or its lowest and highest value.
Values = Union[int, "tuple[int, int]"]


@dataclasses.dataclass(frozen=True)
class FieldType:
    """Type of a field: a constant of this package, or what `array` and others return."""

    name: str
    code: int
    element: int = 0
    count: int = 0
    flags: int = 0
    #: Name and labels of an enumeration.
    labels: tuple[str, tuple[tuple[str, int, int], ...]] | None = None
    #: Names and types of a structure's members.
    members: tuple[tuple[str, FieldType], ...] = ()

    def __repr__(self) -> str:
        return f"tompion.{self.name}"


def _integer(name: str, code: int, flags: int = 0) -> FieldType:
    return FieldType(name, code, flags=flags)


i8, i16, i32, i64 = (_integer(f"i{8 << n}", 1 + n) for n in range(4))
u8, u16, u32, u64 = (_integer(f"u{8 << n}", 5 + n) for n in range(4))
x8, x16, x32, x64 = (_integer(f"x{8 << n}", 9 + n) for n in range(4))
#: Network byte order: the value is given as it lies in memory, not converted.
ni16, ni32, ni64 = (_integer(f"ni{16 << n}", 2 + n, NETWORK) for n in range(3))
n16, n32, n64 = (_integer(f"n{16 << n}", 6 + n, NETWORK) for n in range(3))
nx16, nx32, nx64 = (_integer(f"nx{16 << n}", 10 + n, NETWORK) for n in range(3))
f32 = FieldType("f32", F32)
f64 = FieldType("f64", F64)
boolean = FieldType("boolean", BOOL)
text = FieldType("text", STR)
data = FieldType("data", BYTES)


def _element(element: FieldType) -> FieldType:
    if not 1 <= element.code <= 12:
        raise TypeError(f"expected integers as elements, found {element!r}")
    return element


def array(element: FieldType, count: int) -> FieldType:
    """Returns the type of `count` integers: a longer value is cut, a shorter one filled with 0."""
    of = _element(element)
    return FieldType(f"array({of.name}, {count})", ARRAY, of.code, count, of.flags)


def sequence(element: FieldType) -> FieldType:
    """Returns the type of any number of integers."""
    of = _element(element)
    return FieldType(f"sequence({of.name})", SEQUENCE, of.code, 0, of.flags)


def array_text(count: int) -> FieldType:
    """Returns the type of `count` bytes that are shown as text, as far as the first NUL."""
    return FieldType(f"array_text({count})", ARRAY, U8, count, TEXT)


#: Bytes of text, with their number in front of them.
sequence_text = FieldType("sequence_text", SEQUENCE, U8, 0, TEXT)


def enumeration(
    name: str, labels: Mapping[str, Values] | type[enum.Enum], integer: FieldType = i64
) -> FieldType:
    """Returns the type of integers with names: `{"idle": 0, "failed": (-9, -1)}` or an Enum."""
    of = _element(integer)
    if isinstance(labels, type):
        labels = {member: value.value for member, value in labels.__members__.items()}
    bounds = {label: value if isinstance(value, tuple) else (value, value) for label, value in labels.items()}
    for label, (low, high) in bounds.items():
        if not (isinstance(low, int) and isinstance(high, int)):
            raise TypeError(f"expected an integer for the label {label!r} of {name}")
        if low > high:
            raise ValueError(f"expected low <= high for the label {label!r} of {name}")
    made = tuple((label, low, high) for label, (low, high) in bounds.items())
    return FieldType(f"enumeration({name})", ENUM, of.code, 0, of.flags, labels=(name, made))


def struct(**members: Declared) -> FieldType:
    """Returns the type of a structure: its value is a tuple or list of its members'."""
    typed = tuple((name, declared(kind)) for name, kind in members.items())
    return FieldType("struct(...)", STRUCT, 0, len(typed), members=typed)


#: What a program may declare a field as.
Declared = Union[FieldType, type]

_BUILTIN = {bool: boolean, int: i64, float: f64, str: text, bytes: data, bytearray: data, memoryview: data}


def declared(kind: Declared) -> FieldType:
    """Returns the type of a field that was declared: `int` is an i64, an Enum an enumeration."""
    if isinstance(kind, FieldType):
        return kind
    found = _BUILTIN.get(kind)
    if found is not None:
        return found
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return enumeration(kind.__name__, kind)
    if kind is list or kind is tuple:
        return sequence(i64)
    raise TypeError(f"expected a type of tompion, or int, float, bool, str, bytes or an Enum; found {kind!r}")


#: Types of array.array that are integers.
_TYPECODES = {"b": i8, "B": u8, "h": i16, "H": u16, "i": i32, "I": u32, "l": i64, "L": u64, "q": i64, "Q": u64}


def of_value(value: object) -> FieldType:
    """Returns the type by which a value is recorded whose type was not declared.

    Looks at types alone, as src/elements.c does: a proxy's `__class__` and `__getattr__` are code.
    """
    kind = type(value)
    found = _BUILTIN.get(kind)
    if found is not None:
        return found
    if kind in weakref.ProxyTypes:
        return text
    if issubclass(kind, enum.Enum):
        has_numbers = all(isinstance(member.value, int) for member in kind)
        return enumeration(kind.__name__, kind) if has_numbers else text
    for base in (list, tuple):
        if issubclass(kind, base):
            is_integers = all(issubclass(type(item), int) for item in base.__iter__(value))
            return sequence(i64) if is_integers else text
    arrays = sys.modules.get("array")
    if arrays is not None and issubclass(kind, arrays.array):
        typecode = arrays.array.typecode.__get__(value)
        return sequence(_TYPECODES[typecode]) if typecode in _TYPECODES else text
    for base in (bool, int, float, str, bytes, bytearray):
        if issubclass(kind, base):
            return _BUILTIN[base]
    if hasattr(kind, "__index__"):
        return i64
    return f64 if hasattr(kind, "__float__") else text
