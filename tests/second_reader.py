#!/usr/bin/env python3
"""Traces in CTF 2, read by a reader of another project.

given  a recording of a program and the kernel, and the traces of other producers that the project keeps beside itself,
       each exported to CTF 2
when   babeltrace2 2.1 or later, the first that knows CTF 2, prints them
then   its text is that of `tompion print`

TOMPION_BABELTRACE2 names the command if it is not the `babeltrace2` on the PATH. Exits with 77 where that is older, as
Debian 12's is. Of the one-field cases, four that 2.1.1 reads otherwise than their own descriptions say are left out.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TOMPION_BUILD", ROOT / "target/debug"))
CORPUS = ROOT.parent / "shared/ctf-corpus"
READER = shlex.split(os.environ.get("TOMPION_BABELTRACE2", "babeltrace2"))
# Seconds that anything may take.
WAIT_TIMEOUT = 300
# 2.1.1 takes a selector's bit for that of the option around it, fails where fields stand between
# the two, and has no memory of no bytes for an empty blob: also in the cases as they are.
THEIR_OWN = {
    "ctf-2-pass-optional-nested-leaf-disabled",
    "ctf-2-pass-optional-nested-leaf-enabled",
    "ctf-2-pass-optional-sel-with-field-in-between",
    "ctf-2-pass-static-len-blob-empty",
}


def leave_out(why):
    print(f"left out: {why}", file=sys.stderr)
    sys.exit(77)


def run(*command):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD)) if command[0] == BUILD / "tompion" else None
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, timeout=WAIT_TIMEOUT, env=environment)


def tompion(*words):
    return run(BUILD / "tompion", *words)


def reader_version():
    try:
        said = run(*READER, "--version").stdout.decode()
    except FileNotFoundError:
        return None
    found = re.search(r"Babeltrace (\d+)\.(\d+)", said)
    return found and (int(found[1]), int(found[2]))


def traces(folder):
    """All folders with a description, of a recording of our own and of the corpus."""
    own = folder / "own"
    recorded = tompion("record", "-k", "-o", own, "-c", "comm,pid,prio", "--", BUILD / "tompion", "--version")
    if recorded.returncode == 0:
        yield own
    if CORPUS.is_dir():
        cases = [*CORPUS.iterdir(), *(CORPUS / "field-cases").iterdir()]
        yield from sorted(case for case in cases if case.is_dir() and case.name not in {"field-cases", *THEIR_OWN})


def compare(trace, folder):
    """None if both say the same, or nothing whole could be exported; else what differs."""
    exported = folder / "exported" / trace.name
    exported.parent.mkdir(exist_ok=True)
    if tompion("export", "--to", "ctf2", trace, "-o", exported).returncode != 0:
        return None
    ours, theirs = tompion("print", exported), run(*READER, exported)
    if ours.stdout == theirs.stdout and theirs.returncode == 0:
        return True
    lines = zip(ours.stdout.splitlines(), theirs.stdout.splitlines())
    differs = next((pair for pair in lines if pair[0] != pair[1]), theirs.stderr[-300:])
    return f"{trace.name}: {differs}"


def main():
    version = reader_version()
    if version is None or version < (2, 1):
        leave_out(f"{READER[0]} is {version or 'not there'}; CTF 2 needs babeltrace2 2.1 (TOMPION_BABELTRACE2 names one)")
    with tempfile.TemporaryDirectory(prefix="tompion-second-reader-") as name:
        folder = Path(name)
        results = [compare(trace, folder) for trace in traces(folder)]
    same = sum(result is True for result in results)
    different = [result for result in results if isinstance(result, str)]
    print(f"second_reader: {same} traces in CTF 2 say the same to both, {len(different)} do not", *different, sep="\n")
    assert same > 0 and not different, "another reader of CTF 2 reads our traces otherwise"


main()
