"""Topology constraints on the distance between a gang's members, from the annotations and fields of each dialect.

Volcano uses tiers of HyperNodes, Kueue node labels, and Koordinator layers of its topology. The annotations are
valid on group objects of any dialect and on pods.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.dialects.gangs.group_spec import MAX_MEMBERS, GroupReader
from phalanx.dialects.label_selectors import IllegibleSelectorError, Selector, read_selector
from phalanx.dialects.reader import Document, is_whole
from phalanx.model.text.decoding import decode_json
from phalanx.model.topology import SubgroupRule, TopologyRule

_HARD, _SOFT = "hard", "soft"
MUST_GATHER = "MustGather"
# Koordinator's name for the level of single nodes.
_NODE_LAYER = "NodeTopologyLayer"
_HOSTNAME = "kubernetes.io/hostname"


def network_topology(reader: GroupReader, stated: object, field: str) -> TopologyRule | None:
    """Parse Volcano's networkTopology. A soft one prefers the closest HyperNode, without a limit, and so does a
    hard one without a highest tier."""
    if stated is None:
        return None
    if not isinstance(stated, Mapping):
        reader.refuse(field, stated, "write an object such as {mode: hard, highestTierAllowed: 2}")
        return None
    mode, highest = stated.get("mode") or _HARD, stated.get("highestTierAllowed")
    name = stated.get("highestTierName") or ""
    if mode not in (_HARD, _SOFT):
        reader.refuse(f"{field}.mode", mode, "write hard or soft")
    if highest is not None and not (is_whole(highest) and 0 <= highest <= MAX_MEMBERS):
        reader.refuse(f"{field}.highestTierAllowed", highest, "write a whole number of at least 0, such as 1")
        highest = None
    if not isinstance(name, str):
        reader.refuse(f"{field}.highestTierName", name, "write a text")
        name = ""
    if highest is not None and name:
        reader.refuse(field, stated, "write highestTierAllowed or highestTierName, not both")
    if mode == _SOFT:
        return TopologyRule(hypernodes=True)
    return TopologyRule(hypernodes=True, highest_tier=highest, highest_tier_name=name)


def subgroup_rules(reader: GroupReader) -> tuple[SubgroupRule, ...]:
    """Decode the subGroupPolicy of a Volcano PodGroup: the subgroups and their topology constraints."""
    stated = reader.spec.get("subGroupPolicy") or []
    if not isinstance(stated, list):
        reader.refuse("spec.subGroupPolicy", stated, "write a list of {name: workers, subGroupSize: 4, ...}")
        return ()
    return tuple(
        _subgroup_rule(reader, f"spec.subGroupPolicy[{place}]", policy) for place, policy in enumerate(stated)
    )


def _subgroup_rule(reader: GroupReader, field: str, stated: object) -> SubgroupRule:
    if not isinstance(stated, Mapping):
        reader.refuse(field, stated, "write an object such as {name: workers, subGroupSize: 4}")
        return SubgroupRule("")
    name, keys = stated.get("name"), stated.get("matchLabelKeys") or []
    if not isinstance(name, str) or not name:
        reader.refuse(f"{field}.name", name, "write a text")
        name = ""
    if not isinstance(keys, list) or not all(isinstance(key, str) and key for key in keys):
        reader.refuse(f"{field}.matchLabelKeys", keys, "write a list of label keys")
        keys = []
    return SubgroupRule(
        name,
        _selector(reader, f"{field}.labelSelector", stated.get("labelSelector")),
        tuple(keys),
        _count(reader, field, stated, "subGroupSize", 1),
        _count(reader, field, stated, "minSubGroups", 0),
        network_topology(reader, stated.get("networkTopology"), f"{field}.networkTopology"),
    )


def _selector(reader: GroupReader, field: str, stated: object) -> Selector:
    if stated is None:
        return ()
    try:
        return read_selector(stated)
    except IllegibleSelectorError as error:
        reader.refuse(field, stated, str(error))
        return ()


def _count(reader: GroupReader, field: str, stated: Document, name: str, minimum: int) -> int:
    value = stated.get(name)
    if value is None:
        return minimum
    if is_whole(value) and minimum <= value <= MAX_MEMBERS:
        return value
    reader.refuse(f"{field}.{name}", value, f"write a whole number of at least {minimum}")
    return minimum


def parse_mode(text: str) -> str:
    if text not in (_HARD, _SOFT):
        raise ValueError("write hard or soft")
    return text


def parse_tier(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError("write a whole number of at least 0, such as 1")
    return int(text)


def tier_rule(mode: str | None, highest: int | None) -> TopologyRule | None:
    """Return the topology constraint that Volcano's two annotations state; None if neither is stated."""
    if mode is None and highest is None:
        return None
    return TopologyRule(hypernodes=True, highest_tier=None if mode == _SOFT else highest)


def level_rule(required: str, preferred: str, unconstrained: bool) -> TopologyRule | None:
    """Return the rule of Kueue's annotations, which name node labels; also without a constraint the
    closest domain is preferred."""
    if required or preferred or unconstrained:
        return TopologyRule(required=(required,) if required else (), preferred=preferred)
    return None


class Layer(msgspec.Struct, rename="camel"):
    """Entry of Koordinator's gatherStrategy: a topology level and how strictly members must share it."""

    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int = 1


class _Layers(msgspec.Struct, rename="camel"):
    gather_strategy: list[Layer] = []


def parse_layers(text: str) -> list[Layer]:
    """Parse Koordinator's network-topology-spec annotation. Raise ValueError with advice."""
    try:
        return decode_json(text, _Layers).gather_strategy
    except msgspec.DecodeError:
        raise ValueError(
            'write JSON such as {"gatherStrategy":[{"layer":"rack","strategy":"PreferGather"}]}'
        ) from None


def layer_rule(layers: list[Layer]) -> TopologyRule | None:
    """Return the topology constraint that Koordinator's layers state: node labels, or names from the policy; only
    the first preferred layer counts."""
    named = [
        (_HOSTNAME if layer.layer == _NODE_LAYER else layer.layer, layer.strategy)
        for layer in layers
        if layer.layer
    ]
    required = tuple(name for name, strategy in named if strategy == MUST_GATHER)
    preferred = [name for name, strategy in named if strategy != MUST_GATHER]
    return TopologyRule(required, preferred[0] if preferred else "") if named else None
