"""From all that is said about one gang to one `Gang` (docs/rules/coscheduling.md, 1.3 to 1.5).

A pure function: the same declarations, objects and context give the same gang. Rule numbers in comments are
those of section 1.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from phalanx.dialects.gangs import extras as koordinator
from phalanx.dialects.gangs.agreement import Agreement, Member
from phalanx.dialects.gangs.context import GangContext
from phalanx.dialects.gangs.declaration import Declaration
from phalanx.dialects.gangs.extras import NO_EXTRAS, Extras, Stated
from phalanx.dialects.gangs.group_spec import MAX_MEMBERS, GroupSpec
from phalanx.dialects.gangs.naming import GangNaming, InvalidMinimum, Precedence
from phalanx.dialects.gangs.stated_values import (
    parse_expected,
    parse_expected_timeout,
    parse_growth_delay,
    parse_requests,
    parse_total,
    parse_truth,
    parse_waiting_time,
    to_minimum,
)
from phalanx.dialects.gangs.topology_annotations import (
    MUST_GATHER,
    Layer,
    layer_rule,
    level_rule,
    parse_layers,
    parse_mode,
    parse_tier,
    tier_rule,
)
from phalanx.dialects.options import DialectOptions
from phalanx.dialects.pods.evictability import HIGHEST_USER_PRIORITY, SYSTEM_CLASSES
from phalanx.dialects.reader import describe
from phalanx.dialects.workloads.rule import WORKLOAD, WorkloadPart, group_of
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.gang import MOST_GANGS, ExpectedMembers, Gang, GangKey, GroupRef, MatchPolicy, Problem
from phalanx.model.resources import Requests
from phalanx.model.text.decoding import MAX_NAME, quoted
from phalanx.model.topology import TopologyRule

_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_MODES = ("single", "all")
T = TypeVar("T")


class Resolved(msgspec.Struct, frozen=True):
    """`about` holds the pod at fault for each problem and warning that is one pod's."""

    gang: Gang
    about: Mapping[Problem, Member]


def resolve(
    key: GangKey,
    members: Sequence[Member],
    groups: Sequence[GroupSpec],
    context: GangContext,
    options: DialectOptions,
) -> Resolved:
    """The gang of this name. `members` oldest first, one per declaration; `members` or `groups` is not empty."""
    resolution = _Resolution(key, members, groups, context, options)
    return Resolved(resolution.gang(), resolution.about)


