"""Resolution of a gang's extra properties: the object has precedence over the oldest member that states a value
(docs/rules/coscheduling.md, 1.3, rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from phalanx.dialects.gangs import extras as koordinator
from phalanx.dialects.gangs.agreement import Member, Statements
from phalanx.dialects.gangs.extras import (
    EXPECT_NOBODY,
    FORMER_SCALE_UP_DELAY,
    NO_EXTRAS,
    SCALE_UP_DELAY,
    Extras,
    Stated,
)
from phalanx.dialects.gangs.group_spec import GroupSpec
from phalanx.dialects.gangs.stated_values import (
    parse_expected,
    parse_expected_timeout,
    parse_requests,
    parse_scale_up_delay,
    parse_total,
    parse_truth,
    parse_waiting_time,
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
from phalanx.dialects.reader import describe
from phalanx.model.gang import MOST_EXPECTED, MOST_GANGS, ExpectedMembers, Gang, GangKey, MatchPolicy, Problem
from phalanx.model.resources import Requests
from phalanx.model.text.decoding import quoted
from phalanx.model.topology import TopologyRule

T = TypeVar("T")


def have_extras(members: Sequence[Member], spec: GroupSpec | None) -> bool:
    """Return whether a gang's PodGroup or a member states any extra property; in most gangs none does."""
    return (spec is not None and spec.extras is not NO_EXTRAS) or _state_extras(members)


def _state_extras(members: Sequence[Member]) -> bool:
    return any(member.declared.declaration.extras is not NO_EXTRAS for member in members)


