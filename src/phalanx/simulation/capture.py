"""A live cluster in a file of `phalanx capture`, with its objects in the order of their intake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.model.events import ClusterEvent
from phalanx.model.promise_records import StoredReservation
from phalanx.scheduling.quota.usage_history import AccountUsage
from phalanx.simulation.documents import FileObject, kind_of, take_in
from phalanx.simulation.errors import InputError
from phalanx.views.promises import PromiseOrigin, Promises

KIND = "Capture"
# Kinds that other objects refer to are applied first. (The dialects list the kinds of groups and accounts.)
_FIRST = ("PriorityClass", "Namespace", "ResourceQuota", "PodDisruptionBudget", "Node")


class Capture(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Head of a capture. `moment` is its time in seconds since the epoch; `missing` lists the unreadable objects.

    `promises` and `usages` are the records that the scheduler had stored, `promise_origin` is the version and time
    of the promises. `policy` is the text of its policy file, "" in captures of older versions."""

    moment: int
    schedulers: tuple[str, ...] = ("phalanx",)
    native_groups: bool = False
    missing: tuple[str, ...] = ()
    promises: tuple[StoredReservation, ...] = ()
    usages: tuple[AccountUsage, ...] = ()
    promise_origin: PromiseOrigin = PromiseOrigin()
    policy: str = ""

    @property
    def promised(self) -> Promises:
        """Promised starts of the scheduler when the capture was made."""
        return Promises(self.promises, origin=self.promise_origin)


def read_capture(entry: FileObject) -> Capture:
    """Decode the head of a capture. Raises InputError."""
    try:
        return msgspec.convert(entry.document.get("spec"), Capture)
    except msgspec.ValidationError as error:
        raise InputError(f"{entry.place}: spec: {error}; repeat `phalanx capture` with this release") from error


def take_in_all(intake: Intake, capture: Capture, entries: Sequence[FileObject]) -> list[ClusterEvent]:
    """Return the events of a capture's objects. Objects of kinds that no dialect reads are ignored."""
    return intake.serves_native(capture.native_groups) + take_in_more(intake, entries, ())


def take_in_more(
    intake: Intake, entries: Sequence[FileObject], present: Sequence[FileObject]
) -> list[ClusterEvent]:
    """Return the events of further objects, beside those in `present`."""
    events: list[ClusterEvent] = []
    declaring = [
        *(reader.kind for reader in intake.dialects.groups.values()),
        *(reader.kind for reader in intake.dialects.accounts.values()),
    ]
    stages: tuple[list[FileObject], ...] = ([], [], [], [])
    for entry in entries:
        if entry.kind in _FIRST:
            stages[0].append(entry)
        elif (entry.api_version, entry.kind) == ("v1", "Pod"):
            stages[2].append(entry)
        else:
            stages[1 if kind_of(entry, declaring) is not None else 3].append(entry)
    stages[0].sort(key=lambda entry: _FIRST.index(entry.kind))
    for stage in stages[:3]:
        for entry in stage:
            events += take_in(intake, entry)
    return events + _context_events(intake, stages[3], present)


def _context_events(
    intake: Intake, entries: Sequence[FileObject], present: Sequence[FileObject]
) -> list[ClusterEvent]:
    """Return the events of objects that affect pods, and of their owners; owners can lead to further owners."""
    events: list[ClusterEvent] = []
    handled: set[WantedKind] = set()
    while added := [kind for kind in intake.enrichers.kinds if kind not in handled]:
        handled.update(added)
        for served, entry in _of_kinds(entries, added):
            events += intake.apply(intake.enrichers.updated(served, entry.identified))
    seen = {(served.group, served.plural) for served, _ in _of_kinds([*entries, *present], intake.owners.kinds)}
    for served, entry in _of_kinds(entries, intake.owners.kinds):
        if (served.group, served.plural) in intake.workloads.wanted:
            events += intake.owners.updated(served, entry.identified)
    for wanted in sorted(intake.workloads.wanted):
        if wanted not in seen:
            events += intake.owners.readable(wanted, False)
    return events


def _of_kinds(
    entries: Iterable[FileObject], kinds: Sequence[WantedKind]
) -> Iterable[tuple[ServedKind, FileObject]]:
    wanted = list(kinds)
    for entry in entries:
        served = kind_of(entry, wanted)
        if served is not None:
            yield served, entry
