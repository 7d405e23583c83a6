"""Nothing reads our sentences: with every one replaced by `x`, codes, counts, names, redaction and tables stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.dashboard.access import Viewer
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.rows.entries import GangAnswer, GangRow
from phalanx.dashboard.scope import Scope
from phalanx.model.decisions import EvictionReason
from phalanx.model.eviction_condition import eviction_fields, read_eviction
from phalanx.model.pod import PodClass
from phalanx.model.verdict import Verdict
from phalanx.model.verdict_condition import read_told, told_fields
from phalanx.scheduling.session.decisions import Decisions
from phalanx.views.gang_state import GangState
from tests.scheduling.scenario import NAMESPACE, Scenario
from tests.views.situations import G, Situation
from tests.views.test_situations import OF_DOCUMENTS_ALONE, SITUATIONS, native

TENANT = Redaction(Scope(Viewer("tenant"), NAMESPACE, False, False, True, frozenset()))
STRANGER = Redaction(Scope(Viewer("stranger"), "elsewhere", False, False, True, frozenset()))


def queue_that_does_not_exist() -> Situation:
    return Situation(Scenario().node("n", cpu=9).job("g", 3, queue="nosuch", cpu=1).settle(), "job", native())


def members_missing() -> Situation:
    world = Scenario().node("n", cpu=9).gang("g", 3).pods("g", 2, gang="g", cpu=1).settle()
    return Situation(world, "job", native())


def node_selector_that_no_node_has() -> Situation:
    selects = PodClass(node_selector=(("disk", "ssd"),))
    world = Scenario().node("n", cpu=9).job("g", 3, cpu=1, pod_class=selects).settle()
    return Situation(world, "job", native())


PLAYS = [play for play, _, _ in SITUATIONS if play not in OF_DOCUMENTS_ALONE]
PLAYS += [queue_that_does_not_exist, members_missing, node_selector_that_no_node_has]


def replace_texts(patch: pytest.MonkeyPatch) -> None:
    """Let every verdict and eviction of a cycle say `x`."""
    set_gang, set_pod, evict = Decisions.set_gang_verdict, Decisions.set_pod_verdict, Decisions.evict

    def gang_verdict(self: Decisions, gang: GangRecord, verdict: Verdict | None) -> None:
        set_gang(self, gang, _replaced(verdict))

    def pod_verdict(self: Decisions, record: PodRecord, verdict: Verdict | None) -> None:
        set_pod(self, record, _replaced(verdict))

    def evicted(self: Decisions, record: PodRecord, reason: EvictionReason, message: str, *more: Any) -> None:
        evict(self, record, reason, "x", *more)

    patch.setattr(Decisions, "set_gang_verdict", gang_verdict)
    patch.setattr(Decisions, "set_pod_verdict", pod_verdict)
    patch.setattr(Decisions, "evict", evicted)


def _replaced(verdict: Verdict | None) -> Verdict | None:
    if verdict is None:
        return None
    return msgspec.structs.replace(verdict, message="x", change="x" if verdict.change else "")


def told(verdict: Verdict | None) -> object:
    """Return a verdict without its texts, and its state after a round trip through its condition."""
    if verdict is None:
        return None
    counts = (verdict.needed, verdict.placeable, verdict.members, verdict.nodes)
    back = read_told(verdict.code, told_fields(verdict))
    return verdict.code, counts, verdict.objects, verdict.unschedulable, verdict.fault, back


def shown(redaction: Redaction, row: GangRow) -> object:
    """Return the texts for a viewer: those of the row, or neutral ones without names."""
    seen = redaction.gang_row(row)
    whole = seen.message == row.message and seen.change == row.change
    return whole, "" if whole else seen.message, seen.reason, seen.state


async def facts(situation: Situation) -> dict[str, object]:
    """Return all that the views show of a gang but its sentences."""
    why, row, entry, listed = situation.why(), situation.row(), situation.entry(), await situation.listed()
    evictions = why.evictions
    answer = TENANT.gang(GangAnswer(row=row, why=why, members=[], marks=[], problem="", omitted=[]))
    assert answer.why is not None
    return {
        "verdict": told(situation.verdict(G)),
        "why": (why.state, why.reason, why.forecast, why.minimum, why.placeable, why.missing, why.nodes),
        "evictions": evictions and (evictions.state, evictions.pods, evictions.cost, evictions.rooms),
        "row": (row.state, row.reason, row.brief, row.objects, row.start, row.start_kind),
        "page of a tenant": (answer.why.reason, answer.why.nodes, answer.why.missing),
        "texts of a tenant": shown(TENANT, row),
        "texts of a stranger": shown(STRANGER, row),
        "jobs": (entry.state, entry.reason),
        "list": (listed.state, listed.reason),
        "metrics": msgspec.to_builtins(situation.counts().waiting),
        "order": situation.turn().name if row.state is GangState.PENDING and row.minimum <= row.pending else "",
    }


@pytest.mark.parametrize("play", PLAYS, ids=lambda each: each.__name__)
async def test_views_are_unchanged_when_every_sentence_is_replaced(
    play: Callable[[], Situation], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await facts(play())
    replace_texts(monkeypatch)
    assert await facts(play()) == expected


def test_evictions_have_equal_fields_when_every_sentence_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def evicted() -> list[tuple[object, ...]]:
        world = Scenario().node("n", cpu=3).job("low", 3, cpu=1).settle()
        world.job("g", 3, cpu=1, priority=10).settle()
        found = [each for plan in world.plans for each in plan.evictions]
        back = [read_eviction(each.reason.value, eviction_fields("phalanx", each)) for each in found]
        return [
            (
                each.uid,
                each.reason,
                each.preemptor,
                each.gang,
                told and (told.scheduler, told.reason, told.preemptor),
            )
            for each, told in zip(found, back, strict=True)
        ]

    expected = evicted()
    assert {each[1] for each in expected} == {EvictionReason.PREEMPTED}
    replace_texts(monkeypatch)
    assert evicted() == expected
