"""Which fields of an object our own decoders act on, found out by changing each of them.

A field is honoured if the decoder makes something else of the object once the field holds something else. So the
answer is that of the scheduler and the controllers, whatever they learn to read.
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

# What a decoder makes of an object: (the facts, what it tells about them). Facts are compared, and never read.
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
# Every reader takes at least one of them for another value than what stands there.
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
_TEXT_PROBES = tuple(each for each in _PROBES if isinstance(each, str))


class Readers:
    """All decoders by kind."""

    def __init__(self, dialects: tuple[Dialect, ...] | None = None) -> None:
        self._dialects = installed_dialects() if dialects is None else dialects
        self._all = Dialects(self._dialects)
        self._honoured: set[tuple[str, str, Path]] = set()
        self._kinds = {
            (kind.group, kind.kind): kind
            for kind in (*self._group_kinds(), *Intake((), dialects=self._dialects).enrichers.kinds)
        }

    def _group_kinds(self) -> Iterator[WantedKind]:
        yield from (each.kind for each in self._all.groups.values())
        yield from (each.kind for each in self._all.accounts.values())

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """(group, kind) of all objects that are read, pods left out."""
        return [*self._kinds, *_STRUCTS]

    def reader(self, document: Document) -> Read | None:
        """None for a kind that nobody reads."""
        group, _, version = str(document.get("apiVersion") or "").rpartition("/")
        kind = str(document.get("kind") or "")
        if (group, kind) == ("", "Pod"):
            return self._pod
        if (group, kind) == (jobs.BATCH, "Job"):
            return self._job
        if (group, kind) in _STRUCTS:
            struct = _STRUCTS[group, kind]
            return lambda each: _struct(struct, each)
        wanted = self._kinds.get((group, kind))
        if wanted is None:
            return None
        served = wanted.served_as(version)
        return lambda each: self._object(served, each)

    def owner(self, document: Document) -> Read | None:
        """What the owner of pods says of their gang; None where nobody asks such an object."""
        kind = (str(document.get("apiVersion") or "").rpartition("/")[0], str(document.get("kind") or ""))
        for rule in BUILT_IN_RULES:
            if rule.owner is not None and rule.sizes is not None and (rule.owner.group, rule.owner.kind) == kind:
                return partial(_sizes, rule.sizes)
        return None

    def accounts(self) -> Callable[[Document], list[ClusterEvent]]:
        """What becomes of accounts by objects that are told one after the other; other kinds are passed over."""
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
        """Whether anybody acts on what stands at `path`."""
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
            return specs, tuple(dict.fromkeys(told for each in specs for told in self._told_of_group(each)))
        if address in self._all.accounts:
            account = self._all.accounts[address]
            if account.read is not None:
                spec = account.read(kind, document)
                found = [*spec.warnings]
                for each in spec.accounts:
                    found += [*([each.problem] if each.problem else ()), *each.warnings]
                return spec, tuple(problem.message for problem in found)
            # Which nodes a profile means shows only where there are nodes.
            facts: object = (intake.account(kind, document), node_selector_of(kind, document))
        else:
            facts = intake.apply(intake.enrichers.updated(kind, document))
            if kind.kind == "Reservation":
                # Who may use one shows at the pods of others only.
                facts = (facts, read_owners(ReservationReader(kind, document)))
        return facts, _told(intake)

    def _told_of_group(self, spec: GroupSpec) -> list[str]:
        """What is said of a gang that has nothing yet but its object."""
        key = GangKey(spec.ref.namespace, spec.ref.name)
        context = GangContext(naming_of=self._all.naming_of)
        gang = resolve(key, (), (spec,), context, DialectOptions()).gang
        known = [spec.problem, *spec.warnings]
        said = (told.message for told in (*known, gang.problem, *gang.warnings) if told is not None)
        # Which classes there are is looked up among all that was read.
        return [message for message in said if "does not exist" not in message]

    def _job(self, document: Document) -> Reading:
        """A Job's labels and annotations are those of its PodGroup as well."""
        job, told = _struct(jobs.Job, document)
        if not isinstance(job, jobs.Job):
            return job, told
        group = desired_pod_group(job)
        kind = self._kinds[VOLCANO, "PodGroup"].served_as("v1beta1")
        keys = (*job.metadata.labels, *job.metadata.annotations)
        more = [each for each in self._object(kind, group)[1] if any(f"{key} " in each for key in keys)]
        return job, (*told, *more)

    def _pod(self, document: Document) -> Reading:
        pod = decode_pod(msgspec.json.encode(document))
        intake = Intake((pod.spec.scheduler_name,), dialects=self._dialects)
        # Every label is kept for whoever selects pods by it; that is not to act on it.
        facts = [
            PodUpdated(msgspec.structs.replace(event.pod, labels=())) if isinstance(event, PodUpdated) else event
            for event in intake.pod(pod)
        ]
        return facts, _told(intake)


def _schedulers(document: Document) -> tuple[str, ...]:
    """The scheduler that an object with a template of one pod names: what is said holds once it is ours."""
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
    """Where the values of an object stand; an empty map or list is one too."""
    if isinstance(value, Mapping) and value:
        for key, content in value.items():
            yield from leaves(content, (*path, str(key)))
    elif isinstance(value, list) and value:
        for place, content in enumerate(value):
            yield from leaves(content, (*path, place))
    elif value is not None:
        yield path


def spelled(path: Path) -> str:
    """As people write it: spec.tasks[0].name, metadata.annotations[a/b]."""
    text = ""
    for step in path:
        if isinstance(step, int) or "/" in step or "." in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _with(document: Document, path: Path, value: object) -> dict[str, Any]:
    """A copy in which `value` stands at `path`."""
    changed: dict[str, Any] = copy.copy(dict(document))
    place: Any = changed
    for step in path[:-1]:
        place[step] = copy.copy(place[step])
        place = place[step]
    place[path[-1]] = value
    return changed
