"""Network topology of gangs: the domain that all members must share, and the domains that HyperNode objects
describe."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.selectors import Requirement


class TopologyRule(msgspec.Struct, frozen=True, cache_hash=True):
    """Topology constraint of a gang: all members are in one network domain, the smallest one that fits.

    Domains are the values of node labels, or HyperNodes (`hypernodes`). With labels, the nodes of all members
    have equal values for each key in `required` (a node without the label is excluded). With `preferred`, the
    search starts with the smallest domains up to that level and continues upwards, as far as `required` allows. A
    key can be a level's name in the policy. With HyperNodes, the tier of the domain is at most `highest_tier` (or
    the tier named `highest_tier_name`); without either, the search continues up to the whole cluster.
    """

    required: tuple[str, ...] = ()
    preferred: str = ""
    hypernodes: bool = False
    highest_tier: int | None = None
    highest_tier_name: str = ""

    @classmethod
    def by_label(cls, key: str) -> TopologyRule:
        """Return the constraint that all members are in one domain of a node label."""
        return cls(required=(key,))

    @property
    def hard(self) -> bool:
        """Whether the constraint can prevent a placement, so is not only a preference."""
        return bool(self.required or self.highest_tier is not None or self.highest_tier_name)


class SubgroupRule(msgspec.Struct, frozen=True, cache_hash=True):
    """Rule that divides a gang into subgroups, which start as a whole and have their own topology (Volcano's
    subGroupPolicy).

    Members that match `selector` are divided by their values of the labels `keys`: equal values form one
    subgroup. `size` members of a subgroup start together; additional members are placed one by one later. At
    least `least` subgroups of the rule must have started for the gang's quorum.
    """

    name: str
    selector: tuple[Requirement, ...] = ()
    keys: tuple[str, ...] = ()
    size: int = 1
    least: int = 0
    topology: TopologyRule | None = None

    def part(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the subgroup of a member with these labels, as its label values; None if the rule does not apply
        to the member.

        A member without one of the keys is in no subgroup.
        """
        if any(key not in labels for key in self.keys) or not all(
            _holds(requirement, labels) for requirement in self.selector
        ):
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
    """Members of a HyperNode, which are nodes or other HyperNodes (`nested`): by `name`, by `pattern` (a regular
    expression searched in the name), or by labels that match all of `labels`."""

    nested: bool = False
    name: str = ""
    pattern: str = ""
    labels: tuple[Requirement, ...] = ()


class HyperNode(msgspec.Struct, frozen=True):
    """HyperNode (topology.volcano.sh), a domain of the network: the lower its `tier`, the closer its members.

    `problem` is the reason why it has no members: it was unreadable.
    """

    name: str
    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()
    problem: str = ""
