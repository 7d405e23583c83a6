"""What to tell a gang that no domain takes: which came nearest, and what would help."""

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
    """A session, as far as it is needed here."""

    state: ClusterState
    plugin_runtime: PluginRuntime
    topology_domains: TopologyDomains


def no_room_near(session: Surveyed, area: Area, want: DomainDemand) -> Shortage:
    """Why all who are wanted have no room in any domain, nothing of them being placed."""
    nearest = session.topology_domains.nearest(area, want)
    if nearest is None:
        return no_domain(session, area, want)
    spot, placed = spot_of(session, area, nearest), nearest.placeable
    missing = max(1, want.total - placed)
    pod_class = want.members[0].pod_class
    return shortage(session.plugin_runtime, session.state.nodes, pod_class, placed, want.total, missing, 0, spot)


def spot_of(session: Surveyed, area: Area, domain: Domain) -> Spot | None:
    """The domain that came nearest, in words; None where the rule lets members go everywhere."""
    if not session.topology_domains.ladder(area.rule).cap:
        return None
    level = domain.level
    if area.pins:
        where = f"{domain.name} ({level.title}), where other members are"
    elif level.count == 1:
        where = f"{domain.name}, the only domain of {level.title}"
    else:
        where = f"{domain.name}, the roomiest of {level.count} domains of {level.title}"
    return Spot(domain.rows, where, wider(area.rule))


def wider(rule: TopologyRule) -> str:
    """What the owner of a rule could change."""
    if rule.hypernodes:
        return "allow a higher tier (networkTopology.highestTierAllowed)"
    return "ask for a wider level" if rule.required else ""


def no_domain(session: Surveyed, area: Area, want: DomainDemand, culprit: int = 0) -> Shortage:
    """No domain comes into question at all: there is none, or members are in several already."""
    nodes, ladder = session.state.nodes, session.topology_domains.ladder(area.rule)
    pod_class = want.members[0].pod_class
    if ladder.levels:
        level = ladder.levels[-1]
        reason = f"node(s) share no domain of {level.title} with all members that are there"
        change = f"move the members that are there into one domain of {level.title}, or {wider(area.rule)}"
    elif area.rule.hypernodes:
        reason = f"node(s) are in no HyperNode that may be used: {ladder.unknown}"
        change = f"create HyperNodes, or {wider(area.rule)}"
    else:
        reason = f"node(s) are in no domain: {ladder.unknown}"
        change = f"label nodes with {', '.join(area.rule.required)}"
    counts = (NodeCount(reason, len(nodes)),) if len(nodes) else ()
    return Shortage(pod_class, len(nodes), counts, change=change, need=want.total, culprit=culprit)
