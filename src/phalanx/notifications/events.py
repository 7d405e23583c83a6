"""Events of a run that can be notified, and the subscription that a job's annotations state."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from phalanx.model.text.decoding import quoted

EVENTS_KEY = "phalanx.dev/notify"
TARGET_KEY = "phalanx.dev/notify-target"
RECIPIENT_KEY = "phalanx.dev/notify-to"

# Local part of a mail address. The domain is the administrator's, so no other character is needed.
_RECIPIENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,62}[A-Za-z0-9])?")


class NoticeEvent(enum.StrEnum):
    """Event of a run. A failure is an end as well."""

    START = "start"
    END = "end"
    FAILURE = "failure"
    EVICTION = "eviction"
    PROMISE_BROKEN = "promise-broken"


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """Events of a run that are sent to a target. `to` is the local part of a mail address, "" for that of the
    run's user."""

    target: str
    events: tuple[NoticeEvent, ...]
    to: str = ""

    def covers(self, event: NoticeEvent) -> bool:
        """Return whether the subscription asks for `event`."""
        return event in self.events or (event is NoticeEvent.FAILURE and NoticeEvent.END in self.events)


class EventsError(ValueError):
    """Error for an unknown event name."""


def parse_events(text: str) -> tuple[NoticeEvent, ...]:
    """Parse comma-separated event names, or `all`. Raises EventsError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        return tuple(NoticeEvent)
    events = []
    for name in dict.fromkeys(names):
        try:
            events.append(NoticeEvent(name))
        except ValueError:
            known = ", ".join(("all", *NoticeEvent))
            raise EventsError(f"unknown event {quoted(name[:40])}; expected some of {known}") from None
    if not events:
        raise EventsError("no event is named")
    return tuple(events)


def is_recipient(text: str) -> bool:
    """Return whether `text` is the local part of a mail address that notifications accept."""
    return _RECIPIENT.fullmatch(text) is not None and ".." not in text


def stated_subscription(annotations: Mapping[str, str]) -> str:
    """Return the subscription in the annotations of a pod as JSON for the database, "" for none or an unreadable
    one."""
    text = annotations.get(EVENTS_KEY)
    if not text:
        return ""
    try:
        events = parse_events(text)
    except EventsError:
        return ""
    to, target = annotations.get(RECIPIENT_KEY, ""), annotations.get(TARGET_KEY, "")
    if (to and not is_recipient(to)) or len(target) > 253:
        return ""
    return msgspec.json.encode(Subscription(target, events, to)).decode()
