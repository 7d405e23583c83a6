"""Notes of events about an object."""

from __future__ import annotations

import msgspec


class EventNote(msgspec.Struct, frozen=True):
    """Event note to record once per `subject`, until its content changes."""

    type: str
    reason: str
    note: str
    subject: str = ""
