"""Pods of steps."""

from __future__ import annotations

from typing import Any

from phalanx.model.devices.cards import CardShare, DeviceNeed, Family
from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection, Spread
from phalanx.model.pod import PodClass, ReservationUse
from phalanx.model.run_time import RunTime
from phalanx.model.selectors import HostPort, Requirement

from ..scheduling.scenario import NAMESPACE
from .cluster import CARD_COUNT, CARD_MEMORY, SoakCluster

POD_FIELDS = ("queue", "priority", "quota", "cpu", "gpu", "role")
# Labels that affinity terms select: those of pods with such terms.
_WEB = PodSelection((Requirement("app", "In", ("web",)),), (NAMESPACE,))


def make_pod(cluster: SoakCluster, name: str, how: dict[str, Any], gang: str = "") -> None:
    """Create a pod of a step: `how` has its amounts, its limit and its constraints."""
    limit, own = how.pop("limit", 0), how.get("own")
    more: dict[str, Any] = {"run_time": RunTime(limit), "grace": 0} if limit else {}
    if limit and own == "allowed":
        more["run_time"] = RunTime(limit, allowed=limit, allowed_source="annotation of the queue")
    more |= {"preemptable": False} if own == "preemptable" else {"cooldown": 100} if own == "cooldown" else {}
    fields = {key: value for key, value in how.items() if key in POD_FIELDS} | {"firm": own == "firm"}
    devices = None
    if "card" in how:
        devices = DeviceNeed(Family.VGPU, (CardShare(count=1, memory=how["card"]),))
        fields |= {CARD_MEMORY: how["card"], CARD_COUNT: 1}
    made = PodClass(
        run_limit=limit,
        peers=_peers(how),
        host_ports=(HostPort(how["port"]),) if "port" in how else (),
        devices=devices,
        reservation=ReservationUse((how["uses"],), bool(how.get("inside"))) if "uses" in how else None,
    )
    cluster.amounts_only &= made.peers == NO_PEERS and not made.host_ports and devices is None
    if made.peers != NO_PEERS:
        more["labels"] = (("app", "web"),)
    cluster.pod(name, gang=gang, pod_class=made, more=more, **fields)


def _peers(how: dict[str, Any]) -> Peers:
    if "away" in how:
        return Peers(anti=(PeerTerm(_WEB, how["away"]),))
    return Peers(spread=(Spread(_WEB, how["even"]),)) if "even" in how else NO_PEERS
