"""Starts of waiting gangs and pods as data, for the commands and the page."""

from __future__ import annotations

import msgspec

from phalanx.views.gang_state import GangState, PlacementForecast
from phalanx.views.promises import PromisedStart


class StartEntry(msgspec.Struct):
    """Start of one waiting gang or single pod.

    `pods` start together with a `priority`. `state` is the observed state (docs/gang-states.md). `forecast` is
    StartsNow if nothing blocks the start; `start` is then empty. `target` is KIND/NAME, as other commands accept
    it.
    """

    kind: str
    namespace: str
    name: str
    queue: str
    pods: int
    priority: int
    state: GangState
    start: PromisedStart
    forecast: PlacementForecast = PlacementForecast.NONE
    target: str = ""


class StartsAnswer(msgspec.Struct, kw_only=True):
    """Starts of the waiting gangs and pods that a user can see, as the page's server answers."""

    starts: list[StartEntry]
    warnings: list[str]
