"""What is to be told of an object in an event."""

from __future__ import annotations

import msgspec


class EventNote(msgspec.Struct, frozen=True):
    """To be told once about each `subject`, until there is something else to tell about it."""

    type: str
    reason: str
    note: str
    subject: str = ""
