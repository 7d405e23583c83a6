"""Detection of the fields that Phalanx's decoders act on, by changing each of them.

A field is honoured if a change of its value changes the decoded object. So the result is that of the scheduler and
the controllers, and needs no list of fields.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from phalanx.dialects.api_groups import VOLCANO
from phalanx.dialects.core import decode_pod
from phalanx.dialects.dialect import Dialect
from phalanx.dialects.gangs.context import GangContext
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.resolver import resolve
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.lenient import decode_leniently
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.quotas.quota_profiles import node_selector_of
from phalanx.dialects.reader import Document
from phalanx.dialects.registry import Dialects, installed_dialects
from phalanx.dialects.reservations.owners import read_owners
from phalanx.dialects.reservations.reader import ReservationReader
from phalanx.dialects.workloads.rule import OwnerFieldError, OwnerReader
from phalanx.dialects.workloads.table import BUILT_IN_RULES
from phalanx.jobs import spec as jobs
from phalanx.jobs.pod_group import desired_pod_group
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.gang import GangKey

# Result of a decoder: (facts, messages). Facts are only compared.
Reading = tuple[object, tuple[str, ...]]
Read = Callable[[Document], Reading]
Path = tuple[str | int, ...]

_STRUCTS: dict[tuple[str, str], type[msgspec.Struct]] = {
    (jobs.BATCH, "Job"): jobs.Job,
    (jobs.BATCH, "CronJob"): jobs.CronJob,
    (jobs.FLOW, "JobFlow"): jobs.JobFlow,
    (jobs.FLOW, "JobTemplate"): jobs.JobTemplate,
    (jobs.BUS, "Command"): jobs.Command,
}
# Each decoder accepts at least one of these values as different from the current one.
_PROBES: tuple[object, ...] = (
    {"probe": ["?"]},
    "?",
    "7",
    "true",
    "false",
    7,
    True,
    False,
    '["probe/probe"]',
    [],
    "*",
    "a,b",
)
_TEXT_PROBES = tuple(probe for probe in _PROBES if isinstance(probe, str))


class Readers:
    """Decoders of Phalanx by kind, to examine other schedulers' objects."""

    def __init__(self, dialects: tuple[Dialect, ...] | None = None) -> None:
        self._dialects = installed_dialects() if dialects is None else dialects
        self._all = Dialects(self._dialects)
        self._honoured: set[tuple[str, str, Path]] = set()
        self._kinds = {
            (kind.group, kind.kind): kind
            for kind in (*self._group_kinds(), *Intake((), dialects=self._dialects).enrichers.kinds)
        }

    def _group_kinds(self) -> Iterator[WantedKind]:
        yield from (group_source.kind for group_source in self._all.groups.values())
        yield from (group_source.kind for group_source in self._all.accounts.values())

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """(Group, kind) of all objects except pods that Phalanx reads."""
        return [*self._kinds, *_STRUCTS]

    def reader(self, document: Document) -> Read | None:
        """Return the decoder for an object's kind; None for a kind that Phalanx does not read."""
        group, _, version = str(document.get("apiVersion") or "").rpartition("/")
        kind = str(document.get("kind") or "")
        if (group, kind) == ("", "Pod"):
            return self._pod
        if (group, kind) == (jobs.BATCH, "Job"):
            return self._job
        if (group, kind) in _STRUCTS:
            struct = _STRUCTS[group, kind]
            return lambda content: _struct(struct, content)
        wanted = self._kinds.get((group, kind))
        if wanted is None:
            return None
        served = wanted.served_as(version)
        return lambda content: self._object(served, content)

    def owner(self, document: Document) -> Read | None:
        """Return the decoder of a workload's own gang settings; None for a kind without such settings."""
        kind = (str(document.get("apiVersion") or "").rpartition("/")[0], str(document.get("kind") or ""))
        for rule in BUILT_IN_RULES:
            if rule.owner is not None and rule.sizes is not None and (rule.owner.group, rule.owner.kind) == kind:
                return partial(_sizes, rule.sizes)
        return None

    def accounts(self) -> Callable[[Document], list[ClusterEvent]]:
        """Return a function that applies objects one after another and returns their events about queues and
        quotas; other kinds yield none."""
        intake = Intake((), dialects=self._dialects)

        def take(document: Document) -> list[ClusterEvent]:
            group, _, version = str(document.get("apiVersion") or "").rpartition("/")
            wanted = self._kinds.get((group, str(document.get("kind") or "")))
            served = wanted.served_as(version) if wanted is not None else None
            if served is None or (served.group, served.plural) not in self._all.accounts:
                return []
            events = intake.account(served, document)
            intake.drain_warnings()
            return events

        return take

    def honoured(self, document: Document, read: Read, path: Path) -> bool:
        """Return whether a decoder acts on the field at `path`, because a changed value changes its result."""
        shape = tuple("*" if isinstance(step, int) else step for step in path)
        key = (str(document.get("apiVersion")), str(document.get("kind")), shape)
        if key in self._honoured:
            return True
        now = read(document)
        text = path[0] == "metadata"
        for probe in _TEXT_PROBES if text else _PROBES:
            if read(_with(document, path, probe)) != now:
                self._honoured.add(key)
                return True
        return False

    def _object(self, kind: ServedKind, document: Document) -> Reading:
        intake = Intake(_schedulers(document), dialects=self._dialects)
        address = (kind.group, kind.plural)
        if address in self._all.groups:
            specs = self._all.read_group(kind, document)
            return specs, tuple(
                dict.fromkeys(message for account_spec in specs for message in self._told_of_group(account_spec))
            )
        if address in self._all.accounts:
            account = self._all.accounts[address]
            if account.read is not None:
                spec = account.read(kind, document)
                problems = [*spec.warnings]
                for account_spec in spec.accounts:
                    problems += [*([account_spec.problem] if account_spec.problem else ()), *account_spec.warnings]
                return spec, tuple(problem.message for problem in problems)
            # The selected nodes of a profile depend on existing nodes, so the selector itself is compared.
            facts: object = (intake.account(kind, document), node_selector_of(kind, document))
        else:
            facts = intake.apply(intake.enrichers.updated(kind, document))
            if kind.kind == "Reservation":
                # The owners of a reservation matter only for other pods, so they are compared separately.
                facts = (facts, read_owners(ReservationReader(kind, document)))
        return facts, _told(intake)

    def _told_of_group(self, spec: GroupSpec) -> list[str]:
        """Return the decoder's messages about a gang that has no pods yet."""
        key = GangKey(spec.ref.namespace, spec.ref.name)
        context = GangContext(naming_of=self._all.naming_of)
        gang = resolve(key, (), (spec,), context, DialectOptions()).gang
        known = [spec.problem, *spec.warnings]
        messages = (notice.message for notice in (*known, gang.problem, *gang.warnings) if notice is not None)
        # Missing classes are reported against all objects that were read (`references.py`).
        return [message for message in messages if "does not exist" not in message]

    def _job(self, document: Document) -> Reading:
        """Decode a Job and its PodGroup, which has the Job's labels and annotations."""
        job, faults = _struct(jobs.Job, document)
        if not isinstance(job, jobs.Job):
            return job, faults
        group = desired_pod_group(job)
        kind = self._kinds[VOLCANO, "PodGroup"].served_as("v1beta1")
        keys = (*job.metadata.labels, *job.metadata.annotations)
        more = [message for message in self._object(kind, group)[1] if any(f"{key} " in message for key in keys)]
        return job, (*faults, *more)

    def _pod(self, document: Document) -> Reading:
        pod = decode_pod(msgspec.json.encode(document))
        intake = Intake((pod.spec.scheduler_name,), dialects=self._dialects)
        # Labels are stored for selectors of other pods, which does not count as acting on them.
        facts = [
            PodUpdated(msgspec.structs.replace(event.pod, labels=())) if isinstance(event, PodUpdated) else event
            for event in intake.pod(pod)
        ]
        return facts, _told(intake)


