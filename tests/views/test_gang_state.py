"""State of a gang from facts, and the facts from the records of a cluster."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from phalanx.model.gang import Gang, MatchPolicy
from phalanx.model.pod import MemberState, PodPhase
from phalanx.views.gang_state import CODES, SENTENCES, GangFacts, GangState, gang_state
from phalanx.views.record_facts import gang_facts, pod_facts
from tests.cluster_content import G, pod, state_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "gang-states.md"
FORMER = ("Waiting", "Bound", "Satisfied", "Finished", "Terminating", "Evicted")
_COMPARED = re.compile(rf'\.state (?:==|!=|in|not in) \(?"(?:{"|".join([*GangState, *FORMER])})"')


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (GangFacts(minimum=3), GangState.PENDING),
        (GangFacts(minimum=3, pending=3), GangState.PENDING),
        (GangFacts(minimum=3, pending=1, gated=2), GangState.PENDING),
        (GangFacts(minimum=3, gated=3), GangState.GATED),
        (GangFacts(minimum=3, other_scheduler=3), GangState.OTHER_SCHEDULER),
        (GangFacts(minimum=3, placed=2, pending=1), GangState.PARTIAL),
        (GangFacts(minimum=3, running=2), GangState.PARTIAL),
        (GangFacts(minimum=3, running=2, minimum_met=True), GangState.RUNNING),
        (GangFacts(minimum=3, placed=2, minimum_met=True), GangState.STARTING),
        (GangFacts(minimum=3, placed=1, running=2), GangState.STARTING),
        (GangFacts(minimum=3, running=3, pending=4), GangState.RUNNING),
        (GangFacts(minimum=3, running=1, succeeded=2), GangState.RUNNING),
        (GangFacts(minimum=3, running=1, succeeded=1), GangState.PARTIAL),
        (GangFacts(running=1), GangState.RUNNING),
        (GangFacts(placed=1), GangState.STARTING),
        (GangFacts(minimum=3, terminating=3), GangState.COMPLETING),
        (GangFacts(minimum=3, terminating=3, evicted=3), GangState.EVICTING),
        (GangFacts(minimum=3, terminating=1, evicted=1, running=2), GangState.EVICTING),
        (GangFacts(minimum=2, terminating=1, evicted=1, running=2), GangState.RUNNING),
        (GangFacts(minimum=3, terminating=3, evicted=3, pending=3), GangState.PENDING),
        (GangFacts(minimum=3, succeeded=3), GangState.COMPLETED),
        (GangFacts(minimum=3, succeeded=2, failed=1), GangState.FAILED),
        (GangFacts(minimum=3, failed=3, owner_decides=True), GangState.PENDING),
        (GangFacts(minimum=3, running=3, ended=GangState.FAILED), GangState.FAILED),
        (GangFacts(minimum=3, succeeded=3, suspended=True), GangState.SUSPENDED),
        (GangFacts(minimum=3, running=3, suspended=True), GangState.COMPLETING),
        (GangFacts(minimum=3, running=3, stopping=True), GangState.COMPLETING),
    ],
)
def test_state_follows_from_the_facts(facts: GangFacts, state: GangState) -> None:
    assert gang_state(facts) is state


def test_gang_short_of_its_minimum_is_never_running_and_a_complete_one_never_waits() -> None:
    numbers = range(3)
    for pending, placed, running, succeeded in itertools.product(numbers, repeat=4):
        facts = GangFacts(minimum=2, pending=pending, placed=placed, running=running, succeeded=succeeded)
        state, here = gang_state(facts), placed + running
        assert (state is GangState.RUNNING) == (here > 0 and running + succeeded >= 2)
        assert (state is GangState.PARTIAL) == (here > 0 and here + succeeded < 2)
        assert (state is GangState.PENDING) == (not here and (pending > 0 or not succeeded))


def test_every_state_has_a_code_and_one_sentence_that_the_docs_show() -> None:
    text = DOCS.read_text("utf-8")
    assert set(SENTENCES) == set(CODES) == set(GangState)
    for state in GangState:
        assert f"| `{state}` | `{state.code}` | {state.sentence} |" in text


def test_no_view_compares_a_state_with_a_text() -> None:
    """A text that is no state any more would never be equal, and mypy allows it."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for package in ("cli", "reports", "dashboard", "demo", "orders")
        for path in sorted((ROOT / "src/phalanx" / package).rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if _COMPARED.search(line)
    ]
    assert found == []


def test_facts_of_a_gang_are_its_counts() -> None:
    members = [
        pod("p0", node="n1", phase=PodPhase.RUNNING),
        pod("p1", node="n1"),
        pod("p2"),
        pod("p3", gated=True),
        pod("p4", scheduler="default-scheduler"),
        pod("p5", node="n1", phase=PodPhase.SUCCEEDED),
        pod("p6", node="n1", phase=PodPhase.FAILED),
    ]
    record = state_of(*members, gang=Gang(G, min_member=3)).gangs[G]
    assert gang_facts(record) == GangFacts(
        minimum=3, pending=1, gated=1, other_scheduler=1, placed=1, running=1, succeeded=1, failed=1
    )


def test_gang_whose_match_policy_was_satisfied_once_runs_with_its_remaining_members() -> None:
    members = [pod("p0", node="n1", phase=PodPhase.RUNNING), pod("p1"), pod("p2")]
    spec = Gang(G, min_member=3, match_policy=MatchPolicy.UNTIL_SCHEDULED, once_satisfied=True)
    assert gang_state(gang_facts(state_of(*members, gang=spec).gangs[G])) is GangState.RUNNING
    spec = Gang(G, min_member=3, match_policy=MatchPolicy.WAITING_AND_RUNNING)
    assert gang_state(gang_facts(state_of(*members, gang=spec).gangs[G])) is GangState.PARTIAL


@pytest.mark.parametrize("decided_here", [True, False])
def test_evicted_members_are_distinguished_from_deleted_ones(decided_here: bool) -> None:
    state = state_of(*(pod(f"p{number}", node="n1") for number in range(2)), gang=Gang(G, min_member=2))
    record = state.gangs[G]
    for member in list(record.members.values()):
        member.evicting = decided_here
        record.set_state(member, MemberState.TERMINATING, None)
    assert gang_state(gang_facts(record)) is (GangState.EVICTING if decided_here else GangState.COMPLETING)
    assert gang_state(gang_facts(record, ["uid-p0"])) is GangState.EVICTING


@pytest.mark.parametrize(
    ("member", "state"),
    [
        (pod("p", ""), GangState.PENDING),
        (pod("p", "", gated=True), GangState.GATED),
        (pod("p", "", scheduler="other"), GangState.OTHER_SCHEDULER),
        (pod("p", "", node="n1"), GangState.STARTING),
        (pod("p", "", node="n1", phase=PodPhase.RUNNING), GangState.RUNNING),
        (pod("p", "", node="n1", phase=PodPhase.SUCCEEDED), GangState.COMPLETED),
        (pod("p", "", node="n1", phase=PodPhase.FAILED), GangState.FAILED),
    ],
)
def test_pod_on_its_own_is_a_gang_of_one(member: object, state: GangState) -> None:
    (record,) = state_of(member).pods.values()  # type: ignore[arg-type]
    assert gang_state(pod_facts(record)) is state
