"""From all that is said about one gang to one `Gang` (coscheduling.md, 1.3 to 1.5).

A pure function: the same declarations, objects and surroundings give the same noun. Rule numbers in comments are
those of section 1.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from phalanx.dialects import koordinator
from phalanx.dialects.declaration import Declaration
from phalanx.dialects.groups import preference
from phalanx.dialects.groupspec import MAX_MEMBERS, GroupSpec
from phalanx.dialects.koordinator import Extras, Stated
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.reader import describe
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.duration import parse_duration
from phalanx.model.gang import Dialect, Gang, GangKey, MatchPolicy, Problem

_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
T = TypeVar("T")


class Voice(msgspec.Struct, frozen=True, cache_hash=True):
    """All that one member contributes; members that agree in everything speak with one voice.

    `active` is False once the pod has finished or is being deleted: then only its declaration counts.
    """

    declaration: Declaration
    priority: int = 0
    preempts: bool = True
    scheduler: str = ""
    active: bool = True


class Member(msgspec.Struct, frozen=True, order=True):
    """The oldest pod of one voice. Members sort by age, then by name."""

    created: int
    name: str
    uid: str
    voice: Voice


class Resolved(msgspec.Struct, frozen=True):
    """`about` holds the pod at fault for each problem and warning that is one pod's."""

    gang: Gang
    about: Mapping[Problem, Member]


class Surroundings(msgspec.Struct, frozen=True):
    """Facts from outside the gang: the values of priority classes, and the queue that the namespace prefers."""

    priority_classes: Mapping[str, int] = {}
    queue: str = ""


def resolve(
    key: GangKey,
    members: Sequence[Member],
    groups: Sequence[GroupSpec],
    surroundings: Surroundings,
    options: DialectOptions,
) -> Resolved:
    """The gang of this name. `members` oldest first, one per voice; `members` or `groups` is not empty."""
    resolution = _Resolution(key, members, groups, surroundings, options)
    return Resolved(resolution.gang(), resolution.about)


