#!/usr/bin/env python3
"""What an event costs in Python, beside viztracer: times of loops, less those of an empty loop.

    cost.py BUILD [--rounds N] [--json FILE]

BUILD is the folder with the command, the library and the staged package (`./x bindings`). Each tool
runs in a process of its own, by turns; of each loop the least time counts. viztracer is left out if
it is not installed (`pip install viztracer`).
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

#: Times that each loop goes round.
LOOPS = 100_000
#: Times that each loop is measured in a process.
REPEATS = 7


def best(loop: Callable[[], None]) -> float:
    """Returns the least time of a loop, in nanoseconds for each round of it."""
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter_ns()
        loop()
        times.append(time.perf_counter_ns() - begin)
    return min(times) / LOOPS


def empty() -> None:
    """The loop without an event."""
    for _ in range(LOOPS):
        pass


def called() -> None:
    """Is called to see what recording its entry and exit costs."""


def calls() -> None:
    """Calls a function that does nothing."""
    for _ in range(LOOPS):
        called()


def tompion_loops() -> dict[str, Callable[[], None]]:
    """Loops with Tompion's events."""
    import tompion

    typed = tompion.Event("bench:typed", status=int, path=str)

    def event() -> None:
        record = tompion.event
        for number in range(LOOPS):
            record("bench:event", status=number, path="/index.html")

    def declared() -> None:
        for number in range(LOOPS):
            typed(number, "/index.html")

    def counter() -> None:
        record = tompion.counter
        for number in range(LOOPS):
            record("bench:counter", number)

    def span() -> None:
        begin = tompion.span
        for number in range(LOOPS):
            with begin("bench:span", number=number):
                pass

    return {"event of 2 fields": event, "event, declared types": declared, "counter": counter, "span": span}


def viztracer_loops(tracer: object) -> dict[str, Callable[[], None]]:
    """Loops with viztracer's events."""
    instant, variable, duration = tracer.log_instant, tracer.log_var, tracer.log_event  # type: ignore[attr-defined]

    def event() -> None:
        for number in range(LOOPS):
            instant("bench:event", args={"status": number, "path": "/index.html"})

    def counter() -> None:
        for number in range(LOOPS):
            variable("bench:counter", number)

    def span() -> None:
        for _ in range(LOOPS):
            with duration("bench:span"):
                pass

    return {"event of 2 fields": event, "counter": counter, "span": span}


def measure(tool: str) -> dict[str, float]:
    """Returns the costs with a tool in this process."""
    base, call = best(empty), best(calls)
    if tool == "viztracer":
        from viztracer import VizTracer

        options = {"verbose": 0, "tracer_entries": 1_000_000, "output_file": os.devnull}
        tracer = VizTracer(max_stack_depth=0, **options)  # type: ignore[arg-type]
        tracer.start()
        costs = {name: best(loop) - base for name, loop in viztracer_loops(tracer).items()}
        tracer.stop()
        tracer = VizTracer(**options)  # type: ignore[arg-type]
        tracer.start()
        costs["function call"] = best(calls) - call
        tracer.stop()
        return costs
    import tompion

    costs = {name: best(loop) - base for name, loop in tompion_loops().items()}
    tompion.record_functions()
    costs["function call"] = best(calls) - call
    tompion.stop_functions()
    return costs


def run(build: pathlib.Path, tool: str) -> dict[str, float] | None:
    """Measures in a process of its own; None if the tool is not there."""
    paths = [str(build / "python"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, paths)), "LD_LIBRARY_PATH": str(build)}
    with tempfile.TemporaryDirectory() as folder:
        costs = pathlib.Path(folder, "costs.json")
        command = [sys.executable, __file__, "--measure", tool, "--json", str(costs), str(build)]
        if tool == "tompion, recorded":
            trace = ["-o", str(pathlib.Path(folder, "trace")), "--mode", "overwrite"]
            command = [str(build / "tompion"), "record", *trace, "--", *command]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{tool} is left out: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return None
        return json.loads(costs.read_text())


def main() -> None:
    """Measures all tools by turns, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        options.json.write_text(json.dumps(measure(options.measure)))
        return
    found: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for tool in ("tompion, not recorded", "tompion, recorded", "viztracer"):
            for name, cost in (run(options.build.resolve(), tool) or {}).items():
                costs = found.setdefault(tool, {})
                costs[name] = min(cost, costs.get(name, cost))
    names = list(found["tompion, recorded"])
    print(f"Nanoseconds, Python {sys.version.split()[0]}, least of {options.rounds} × {REPEATS}\n")
    print("| | " + " | ".join(names) + " |\n|---|" + "--:|" * len(names))
    for tool, costs in found.items():
        print(f"| {tool} | " + " | ".join(f"{costs[name]:.0f}" if name in costs else "–" for name in names) + " |")
    if options.json:
        options.json.write_text(json.dumps({"loops": LOOPS, "ns": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
