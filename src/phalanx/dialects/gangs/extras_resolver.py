"""What annotations say about a gang beside its name and its minimum: the object's word first, then that of the
oldest member that has one (docs/rules/coscheduling.md, 1.3, rule 3)."""

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
    """Whether anybody says anything of all this: in most gangs nobody does."""
    return (spec is not None and spec.extras is not NO_EXTRAS) or _talk(members)


def _talk(members: Sequence[Member]) -> bool:
    return any(member.declared.declaration.extras is not NO_EXTRAS for member in members)


class ExtrasResolver:
    """`spec` is the object that declares the gang, None where only its members do."""

    def __init__(self, said: Statements, spec: GroupSpec | None, options: DialectOptions) -> None:
        self._said = said
        self._spec = spec
        self._options = options
        self._talkative = _talk(said.members)

    def applied_to(self, gang: Gang) -> Gang:
        """The gang with what they say."""
        gang = msgspec.structs.replace(
            gang,
            match_policy=self._match_policy(gang.match_policy),
            gang_group=self._gang_group() or gang.gang_group,
            timeout=self._timeout() if gang.timeout is None else gang.timeout,
            sla_waiting_time=self._sla_waiting_time(),
            total=self._total(gang.min_member),
            topology=self._topology() if gang.topology is None else gang.topology,
            expected=None
            if self._expects_nobody()
            else self._expected() or self._workers_of_leader(gang.min_member) or gang.expected,
            scale_up_delay=self._scale_up_delay(),
        )
        self._check_mode()
        return gang

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
            self._said.warn("UnknownMatchPolicy", f"{speaker}: {stated.key} is {quoted(stated.value)}; {advice}")
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
            self._said.warn("ModeNotHonoured", f"{said}; {advice}")
        else:
            self._said.warn("UnknownMode", f"{said}; write Strict or NonStrict; Strict is used")

    def _gang_group(self) -> tuple[GangKey, ...]:
        named: tuple[GangKey, ...] = self._extra(
            "InvalidGangGroups", lambda extras: extras.groups, koordinator.parse_groups, (),
            "until then the gang stands alone",
        )  # fmt: skip
        foreign = sorted({key.namespace for key in named if not self._may_tie(key)})
        if foreign:
            # Nothing is said about what is there: not everybody may see it.
            wrong = (
                f"gang {self._said.key}: its gang groups name gangs in namespace {foreign[0]!r}; the scheduler's "
                "policy ties gangs of one namespace only (phalanx.dialects.gangGroupNamespaces)"
            )
            self._said.refuse(Problem.of("InvalidGangGroups", wrong, "take them out"))
        gang_group = {self._said.key, *(key for key in named if self._may_tie(key))}
        if len(gang_group) > MOST_GANGS:
            wrong = f"gang {self._said.key}: its gang groups name {len(gang_group)} gangs"
            self._said.refuse(Problem.of("InvalidGangGroups", wrong, f"at most {MOST_GANGS} start together"))
            return ()
        return tuple(sorted(gang_group)) if len(gang_group) > 1 else ()

    def _may_tie(self, key: GangKey) -> bool:
        return self._options.may_tie(self._said.key.namespace, key.namespace)

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

    def _expects_nobody(self) -> bool:
        """Whether no room is to be held for those who come later: where nodes are made for pods that are there."""
        _, stated = self._speaker(lambda extras: extras.expected_members)
        return stated is not None and stated.value == EXPECT_NOBODY

    def _expected(self) -> ExpectedMembers | None:
        count: int | None = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_members, parse_expected, None, "it is ignored"
        )
        if count is None or (count == 0 and (self._spec is None or not self._spec.min_resources)):
            return None
        requests: Requests = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_requests, parse_requests, (), "it is ignored"
        )
        seconds = self._extra(
            "InvalidExpectedMembers", lambda extras: extras.expected_timeout, parse_expected_timeout,
            ExpectedMembers().seconds, f"{ExpectedMembers().seconds}s are used",
        )  # fmt: skip
        return ExpectedMembers(count, requests, seconds)

    def _workers_of_leader(self, min_member: int) -> ExpectedMembers | None:
        """Of a LeaderWorkerSet's group whose workers are created only when the leader is ready. Where no object
        declares the group its workers are a gang of their own."""
        _, whole = self._speaker(lambda extras: extras.whole_size)
        size = whole.value if whole is not None and self._spec is not None else ""
        count = int(size[:9]) - min_member if size.isascii() and size.isdecimal() else 0
        return ExpectedMembers(min(count, MOST_EXPECTED)) if count > 0 else None

    def _scale_up_delay(self) -> int:
        speaker, stated = self._speaker(lambda extras: extras.scale_up_delay)
        if stated is not None and stated.key.endswith(FORMER_SCALE_UP_DELAY):
            self._said.warn(
                "FormerAnnotation",
                f"{speaker}: {stated.key} is called {SCALE_UP_DELAY} now; it counts until a later release",
            )
        return self._extra(
            "InvalidScaleUpDelay", lambda extras: extras.scale_up_delay, parse_scale_up_delay, 0,
            "members join as there is room",
        )  # fmt: skip

    def _topology(self) -> TopologyRule | None:
        """Those of other projects, where the object has no field and the members do not have ours: tiers come
        before labels."""
        _, slices = self._speaker(lambda extras: extras.slice_level)
        if slices is not None:
            wrong = f"gang {self._said.key}: {slices.key} is not supported"
            self._said.refuse(Problem.of("UnsupportedField", wrong, "remove it"))
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
                wrong = (
                    f"gang {self._said.key}: layer {layer.layer} asks for a podCountMultiple of "
                    f"{layer.pod_count_multiple}, which this scheduler cannot honour yet"
                )
                self._said.refuse(Problem.of("UnsupportedField", wrong, "remove it"))
        return tier_rule(mode, highest) or level_rule(required, preferred, freely) or layer_rule(layers)

    def _level(self, select: Callable[[Extras], Stated | None], parse: Callable[[str], T], default: T) -> T:
        """What cannot be read holds the gang: it may be something that it cannot do without."""

        def refuse(wrong: str, remedy: str) -> None:
            self._said.refuse(Problem.of("InvalidTopology", wrong, remedy))

        return self._read(select, parse, default, refuse)

    def _extra(
        self,
        code: str,
        select: Callable[[Extras], Stated | None],
        parse: Callable[[str], T],
        default: T,
        fallback: str,
    ) -> T:
        """The value that holds. One that cannot be read is warned of as `code`, with what is done instead."""

        def warn(wrong: str, remedy: str) -> None:
            self._said.warn(code, f"{wrong}; {remedy}; {fallback}")

        return self._read(select, parse, default, warn)

    def _read(
        self,
        select: Callable[[Extras], Stated | None],
        parse: Callable[[str], T],
        default: T,
        complain: Callable[[str, str], None],
    ) -> T:
        speaker, stated = self._speaker(select)
        if stated is None:
            return default
        try:
            return parse(stated.value)
        except ValueError as error:
            complain(f"{speaker}: {stated.key} is {quoted(stated.value)}", str(error))
            return default

    def _speaker(self, select: Callable[[Extras], Stated | None]) -> tuple[str, Stated | None]:
        if self._spec is not None and (stated := select(self._spec.extras)) is not None:
            return describe(self._spec.ref), stated
        speakers = self._said.stated(lambda declaration: select(declaration.extras)) if self._talkative else ()
        if not speakers:
            return "", None
        oldest, stated = speakers[0]
        for member, other in speakers[1:]:
            if other.value != stated.value:
                self._said.warn(
                    "ConflictingGangDeclaration",
                    f"{self._said.quote(member, other)}, but the oldest member, pod {oldest.name}, says "
                    f"{quoted(stated.value)}, which holds",
                    member,
                )
        return f"pod {self._said.pod_name(oldest)}", stated
