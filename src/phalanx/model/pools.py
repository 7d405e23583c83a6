"""Groups of nodes that a queue may or should use."""

from __future__ import annotations

import msgspec

from phalanx.model.resources import Requests

POOL_LABEL = "volcano.sh/nodegroup-name"
"""The label of a node that says which group it belongs to."""


class PoolRule(msgspec.Struct, frozen=True, cache_hash=True):
    """What a queue says about groups of nodes, by their names.

    Pods may use the groups that are `required`, `preferred` (best first) or `avoided` (only if need be); never
    those that are `forbidden`, whatever else is said of them, and none that is not named at all. `limits` are
    what all pods of `queue` together may hold in a group; they are the queue's own, whoever its rule is from.
    `inherited` rules are those of the nearest queue above that has one.
    """

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    inherited: bool = False
    queue: str = ""
    limits: tuple[tuple[str, Requests], ...] = ()

    @property
    def names_groups(self) -> bool:
        return bool(self.required or self.preferred or self.forbidden or self.avoided)

    @property
    def permitted(self) -> tuple[str, ...]:
        """The best first."""
        named = dict.fromkeys((*self.required, *self.preferred, *self.avoided))
        return tuple(group for group in named if group not in self.forbidden)

    def permits(self, group: str) -> bool:
        return group in self.permitted

    def points(self, group: str, ordered: bool) -> float:
        """From -1 to 150: what is required is best, then what is preferred (by its place if `ordered`)."""
        if group in self.avoided:
            return -1.0
        points = 100.0 if group in self.required else 0.0
        if group in self.preferred:
            count = len(self.preferred)
            points += 50.0 * (count - self.preferred.index(group)) / count if ordered else 50.0
        return points
