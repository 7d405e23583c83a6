"""Node groups that a queue is restricted to or prefers."""

from __future__ import annotations

import msgspec

from phalanx.model.resources import Requests

POOL_LABEL = "volcano.sh/nodegroup-name"
"""Label of a node with the name of its group."""


class PoolRule(msgspec.Struct, frozen=True, cache_hash=True):
    """Rule of a queue about the node groups that its pods use.

    Pods can use the groups in `required`, `preferred` (best first) or `avoided` (only if necessary), never those
    in `forbidden` and never unnamed groups. `limits` bound the usage of all pods of `queue` per group; they are
    always the queue's own. `inherited` rules are those of the nearest ancestor queue with a rule.
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
        """Node groups that the queue's pods can use, best first."""
        named = dict.fromkeys((*self.required, *self.preferred, *self.avoided))
        return tuple(group for group in named if group not in self.forbidden)

    def permits(self, group: str) -> bool:
        return group in self.permitted

    def points(self, group: str, ordered: bool) -> float:
        """Return the score of a node group for the queue, from -1 to 150: required groups are best, then preferred
        ones (by rank if `ordered`)."""
        if group in self.avoided:
            return -1.0
        points = 100.0 if group in self.required else 0.0
        if group in self.preferred:
            count = len(self.preferred)
            points += 50.0 * (count - self.preferred.index(group)) / count if ordered else 50.0
        return points
