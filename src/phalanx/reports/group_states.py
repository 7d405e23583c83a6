"""State of a CompositePodGroup, derived from the answers about its gangs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from phalanx.cluster.composites import Composites
from phalanx.model.composite import Composite
from phalanx.model.gang import GangKey
from phalanx.scheduling.gang_placement.composite_verdicts import WAITING_FOR_COMPOSITE
from phalanx.views.gang_state import GangState, PlacementForecast


class GroupAnswer(Protocol):
    """Answer of `phalanx why` about one gang of a CompositePodGroup."""

    state: GangState
    forecast: PlacementForecast
    reason: str


def count_groups(
    composites: Composites,
    spec: Composite,
    answers: Mapping[GangKey, GroupAnswer],
    counts: Callable[[GroupAnswer], bool],
) -> int:
    """Return the number of a composite's child groups for which `counts` is True; a child composite counts if
    enough of its own children do."""
    inner, gangs = composites.children(spec.key)
    number = sum(counts(answers[gang.key]) for gang in gangs if gang.key in answers)
    enough = (count_groups(composites, each, answers, counts) >= max(1, each.min_groups) for each in inner)
    return number + sum(enough)


def has_started(answer: GroupAnswer) -> bool:
    """Return whether the required members of a gang are on nodes."""
    return answer.state in (GangState.STARTING, GangState.RUNNING)


def can_start(answer: GroupAnswer) -> bool:
    """Return whether a gang has started, would start now, or waits for other groups only."""
    return not answer.state.waits or bool(answer.forecast) or answer.reason == WAITING_FOR_COMPOSITE


def state_of_groups(started: int, least: int, answers: Collection[GroupAnswer]) -> GangState:
    """Return the state of a composite of which `least` child groups start together and `started` have started."""
    if started < least:
        return GangState.PARTIAL if any(map(has_started, answers)) else GangState.PENDING
    return GangState.RUNNING if any(each.state is GangState.RUNNING for each in answers) else GangState.STARTING
