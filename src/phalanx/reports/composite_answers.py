"""Answer of `phalanx why` about a composite, from the answers about its gangs."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.composites import Composites
from phalanx.model.gang import GangKey
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.reports.group_states import can_start, count_groups, has_started, state_of_groups
from phalanx.reports.why_answer import GroupLine, WhyAnswer
from phalanx.scheduling.gang_placement.composite_verdicts import WAITING_FOR_COMPOSITE
from phalanx.views.gang_state import GangState, PlacementForecast


def composite_answer(
    composites: Composites, key: GangKey, gang_answer: Callable[[GangKey], WhyAnswer | None]
) -> WhyAnswer | None:
    """Return the answer about the composite `key`; None if there is no such CompositePodGroup."""
    spec = composites.specs.get(key)
    if spec is None:
        return None
    name = f"{spec.ref.namespace}/{spec.ref.name}"
    answers = {
        gang.key: answer_of_gang
        for gang in composites.gangs(key)
        if (answer_of_gang := gang_answer(gang.key)) is not None
    }
    answer = WhyAnswer(spec.ref.kind, name, GangState.PENDING, "", minimum=spec.min_groups, uid=spec.ref.uid)
    answer.groups = [
        GroupLine(answer_of_gang.name, answer_of_gang.state, answer_of_gang.message)
        for answer_of_gang in answers.values()
    ]
    fault = composites.fault(composites.root_of(key))
    if fault is not None:
        answer.reason, answer.message, answer.change = fault.code, fault.state, fault.remedy
        return answer
    required = max(1, spec.min_groups)
    started, able = (count_groups(composites, spec, answers, counts) for counts in (has_started, can_start))
    answer.state = state_of_groups(started, required, answers.values())
    answer.placeable, answer.missing = able, max(0, required - able)
    if able >= required:
        if any(answer_of_gang.forecast is PlacementForecast.STARTS_NOW for answer_of_gang in answers.values()):
            answer.forecast = PlacementForecast.STARTS_NOW
        answer.message = f"{able} groups have started or would start now, {required} are required"
        return answer
    answer.message = f"{able} of {required} required groups have started or can start"
    blocked = [
        answer_of_gang
        for answer_of_gang in answers.values()
        if answer_of_gang.state.waits and not answer_of_gang.forecast
    ]
    culprit = next(
        (answer_of_gang for answer_of_gang in blocked if answer_of_gang.reason != WAITING_FOR_COMPOSITE), None
    )
    if culprit is not None:
        answer.reason, answer.change = culprit.reason, culprit.change
        answer.message += f"; gang {culprit.name}: {culprit.message}"
    else:
        answer.reason, answer.change = NOT_ENOUGH_MEMBERS, f"create {required - able} more group(s)"
    return answer
