"""Settings of start reservations: which waiting gangs and pods get one, and backfill around them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.text.decoding import quoted
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.vocabulary import RESERVE

#: Seconds that a gang waits for room on nodes before it collects, and the setting of gangs that never do.
COLLECT_AFTER, NEVER = 600, -1
# Value of `depth` without promised starts.
_NO_STARTS = "none"


class ReservationSettings(msgspec.Struct, frozen=True):
    """`depth` is the number of waiting units per queue with a start reservation (1: EASY; 0: all, conservative).
    Units that have waited less than `min_age` seconds or have a priority below `min_priority` get none.

    With `shortest_first`, units behind the first one that must wait are backfilled in order of their declared run
    time (SJBF), otherwise in queue order. `start_delay` is the time in seconds from the binding of a pod to the
    start of its run time. Every `forecast_every` seconds, in the next cycle, units without a start reservation get
    a forecast (0: never).

    Victims are not evicted for a unit that starts without evictions within `wait_instead` seconds (0: no such
    check). They are also not evicted if the lost work exceeds `most_lost_percent` of the time that the unit gains
    (-1: no limit).

    Without `reserves_starts` no start is reserved: `depth` is `none`, or the policy has no action `reserve` and
    there are advance reservations. A gang that waits `collect_after` seconds for room on nodes collects it (-1:
    never).
    """

    depth: int = 1
    min_age: int = 0
    min_priority: int = -(2**31)
    shortest_first: bool = False
    start_delay: int = 30
    wait_instead: int = 0
    most_lost_percent: int = -1
    forecast_every: int = 1800
    reserves_starts: bool = True
    collect_after: int = NEVER

    @property
    def collects(self) -> bool:
        return self.collect_after >= 0


def reservation_settings(
    actions: tuple[str, ...], arguments: Mapping[str, Mapping[str, object]], errors: list[str]
) -> ReservationSettings | None:
    """Return the settings of the action `reserve`, or None if the policy does not name it; append mistakes to
    `errors`."""
    if RESERVE not in actions:
        return None
    stated = Arguments(f"action {RESERVE}", arguments.get(RESERVE, {}))
    try:
        reserves_starts = stated.text("depth") != _NO_STARTS
        return ReservationSettings(
            stated.integer("depth", 1, 0) if reserves_starts else 0,
            stated.integer("minAgeSeconds", 0, 0),
            stated.integer("minPriority", -(2**31), -(2**31)),
            _shortest_first(stated),
            stated.integer("startDelaySeconds", 30, 0),
            stated.integer("waitInsteadSeconds", 0, 0),
            stated.integer("maxLostWorkPercent", -1, -1),
            stated.integer("forecastSeconds", 1800, 0),
            reserves_starts,
            _collect_after(stated),
        )
    except PolicyError as error:
        errors.append(str(error))
        return None


def _collect_after(stated: Arguments) -> int:
    if stated.text("collectAfter") == "never":
        return NEVER
    seconds = stated.duration("collectAfter")
    return COLLECT_AFTER if seconds is None else seconds


def _shortest_first(stated: Arguments) -> bool:
    order = stated.text("backfillOrder", "queue")
    if order not in ("queue", "shortest"):
        raise PolicyError(
            f"{stated.owner}: argument backfillOrder: {quoted(order)} is unknown; expected queue or shortest"
        )
    return order == "shortest"
