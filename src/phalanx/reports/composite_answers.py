"""Answer of `phalanx why` about a CompositePodGroup, from the answers about its gangs."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.composites import Composites
from phalanx.model.gang import GangKey, share_of
from phalanx.model.text.counts import count_of
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.reports.group_states import can_start, count_groups, has_started, state_of_groups
from phalanx.reports.why_answer import GroupLine, WhyAnswer
from phalanx.scheduling.gang_placement.composite_verdicts import WAITING_FOR_COMPOSITE
from phalanx.views.gang_state import GangState, PlacementForecast


def composite_answer(
    composites: Composites, key: GangKey, gang_answer: Callable[[GangKey], WhyAnswer | None]
) -> WhyAnswer | None:
    """Return the answer of `phalanx why` about a composite; None if there is no such CompositePodGroup."""
    spec = composites.specs.get(key)
    if spec is None:
        return None
    name = f"{spec.ref.namespace}/{spec.ref.name}"
    answers = {gang.key: found for gang in composites.gangs(key) if (found := gang_answer(gang.key)) is not None}
    answer = WhyAnswer(spec.ref.kind, name, GangState.PENDING, "", minimum=spec.min_groups, uid=spec.ref.uid)
    answer.groups = [GroupLine(found.name, found.state, found.message) for found in answers.values()]
    fault = composites.fault(composites.root_of(key))
    if fault is not None:
        answer.reason, answer.message, answer.change = fault.code, fault.state, fault.remedy
        return answer
    least = max(1, spec.min_groups)
    started, able = (count_groups(composites, spec, answers, counts) for counts in (has_started, can_start))
    answer.state = state_of_groups(started, least, answers.values())
    answer.placeable, answer.missing = able, max(0, least - able)
    if able >= least:
        if any(found.forecast is PlacementForecast.STARTS_NOW for found in answers.values()):
            answer.forecast = PlacementForecast.STARTS_NOW
        answer.message = f"{count_of(able, 'group')} started or would start now; {least} required"
        return answer
    answer.message = f"{share_of(able, least, 'required group')} started or can start"
    blocked = [found for found in answers.values() if found.state.waits and not found.forecast]
    culprit = next((found for found in blocked if found.reason != WAITING_FOR_COMPOSITE), None)
    if culprit is not None:
        answer.reason, answer.change = culprit.reason, culprit.change
        answer.message += f"; gang {culprit.name}: {culprit.message}"
    else:
        answer.reason, answer.change = NOT_ENOUGH_MEMBERS, f"create {count_of(least - able, 'more group')}"
    return answer
