"""What this package does in this process, in a line."""

from __future__ import annotations

import dataclasses

from . import _tompion


def has_library() -> bool:
    """Returns whether the native library is there. Without it, nothing is ever recorded."""
    return _tompion._status()[0] is not None


@dataclasses.dataclass(frozen=True)
class Status:
    """State of the package. `str()` of it is one line for people."""

    #: Path of the native library; None without one.
    library: str | None
    #: Why there is no library; None with one.
    reason: str | None
    #: Events that this process has described.
    events: int
    #: Those that a recording takes now.
    enabled: int
    #: Events that were not recorded because of their values or names.
    refused: int
    #: Why the first of them was refused; empty without one.
    first_refusal: str

    def __str__(self) -> str:
        if self.library is None:
            line = f"tompion records nothing: {self.reason}"
        elif not self.enabled:
            line = f"tompion: no recording takes any of {self.events} events (library: {self.library})"
        else:
            line = f"tompion: a recording takes {self.enabled} of {self.events} events"
        if self.refused:
            number = "1 event was" if self.refused == 1 else f"{self.refused} events were"
            line += f"; {number} refused, the first because {self.first_refusal}"
        return line
