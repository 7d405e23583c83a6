"""What the members of one gang say each for themselves, and whether they agree where they have to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from phalanx.dialects.gangs.declaration import Declaration
from phalanx.dialects.gangs.group_spec import GroupSpec


class MemberDeclaration(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """All that one member contributes; members that agree in everything have one.

    `active` is False once the pod has finished or is being deleted: then only its declaration counts.
    """

    declaration: Declaration
    priority: int = 0
    preempts: bool = True
    scheduler: str = ""
    active: bool = True


class Member(msgspec.Struct, frozen=True, order=True, gc=False):
    """The oldest pod of one declaration. Members sort by age, then by name."""

    created: int
    name: str
    uid: str
    declared: MemberDeclaration


class Disagreement(msgspec.Struct, frozen=True):
    """`refused` where it holds the gang. `member` is the pod at fault."""

    code: str
    message: str
    member: Member
    refused: bool


class Agreement:
    """Compares active members, oldest first, with their group's object and with each other."""

    def __init__(self, namespace: str, members: Sequence[Member]) -> None:
        self._namespace = namespace
        self._members = members

    def disagreements(self, spec: GroupSpec | None, strict: bool) -> Iterator[Disagreement]:
        """`spec` is the object where its word on priority and preemption binds its members. `strict` groups are
        refused when members differ, as kube-scheduler refuses Kubernetes' own; of those that are not uniform only
        the scheduler must be one."""
        if spec is None and len(self._members) < 2:
            return  # one agrees with itself, as most do
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
        self, select: Callable[[MemberDeclaration], object], wanted: object, code: str, what: str, advice: str
    ) -> Iterator[Disagreement]:
        for member in self._members:
            if select(member.declared) != wanted:
                yield Disagreement(
                    code,
                    f"pod {self._pod(member)} has {what} {select(member.declared)}, but its PodGroup has {wanted}; "
                    f"{advice}",
                    member,
                    True,
                )
                return

    def _with_each_other(
        self, select: Callable[[MemberDeclaration], object], code: str, what: str, refused: bool, advice: str
    ) -> Iterator[Disagreement]:
        for member in self._members[1:]:
            oldest = self._members[0]
            theirs, ours = select(member.declared), select(oldest.declared)
            if theirs != ours:
                yield Disagreement(
                    code,
                    f"pod {self._pod(member)} has {what} {theirs}, pod {self._pod(oldest)} has {ours}; {advice}",
                    member,
                    refused,
                )
                return

    def _pod(self, member: Member) -> str:
        return f"{self._namespace}/{member.name}"


def preemption_policy(declared: MemberDeclaration) -> str:
    return "PreemptLowerPriority" if declared.preempts else "Never"
