"""Entries of the scheduling order as data, for the commands and the page."""

from __future__ import annotations

import msgspec

from phalanx.views.gang_state import GangState, PlacementForecast


class TurnEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Gang or single pod in the scheduling order.

    `position` counts from 1. `state` is the observed state (docs/gang-states.md). `forecast` is StartsNow for a
    gang or pod that would be placed now; any other one waits for `reason` (a code) and `message`. `queue_share` is
    the queue's largest percentage of any resource. `created` is in seconds since the epoch. `keys` are the sort
    keys of the policy's plugins in order of comparison, smaller first; keys of queues have the prefix `queue:`.
    `behind` names the key that puts the gang or pod behind its predecessor. `target` is KIND/NAME, as other
    commands accept it.
    """

    position: int
    kind: str
    namespace: str
    name: str
    queue: str
    queue_share: float
    priority: int
    created: int
    state: GangState
    forecast: PlacementForecast = PlacementForecast.NONE
    keys: dict[str, float | str]
    behind: str = ""
    members: int = 1
    reserved: bool = False
    reason: str = ""
    message: str = ""
    target: str = ""


class OrderReport(msgspec.Struct, frozen=True):
    entries: list[TurnEntry]
    warnings: list[str]
