"""Individual gang declarations of a gang's members, and checks of the properties in which members must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from phalanx.dialects.gangs.declaration import Declaration
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.model.gang import GangKey, GangOwner, Problem
from phalanx.model.text.decoding import quoted


class MemberDeclaration(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Gang declaration of one member; members that agree in everything share one.

    `active` is False once the pod has finished or is being deleted: then only its declaration counts.
    """

    declaration: Declaration
    priority: int = 0
    preempts: bool = True
    scheduler: str = ""
    active: bool = True


class Member(msgspec.Struct, frozen=True, order=True, gc=False):
    """Pod of a gang; of equal declarations, only the oldest member counts. Members sort by age, then by name.

    `job` has created the pod; None for a pod without a job.
    """

    created: int
    name: str
    uid: str
    declared: MemberDeclaration
    job: GangOwner | None = None


class Statements:
    """Declarations of a gang's members (oldest first, one per declaration), and the faults found in them.
    `problems` hold the gang, `warnings` do not; `about` maps each fault of a single member to that member."""

    def __init__(self, key: GangKey, members: Sequence[Member]) -> None:
        self.key = key
        self.members = members
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.about: dict[Problem, Member] = {}

    def stated(self, select: Callable[[Declaration], Stated | None]) -> list[tuple[Member, Stated]]:
        """Return the members that state a value for a property, oldest first, one per value; `select` returns a
        declaration's value."""
        if len(self.members) == 1:
            only = self.members[0]
            stated = select(only.declared.declaration)
            return [] if stated is None else [(only, stated)]
        members: dict[Stated, Member] = {}
        for member in self.members:
            if (stated := select(member.declared.declaration)) is not None:
                members.setdefault(stated, member)
        return [(member, stated) for stated, member in members.items()]

    def quote(self, member: Member, stated: Stated) -> str:
        return f"pod {self.pod_name(member)}: {stated.key} is {quoted(stated.value)}"

    def pod_name(self, member: Member) -> str:
        return f"{self.key.namespace}/{member.name}"

    def refuse(self, problem: Problem, member: Member | None = None) -> None:
        self._note(self.problems, problem, member)

    def warn(self, code: str, message: str, member: Member | None = None) -> None:
        self._note(self.warnings, Problem(code, message), member)

    def _note(self, notes: list[Problem], problem: Problem, member: Member | None) -> None:
        notes.append(problem)
        if member is not None:
            self.about[problem] = member


class Disagreement(msgspec.Struct, frozen=True):
    """Property in which members of a gang disagree. `refused` holds the gang. `member` is the pod at fault."""

    problem: Problem
    member: Member
    refused: bool


class Agreement:
    """Compares a gang's active members, oldest first, with their PodGroup and with each other."""

    def __init__(self, namespace: str, members: Sequence[Member]) -> None:
        self._namespace = namespace
        self._members = members

    def disagreements(self, spec: GroupSpec | None, strict: bool) -> Iterator[Disagreement]:
        """Yield the disagreements. `spec` is the object if its priority and preemption policy bind its members.
        `strict` groups are rejected when members differ, as kube-scheduler does for native groups; in a group
        that is not uniform, only the scheduler must be the same."""
        if spec is None and len(self._members) < 2:
            return  # a single declaration, the common case
        uniform = spec is None or spec.uniform
        if not uniform:
            pass
        elif spec is not None and spec.priority is not None:
            yield from self._with_group(
                lambda declared: declared.priority, spec.priority, "PriorityMismatch", "priority",
                "give both the same priorityClassName",
            )  # fmt: skip
        else:
            yield from self._with_each_other(
                lambda declared: declared.priority, "PriorityMismatch", "priority", False,
                "give all members of a gang the same priorityClassName",
            )  # fmt: skip
        yield from self._with_each_other(
            lambda declared: declared.scheduler, "SchedulerNameMismatch", "spec.schedulerName", strict,
            "a gang is placed by one scheduler",
        )  # fmt: skip
        if spec is not None and spec.preemption_policy:
            yield from self._with_group(
                preemption_policy, spec.preemption_policy, "PreemptionPolicyMismatch", "spec.preemptionPolicy",
                "give both the same",
            )  # fmt: skip
        elif strict and uniform:
            yield from self._with_each_other(
                preemption_policy, "PreemptionPolicyMismatch", "spec.preemptionPolicy", True,
                "give all members the same spec.preemptionPolicy",
            )  # fmt: skip

    def _with_group(
        self, select: Callable[[MemberDeclaration], object], wanted: object, code: str, label: str, advice: str
    ) -> Iterator[Disagreement]:
        for member in self._members:
            if select(member.declared) != wanted:
                value = select(member.declared)
                wrong = f"pod {self._pod(member)} has {label} {value}, but its PodGroup has {wanted}"
                yield Disagreement(Problem.of(code, wrong, advice), member, True)
                return

    def _with_each_other(
        self, select: Callable[[MemberDeclaration], object], code: str, label: str, refused: bool, advice: str
    ) -> Iterator[Disagreement]:
        for member in self._members[1:]:
            oldest = self._members[0]
            value, expected = select(member.declared), select(oldest.declared)
            if value != expected:
                wrong = f"pod {self._pod(member)} has {label} {value}, pod {self._pod(oldest)} has {expected}"
                yield Disagreement(Problem.of(code, wrong, advice), member, refused)
                return

    def _pod(self, member: Member) -> str:
        return f"{self._namespace}/{member.name}"


def preemption_policy(declared: MemberDeclaration) -> str:
    return "PreemptLowerPriority" if declared.preempts else "Never"
