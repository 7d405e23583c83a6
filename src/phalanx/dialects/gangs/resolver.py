"""Resolution of all declarations of one gang into one `Gang` (docs/rules/coscheduling.md, 1.3 to 1.5).

A pure function: equal declarations, objects and context give an equal gang. Rule numbers in comments are those of
section 1.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from phalanx.dialects.gangs.agreement import Agreement, Member, Statements
from phalanx.dialects.gangs.context import GangContext
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.gangs.extras_resolver import ExtrasResolver, have_extras
from phalanx.dialects.gangs.group_spec import MAX_MEMBERS, GroupSpec
from phalanx.dialects.gangs.naming import GangNaming, InvalidMinimum, Precedence
from phalanx.dialects.gangs.stated_values import to_minimum
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.evictability import HIGHEST_USER_PRIORITY, SYSTEM_CLASSES
from phalanx.dialects.reader import describe
from phalanx.dialects.workloads.rule import WORKLOAD, WorkloadPart, WorkloadSize, group_of
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.gang import ExpectedMembers, Gang, GangKey, GroupRef, MatchPolicy, Problem
from phalanx.model.text.decoding import MAX_NAME, quoted
from phalanx.model.topology import TopologyRule

_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_MODES = ("single", "all")


class Resolved(msgspec.Struct, frozen=True):
    """Gang resolved from all its declarations. `about` maps each problem or warning of a single pod to that pod."""

    gang: Gang
    about: Mapping[Problem, Member]


def resolve(
    key: GangKey,
    members: Sequence[Member],
    groups: Sequence[GroupSpec],
    context: GangContext,
    options: DialectOptions,
) -> Resolved:
    """Combine all declarations of a gang into one `Gang`. `members` are oldest first, one per declaration;
    `members` or `groups` is not empty."""
    resolution = _Resolution(key, members, groups, context, options)
    return Resolved(resolution.gang(), resolution.statements.about)


def priority_class_not_found(ref: GroupRef, name: str) -> str:
    """Return the message for a PodGroup that names a missing PriorityClass."""
    return (
        f"{describe(ref)}: spec.priorityClassName is {quoted(name)}, which does not exist; create it; until then "
        "the members' own priorities decide"
    )


class _Resolution:
    def __init__(
        self,
        key: GangKey,
        members: Sequence[Member],
        groups: Sequence[GroupSpec],
        context: GangContext,
        options: DialectOptions,
    ) -> None:
        self.key = key
        self.members = members
        self.context = context
        self.options = options
        self.statements = Statements(key, members)
        self.spec = self._choose_object([spec for spec in groups if not spec.made])
        if members or self.spec is None:
            self.naming = members[0].declared.declaration.naming
        else:
            self.naming = context.naming_of[self.spec.ref.group]
        self._parts, self._later = self._staged_parts()
        self._is_staged = bool(self._parts) and (bool(self._later) or any(not part.pods for part in self._parts))
        inferred = self.spec is None and self.naming is WORKLOAD
        self._wanted = context.size.wanted if context.size is not None else 0
        self.size = context.size if inferred and not self._wanted else None
        made = [spec for spec in groups if spec.made] if self.spec is None and self.naming.rules.alone else []
        self.made = min(made, key=lambda spec: self._preference(None, spec)).ref if made else None

    def gang(self) -> Gang:
        spec = self.spec
        if spec is not None:
            self.statements.problems.extend(filter(None, [spec.problem]))
            self.statements.warnings.extend(spec.warnings)
        min_member = self._min_member()
        gang = self._declared(spec, min_member) if spec is not None else self._undeclared(min_member)
        if have_extras(self.members, spec):
            gang = ExtrasResolver(self.statements, spec, self.options).applied_to(gang)
        strict = self.naming.rules.by_native_rules and (spec is None or spec.problem is None)
        active = [member for member in self.members if member.declared.active]
        if strict or len(active) > 1:
            agreement = Agreement(self.key.namespace, active)
            for disagreement in agreement.disagreements(spec if strict else None, strict):
                problem, member = disagreement.problem, disagreement.member
                if disagreement.refused:
                    self.statements.refuse(problem, member)
                else:
                    self.statements.warn(problem.code, problem.message, member)
        if not self.statements.problems and not self.statements.warnings:
            return gang
        return msgspec.structs.replace(
            gang,
            problem=self.statements.problems[0] if self.statements.problems else None,
            warnings=tuple(self.statements.warnings),
        )

    def _declared(self, spec: GroupSpec, min_member: int) -> Gang:
        """Return the gang that its PodGroup declares."""
        # In a gang with staged parts, the object's counts never apply to all parts at once.
        at_once = not self._is_staged or all(part.beside for part in self._parts)
        return Gang(
            key=self.key,
            uid=spec.ref.uid,
            rules=self.naming.rules,
            source=spec.ref,
            min_member=min_member,
            stated_member=spec.min_member if self._is_staged else 0,
            roles=spec.roles,
            match_policy=self._usual_match_policy(),
            priority=self._priority(spec),
            queue=self._queue(),
            min_resources=spec.min_resources if at_once else None,
            min_limits=spec.min_limits if at_once else (),
            timeout=spec.timeout,
            created=spec.created,
            once_satisfied=spec.once_satisfied,
            admission=spec.admission,
            admitted=spec.admitted,
            admitted_at=spec.admitted_at,
            completed=spec.completed,
            suspended=self._owner_suspends(spec),
            owned=spec.owned,
            unit=spec.unit,
            preemptable=spec.preemptable,
            revocable=spec.revocable,
            tasks=spec.tasks,
            min_available=spec.min_available,
            max_unavailable=spec.max_unavailable,
            topology=spec.topology,
            subgroups=spec.subgroups,
            composite=GangKey(self.key.namespace, spec.composite) if spec.composite else None,
            workload=spec.workload,
            claims=spec.claims,
            generated=spec.job is not None,
            run_time=spec.run_time,
            later="; ".join([part.later for part in self._later]) if self._later else "",
            expected=self._expected(spec, min_member) if self._later or spec.pays_ahead else None,
        )

    def _owner_suspends(self, spec: GroupSpec) -> bool:
        size = self.context.sizes.get(GangKey(self.key.namespace, group_of(spec.owner))) if spec.owner else None
        return size is not None and size.suspended

    def _expected(self, spec: GroupSpec, min_member: int) -> ExpectedMembers | None:
        """Return the later members that the object counts and that run beside the present ones, which are useless
        without them."""
        beside = sum(part.pods for part in self._later if part.beside)
        count = min(beside, spec.min_member - min_member)
        if spec.pays_ahead and spec.min_resources:
            return ExpectedMembers()
        return ExpectedMembers(count) if count > 0 else None

    def _undeclared(self, min_member: int) -> Gang:
        """Return the gang that its members or their owner declare. A minimum on pods counts all of them."""
        owner = self.size
        size = owner if owner is not None and self._sized else None
        return Gang(
            key=self.key,
            uid=owner.uid if owner else "",
            rules=self.naming.rules,
            source=self.made,
            min_member=min_member,
            roles=size.roles if size else (),
            match_policy=self._usual_match_policy(),
            gang_group=size.gang_group_of(self.key) if size else (),
            queue=self._queue(),
            created=min(member.created for member in self.members),
            unit=self._unit(),
            topology=self._topology_key(),
            subgroups=owner.subgroups if owner else (),
            later=size.later if size else "",
            expected=ExpectedMembers(size.expected, size.requests) if size and size.expected else None,
            later_gangs=size.later_gangs_of(self.key) if size else (),
            expected_by=size.expected_by_of(self.key) if size else None,
        )

    # Rule 2: choice of the object.

    def _choose_object(self, groups: Sequence[GroupSpec]) -> GroupSpec | None:
        naming = self.members[0].declared.declaration.naming if self.members else None
        if naming is not None and naming.needed:
            # The field of the native API refers to a native object only.
            groups = [spec for spec in groups if spec.ref.group in naming.objects]
        elif naming is not None:
            groups = [spec for spec in groups if not spec.template]
        if len(groups) < 2:
            return groups[0] if groups else None
        ranked = sorted(groups, key=lambda spec: (self._preference(naming, spec), spec.ref.version, spec.ref.uid))
        for loser in ranked[1:]:
            self.statements.warn(
                "ConflictingGangDeclaration",
                f"{describe(ranked[0].ref)} and {describe(loser.ref)} have the same name; the first one holds, "
                "delete the other",
            )
        return ranked[0]

    def _preference(self, naming: GangNaming | None, spec: GroupSpec) -> int:
        """Return the rank of a PodGroup among those of one name, 0 being the best."""
        first = naming.objects if naming is not None else ()
        order = (*first, *(group for group in self.context.naming_of if group not in first))
        return order.index(spec.ref.group)

    # Rules 2 to 6: the minimum.

    def _min_member(self) -> int:
        stated = self.statements.stated(lambda declaration: declaration.minimum)
        if self.spec is not None and self.spec.basic:
            return self._basic_minimum(self.spec)
        if self.spec is not None:
            for member, minimum in stated:
                if to_minimum(minimum.value) != self.spec.min_member:
                    self._dissent(member, minimum, f"{describe(self.spec.ref)} says {self.spec.min_member}")
            return self._created_now(self.spec.min_member)
        self._check_name()
        if self.naming.needed:
            self._not_found()
            return 1
        if self.naming is WORKLOAD and not stated:
            return self._owners_minimum(self.size)
        if not stated:
            self._not_found()
            return 1
        return self._minimum_of_members(stated)

    def _basic_minimum(self, spec: GroupSpec) -> int:
        """Return the minimum of a group that states none: that of its pods, else that of their Job."""
        stated = self.statements.stated(lambda declaration: declaration.basic_minimum)
        if stated:
            return self._minimum_of_members(stated)
        if not self.members or self.members[0].declared.declaration.owner is None:
            return spec.min_member
        return self._owners_minimum(self.context.sizes.get(GangKey(self.key.namespace, group_of(spec.owner))))

    def _minimum_of_members(self, stated: Sequence[tuple[Member, Stated]]) -> int:
        """Return the valid minimum of the oldest member; report the others."""
        legal = [(member, minimum) for member, minimum in stated if to_minimum(minimum.value) is not None]
        if legal:
            chosen = to_minimum(legal[0][1].value) or 1
            for member, minimum in stated:
                if to_minimum(minimum.value) != chosen:
                    self._dissent(member, minimum, f"the oldest member, pod {legal[0][0].name}, says {chosen}")
            return min(chosen, self._wanted or chosen)
        member, minimum = stated[0]
        advice = f'write a whole number from 1 to {MAX_MEMBERS}, such as "3"'
        if self.naming.invalid_minimum is InvalidMinimum.ONE:
            self.statements.warn(
                "InvalidPodGroup", f"{self.statements.quote(member, minimum)}; {advice}; 1 is used", member
            )
        else:
            problem = Problem.of("InvalidPodGroup", self.statements.quote(member, minimum), advice)
            self.statements.refuse(problem, member)
        return 1

    def _staged_parts(self) -> tuple[Sequence[WorkloadPart], Sequence[WorkloadPart]]:
        """Return all parts that the object's owner creates, and the parts that it creates later. A part with a
        member has begun, even if the owner's status does not show it yet."""
        owner = self.spec.owner if self.spec is not None else ""
        size = self.context.sizes.get(GangKey(self.key.namespace, group_of(owner))) if owner else None
        if size is None:
            return (), ()
        begun = {member.declared.declaration.part for member in self.members if member.declared.active}
        return size.parts, [part for part in size.parts if not part.now and part.name not in begun]

    def _created_now(self, stated: int) -> int:
        """Limit a stated minimum to the pods that can exist now: operators also count pods that they create only
        after the first ones run, and pods that have completed."""
        if not self._parts:
            return stated
        total = sum(part.pods for part in self._parts) - sum(part.pods for part in self._later)
        return max(1, min(stated, total))

    @property
    def _sized(self) -> bool:
        return not any(member.declared.declaration.minimum for member in self.members)

    def _owners_minimum(self, size: WorkloadSize | None) -> int:
        """Return the gang's minimum from its owner, else from its members' labels. Without a readable owner the
        members start one by one, since a guessed minimum could be unreachable."""
        if size is not None and size.min_member:
            return size.min_member
        declaration = self.members[0].declared.declaration
        stated_size, kind = declaration.usual_minimum, declaration.owner
        owner = declaration.key.removeprefix("owner ") if self.naming is WORKLOAD else "the Job of its pods"
        known = kind is None or kind in self.context.unreadable or size is not None
        if stated_size is not None and known:
            return to_minimum(stated_size.value) or 1
        if known:
            advice = f"let the scheduler read {kind[1]}.{kind[0]}" if kind is not None else "see docs/workloads.md"
            self.statements.warn(
                "OwnerNotReadable",
                f"gang {self.key}: the number of pods that {owner} starts together is unknown, so they "
                f"start one by one; {advice}, or write the annotation phalanx.dev/min-count on its pods",
            )
        elif any(member.declared.active for member in self.members):
            wrong = f"waiting for {owner}, which states how many of its pods start together"
            remedy = "it does not exist, or not with the uid that its pods name"
            self.statements.refuse(Problem.of("OwnerNotFound", wrong, remedy, waits=True))
        return 1

    def _check_name(self) -> None:
        """Check that the gang's name is legal (rule 6). Names of objects are checked by the API server."""
        if self.naming.needed or self.naming.precedence is Precedence.UNNAMED:
            return
        if len(self.key.name) > MAX_NAME or not _DNS_SUBDOMAIN.fullmatch(self.key.name):
            member = self.members[0]
            stated = Stated(member.declared.declaration.key, self.key.name)
            wrong = f"{self.statements.quote(member, stated)}, which can name no PodGroup"
            remedy = "use lower-case letters, digits, '-' and '.', such as \"tf-smoke-gpu\""
            self.statements.refuse(Problem.of("InvalidPodGroup", wrong, remedy), member)

    def _not_found(self) -> None:
        """Report that no object declares the gang (rule 5)."""
        place = self.members[0].declared.declaration.key
        self.statements.refuse(self.naming.missing(self.key, place, self.context.native))

    def _dissent(self, member: Member, stated: Stated, against: str) -> None:
        problem = f"{self.statements.quote(member, stated)}, but {against}, which holds"
        self.statements.warn("MinAvailableMismatch", problem, member)

    def _usual_match_policy(self) -> MatchPolicy:
        if self._is_staged:
            # A member that finished in an earlier part does not count for this part, which has still to start.
            return MatchPolicy.WAITING_AND_RUNNING
        return self.options.match_policies.get(self.naming.rules.name) or self.naming.match_policy

    # Annotations of our own that replace fields of an object.

    def _unit(self) -> bool:
        stated = self.statements.stated(lambda declaration: declaration.disruption_mode)
        for member, mode in stated:
            if mode.value not in _MODES:
                self.statements.warn(
                    "InvalidDisruptionMode",
                    f"{self.statements.quote(member, mode)}; write single or all; all is used",
                    member,
                )
        return any(mode.value != "single" for _, mode in stated)

    def _topology_key(self) -> TopologyRule | None:
        """Return the topology constraint of our own annotation: all members in one domain of a node label."""
        stated = self.statements.stated(lambda declaration: declaration.topology_key)
        return TopologyRule.by_label(stated[0][1].value) if stated else None

    # Queue and priority.

    def _queue(self) -> str:
        """Return the queue: the object's, else the members', else the namespace's. Volcano's CRD defaults to
        `default`, so that value yields to the namespace's queue."""
        own = self.spec.queue if self.spec is not None else ""
        if not own and (stated := self.statements.stated(lambda declaration: declaration.queue)):
            own = stated[0][1].value
        if own and own != DEFAULT_QUEUE:
            return own
        return self.context.queue or DEFAULT_QUEUE

    def _priority(self, spec: GroupSpec) -> int | None:
        name, value = spec.priority_class, spec.priority
        if value is None and name:
            value = self.context.priority_classes.get(name)
            if value is None:
                self.statements.warn("PriorityClassNotFound", priority_class_not_found(spec.ref, name))
        if value is None or self.options.is_system(self.key.namespace):
            return value
        if value > HIGHEST_USER_PRIORITY or name in SYSTEM_CLASSES:
            stated = f"priorityClassName is {quoted(name)}" if name else f"priority is {value}"
            self.statements.warn(
                "SystemPriority",
                f"{describe(spec.ref)}: spec.{stated}, which only groups in system namespaces may have; name "
                f"a class of at most {HIGHEST_USER_PRIORITY}; until then the members' own priorities decide",
            )
            return None
        return value
