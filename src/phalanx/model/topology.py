"""How close to each other the members of a gang have to be, and domains of a network that objects describe."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Requirement


class TopologyRule(msgspec.Struct, frozen=True, cache_hash=True):
    """All go into one domain, the smallest that takes them.

    Domains are the values of node labels, or HyperNodes (`hypernodes`). By labels: on the nodes of all, each of the
    keys in `required` has one and the same value (a node without the label is out); with `preferred` the smallest
    domain is looked for up to that level first, and the search goes on up from there, to everywhere or as far as
    `required` allows. A key may be a name that the policy gives to a level. By HyperNodes: none of a higher tier
    than `highest_tier` (or than the tier that is named `highest_tier_name`) will do; without either the search goes
    up to everywhere.
    """

    required: tuple[str, ...] = ()
    preferred: str = ""
    hypernodes: bool = False
    highest_tier: int | None = None
    highest_tier_name: str = ""

    @classmethod
    def by_label(cls, key: str) -> TopologyRule:
        """All in one domain of a node label."""
        return cls(required=(key,))

    @property
    def hard(self) -> bool:
        """Whether it may keep members from being placed."""
        return bool(self.required or self.highest_tier is not None or self.highest_tier_name)


class SubgroupRule(msgspec.Struct, frozen=True, cache_hash=True):
    """Parts of a gang that start whole and have a topology of their own (Volcano's subGroupPolicy).

    Members that `selector` selects are parted by the values that they have under the labels `keys`: equal values,
    one subgroup. `size` of a subgroup's members start together or none; what it has beyond that comes singly,
    later. `least` subgroups of the rule must have started for the gang's quorum to hold.
    """

    name: str
    selector: tuple[Requirement, ...] = ()
    keys: tuple[str, ...] = ()
    size: int = 1
    least: int = 0
    topology: TopologyRule | None = None

    def part(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """Which subgroup a member with these labels is in; None if the rule does not speak of it.

        A member that lacks one of the keys is in none.
        """
        if any(key not in labels for key in self.keys) or not all(_holds(each, labels) for each in self.selector):
            return None
        return tuple([labels[key] for key in self.keys])


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    match requirement.operator:
        case "In":
            return labels.get(requirement.key) in requirement.values
        case "NotIn":
            return labels.get(requirement.key) not in requirement.values
        case "Exists":
            return requirement.key in labels
    return requirement.key not in labels


class HyperNodeMember(msgspec.Struct, frozen=True):
    """Nodes or HyperNodes (`nested`) that belong to a HyperNode: the one of this `name`, those in whose name
    `pattern` (a regular expression) is found, or the nodes whose labels meet all of `labels`."""

    nested: bool = False
    name: str = ""
    pattern: str = ""
    labels: tuple[Requirement, ...] = ()


class HyperNode(msgspec.Struct, frozen=True):
    """A domain of the network (topology.volcano.sh): the lower its `tier`, the closer to each other its members.

    `problem` says why it holds nothing: it could not be read.
    """

    name: str
    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()
    problem: str = ""
