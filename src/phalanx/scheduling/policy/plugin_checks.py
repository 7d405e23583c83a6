"""Checks of a third-party plugin before its first call."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from types import MappingProxyType

from phalanx.model.text.decoding import quoted
from phalanx.scheduling.framework.capabilities import TopologySettings, UsageDecay
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS
from phalanx.scheduling.framework.inter_pod_rules import InterPodRules
from phalanx.scheduling.framework.plugin import Plugin, overrides

RENAMED: MappingProxyType[str, str] = MappingProxyType(
    {
        "admission_room": "max_admissions",
        "ceiling": "limit",
        "colocation_groups": "task_buckets",
        "consents": "pre_bind_check",
        "entitled": "nominal_quota",
        "equip": "configure",
        "evictees": "victims",
        "held": "blocked",
        "huddles": "task_buckets",
        "objection": "why_not_admitted",
        "outcasts": "victims",
        "peers": "inter_pod_rules",
        "preference": "static_score",
        "prospect": "deserved_with_request",
        "quiet": "disabled_points",
        "refuse": "pre_filter",
        "room": "max_copies",
        "season": "time_key",
        "spares": "evict_veto",
        "stated": "declared_resources",
        "stocks": "node_allocators",
        "tenant_order": "subqueue_order",
        "tenants": "subqueues",
        "until": "recheck_at",
        "wakes": "next_wake",
        "wide": "depends_on_other_nodes",
    }
)
"""Former names of extension points and settings. A method of such a name is never called and could break a limit,
so it is an error.
"""

_OURS = "phalanx.scheduling."
_SETTINGS: tuple[tuple[str, type | tuple[type, ...], str], ...] = (
    ("inter_pod_rules", InterPodRules, "InterPodRules"),
    ("topology", (TopologySettings, type(None)), "TopologySettings or None"),
    ("usage_decay", (UsageDecay, type(None)), "UsageDecay or None"),
    ("reclaim_level", (int, type(None)), "a whole number or None"),
    *((name, bool, "True or False") for name in ("separates_bands", "order_drifts", "keeps_budgets")),
    *(
        (name, bool, "True or False")
        for name in ("honours_owners", "deserved_from_accounts", "limits_by_declaration", "needs_node_usage")
    ),
)


def class_faults(kind: type[Plugin]) -> Iterator[str]:
    """Yield the faults of a plugin class, one sentence each."""
    for base in kind.__mro__:
        if not base.__module__.startswith(_OURS):
            yield from (f"{name} was renamed to {RENAMED[name]}" for name in vars(base) if name in RENAMED)
    for point in EXTENSION_POINTS:
        if not callable(getattr(kind, point)):
            yield f"{point} must be a method"
    if kind.pre_bind_check is not Plugin.pre_bind_check and kind.filter is Plugin.filter:
        yield "pre_bind_check needs a filter, which excludes refused nodes"
    if not _texts(kind.arguments, tuple) or not _texts(kind.without_effect, tuple):
        yield "arguments and without_effect must be tuples of strings"


def setting_faults(plugin: Plugin) -> Iterator[str]:
    """Yield the faults of a plugin's settings, one sentence each."""
    for name, kinds, wanted in _SETTINGS:
        if not isinstance(getattr(plugin, name), kinds):
            yield f"{name} must be {wanted}, got {quoted(getattr(plugin, name))}"
    for name, kind in (("disabled_points", frozenset), ("node_allocators", frozenset), ("remarks", tuple)):
        if not _texts(getattr(plugin, name), kind):
            yield f"{name} must be a {kind.__name__} of strings, got {quoted(getattr(plugin, name))}"
    if _texts(plugin.disabled_points, frozenset):
        yield from (
            f"disabled_points: unknown extension point {point}"
            for point in sorted(plugin.disabled_points - {*EXTENSION_POINTS})
        )


def remarks(plugin: Plugin) -> Iterator[str]:
    """Yield possible oversights of the plugin's author, one sentence each."""
    if type(plugin).__module__.startswith(_OURS):
        return
    for name in vars(type(plugin)):
        close = difflib.get_close_matches(name, EXTENSION_POINTS, n=1, cutoff=0.8)
        if close and name not in EXTENSION_POINTS and name[0] != "_" and not hasattr(Plugin, name):
            yield f"{name} is not an extension point; did you mean {close[0]}?"
    if not any(overrides(plugin, point) for point in EXTENSION_POINTS):
        yield "the plugin implements no extension point"


def _texts(found: object, kind: type) -> bool:
    return isinstance(found, tuple | frozenset) and type(found) is kind and all(isinstance(x, str) for x in found)
