"""The conformance suite's program in Python: performs the case that its argument names.

cases.toml says what each case does.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading

import tompion
from tompion import Level

MACHINE = tompion.enumeration("machine", {"idle": 0, "running": 1, "failed": (-9, -1)})
COLOR = tompion.enumeration("color", {"red": 1, "blue": 255}, tompion.u8)


def field_types() -> None:
    """One event for each group of types."""
    integers = {"a": 8, "b": 16, "c": 32, "d": 64}
    signed = {name: getattr(tompion, f"i{bits}") for name, bits in integers.items()}
    unsigned = {name: getattr(tompion, f"u{bits}") for name, bits in integers.items()}
    hexadecimal = {name: getattr(tompion, f"x{bits}") for name, bits in integers.items()}
    tompion.Event("suite:signed", **signed)(-128, -32768, -(2**31), -(2**63))
    tompion.Event("suite:unsigned", **unsigned)(255, 65535, 2**32 - 1, 2**64 - 1)
    tompion.Event("suite:hexadecimal", **hexadecimal)(0xAB, 0xABCD, 0xABCDEF01, 0xABCDEF0123456789)
    network = tompion.Event(
        "suite:network", a=tompion.n16, b=tompion.n32, c=tompion.n64, d=tompion.ni16, e=tompion.nx32
    )
    network(socket.htons(4660), socket.htonl(305419896), 1 << 56, socket.htons(0xFFFE), socket.htonl(0xABCD))
    tompion.Event("suite:floats", a=tompion.f32, b=float)(0.5, -1.25e10)
    tompion.Event("suite:booleans", yes=bool, no=bool)(True, False)
    tompion.Event("suite:texts", a=str, b=str)('häuser "x"', "")
    tompion.Event("suite:blobs", a=bytes, b=bytes)(b"\0\1\xff", b"")
    arrays = tompion.Event(
        "suite:arrays",
        a=tompion.array(tompion.u16, 3),
        b=tompion.sequence(tompion.i32),
        c=tompion.sequence(tompion.u8),
    )
    arrays([1, 2, 65535], (-1, 0, 1), [])
    tompion.Event("suite:array_texts", a=tompion.array_text(4), b=tompion.sequence_text)("ab", "text")
    tompion.Event("suite:enumerations", a=MACHINE, b=MACHINE, c=MACHINE, d=COLOR)(1, -5, 7, 255)
    tompion.Event("suite:structures", a=tompion.struct(x=int, y=str))((7, "in"))
    tompion.event("suite:empty")


def levels() -> None:
    """An event at each of these levels, and one without."""
    for level in (
        Level.EMERG, Level.ALERT, Level.CRIT, Level.ERR, Level.WARNING, Level.NOTICE, Level.INFO,
        Level.DEBUG,
    ):  # fmt: skip
        tompion.event(f"suite:{level.name.lower()}", level)
    tompion.event("suite:ordinary")


def inner(depth: int) -> None:
    """A span in a span of the same name."""
    with tompion.span("suite:inner", depth=depth):
        if depth > 0:
            inner(depth - 1)


@tompion.span("suite:outer", what="all")
def spans() -> None:
    """Spans in a span."""
    inner(2)


def others() -> None:
    """Counters, a flow, a mark and a job."""
    tompion.counter("suite:queue", -3)
    tompion.counter("suite:load", 0.75)
    tompion.flow("suite:request", 0xFEED)
    tompion.mark("loaded", "rows %ld of %.1f %% in '%s'", 42, 12.5, "orders")
    with tompion.job("suite:cycle", 500000, error=0.5):
        pass


def numbers() -> None:
    """For rules and filters."""
    for number in range(10):
        tompion.event("suite:number", number=number, kind="odd" if number % 2 else "even")
        tompion.event("suite:noise", number=number)


def child(what: str) -> None:
    """The event of a child."""
    tompion.event("suite:child", what=what)


def forks() -> None:
    """A child that is forked, and a program that is started."""
    tompion.event("suite:parent", what="before")
    forked = os.fork()
    if forked == 0:
        child("forked")
        sys.exit(0)
    os.waitpid(forked, 0)
    subprocess.run([sys.executable, __file__, "executed"], check=True)
    tompion.event("suite:parent", what="behind")


def emit_thousand(thread: int) -> None:
    """The work of a thread."""
    for number in range(1000):
        tompion.event("suite:work", thread=thread, number=number)


def threads() -> None:
    """Four threads at once."""
    started = [threading.Thread(target=emit_thousand, args=(thread,)) for thread in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def steps() -> None:
    """Records a step for each line of its input."""
    tompion.event("suite:begin")
    number = 0
    while True:
        print("ready", flush=True)
        if not sys.stdin.readline():
            return
        tompion.event("suite:step", number=number)
        number += 1


def endless() -> None:
    """Records numbers until it is killed."""
    number = 0
    while True:
        tompion.event("suite:torn", number=number, text="a text that could be torn", again=number)
        if number == 10000:
            print("progress", flush=True)
        number += 1


CASES = {
    "field_types": field_types,
    "levels": levels,
    "spans": spans,
    "others": others,
    "numbers": numbers,
    "forks": forks,
    "executed": lambda: child("executed"),
    "threads": threads,
    "exit": lambda: atexit.register(lambda: tompion.event("suite:last")),
    "steps": steps,
    "endless": endless,
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
