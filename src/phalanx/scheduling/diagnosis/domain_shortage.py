"""Refusals of gangs that fit into no topology domain: the best domain and the change that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from phalanx.cluster.state import ClusterState
from phalanx.model.topology import TopologyRule
from phalanx.model.verdict import NodeCount
from phalanx.scheduling.diagnosis.shortage import Spot, shortage
from phalanx.scheduling.placement.topology_domains import Area, Domain, DomainDemand, TopologyDomains
from phalanx.scheduling.refusals.no_room import Shortage

if TYPE_CHECKING:
    from phalanx.scheduling.framework.plugin_runtime import PluginRuntime


class Surveyed(Protocol):
    """Part of a session that the diagnosis reads."""

    state: ClusterState
    plugin_runtime: PluginRuntime
    topology_domains: TopologyDomains


def no_room_near(session: Surveyed, area: Area, want: DomainDemand) -> Shortage:
    """Return the refusal of gang members for which no topology domain has room for all. None of them is placed
    now."""
    nearest = session.topology_domains.nearest(area, want)
    if nearest is None:
        return no_domain(session, area, want)
    spot, placed = spot_of(session, area, nearest), nearest.placeable
    missing = max(1, want.total - placed)
    pod_class = want.members[0].pod_class
    return shortage(session.plugin_runtime, session.state.nodes, pod_class, placed, want.total, missing, 0, spot)


def spot_of(session: Surveyed, area: Area, domain: Domain) -> Spot | None:
    """Return the best topology domain with its name for messages; None if the constraint permits all domains."""
    if not session.topology_domains.ladder(area.rule).cap:
        return None
    level = domain.level
    if area.pins:
        where = f"{domain.name} ({level.title} of the placed pods)"
    elif level.count == 1:
        where = f"{domain.name} (the only domain of {level.title})"
    else:
        where = f"{domain.name} (best of {level.count} domains of {level.title})"
    return Spot(domain.rows, where, wider(area.rule))


def wider(rule: TopologyRule) -> str:
    """Return the change of the topology constraint that permits a larger domain."""
    if rule.hypernodes:
        return "allow a higher tier (networkTopology.highestTierAllowed)"
    return "require a wider topology level" if rule.required else ""


def no_domain(session: Surveyed, area: Area, want: DomainDemand, culprit: int = 0) -> Shortage:
    """Return the refusal of a gang for which no topology domain is eligible: none exists, or placed members are in
    several already."""
    nodes, ladder = session.state.nodes, session.topology_domains.ladder(area.rule)
    pod_class = want.members[0].pod_class
    if ladder.levels:
        level = ladder.levels[-1]
        reason = f"node(s) were outside the one domain of {level.title} of all placed pods"
        change = f"move the placed pods into one domain of {level.title}, or {wider(area.rule)}"
    elif area.rule.hypernodes:
        reason = f"node(s) were in no permitted HyperNode: {ladder.unknown}"
        change = f"create HyperNodes, or {wider(area.rule)}"
    else:
        reason = f"node(s) were in no domain: {ladder.unknown}"
        change = f"label nodes with {', '.join(area.rule.required)}"
    counts = (NodeCount(reason, len(nodes)),) if len(nodes) else ()
    return Shortage(pod_class, len(nodes), counts, change=change, need=want.total, culprit=culprit)
