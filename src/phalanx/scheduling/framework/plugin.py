"""Base class of plugins; its methods are the extension points."""

from __future__ import annotations

from typing import ClassVar

from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.capabilities import TopologySettings, UsageDecay
from phalanx.scheduling.framework.extension_points import (
    AdmissionPlugin,
    EvictionPlugin,
    FilterPlugin,
    LifecyclePlugin,
    OrderPlugin,
    QuotaPlugin,
    ReservationPlugin,
    ScorePlugin,
)
from phalanx.scheduling.framework.inter_pod_rules import NO_RULES, InterPodRules


class Plugin(
    OrderPlugin,
    QuotaPlugin,
    EvictionPlugin,
    LifecyclePlugin,
    FilterPlugin,
    ScorePlugin,
    AdmissionPlugin,
    ReservationPlugin,
):
    """Override the extension points that the plugin implements; the framework calls only overridden methods.

    One instance exists as long as the policy that names it. A plugin stores no reference to the cluster between
    calls. It gets all inputs as arguments and must be deterministic.
    """

    name: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    """Accepted argument keys; a key that ends in `*` is a prefix."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Accepted argument keys without effect; a user of such a key gets a warning."""
    disabled_points: frozenset[str] = frozenset()
    """Extension points that the plugin does not use with its arguments."""
    node_allocators: frozenset[str] = frozenset()
    """Node allocators (ports, volumes, devices) that filter nodes if the policy contains this plugin."""
    inter_pod_rules: InterPodRules = NO_RULES
    """Enforcement of spread constraints, affinity and anti-affinity between pods."""
    remarks: tuple[str, ...] = ()
    """Messages to the author of the arguments, one sentence each."""

    # Settings that the scheduler reads from every plugin, independent of its class.

    topology: TopologySettings | None = None
    """Topology of the network; the first plugin with settings decides."""
    usage_decay: UsageDecay | None = None
    """Decay of past usage; the first plugin with settings decides."""
    deserved_from_accounts: ClassVar[bool] = False
    """Whether `deserved` reads only accounts and their shared amounts. It can then get an `AccountView` and run in
    another thread.
    """
    limits_by_declaration: ClassVar[bool] = False
    """Whether an account without a `limit` stays without one until a declaration of a queue or quota changes."""
    admits_with_nodes: ClassVar[bool] = False
    """Whether more nodes, or declared limits that are checked separately, end every rejection by `admit`."""
    needs_node_usage: ClassVar[bool] = False
    """Whether the plugin reads real usage of nodes (metrics.k8s.io), which must then be collected."""

    def __init__(self, arguments: Arguments) -> None:
        """Create the plugin. Raise PolicyError (through `arguments`) for invalid values."""


def overrides(plugin: Plugin, point: str) -> bool:
    """Return whether the plugin's class implements an extension point."""
    return getattr(type(plugin), point) is not getattr(Plugin, point)