class _Resolution:
    def __init__(
        self,
        key: GangKey,
        members: Sequence[Member],
        groups: Sequence[GroupSpec],
        surroundings: Surroundings,
        options: DialectOptions,
    ) -> None:
        self.key = key
        self.members = members
        self.surroundings = surroundings
        self.options = options
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.about: dict[Problem, Member] = {}
        self.spec = self._choose_object(groups)
        self.dialect = members[0].voice.declaration.dialect if members or self.spec is None else self.spec.family

    def gang(self) -> Gang:
        spec = self.spec
        if spec is not None:
            self.problems.extend(filter(None, [spec.problem]))
            self.warnings.extend(spec.warnings)
        min_member = self._min_member()
        created = [member.created for member in self.members]
        gang = Gang(
            key=self.key,
            uid=spec.ref.uid if spec else "",
            dialect=self.dialect,
            source=spec.ref if spec else None,
            min_member=min_member,
            roles=spec.roles if spec else (),
            match_policy=self._match_policy(),
            strict=self._strict(),
            bundle=self._bundle(),
            priority=self._priority(),
            queue=self._queue(),
            min_resources=spec.min_resources if spec else None,
            timeout=self._timeout(),
            sla_waiting_time=self._sla_waiting_time(),
            created=spec.created if spec else min(created),
            once_satisfied=spec.once_satisfied if spec else False,
            admission=spec.admission if spec else False,
            admitted=spec.admitted if spec else True,
            unit=spec.unit if spec else False,
            preemptable=spec.preemptable if spec else True,
            revocable=spec.revocable if spec else False,
            min_available=spec.min_available if spec else None,
            max_unavailable=spec.max_unavailable if spec else None,
            total=self._total(min_member),
        )
        self._check_topology()
        self._check_agreement()
        return msgspec.structs.replace(
            gang, problem=self.problems[0] if self.problems else None, warnings=tuple(self.warnings)
        )

    # Rule 2: which object.

    def _choose_object(self, groups: Sequence[GroupSpec]) -> GroupSpec | None:
        dialect = self.members[0].voice.declaration.dialect if self.members else None
        if dialect is Dialect.NATIVE:
            # The field of the native API means a native object and nothing else.
            groups = [spec for spec in groups if spec.family is Dialect.NATIVE]
        elif dialect is not None:
            groups = [spec for spec in groups if spec.ref.kind == "PodGroup"]
        ranked = sorted(groups, key=lambda spec: (preference(dialect, spec), spec.ref.version, spec.ref.uid))
        for loser in ranked[1:]:
            self._warn(
                "ConflictingGangDeclaration",
                f"{describe(ranked[0].ref)} and {describe(loser.ref)} have the same name; the first one holds, "
                "delete the other",
            )
        return ranked[0] if ranked else None

    # Rules 2 to 6: the minimum.

    def _min_member(self) -> int:
        stated = self._stated(lambda declaration: declaration.minimum)
        if self.spec is not None:
            for member, minimum in stated:
                if _to_minimum(minimum.value) != self.spec.min_member:
                    self._dissent(member, minimum, f"{describe(self.spec.ref)} says {self.spec.min_member}")
            return self.spec.min_member
        self._check_name()
        if self.dialect is Dialect.NATIVE:
            self._not_found()
            return 1
        legal = [(member, minimum) for member, minimum in stated if _to_minimum(minimum.value) is not None]
        if legal:
            chosen = _to_minimum(legal[0][1].value) or 1
            for member, minimum in stated:
                if _to_minimum(minimum.value) != chosen:
                    self._dissent(member, minimum, f"the oldest member, pod {legal[0][0].name}, says {chosen}")
            return chosen
        if not stated:
            self._not_found()
            return 1
        member, minimum = stated[0]
        advice = f'write a whole number from 1 to {MAX_MEMBERS}, such as "3"'
        if self.dialect is Dialect.SHADOW:
            # kube-batch carries on with a group of one.
            self._warn("InvalidPodGroup", f"{self._quote(member, minimum)}; {advice}; 1 is used", member)
        else:
            self._refuse("InvalidPodGroup", f"{self._quote(member, minimum)}; {advice}", member)
        return 1

    def _check_name(self) -> None:
        """Rule 6. A name that stands for an object is checked by the API server."""
        if self.dialect in (Dialect.NATIVE, Dialect.SHADOW):
            return
        if len(self.key.name) > 253 or not _DNS_SUBDOMAIN.fullmatch(self.key.name):
            member = self.members[0]
            stated = Stated(member.voice.declaration.key, self.key.name)
            self._refuse(
                "InvalidPodGroup",
                f"{self._quote(member, stated)}, which can name no PodGroup; "
                "use lower-case letters, digits, '-' and '.', such as \"tf-smoke-gpu\"",
                member,
            )

    def _not_found(self) -> None:
        """Rule 5."""
        advice = "create it"
        if self.dialect is not Dialect.NATIVE:
            advice += ", or label its pods with pod-group.scheduling.sigs.k8s.io/name and .../min-available instead"
        elif self.members[0].voice.declaration.key == "spec.workloadRef":
            self._refuse("PodGroupNotFound", f"no Workload declares the pod group {self.key}; create it")
            return
        self._refuse("PodGroupNotFound", f"PodGroup {self.key} not found; {advice}")

    def _dissent(self, member: Member, stated: Stated, against: str) -> None:
        self._warn("MinAvailableMismatch", f"{self._quote(member, stated)}, but {against}, which holds", member)

    # The extras: the object's word first, then that of the oldest member that has one (rule 3).

    def _match_policy(self) -> MatchPolicy:
        default = self.options.match_policy(self.dialect)
        return self._extra(
            "UnknownMatchPolicy", lambda extras: extras.match_policy, koordinator.parse_match_policy,
            default, f"{default} is used",
        )  # fmt: skip

    def _strict(self) -> bool:
        return self._extra("UnknownMode", lambda extras: extras.mode, _parse_mode, True, "Strict is used")

    def _bundle(self) -> tuple[GangKey, ...]:
        named: tuple[GangKey, ...] = self._extra(
            "InvalidGangGroups", lambda extras: extras.groups, koordinator.parse_groups, (),
            "until then the gang stands alone",
        )  # fmt: skip
        bundle = {self.key, *named}
        return tuple(sorted(bundle)) if len(bundle) > 1 else ()

    def _timeout(self) -> int | None:
        if self.spec is not None and self.spec.timeout is not None:
            return self.spec.timeout
        return self._extra(
            "InvalidTimeout", lambda extras: extras.waiting_time, _parse_waiting_time, None, "none is used"
        )

    def _sla_waiting_time(self) -> int | None:
        return self._extra(
            "InvalidSlaWaitingTime", lambda extras: extras.sla_waiting_time, _parse_waiting_time, None,
            "the gang waits its turn",
        )  # fmt: skip

    def _total(self, min_member: int) -> int:
        total = self._extra(
            "InvalidTotalNumber", lambda extras: extras.total_number, _parse_total, 0, "it is ignored"
        )
        return total if total >= min_member else 0

    def _check_topology(self) -> None:
        if self._extra(
            "InvalidTopology", lambda extras: extras.topology, koordinator.must_gather, False, "it is ignored"
        ):
            self._refuse(
                "UnsupportedField",
                f"gang {self.key}: {koordinator.TOPOLOGY_SPEC} asks for MustGather, which this scheduler cannot "
                "honour yet; use PreferGather",
            )

    def _extra(
        self,
        code: str,
        select: Callable[[Extras], Stated | None],
        parse: Callable[[str], T],
        default: T,
        fallback: str,
    ) -> T:
        """The value that holds. One that cannot be read is warned of as `code`, with what is done instead."""
        speaker, stated = self._speaker(select)
        if stated is None:
            return default
        try:
            return parse(stated.value)
        except ValueError as error:
            self._warn(code, f"{speaker}: {stated.key} is {stated.value!r}; {error}; {fallback}")
            return default

    def _speaker(self, select: Callable[[Extras], Stated | None]) -> tuple[str, Stated | None]:
        if self.spec is not None and (stated := select(self.spec.extras)) is not None:
            return describe(self.spec.ref), stated
        speakers = self._stated(lambda declaration: select(declaration.extras))
        if not speakers:
            return "", None
        oldest, stated = speakers[0]
        for member, other in speakers[1:]:
            if other.value != stated.value:
                self._warn(
                    "ConflictingGangDeclaration",
                    f"{self._quote(member, other)}, but the oldest member, pod {oldest.name}, says "
                    f"{stated.value!r}, which holds",
                    member,
                )
        return f"pod {self._pod(oldest)}", stated

    # Queue and priority.

    def _queue(self) -> str:
        """The object's word, then the members', then the namespace's. Volcano's CRD fills in `default`, so that
        word says nothing where the namespace prefers another queue."""
        own = self.spec.queue if self.spec is not None else ""
        stated = self._stated(lambda declaration: declaration.queue)
        if not own and stated:
            own = stated[0][1].value
        if own and own != DEFAULT_QUEUE:
            return own
        return self.surroundings.queue or DEFAULT_QUEUE

    def _priority(self) -> int | None:
        if self.spec is None:
            return None
        name = self.spec.priority_class
        if self.spec.priority is not None or not name:
            return self.spec.priority
        value = self.surroundings.priority_classes.get(name)
        if value is None:
            self._warn(
                "PriorityClassNotFound",
                f"{describe(self.spec.ref)}: spec.priorityClassName is {name!r}, which does not exist; create it; "
                "until then the members' own priorities decide",
            )
        return value

    def _check_agreement(self) -> None:
        active = [member for member in self.members if member.voice.active]
        native = self.dialect is Dialect.NATIVE and self.spec is not None and self.spec.problem is None
        group_priority = self.spec.priority if native and self.spec is not None else None
        if group_priority is not None:
            for member in active:
                if member.voice.priority != group_priority:
                    self._refuse(
                        "PriorityMismatch",
                        f"pod {self._pod(member)} has priority {member.voice.priority}, but its PodGroup has "
                        f"{group_priority}; give both the same priorityClassName",
                    )
                    break
        else:
            self._compare(
                active, lambda voice: voice.priority, "PriorityMismatch", "priority", self._warn,
                "give all members of a gang the same priorityClassName",
            )  # fmt: skip
        note = self._refuse if native else self._warn
        self._compare(
            active, lambda voice: voice.scheduler, "SchedulerNameMismatch", "spec.schedulerName", note,
            "a gang is placed by one scheduler",
        )  # fmt: skip
        if native:
            self._compare(
                active, _preemption_policy, "PreemptionPolicyMismatch", "spec.preemptionPolicy", note,
                "give all members the same spec.preemptionPolicy",
            )  # fmt: skip

    def _compare(
        self,
        members: Iterable[Member],
        select: Callable[[Voice], object],
        code: str,
        what: str,
        note: Callable[[str, str, Member], None],
        advice: str,
    ) -> None:
        oldest: Member | None = None
        for member in members:
            if oldest is None:
                oldest = member
            elif select(member.voice) != select(oldest.voice):
                theirs, ours = select(member.voice), select(oldest.voice)
                note(
                    code,
                    f"pod {self._pod(member)} has {what} {theirs}, pod {self._pod(oldest)} has {ours}; {advice}",
                    member,
                )
                return

    # Small things.

    def _stated(self, select: Callable[[Declaration], Stated | None]) -> list[tuple[Member, Stated]]:
        """Members that state something, oldest first, one per value."""
        found: dict[Stated, Member] = {}
        for member in self.members:
            stated = select(member.voice.declaration)
            if stated is not None:
                found.setdefault(stated, member)
        return [(member, stated) for stated, member in found.items()]

    def _quote(self, member: Member, stated: Stated) -> str:
        return f"pod {self._pod(member)}: {stated.key} is {stated.value!r}"

    def _pod(self, member: Member) -> str:
        return f"{self.key.namespace}/{member.name}"

    def _refuse(self, code: str, message: str, member: Member | None = None) -> None:
        self._note(self.problems, code, message, member)

    def _warn(self, code: str, message: str, member: Member | None = None) -> None:
        self._note(self.warnings, code, message, member)

    def _note(self, notes: list[Problem], code: str, message: str, member: Member | None) -> None:
        problem = Problem(code, message)
        notes.append(problem)
        if member is not None:
            self.about[problem] = member


def _to_minimum(text: str) -> int | None:
    """The minimum that a pod states, None where it is none (rule 4)."""
    if not _WHOLE.fullmatch(text):
        return None
    minimum = int(text)
    return minimum if 1 <= minimum <= MAX_MEMBERS else None


def is_legal_minimum(text: str) -> bool:
    return _to_minimum(text) is not None


def _preemption_policy(voice: Voice) -> str:
    return "PreemptLowerPriority" if voice.preempts else "Never"


def _parse_mode(text: str) -> bool:
    if text not in ("Strict", "NonStrict"):
        raise ValueError("write Strict or NonStrict")
    return text == "Strict"


def _parse_waiting_time(text: str) -> int | None:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("write a duration above 0, such as 10m")
    return seconds


def _parse_total(text: str) -> int:
    if not _WHOLE.fullmatch(text) or not 0 <= int(text) <= MAX_MEMBERS:
        raise ValueError("write a whole number, such as 5")
    return int(text)
