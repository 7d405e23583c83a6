"""Application of the steps of single features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.dialects.families.native import NAMING
from phalanx.model.advance_reservation import AdvanceReservation, AtEnd, ReservedNodes
from phalanx.model.composite import Composite
from phalanx.model.devices.cards import Card, Family
from phalanx.model.events import (
    AdvanceReservationRemoved,
    AdvanceReservationUpdated,
    CompositeUpdated,
    NodeUpdated,
)
from phalanx.model.gang import GangKey, GroupRef, MatchPolicy
from phalanx.model.pod import PodClass

from ..scheduling.scenario import amounts
from .cluster import CARD_COUNT, CARD_MEMORY, SoakCluster
from .pods import make_pod

Play = Callable[[SoakCluster, str, dict[str, Any]], object]

_MEMORY_OF_CARD, _SLOTS = 1000, 10


def _tree_job(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    key = GangKey(cluster.namespace, name)
    ref = GroupRef(
        "scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", key.namespace, name, name
    )
    members, unit = how.pop("members"), how.pop("unit")
    made = Composite(key, ref, how.pop("groups"), unit=unit, created=cluster.now)
    cluster.observe(f"composite {name}", CompositeUpdated(made))
    for part in ("a", "b"):
        fields = {"rules": NAMING.rules, "match_policy": MatchPolicy.UNTIL_SCHEDULED, "composite": key}
        cluster.gang(f"{name}{part}", members, created=cluster.now, queue=how["queue"], **fields)
        for number in range(members):
            make_pod(cluster, f"{name}{part}-{number}", dict(how), gang=f"{name}{part}")


def _suspended(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    members = how.pop("members")
    asked = amounts(**{key: how[key] * members for key in ("cpu", "gpu") if key in how})
    fields = {"admission": True, "admitted": False, "min_resources": asked, "owned": True}
    cluster.gang(name, members, created=cluster.now, queue=how["queue"], **fields)
    cluster.suspended[name] = (members, how)


def resume(cluster: SoakCluster) -> None:
    """Create the pods of suspended jobs whose groups are admitted, as their controller does."""
    for name, (members, how) in list(cluster.suspended.items()):
        gang = cluster.state.gangs.get(GangKey(cluster.namespace, name))
        if gang is None or gang.spec is None:
            del cluster.suspended[name]
        elif gang.spec.admitted and not gang.members:
            cluster.made += 1
            for number in range(members):
                make_pod(cluster, f"{name}-{cluster.made}-{number}", dict(how), gang=name)
        elif any(record.pod.terminating for record in gang.members.values()):
            # The controller suspends the job again: its pods without a node are deleted with the others.
            for uid, record in list(gang.members.items()):
                if not record.pod.node and not record.assumed_node:
                    cluster.gone(uid)
            cluster.gang(name, members, admitted=False)


def _cards(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    event = cluster.last_event(f"node {name}")
    if not isinstance(event, NodeUpdated) or cluster.state.nodes.row(name) < 0:
        return
    count = how["count"]
    cards = tuple(
        Card(Family.VGPU, f"{name}-{at}", _MEMORY_OF_CARD, _SLOTS, "A100", "hami-core") for at in range(count)
    )
    offer = dict(event.node.allocatable)
    offer |= {CARD_MEMORY: _MEMORY_OF_CARD * count, CARD_COUNT: _SLOTS * count}
    node = msgspec.structs.replace(event.node, allocatable=tuple(sorted(offer.items())), cards=cards)
    cluster.observe(f"node {name}", NodeUpdated(node))


def _reserved(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    start = cluster.now + how["start"]
    template = None if "node" in how else PodClass(requests=amounts(cpu=how["cpu"]))
    made = AdvanceReservation(
        name,
        f"uid-{name}-{cluster.now}-{len(cluster.known)}",
        template=template,
        count=how.get("count", 1),
        nodes=ReservedNodes((how["node"],)) if "node" in how else None,
        start=start,
        end=start + how["length"],
        on_end=AtEnd(how["on_end"]),
        asks=f"{start} {how}",
    )
    cluster.observe(f"reservation {name}", AdvanceReservationUpdated(made))


def _unreserved(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    if f"reservation {name}" in cluster.known:
        cluster.forget(f"reservation {name}", AdvanceReservationRemoved(name))


def _rejected(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    record = cluster.state.pods.get(name)
    if record is not None and not record.pod.placeholder and cluster.where(name):
        cluster.reject(name)


def _terminating(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    for uid, record in list(cluster.state.pods.items()):
        if record.evicting and not record.pod.terminating and name in ("", uid):
            cluster.show_eviction(uid)


def _hard(cluster: SoakCluster, name: str, how: dict[str, Any]) -> None:
    # Each change of the quota's status wakes all units, which would hide missing changes in all other lives.
    if "resourcequota" in cluster.policy_text:
        cluster.hard = (("pods", how["pods"]),)


FEATURE_PLAYS: dict[str, Play] = {
    "tree_job": _tree_job,
    "suspended": _suspended,
    "cards": _cards,
    "reserved": _reserved,
    "unreserved": _unreserved,
    "user": lambda cluster, name, how: make_pod(cluster, name, how),
    "hard": _hard,
    "rejected": _rejected,
    "terminating": _terminating,
}
