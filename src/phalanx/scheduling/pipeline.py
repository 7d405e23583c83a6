"""A policy compiled: which plugin speaks at which extension point, and how their opinions combine."""

from __future__ import annotations

from itertools import groupby

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.labels import Rows
from phalanx.cluster.members import GangRecord
from phalanx.cluster.nodes import NodeTable
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.placement import Placer
from phalanx.scheduling.plugin import Plugin, Vote, overrides
from phalanx.scheduling.policy import ConfiguredPlugin, Policy
from phalanx.scheduling.session import Session

_POINTS = ("gang_order", "pod_order", "filter", "explain", "refuse", "preference", "score", "admit", "admitted")


class Pipeline:
    """Plugins by extension point, in the order of the tiers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._speakers = {
            point: [
                entry for entry in policy.plugins if point not in entry.silent and overrides(entry.plugin, point)
            ]
            for point in _POINTS
        }

    def plugins(self, point: str) -> list[Plugin]:
        return [entry.plugin for entry in self._speakers[point]]

    def placer(self, nodes: NodeTable) -> Placer:
        return Placer(nodes, self.plugins("filter"), self.plugins("preference"), self.plugins("score"))

    def refusal(self, cls: ClassRecord) -> str | None:
        """The first reason for which the class can be placed nowhere."""
        for plugin in self.plugins("refuse"):
            reason = plugin.refuse(cls)
            if reason is not None:
                return reason
        return None

    def explain(self, cls: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """What the filters say about the rows, reason by reason, in the order of the tiers."""
        return [part for plugin in self.plugins("explain") for part in plugin.explain(cls, nodes, rows)]

    def admit(self, session: Session, gang: GangRecord) -> bool:
        """Tier by tier: a rejection decides, else a permission, else the next tier; by default yes."""
        for _, tier in groupby(self._speakers["admit"], key=_tier):
            votes = [entry.plugin.admit(session, gang) for entry in tier]
            if Vote.REJECT in votes:
                return False
            if Vote.PERMIT in votes:
                return True
        return True

    def describe(self) -> list[tuple[str, list[str]]]:
        """(extension point, names of the plugins that speak there), for people."""
        return [(point, [plugin.name for plugin in self.plugins(point)]) for point in _POINTS]


def _tier(entry: ConfiguredPlugin) -> int:
    return entry.tier
