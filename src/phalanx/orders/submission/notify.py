"""Notifications that a submission asks for: annotations of its jobs and pods."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.notifications.events import (
    EVENTS_KEY,
    RECIPIENT_KEY,
    TARGET_KEY,
    EventsError,
    is_recipient,
    parse_events,
)
from phalanx.orders.errors import InvalidRequestError, OrderError
from phalanx.orders.submission.manifests import TEMPLATES, VOLCANO_JOB, Json, at, group_of, label

_LONGEST_TARGET = 253


def notify(documents: Sequence[Json], events: str, target: str = "", recipient: str = "") -> None:
    """Set the annotations of notifications on the jobs and pods of a submission where they are absent.

    `events` are comma-separated names, "" for none. Raises InvalidRequestError for an invalid value, OrderError for
    documents without a job whose pods would have the annotations.
    """
    if not events:
        for field, value in (("notify_target", target), ("notify_to", recipient)):
            if value:
                raise InvalidRequestError(field, repr(value), "; set notify too")
        return
    try:
        parse_events(events)
    except EventsError as error:
        raise InvalidRequestError("notify", repr(events), f": {error}") from error
    if recipient and not is_recipient(recipient):
        raise InvalidRequestError(
            "notify_to", repr(recipient), ": must be the part of a mail address before the @, such as ada"
        )
    if len(target) > _LONGEST_TARGET:
        raise InvalidRequestError("notify_target", repr(target[:40]), ": must be the name of a target")
    stated = {EVENTS_KEY: events, TARGET_KEY: target, RECIPIENT_KEY: recipient}
    places = [place for document in documents if (place := _place(document)) is not None]
    if not places:
        names = ", ".join(label(document) for document in documents)
        raise OrderError(
            f"notify: no pods of {names} are known; write the annotation {EVENTS_KEY} on the pod template"
        )
    for place in places:
        annotations = at(place, ("metadata", "annotations"))
        if EVENTS_KEY not in annotations:
            annotations |= {key: text for key, text in stated.items() if text}


def _place(document: Json) -> Json | None:
    """Return the object of a document whose annotations its pods have; None for an object without known pods."""
    key = (group_of(document), document["kind"])
    if key in ((VOLCANO_JOB, "Job"), ("", "Pod")):
        return document
    if key == (VOLCANO_JOB, "CronJob"):
        return at(document, ("spec", "jobTemplate"))
    return at(document, TEMPLATES[key]) if key in TEMPLATES else None
