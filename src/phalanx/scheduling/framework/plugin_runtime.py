"""A policy compiled: which plugin speaks at which extension point, and how their opinions combine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import reduce
from itertools import groupby, takewhile
from operator import or_
from typing import Protocol

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS, Vote
from phalanx.scheduling.framework.inter_pod_rules import NO_RULES
from phalanx.scheduling.framework.plugin import Plugin, overrides
from phalanx.scheduling.framework.policy import ConfiguredPlugin, Policy
from phalanx.scheduling.framework.result_checks import check_results
from phalanx.scheduling.framework.view import View, WaitingUnit

_UNLIMITED = 2**62
RESERVED = "node(s) were reserved for others that start before it would end"
OUTSIDE = "node(s) had no room that is left of Reservation {}"


class ReservedRoom(Protocol):
    """Which nodes are kept for those who start later."""

    @property
    def active(self) -> bool:
        """Whether any is."""

    def limit_copies(self, pod_class: ClassRecord, rows: Rows, copies: IntArray) -> IntArray:
        """int64[rows]: of the copies that each row has room for now those that leave in time."""

    def closed_to(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        """bool[rows]: where a pod of the class would fit but for what is kept."""

    def unready(self, pod_class: ClassRecord) -> str | None:
        """Why pods of a class wait for the advance reservation that they ask for, whatever room there is."""


class PluginRuntime:
    """Plugins by extension point, in the order of the tiers.

    `band_width` is how many of the first keys of `gang_order` separate bands: a unit of a lower band gets nothing
    before the surplus of a higher one had its turn. `order_drifts` tells that the order changes by itself.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        # Set by whoever keeps starts for those who wait.
        self.reserved: ReservedRoom | None = None
        # What objects state comes first: it is what people are told where several things say no.
        entries = (*policy.standing_plugins, *policy.plugins)
        for entry in entries:
            check_results(entry.plugin)
        self._speakers = {
            point: [entry for entry in entries if _speaks(entry, point)] for point in EXTENSION_POINTS
        }
        self._silenced: list[tuple[str, list[Plugin]]] = []
        self._plugins = {point: [entry.plugin for entry in self._speakers[point]] for point in EXTENSION_POINTS}
        # The plugins of a point: a bound look-up, as it is asked several times for each unit.
        self.plugins: Callable[[str], list[Plugin]] = self._plugins.__getitem__
        leading = takewhile(lambda plugin: plugin.separates_bands, self._plugins["gang_order"])
        self.band_width = len(list(leading))
        self.node_allocators = frozenset(name for entry in entries for name in entry.plugin.node_allocators)
        self.inter_pod_rules = reduce(or_, (entry.plugin.inter_pod_rules for entry in entries), NO_RULES)
        self.order_drifts = any(plugin.order_drifts for plugin in self._plugins["gang_order"])

    def disable(self, point: str, place: int, instead: Plugin | None) -> None:
        """One plugin says nothing at a point until `enable_all`; those who hold the list see that at once."""
        self._silenced.append((point, list(self._plugins[point])))
        self._plugins[point][place : place + 1] = [instead] if instead is not None else []

    def enable_all(self) -> bool:
        """Ends what `disable` began; whether there was anything to end."""
        silenced = bool(self._silenced)
        while self._silenced:
            point, plugins = self._silenced.pop()
            self._plugins[point][:] = plugins
        return silenced

    def pre_filter(self, pod_class: ClassRecord) -> str | None:
        """The first reason for which the class can be placed nowhere."""
        for plugin in self.plugins("pre_filter"):
            reason = plugin.pre_filter(pod_class)
            if reason is not None:
                return reason
        return None

    def unready(self, pod_class: ClassRecord) -> str | None:
        """What the class refers to and is not there, or not ready: its volumes, its claims, its reservation."""
        use = pod_class.spec.reservation
        if use is not None:
            reason = use.fault or (self.reserved.unready(pod_class) if self.reserved is not None else None)
            if reason:
                return reason
        reasons = (
            allocator.refuse(pod_class.spec)
            for allocator in pod_class.allocators
            if allocator.name in self.node_allocators
        )
        return next((reason for reason in reasons if reason is not None), None)

    def time_key(self, now: float) -> tuple[Hashable, ...]:
        """What of the time the opinions on nodes depend on; plugins take note of the time."""
        return tuple(plugin.time_key(now) for plugin in self.plugins("time_key"))

    def next_wake(self, session: View) -> float | None:
        """When, later than now, a plugin first wants a cycle although nothing may have happened by then."""
        times = (plugin.next_wake(session) for plugin in self.plugins("next_wake"))
        return min((when for when in times if when is not None and when > session.now), default=None)

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """What the filters say about the rows, reason by reason, in the order of the tiers."""
        parts = [part for plugin in self.plugins("explain") for part in plugin.explain(pod_class, nodes, rows)]
        for plugin in self.plugins("filter"):
            if not overrides(plugin, "explain"):
                refused = ~plugin.filter(pod_class, nodes, rows)
                parts.append((f"node(s) were ruled out by plugin {plugin.name}", refused))
        allocators = (allocator for allocator in pod_class.allocators if allocator.name in self.node_allocators)
        parts += [part for allocator in allocators for part in allocator.explain(pod_class.spec, rows)]
        if nodes.maintenance.active:
            spec = pod_class.spec
            parts += nodes.maintenance.explain(spec.run_limit, spec.tolerations, rows)
        if self.reserved is not None and self.reserved.active:
            use = pod_class.spec.reservation
            reason = OUTSIDE.format(", ".join(use.names)) if use is not None and use.inside else RESERVED
            parts.append((reason, self.reserved.closed_to(pod_class, rows)))
        if pod_class.affinity.restricts:
            parts += pod_class.affinity_state(nodes.affinity).explain(
                rows, self.inter_pod_rules.spread, self.inter_pod_rules.affinity
            )
        return parts

    def admit(self, session: View, gang: GangRecord) -> bool:
        """Tier by tier: a rejection decides, else a permission, else the next tier; by default yes."""
        for _, tier in groupby(self._speakers["admit"], key=_tier):
            votes = [entry.plugin.admit(session, gang) for entry in tier]
            if Vote.REJECT in votes:
                return False
            if Vote.PERMIT in votes:
                return True
        return True

    def vote(self, point: str, session: View, unit: WaitingUnit) -> tuple[Vote, str]:
        """Return the vote of the plugins on a unit, and the name of the plugin that decides it."""
        for _, tier in groupby(self._speakers[point], key=_tier):
            votes = [(getattr(entry.plugin, point)(session, unit), entry.plugin.name) for entry in tier]
            for deciding in (Vote.REJECT, Vote.PERMIT):
                for vote, plugin in votes:
                    if vote is deciding:
                        return vote, plugin
        return Vote.ABSTAIN, ""

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str, str]:
        """Return what the first plugin that rejects the group says about it, and its name; "" for nothing."""
        for entry in self._speakers["admit"]:
            plugin = entry.plugin
            if plugin.admit(session, gang) is Vote.REJECT:
                told = plugin.why_not_admitted(session, gang) if overrides(plugin, "why_not_admitted") else None
                message, change = told or ("", "")
                return message, change, plugin.name
        return "", "", ""

    def admission_keys(self, gang: GangRecord) -> tuple[object, ...]:
        """What the votes on a group depend on besides its queue and size."""
        return tuple(
            plugin.admission_key(gang) if overrides(plugin, "admission_key") else gang.key
            for plugin in self.plugins("admit")
        )

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        """At most how many groups that are like this one to the plugins could be permitted now."""
        rooms = [
            plugin.max_admissions(session, gang)
            for plugin in self.plugins("admit")
            if overrides(plugin, "max_admissions")
        ]
        return min(rooms, default=_UNLIMITED)

    def describe(self) -> list[tuple[str, list[str]]]:
        """(extension point, names of the plugins that speak there), for people."""
        return [(point, [plugin.name for plugin in self.plugins(point)]) for point in EXTENSION_POINTS]


def _speaks(entry: ConfiguredPlugin, point: str) -> bool:
    plugin = entry.plugin
    return point not in entry.disabled_points and point not in plugin.disabled_points and overrides(plugin, point)


def _tier(entry: ConfiguredPlugin) -> int:
    return entry.tier