def _schedulers(document: Document) -> tuple[str, ...]:
    """Return the scheduler name in an object's pod template, so that the decoder treats the object as one of this
    scheduler."""
    value: object = document
    for step in ("spec", "template", "spec", "schedulerName"):
        value = value.get(step) if isinstance(value, Mapping) else None
    return (value,) if isinstance(value, str) else ()


def _told(intake: Intake) -> tuple[str, ...]:
    return tuple(notice.message for notice in intake.drain_warnings() if notice.type == "Warning")


def _sizes(read: Callable[[OwnerReader], object], document: Document) -> Reading:
    try:
        return read(OwnerReader(document)), ()
    except OwnerFieldError as error:
        return None, (str(error),)


def _struct(kind: type[msgspec.Struct], document: Document) -> Reading:
    try:
        read, faults = decode_leniently(kind, document)
    except msgspec.ValidationError as error:
        return None, (str(error),)
    return read, tuple(str(fault) for fault in faults)


def leaves(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values of an object; an empty map or list counts as a value."""
    if isinstance(value, Mapping) and value:
        for key, content in value.items():
            yield from leaves(content, (*path, str(key)))
    elif isinstance(value, list) and value:
        for place, content in enumerate(value):
            yield from leaves(content, (*path, place))
    elif value is not None:
        yield path


def spelled(path: Path) -> str:
    """Format a field path for display: spec.tasks[0].name, metadata.annotations[a/b]."""
    text = ""
    for step in path:
        if isinstance(step, int) or "/" in step or "." in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _with(document: Document, path: Path, value: object) -> dict[str, Any]:
    """Return a copy of an object with `value` at `path`."""
    changed: dict[str, Any] = copy.copy(dict(document))
    place: Any = changed
    for step in path[:-1]:
        place[step] = copy.copy(place[step])
        place = place[step]
    place[path[-1]] = value
    return changed
