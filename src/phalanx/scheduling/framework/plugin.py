"""What a plugin is: a class whose methods are the extension points."""

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
    """Override the methods on which the plugin has an opinion; the framework calls only those.

    One instance lives as long as the policy that names it. A plugin keeps no reference to the cluster between
    calls; it gets everything as arguments and must be deterministic.
    """

    name: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    """The argument keys that the plugin accepts; a key that ends in `*` stands for a prefix."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Those of them that it accepts but does not act on; whoever uses one is told so."""
    disabled_points: frozenset[str] = frozenset()
    """Extension points at which it has no opinion with the arguments that it got."""
    node_allocators: frozenset[str] = frozenset()
    """The allocators (ports, volumes, devices) that keep pods from nodes where this plugin is in the policy."""
    inter_pod_rules: InterPodRules = NO_RULES
    """What it makes of spread constraints, affinity and anti-affinity between pods."""
    remarks: tuple[str, ...] = ()
    """What whoever wrote the arguments should know, a sentence each."""

    # what the scheduler asks of every plugin, rather than for one of a certain class

    topology: TopologySettings | None = None
    """How the network is parted; that of the first plugin that says something counts."""
    usage_decay: UsageDecay | None = None
    """How far what accounts have held counts; that of the first plugin that says something counts."""
    deserved_from_accounts: ClassVar[bool] = False
    """Whether `deserved` looks at nothing but accounts and what there is for them to share: it may then be given an
    `AccountView`, and be asked by another thread."""
    needs_node_usage: ClassVar[bool] = False
    """Whether it looks at what nodes really use (metrics.k8s.io), which somebody has to read then."""

    def __init__(self, arguments: Arguments) -> None:
        """Raises PolicyError (through `arguments`) for values that it cannot use."""


def overrides(plugin: Plugin, point: str) -> bool:
    """Whether the plugin's class implements an extension point itself."""
    return getattr(type(plugin), point) is not getattr(Plugin, point)
