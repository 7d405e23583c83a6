"""What a policy says about reservations: who gets one, and who goes first beside them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.vocabulary import RESERVE


class ReservationSettings(msgspec.Struct, frozen=True):
    """`depth` is how many waiters of a queue have a start that is kept for them (1: EASY; 0: all, conservative).
    Who has waited less than `min_age` seconds, or ranks below `min_priority`, waits without one.

    With `shortest_first` those behind the first who must wait take their turns by how long they say that they run
    (SJBF), otherwise in the order of the queue. `start_delay` is how many seconds a pod takes from its binding to
    the start of its clock. Every `forecast_every` seconds, should there be a cycle, those without a start get a
    forecast (0: never).

    Nobody is evicted for who starts by itself within `wait_instead` seconds (0: that does not count), nor where
    more than `most_lost_percent` of the time that it gains is lost as work of those who go (-1: no limit).

    Without `reserves_starts` nobody who waits has a start kept: the policy has no action `reserve`, and there are
    advance reservations.
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


def reservation_settings(
    actions: tuple[str, ...], arguments: Mapping[str, Mapping[str, object]], errors: list[str]
) -> ReservationSettings | None:
    """None where the policy does not name the action `reserve`; mistakes are added to `errors`."""
    if RESERVE not in actions:
        return None
    stated = Arguments(f"action {RESERVE}", arguments.get(RESERVE, {}))
    try:
        return ReservationSettings(
            stated.integer("depth", 1, 0),
            stated.integer("minAgeSeconds", 0, 0),
            stated.integer("minPriority", -(2**31), -(2**31)),
            _shortest_first(stated),
            stated.integer("startDelaySeconds", 30, 0),
            stated.integer("waitInsteadSeconds", 0, 0),
            stated.integer("maxLostWorkPercent", -1, -1),
            stated.integer("forecastSeconds", 1800, 0),
        )
    except PolicyError as error:
        errors.append(str(error))
        return None


def _shortest_first(stated: Arguments) -> bool:
    order = stated.text("backfillOrder", "queue")
    if order not in ("queue", "shortest"):
        raise PolicyError(f"{stated.owner}: argument backfillOrder: {order!r} is not queue or shortest")
    return order == "shortest"