def priority_class_not_found(ref: GroupRef, name: str) -> str:
    """What is said of a group whose PriorityClass is missing."""
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
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.about: dict[Problem, Member] = {}
        self._talkative = any(each.declared.declaration.extras is not NO_EXTRAS for each in members)
        self.spec = self._choose_object([spec for spec in groups if not spec.made])
        # (Most say nothing of all this: then nobody is asked.)
        self._silent = not self._talkative and (self.spec is None or self.spec.extras is NO_EXTRAS)
        if members or self.spec is None:
            self.naming = members[0].declared.declaration.naming
        else:
            self.naming = context.naming_of[self.spec.ref.group]
        self._parts, self._later = self._staged_parts()
        self._is_staged = bool(self._parts) and (bool(self._later) or any(not part.pods for part in self._parts))
        inferred = self.spec is None and self.naming is WORKLOAD
        self.size = context.size if inferred else None
        made = [spec for spec in groups if spec.made] if self.spec is None and self.naming.rules.alone else []
        self.made = min(made, key=lambda spec: self._preference(None, spec)).ref if made else None

    def gang(self) -> Gang:
        spec = self.spec
        if spec is not None:
            self.problems.extend(filter(None, [spec.problem]))
            self.warnings.extend(spec.warnings)
        min_member = self._min_member()
        gang = self._declared(spec, min_member) if spec is not None else self._undeclared(min_member)
        if not self._silent:
            gang = self._with_extras(gang)
        strict = self.naming.rules.by_native_rules and (spec is None or spec.problem is None)
        active = [member for member in self.members if member.declared.active]
        if strict or len(active) > 1:
            agreement = Agreement(self.key.namespace, active)
            for disagreement in agreement.disagreements(spec if strict else None, strict):
                note = self._refuse if disagreement.refused else self._warn
                note(disagreement.code, disagreement.message, disagreement.member)
        if not self.problems and not self.warnings:
            return gang
        return msgspec.structs.replace(
            gang, problem=self.problems[0] if self.problems else None, warnings=tuple(self.warnings)
        )

    def _declared(self, spec: GroupSpec, min_member: int) -> Gang:
        """What the object says."""
        return Gang(
            key=self.key,
            uid=spec.ref.uid,
            rules=self.naming.rules,
            source=spec.ref,
            min_member=min_member,
            roles=spec.roles,
            match_policy=self._usual_match_policy(),
            priority=self._priority(spec),
            queue=self._queue(),
            min_resources=spec.min_resources,
            timeout=spec.timeout,
            created=spec.created,
            once_satisfied=spec.once_satisfied,
            admission=spec.admission,
            admitted=spec.admitted,
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
            run_time=spec.run_time,
            later="; ".join([part.later for part in self._later]) if self._later else "",
        )

    def _undeclared(self, min_member: int) -> Gang:
        """What the members say, or their owner. (A minimum that pods state themselves is of all of them.)"""
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
            bundle=size.bundle_of(self.key) if size else (),
            queue=self._queue(),
            created=min(member.created for member in self.members),
            unit=self._unit(),
            topology=self._topology_key(),
            subgroups=owner.subgroups if owner else (),
            later=size.later if size else "",
        )

    def _with_extras(self, gang: Gang) -> Gang:
        """What annotations say beside that, the object's or the members'."""
        gang = msgspec.structs.replace(
            gang,
            match_policy=self._match_policy(gang.match_policy),
            bundle=self._bundle() or gang.bundle,
            timeout=self._timeout() if gang.timeout is None else gang.timeout,
            sla_waiting_time=self._sla_waiting_time(),
            total=self._total(gang.min_member),
            topology=self._topology() if gang.topology is None else gang.topology,
            expected=self._expected(),
            growth_delay=self._growth_delay(),
        )
        self._check_mode()
        return gang

    # Rule 2: which object.

    def _choose_object(self, groups: Sequence[GroupSpec]) -> GroupSpec | None:
        naming = self.members[0].declared.declaration.naming if self.members else None
        if naming is not None and naming.needed:
            # The field of the native API means a native object and nothing else.
            groups = [spec for spec in groups if spec.ref.group in naming.objects]
        elif naming is not None:
            groups = [spec for spec in groups if not spec.template]
        if len(groups) < 2:
            return groups[0] if groups else None
        ranked = sorted(groups, key=lambda spec: (self._preference(naming, spec), spec.ref.version, spec.ref.uid))
        for loser in ranked[1:]:
            self._warn(
                "ConflictingGangDeclaration",
                f"{describe(ranked[0].ref)} and {describe(loser.ref)} have the same name; the first one holds, "
                "delete the other",
            )
        return ranked[0]

    def _preference(self, naming: GangNaming | None, spec: GroupSpec) -> int:
        """The rank of an object among those of one name, the best being 0."""
        first = naming.objects if naming is not None else ()
        order = (*first, *(group for group in self.context.naming_of if group not in first))
        return order.index(spec.ref.group)

    # Rules 2 to 6: the minimum.

    def _min_member(self) -> int:
        stated = self._stated(lambda declaration: declaration.minimum)
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
            return self._owners_minimum()
        legal = [(member, minimum) for member, minimum in stated if to_minimum(minimum.value) is not None]
        if legal:
            chosen = to_minimum(legal[0][1].value) or 1
            for member, minimum in stated:
                if to_minimum(minimum.value) != chosen:
                    self._dissent(member, minimum, f"the oldest member, pod {legal[0][0].name}, says {chosen}")
            return chosen
        if not stated:
            self._not_found()
            return 1
        member, minimum = stated[0]
        advice = f'write a whole number from 1 to {MAX_MEMBERS}, such as "3"'
        if self.naming.invalid_minimum is InvalidMinimum.ONE:
            self._warn("InvalidPodGroup", f"{self._quote(member, minimum)}; {advice}; 1 is used", member)
        else:
            self._refuse("InvalidPodGroup", f"{self._quote(member, minimum)}; {advice}", member)
        return 1

    def _staged_parts(self) -> tuple[Sequence[WorkloadPart], Sequence[WorkloadPart]]:
        """Of what the owner of the object creates: all, and what comes only later. (Of a part that has a member
        the others may be created, too, whatever the owner's status says yet.)"""
        owner = self.spec.owner if self.spec is not None else ""
        size = self.context.sizes.get(GangKey(self.key.namespace, group_of(owner))) if owner else None
        if size is None:
            return (), ()
        begun = {each.declared.declaration.part for each in self.members if each.declared.active}
        return size.parts, [part for part in size.parts if not part.now and part.name not in begun]

    def _created_now(self, stated: int) -> int:
        """Operators count pods that they create only after others run, and those that have done their work:
        neither may be waited for. Where all can exist what the object states holds."""
        if not self._is_staged:
            return stated
        total = sum(part.pods for part in self._parts) - sum(part.pods for part in self._later)
        return max(1, min(stated, total))

    @property
    def _sized(self) -> bool:
        return not any(member.declared.declaration.minimum for member in self.members)

    def _owners_minimum(self) -> int:
        """What the owner says, else what the members' labels say. Where nobody can be asked the members come
        singly: a guess might be one that never comes true."""
        if self.size is not None and self.size.min_member:
            return self.size.min_member
        declaration = self.members[0].declared.declaration
        usual, kind, owner = declaration.usual_minimum, declaration.owner, declaration.key.removeprefix("owner ")
        known = kind is None or kind in self.context.unreadable or self.size is not None
        if usual is not None and known:
            return to_minimum(usual.value) or 1
        if known:
            advice = f"let the scheduler read {kind[1]}.{kind[0]}" if kind is not None else "see docs/workloads.md"
            self._warn(
                "OwnerNotReadable",
                f"gang {self.key}: how many pods {owner} starts together is not known, so they start one by one; "
                f"{advice}, or write the annotation phalanx.dev/min-count on its pods",
            )
        elif any(member.declared.active for member in self.members):
            self._refuse(
                "OwnerNotFound",
                f"waiting to see {owner}, which says how many of its pods start together; it is not there, or not "
                "with the uid that its pods name",
            )
        return 1

    def _check_name(self) -> None:
        """Rule 6. A name that stands for an object is checked by the API server."""
        if self.naming.needed or self.naming.precedence is Precedence.UNNAMED:
            return
        if len(self.key.name) > MAX_NAME or not _DNS_SUBDOMAIN.fullmatch(self.key.name):
            member = self.members[0]
            stated = Stated(member.declared.declaration.key, self.key.name)
            self._refuse(
                "InvalidPodGroup",
                f"{self._quote(member, stated)}, which can name no PodGroup; "
                "use lower-case letters, digits, '-' and '.', such as \"tf-smoke-gpu\"",
                member,
            )

    def _not_found(self) -> None:
        """Rule 5."""
        place = self.members[0].declared.declaration.key
        self._refuse("PodGroupNotFound", self.naming.missing(self.key, place, self.context.native))

    def _dissent(self, member: Member, stated: Stated, against: str) -> None:
        self._warn("MinAvailableMismatch", f"{self._quote(member, stated)}, but {against}, which holds", member)

    # The extras: the object's word first, then that of the oldest member that has one (rule 3).

    def _usual_match_policy(self) -> MatchPolicy:
        if self._is_staged:
            # Who has finished in an earlier part stands for nobody in this one, and this one has still to start.
            return MatchPolicy.WAITING_AND_RUNNING
        return self.options.match_policies.get(self.naming.rules.name) or self.naming.match_policy

    def _match_policy(self, usual: MatchPolicy) -> MatchPolicy:
        """One that nobody knows may mean anything: the strictest holds, which counts waiting members only."""
        speaker, stated = self._speaker(lambda extras: extras.match_policy)
        if stated is None:
            return usual
        try:
            return koordinator.parse_match_policy(stated.value)
        except ValueError as error:
            policy = MatchPolicy.ONLY_WAITING
            advice = f"{error}; until then the strictest holds, {policy}"
            self._warn("UnknownMatchPolicy", f"{speaker}: {stated.key} is {quoted(stated.value)}; {advice}")
            return policy

    def _check_mode(self) -> None:
        """Under Koordinator's NonStrict members that fit hold their room until enough others do: no room is held
        here for a gang that waits, and who cannot be placed never keeps a minimum of others back."""
        speaker, stated = self._speaker(lambda extras: extras.mode)
        if stated is None or stated.value == "Strict":
            return
        said = f"{speaker}: {stated.key} is {quoted(stated.value)}"
        if stated.value == "NonStrict":
            advice = "no room is held for part of a gang: its minimum starts in one step, as under Strict"
            self._warn("ModeNotHonoured", f"{said}; {advice}")
        else:
            self._warn("UnknownMode", f"{said}; write Strict or NonStrict; Strict is used")

    def _bundle(self) -> tuple[GangKey, ...]:
        named: tuple[GangKey, ...] = self._extra(
            "InvalidGangGroups", lambda extras: extras.groups, koordinator.parse_groups, (),
            "until then the gang stands alone",
        )  # fmt: skip
        foreign = sorted({key.namespace for key in named if not self._may_tie(key)})
        if foreign:
            # Nothing is said about what is there: not everybody may see it.
            self._refuse(
                "InvalidGangGroups",
                f"gang {self.key}: its gang groups name gangs in namespace {foreign[0]!r}; the scheduler's policy "
                "ties gangs of one namespace only (phalanx.dialects.bundleNamespaces); take them out",
            )
        bundle = {self.key, *(key for key in named if self._may_tie(key))}
        if len(bundle) > MOST_GANGS:
            self._refuse(
                "InvalidGangGroups",
                f"gang {self.key}: its gang groups name {len(bundle)} gangs; at most {MOST_GANGS} start together",
            )
            return ()
        return tuple(sorted(bundle)) if len(bundle) > 1 else ()

    def _may_tie(self, key: GangKey) -> bool:
        return self.options.may_tie(self.key.namespace, key.namespace)

    def _timeout(self) -> int | None:
        return self._extra(
            "InvalidTimeout", lambda extras: extras.waiting_time, parse_waiting_time, None, "none is used"
        )

    def _sla_waiting_time(self) -> int | None:
        return self._extra(
            "InvalidSlaWaitingTime", lambda extras: extras.sla_waiting_time, parse_waiting_time, None,
            "the gang waits its turn",
        )  # fmt: skip

    def _total(self, min_member: int) -> int:
        total = self._extra(
            "InvalidTotalNumber", lambda extras: extras.total_number, parse_total, 0, "it is ignored"
        )
        return total if total >= min_member else 0

    def _expected(self) -> ExpectedMembers | None:
        count: int | None = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_members, parse_expected, None, "it is ignored"
        )
        if count is None or (count == 0 and (self.spec is None or not self.spec.min_resources)):
            return None
        requests: Requests = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_requests, parse_requests, (), "it is ignored"
        )
        seconds = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_timeout, parse_expected_timeout,
            ExpectedMembers().seconds, f"{ExpectedMembers().seconds}s are used",
        )  # fmt: skip
        return ExpectedMembers(count, requests, seconds)

    def _growth_delay(self) -> int:
        return self._extra(
            "InvalidGrowthDelay", lambda extras: extras.growth_delay, parse_growth_delay, 0,
            "members join as there is room",
        )  # fmt: skip

    # What our own annotations may say in place of an object.

    def _unit(self) -> bool:
        stated = self._stated(lambda declaration: declaration.disruption_mode)
        for member, mode in stated:
            if mode.value not in _MODES:
                self._warn(
                    "InvalidDisruptionMode",
                    f"{self._quote(member, mode)}; write single or all; all is used",
                    member,
                )
        return any(mode.value != "single" for _, mode in stated)

    def _topology_key(self) -> TopologyRule | None:
        """Our own annotation."""
        stated = self._stated(lambda declaration: declaration.topology_key)
        return TopologyRule.by_label(stated[0][1].value) if stated else None

    def _topology(self) -> TopologyRule | None:
        """Those of other projects, where the object has no field and the members do not have ours: tiers come
        before labels."""
        _, slices = self._speaker(lambda extras: extras.slice_level)
        if slices is not None:
            self._refuse("UnsupportedField", f"gang {self.key}: {slices.key} is not supported; remove it")
        mode = self._level(lambda extras: extras.tier_mode, parse_mode, None)
        highest = self._level(lambda extras: extras.highest_tier, parse_tier, None)
        required = self._level(lambda extras: extras.required_level, str, "")
        preferred = self._level(lambda extras: extras.preferred_level, str, "")
        freely = self._level(lambda extras: extras.unconstrained, parse_truth, False)
        layers: list[Layer] = self._extra(
            "InvalidTopology", lambda extras: extras.topology, parse_layers, [], "it is ignored"
        )
        for layer in layers:
            if layer.strategy == MUST_GATHER and layer.pod_count_multiple > 1:
                self._refuse(
                    "UnsupportedField",
                    f"gang {self.key}: layer {layer.layer} asks for a podCountMultiple of "
                    f"{layer.pod_count_multiple}, which this scheduler cannot honour yet; remove it",
                )
        return tier_rule(mode, highest) or level_rule(required, preferred, freely) or layer_rule(layers)

    def _level(self, select: Callable[[Extras], Stated | None], parse: Callable[[str], T], default: T) -> T:
        """What cannot be read holds the gang: it may be something that it cannot do without."""
        speaker, stated = self._speaker(select)
        if stated is None:
            return default
        try:
            return parse(stated.value)
        except ValueError as error:
            self._refuse("InvalidTopology", f"{speaker}: {stated.key} is {quoted(stated.value)}; {error}")
            return default

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
            self._warn(code, f"{speaker}: {stated.key} is {quoted(stated.value)}; {error}; {fallback}")
            return default

    def _speaker(self, select: Callable[[Extras], Stated | None]) -> tuple[str, Stated | None]:
        if self.spec is not None and (stated := select(self.spec.extras)) is not None:
            return describe(self.spec.ref), stated
        speakers = self._stated(lambda declaration: select(declaration.extras)) if self._talkative else ()
        if not speakers:
            return "", None
        oldest, stated = speakers[0]
        for member, other in speakers[1:]:
            if other.value != stated.value:
                self._warn(
                    "ConflictingGangDeclaration",
                    f"{self._quote(member, other)}, but the oldest member, pod {oldest.name}, says "
                    f"{quoted(stated.value)}, which holds",
                    member,
                )
        return f"pod {self._pod(oldest)}", stated

    # Queue and priority.

    def _queue(self) -> str:
        """The object's word, then the members', then the namespace's. Volcano's CRD fills in `default`, so that
        word says nothing where the namespace prefers another queue."""
        own = self.spec.queue if self.spec is not None else ""
        if not own and (stated := self._stated(lambda declaration: declaration.queue)):
            own = stated[0][1].value
        if own and own != DEFAULT_QUEUE:
            return own
        return self.context.queue or DEFAULT_QUEUE

    def _priority(self, spec: GroupSpec) -> int | None:
        name, value = spec.priority_class, spec.priority
        if value is None and name:
            value = self.context.priority_classes.get(name)
            if value is None:
                self._warn("PriorityClassNotFound", priority_class_not_found(spec.ref, name))
        if value is None or self.options.is_system(self.key.namespace):
            return value
        if value > HIGHEST_USER_PRIORITY or name in SYSTEM_CLASSES:
            stated = f"priorityClassName is {quoted(name)}" if name else f"priority is {value}"
            self._warn(
                "SystemPriority",
                f"{describe(spec.ref)}: spec.{stated}, which only groups in system namespaces may have; name "
                f"a class of at most {HIGHEST_USER_PRIORITY}; until then the members' own priorities decide",
            )
            return None
        return value

    # Small things.

    def _stated(self, select: Callable[[Declaration], Stated | None]) -> list[tuple[Member, Stated]]:
        """Members that state something, oldest first, one per value."""
        if len(self.members) == 1:
            only = self.members[0]
            stated = select(only.declared.declaration)
            return [] if stated is None else [(only, stated)]
        found: dict[Stated, Member] = {}
        for member in self.members:
            if (stated := select(member.declared.declaration)) is not None:
                found.setdefault(stated, member)
        return [(member, stated) for stated, member in found.items()]

    def _quote(self, member: Member, stated: Stated) -> str:
        return f"pod {self._pod(member)}: {stated.key} is {quoted(stated.value)}"

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
