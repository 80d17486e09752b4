"""Has a running program of Python 3.14 begin to record itself: `python3 -m tompion.attach PID`.

The program then takes part in recordings (`tompion record -p PID`). It imports this package, which
must be there for its interpreter; what is recorded, TOMPION_PYTHON says as for `--preload python`.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

_SCRIPT = """
import sys
sys.path.append({folder!r})
import tompion
wanted = {wanted!r}
if "logging" in wanted: tompion.record_logging()
if "asyncio" in wanted: tompion.record_tasks()
if "gc" in wanted: tompion.record_gc()
if "functions" in wanted: tompion.record_functions()
"""


def main(arguments: list[str]) -> int:
    """Writes the script and hands it to the program."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        print("usage: python3 -m tompion.attach PID", file=sys.stderr)
        return 2
    if not hasattr(sys, "remote_exec"):
        version = ".".join(map(str, sys.version_info[:2]))
        print(f"tompion.attach: expected Python 3.14, which has sys.remote_exec; found {version}", file=sys.stderr)
        return 1
    wanted = os.environ.get("TOMPION_PYTHON", "functions,gc,logging,asyncio").split(",")
    folder = str(pathlib.Path(__file__).resolve().parent.parent)
    # The program reads it when it comes to it; so it stays.
    descriptor, path = tempfile.mkstemp(prefix="tompion-attach-", suffix=".py")
    with os.fdopen(descriptor, "w") as script:
        script.write(_SCRIPT.format(folder=folder, wanted=wanted))
    sys.remote_exec(int(arguments[0]), path)
    print(f"process {arguments[0]} imports tompion when it runs Python code next ({path})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
