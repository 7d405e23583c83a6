"""Compiled policy: the plugins of each extension point, and the combination of their results."""

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
RESERVED = "node(s) were reserved for units that start before the pod would end"
OUTSIDE = "node(s) had no free room of Reservation {}"


class ReservedRoom(Protocol):
    """Nodes or parts of them that are reserved for later starts."""

    @property
    def active(self) -> bool:
        """True if any node is reserved."""

    def limit_copies(self, pod_class: ClassRecord, rows: Rows, copies: IntArray) -> IntArray:
        """Return int64[rows]: the copies with room now that end before the reserved starts."""

    def closed_to(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        """Return bool[rows]: the node rows where a pod of the class would fit without the reservations."""

    def unready(self, pod_class: ClassRecord) -> str | None:
        """Return why pods of a class wait for their advance reservation, independent of free room; None if it is
        ready.
        """


class PluginRuntime:
    """Plugins by extension point, in the order of the tiers.

    `band_width` is the number of leading keys of `gang_order` that separate bands. A unit of a lower band is placed
    only after the surplus of a higher band had its turn. `order_drifts` is True if the order changes with time.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        # The plugin of start reservations sets this.
        self.reserved: ReservedRoom | None = None
        # Plugins of declared objects come first: their reason is reported if several plugins refuse.
        entries = (*policy.standing_plugins, *policy.plugins)
        for entry in entries:
            check_results(entry.plugin)
        self._entries = {
            point: [entry for entry in entries if _implements(entry, point)] for point in EXTENSION_POINTS
        }
        self._disabled: list[tuple[str, list[Plugin]]] = []
        self._plugins = {point: [entry.plugin for entry in self._entries[point]] for point in EXTENSION_POINTS}
        # Plugins of an extension point: a bound method, because each unit needs several look-ups.
        self.plugins: Callable[[str], list[Plugin]] = self._plugins.__getitem__
        leading = takewhile(lambda plugin: plugin.separates_bands, self._plugins["gang_order"])
        self.band_width = len(list(leading))
        self.node_allocators = frozenset(name for entry in entries for name in entry.plugin.node_allocators)
        self.inter_pod_rules = reduce(or_, (entry.plugin.inter_pod_rules for entry in entries), NO_RULES)
        self.order_drifts = any(plugin.order_drifts for plugin in self._plugins["gang_order"])

    def disable(self, point: str, place: int, instead: Plugin | None) -> None:
        """Disable one plugin at an extension point until `enable_all`, also in lists that callers already have."""
        self._disabled.append((point, list(self._plugins[point])))
        self._plugins[point][place : place + 1] = [instead] if instead is not None else []

    def enable_all(self) -> bool:
        """Enable all plugins again that `disable` has disabled; return whether there were any."""
        disabled = bool(self._disabled)
        while self._disabled:
            point, plugins = self._disabled.pop()
            self._plugins[point][:] = plugins
        return disabled

    def pre_filter(self, pod_class: ClassRecord) -> str | None:
        """Return the first reason why no node can fit the class; None if one can."""
        for plugin in self.plugins("pre_filter"):
            reason = plugin.pre_filter(pod_class)
            if reason is not None:
                return reason
        return None

    def unready(self, pod_class: ClassRecord) -> str | None:
        """Return why a referenced volume, claim or reservation of the class is missing or not ready; None if all
        are ready.
        """
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
        """Return a key of the time on which results for nodes depend; plugins record the time."""
        return tuple(plugin.time_key(now) for plugin in self.plugins("time_key"))

    def next_wake(self, session: View) -> float | None:
        """Return the first time after now at which a plugin needs a cycle even without events; None if none
        does.
        """
        times = (plugin.next_wake(session) for plugin in self.plugins("next_wake"))
        return min((when for when in times if when is not None and when > session.now), default=None)

    def explain(self, pod_class: ClassRecord, nodes: NodeTable, rows: Rows) -> list[tuple[str, BoolArray]]:
        """Return the filters' reasons for the rows, in the order of the tiers."""
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
        """Return whether the controller of a gang may create its pods. In a tier a rejection decides, else a
        permission, else the next tier; default True."""
        for _, tier in groupby(self._entries["admit"], key=_tier):
            votes = [entry.plugin.admit(session, gang) for entry in tier]
            if Vote.REJECT in votes:
                return False
            if Vote.PERMIT in votes:
                return True
        return True

    def vote(self, point: str, session: View, unit: WaitingUnit) -> tuple[Vote, str]:
        """Return the vote of the plugins on a gang or pod at an extension point, and the name of the plugin that
        decides it."""
        for _, tier in groupby(self._entries[point], key=_tier):
            votes = [(getattr(entry.plugin, point)(session, unit), entry.plugin.name) for entry in tier]
            for deciding in (Vote.REJECT, Vote.PERMIT):
                for vote, plugin in votes:
                    if vote is deciding:
                        return vote, plugin
        return Vote.ABSTAIN, ""

    def lacks_nodes_only(self, session: View, gang: GangRecord) -> bool:
        """Return whether every plugin that rejects the gang's admission would admit it with more nodes."""
        return all(
            entry.plugin.admits_with_nodes
            for entry in self._entries["admit"]
            if entry.plugin.admit(session, gang) is Vote.REJECT
        )

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str, str]:
        """Return (obstacle, change, plugin name) of the first plugin that rejects the gang's admission; "" for
        none."""
        for entry in self._entries["admit"]:
            plugin = entry.plugin
            if plugin.admit(session, gang) is Vote.REJECT:
                reason = plugin.why_not_admitted(session, gang) if overrides(plugin, "why_not_admitted") else None
                message, change = reason or ("", "")
                return message, change, plugin.name
        return "", "", ""

    def admission_keys(self, gang: GangRecord) -> tuple[object, ...]:
        """Return the inputs on which the admission votes on a gang depend besides its queue and size."""
        return tuple(
            plugin.admission_key(gang) if overrides(plugin, "admission_key") else gang.key
            for plugin in self.plugins("admit")
        )

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        """Return an upper bound on the number of equal gangs that can be admitted now."""
        rooms = [
            plugin.max_admissions(session, gang)
            for plugin in self.plugins("admit")
            if overrides(plugin, "max_admissions")
        ]
        return min(rooms, default=_UNLIMITED)

    def describe(self) -> list[tuple[str, list[str]]]:
        """Return for users (extension point, names of its plugins) for each extension point in use."""
        return [(point, [plugin.name for plugin in self.plugins(point)]) for point in EXTENSION_POINTS]


def _implements(entry: ConfiguredPlugin, point: str) -> bool:
    plugin = entry.plugin
    return point not in entry.disabled_points and point not in plugin.disabled_points and overrides(plugin, point)


def _tier(entry: ConfiguredPlugin) -> int:
    return entry.tier
