"""Placement of surplus members with a topology: singly, or as a subgroup that starts as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.cluster.transaction import Transaction
from phalanx.model.verdict import Verdict
from phalanx.scheduling.gangs.quorum import counted
from phalanx.scheduling.gangs.subgroups import Subgroup, part_key, subgroups_of
from phalanx.scheduling.placement.topology_domains import Area, area_of
from phalanx.scheduling.queue.demands import PodDemand, SubgroupDemand, member_demands
from phalanx.scheduling.refusals.refusal import GangFault, Refusal
from phalanx.scheduling.session.session import Session

Placement = tuple[PodRecord, int]


class SurplusSubgroup:
    """Surplus `members` that start together (usually one). `kind` is the demand under which they are refused,
    `alike` are the members that are refused with them.
    """

    __slots__ = ("alike", "kind", "members", "want")

    def __init__(self, kind: PodDemand, members: Sequence[PodRecord], alike: Sequence[PodRecord]) -> None:
        self.kind = kind
        self.members = members
        self.alike = alike
        self.want: PodDemand | SubgroupDemand = kind
        if len(members) > 1:
            counts = (((member.pod_class, "", member.charge_path), 1) for member in members)
            self.want = SubgroupDemand(0, len(members), member_demands(counts, set(), len(members)), kind.area)


class SurplusDomain:
    """Topology and subgroups of a gang for its surplus members, as of now."""

    def __init__(self, gang: GangRecord, above: Area | None) -> None:
        spec = gang.spec
        assert spec is not None
        self._rules = spec.subgroups
        self._area = _within(above, area_of(spec.topology, gang.members.values()))
        members = gang.members.values() if spec.subgroups else ()
        self._parts = subgroups_of(spec, members, lambda part_counts: counted(part_counts, spec.match_policy))

    def part(self, member: PodRecord) -> Subgroup | None:
        key = part_key(self._rules, member) if self._rules else None
        return self._parts[key] if key is not None else None

    def starts_singly(self, member: PodRecord) -> bool:
        part = self.part(member)
        return part is None or not part.missing

    def kind(self, member: PodRecord) -> PodDemand:
        part = self.part(member)
        if part is None:
            return PodDemand(member.pod_class, member.charge_path, self._area)
        area = _within(self._area, area_of(part.rule.topology, part.members))
        return PodDemand(member.pod_class, member.charge_path, area, max(1, part.missing))

    def next(self, members: Sequence[PodRecord]) -> SurplusSubgroup:
        """Return the first of the waiting members, with its subgroup if that must start as a whole.

        All members of a subgroup that has not started are alike.
        """
        head = members[0]
        part, kind = self.part(head), self.kind(head)
        if part is not None and part.missing:
            mates = [member for member in members if self.part(member) is part]
            return SurplusSubgroup(self.kind(mates[0]), mates[: part.missing], mates)
        alike = [member for member in members if self.part(member) is part and member.pod_class is head.pod_class]
        return SurplusSubgroup(kind, [head], [member for member in alike if member.charge_path is head.charge_path])


def surplus_domain(composites: Composites, gang: GangRecord) -> SurplusDomain | None:
    """Return the rules for each surplus member; None if the gang has no topology and no subgroups."""
    spec = gang.spec
    if spec is None:
        return None
    above = _area_above(composites, gang) if spec.composite is not None else None
    return SurplusDomain(gang, above) if spec.topology is not None or spec.subgroups or above is not None else None


def _area_above(composites: Composites, gang: GangRecord) -> Area | None:
    """Return the area that the gang's composites require for all gangs below them."""
    area: Area | None = None
    for composite in reversed(composites.above(gang)):
        if composite.topology is not None:
            members = [
                member for gang_below in composites.gangs(composite.key) for member in gang_below.members.values()
            ]
            area = _within(area, area_of(composite.topology, members))
    return area


def _within(outer: Area | None, inner: Area | None) -> Area | None:
    if inner is None or outer is None:
        return inner if inner is not None else outer
    return Area(inner.rule, inner.pins, outer)


def kind_of(session: Session, record: PodRecord) -> PodDemand:
    """Return the demand of a single pod, or of a surplus member."""
    rules = surplus_domain(session.state.gangs.composites, record.gang) if record.gang is not None else None
    return rules.kind(record) if rules is not None else PodDemand(record.pod_class, record.charge_path)


def starts_singly(session: Session, record: PodRecord) -> bool:
    """Return whether a surplus member can start without other members."""
    rules = surplus_domain(session.state.gangs.composites, record.gang) if record.gang is not None else None
    return rules is None or rules.starts_singly(record)


def place_in_domain(session: Session, transaction: Transaction, group: SurplusSubgroup) -> list[Placement]:
    """Place all members in the smallest domain that fits them, or none of them."""
    area = group.kind.area
    if area is None:
        return _place(session, transaction, group.members)
    for domain in session.topology_domains.tries(area, group.want):
        with session.placer.within(domain.rows):
            placed = _place(session, transaction, group.members)
        if placed:
            return placed
    return []


def _place(session: Session, transaction: Transaction, members: Sequence[PodRecord]) -> list[Placement]:
    mark, placed = transaction.mark(), list[Placement]()
    for member in members:
        allowed = session.quota_check.room(member.charge_path, member.pod_class.footprint)
        rows = session.placer.place(member.pod_class, 1) if allowed else []
        if not rows:
            transaction.back_to(mark)
            return []
        transaction.place(member.pod_class, [member], rows)
        placed.append((member, rows[0]))
    return placed


class SurplusRefusal(Refusal, frozen=True):
    """Refusal of surplus members, by kind."""

    kinds: Mapping[PodDemand, GangFault]

    def gang_verdicts(self, gangs: Sequence[GangRecord]) -> Sequence[tuple[GangRecord, Verdict]]:
        return ()

    def member_verdicts(
        self, gangs: Sequence[GangRecord], state: ClusterState
    ) -> Iterator[tuple[PodRecord, Verdict]]:
        verdicts: dict[PodDemand, Verdict] = {}
        for gang in gangs:
            rules = surplus_domain(state.gangs.composites, gang)
            for member in gang.pending.values():
                kind = rules.kind(member) if rules is not None else PodDemand(member.pod_class, member.charge_path)
                if member.pod.problem or kind not in self.kinds:
                    continue
                if kind not in verdicts:
                    verdicts[kind] = self.kinds[kind].pod_verdict(member)
                yield member, verdicts[kind]