class ExtrasResolver:
    """Applies extra properties to a gang. `spec` is the object that declares the gang, None if only its members
    do."""

    def __init__(self, statements: Statements, spec: GroupSpec | None, options: DialectOptions) -> None:
        self._statements = statements
        self._spec = spec
        self._options = options
        self._members_state_extras = _state_extras(statements.members)

    def applied_to(self, gang: Gang) -> Gang:
        """Return the gang with its extra properties."""
        gang = msgspec.structs.replace(
            gang,
            match_policy=self._match_policy(gang.match_policy),
            gang_group=self._gang_group() or gang.gang_group,
            timeout=self._timeout() if gang.timeout is None else gang.timeout,
            sla_waiting_time=self._sla_waiting_time(),
            total=self._total(gang.min_member),
            topology=self._topology() if gang.topology is None else gang.topology,
            expected=None
            if self._expects_no_members()
            else self._expected() or self._workers_of_leader(gang.min_member) or gang.expected,
            scale_up_delay=self._scale_up_delay(),
        )
        self._check_mode()
        return gang

    def _match_policy(self, default: MatchPolicy) -> MatchPolicy:
        """Return the gang's match policy. For an unknown one the strictest is used, which counts only waiting
        members."""
        source, stated = self._stated(lambda extras: extras.match_policy)
        if stated is None:
            return default
        try:
            return koordinator.parse_match_policy(stated.value)
        except ValueError as error:
            policy = MatchPolicy.ONLY_WAITING
            advice = f"{error}; until then the strictest is used, {policy}"
            self._statements.warn(
                "UnknownMatchPolicy", f"{source}: {stated.key} is {quoted(stated.value)}; {advice}"
            )
            return policy

    def _check_mode(self) -> None:
        """Warn about a mode that is not supported. Koordinator's NonStrict holds room for members that fit until
        enough of them do: here, no room is held for a waiting gang, and a member that does not fit never delays
        the minimum."""
        source, stated = self._stated(lambda extras: extras.mode)
        if stated is None or stated.value == "Strict":
            return
        statement = f"{source}: {stated.key} is {quoted(stated.value)}"
        if stated.value == "NonStrict":
            advice = "no room is held for part of a gang: its minimum starts in one step, as under Strict"
            self._statements.warn("ModeNotHonoured", f"{statement}; {advice}")
        else:
            self._statements.warn("UnknownMode", f"{statement}; write Strict or NonStrict; Strict is used")

    def _gang_group(self) -> tuple[GangKey, ...]:
        named: tuple[GangKey, ...] = self._extra(
            "InvalidGangGroups", lambda extras: extras.groups, koordinator.parse_groups, (),
            "until then the gang is in no gang group",
        )  # fmt: skip
        foreign_namespaces = sorted({key.namespace for key in named if not self._may_tie(key)})
        if foreign_namespaces:
            # The message does not reveal whether the named gangs exist: the user need not have access to them.
            wrong = (
                f"gang {self._statements.key}: its gang groups name gangs in namespace "
                f"{quoted(foreign_namespaces[0])}; "
                "the scheduler's policy ties gangs of one namespace only (phalanx.dialects.gangGroupNamespaces)"
            )
            self._statements.refuse(Problem.of("InvalidGangGroups", wrong, "take them out"))
        gang_group = {self._statements.key, *(key for key in named if self._may_tie(key))}
        if len(gang_group) > MOST_GANGS:
            wrong = f"gang {self._statements.key}: its gang groups name {len(gang_group)} gangs"
            self._statements.refuse(Problem.of("InvalidGangGroups", wrong, f"at most {MOST_GANGS} start together"))
            return ()
        return tuple(sorted(gang_group)) if len(gang_group) > 1 else ()

    def _may_tie(self, key: GangKey) -> bool:
        return self._options.may_tie(self._statements.key.namespace, key.namespace)

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
            "InvalidTotalNumber", lambda extras: extras.total_number, parse_total, 0, "the value is ignored"
        )
        return total if total >= min_member else 0

    def _expects_no_members(self) -> bool:
        """Return whether placeholders for later members are disabled, for clusters that create nodes only for
        existing pods."""
        _, stated = self._stated(lambda extras: extras.expected_members)
        return stated is not None and stated.value == EXPECT_NOBODY

    def _expected(self) -> ExpectedMembers | None:
        count: int | None = self._extra(
            "InvalidExpectedMembers",
            lambda extras: extras.expected_members,
            parse_expected,
            None,
            "the value is ignored",
        )
        if count is None or (count == 0 and (self._spec is None or not self._spec.min_resources)):
            return None
        requests: Requests = self._extra(
            "InvalidExpectedMembers",
            lambda extras: extras.expected_requests,
            parse_requests,
            (),
            "the value is ignored",
        )
        seconds = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_timeout, parse_expected_timeout,
            ExpectedMembers().seconds, f"{ExpectedMembers().seconds}s are used",
        )  # fmt: skip
        return ExpectedMembers(count, requests, seconds)

    def _workers_of_leader(self, min_member: int) -> ExpectedMembers | None:
        """Return the workers of a LeaderWorkerSet's group that are created only after the leader is ready.
        Without an object for the group, the workers are a gang of their own."""
        _, whole = self._stated(lambda extras: extras.whole_size)
        size = whole.value if whole is not None and self._spec is not None else ""
        count = int(size[:9]) - min_member if size.isascii() and size.isdecimal() else 0
        return ExpectedMembers(min(count, MOST_EXPECTED)) if count > 0 else None

    def _scale_up_delay(self) -> int:
        source, stated = self._stated(lambda extras: extras.scale_up_delay)
        if stated is not None and stated.key.endswith(FORMER_SCALE_UP_DELAY):
            self._statements.warn(
                "FormerAnnotation",
                f"{source}: {stated.key} is called {SCALE_UP_DELAY} now; it counts until a later release",
            )
        return self._extra(
            "InvalidScaleUpDelay", lambda extras: extras.scale_up_delay, parse_scale_up_delay, 0,
            "members join as there is room",
        )  # fmt: skip

    def _topology(self) -> TopologyRule | None:
        """Return the topology rule of other projects' annotations; the object's field and our own annotation
        have precedence over it, and tiers over labels."""
        _, slices = self._stated(lambda extras: extras.slice_level)
        if slices is not None:
            wrong = f"gang {self._statements.key}: {slices.key} is not supported"
            self._statements.refuse(Problem.of("UnsupportedField", wrong, "remove it"))
        mode = self._level(lambda extras: extras.tier_mode, parse_mode, None)
        highest = self._level(lambda extras: extras.highest_tier, parse_tier, None)
        required = self._level(lambda extras: extras.required_level, str, "")
        preferred = self._level(lambda extras: extras.preferred_level, str, "")
        freely = self._level(lambda extras: extras.unconstrained, parse_truth, False)
        layers: list[Layer] = self._extra(
            "InvalidTopology", lambda extras: extras.topology, parse_layers, [], "the value is ignored"
        )
        for layer in layers:
            if layer.strategy == MUST_GATHER and layer.pod_count_multiple > 1:
                wrong = (
                    f"gang {self._statements.key}: layer {layer.layer} asks for a podCountMultiple of "
                    f"{layer.pod_count_multiple}, which this scheduler cannot honour yet"
                )
                self._statements.refuse(Problem.of("UnsupportedField", wrong, "remove it"))
        return tier_rule(mode, highest) or level_rule(required, preferred, freely) or layer_rule(layers)

    def _level(self, select: Callable[[Extras], Stated | None], parse: Callable[[str], T], default: T) -> T:
        """Parse one value of a topology constraint; an unreadable one holds the gang, since it can be a hard
        requirement."""

        def refuse(wrong: str, remedy: str) -> None:
            self._statements.refuse(Problem.of("InvalidTopology", wrong, remedy))

        return self._read(select, parse, default, refuse)

    def _extra(
        self,
        code: str,
        select: Callable[[Extras], Stated | None],
        parse: Callable[[str], T],
        default: T,
        fallback: str,
    ) -> T:
        """Parse the value of an extra property; for an unreadable one warn with `code` and return the fallback."""

        def warn(wrong: str, remedy: str) -> None:
            self._statements.warn(code, f"{wrong}; {remedy}; {fallback}")

        return self._read(select, parse, default, warn)

    def _read(
        self,
        select: Callable[[Extras], Stated | None],
        parse: Callable[[str], T],
        default: T,
        complain: Callable[[str, str], None],
    ) -> T:
        source, stated = self._stated(select)
        if stated is None:
            return default
        try:
            return parse(stated.value)
        except ValueError as error:
            complain(f"{source}: {stated.key} is {quoted(stated.value)}", str(error))
            return default

    def _stated(self, select: Callable[[Extras], Stated | None]) -> tuple[str, Stated | None]:
        if self._spec is not None and (stated := select(self._spec.extras)) is not None:
            return describe(self._spec.ref), stated
        stating_members = (
            self._statements.stated(lambda declaration: select(declaration.extras))
            if self._members_state_extras
            else ()
        )
        if not stating_members:
            return "", None
        oldest, stated = stating_members[0]
        for member, other in stating_members[1:]:
            if other.value != stated.value:
                self._statements.warn(
                    "ConflictingGangDeclaration",
                    f"{self._statements.quote(member, other)}, but the oldest member, pod {oldest.name}, says "
                    f"{quoted(stated.value)}, which holds",
                    member,
                )
        return f"pod {self._statements.pod_name(oldest)}", stated
