"""The diagram in docs/pod-states.md: its states are those of the code, and every arrow can be replayed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.cluster.pods.nominations import Nomination
from phalanx.cluster.pods.states import PodState, state_of_record
from phalanx.model.pod import PodPhase

from .scenario import Scenario

PICTURE = Path(__file__).parents[2] / "docs" / "pod-states.md"
ARROWS = re.findall(r"^    (\[\*\]|\w+) --> (\[\*\]|\w+): ", PICTURE.read_text("utf-8"), re.MULTILINE)
NOWHERE = "[*]"


def world() -> Scenario:
    return Scenario().node("n1", cpu=4)


def pending() -> Scenario:
    return world().pod("p", cpu=1)


def placed() -> Scenario:
    return pending().work()


def bound() -> Scenario:
    return world().pod("p", cpu=1, node="n1", phase=PodPhase.PENDING)


def running() -> Scenario:
    return world().pod("p", cpu=1, node="n1")


def nominated() -> Scenario:
    made = pending()
    hold(made)
    return made


def hold(made: Scenario) -> None:
    made.state.pods.nominate(made.state.pods["p"], made.state.nodes.row("n1"), Nomination())


def evict(made: Scenario) -> None:
    made.state.pods.mark_evicting(made.state.pods["p"])


def told_to_leave() -> Scenario:
    made = running()
    made.state.pods.mark_evicting(made.state.pods["p"])
    return made


def failed_binding(made: Scenario) -> None:
    made.state.pods.binding_failed("p")


def refused_eviction(made: Scenario) -> None:
    made.state.pods.eviction_refused("p", 0.0)


def leaves(made: Scenario) -> None:
    made.becomes("p", terminating=True)


def is_gone(made: Scenario) -> None:
    made.gone("p")


def ends(phase: PodPhase) -> Callable[[Scenario], object]:
    return lambda made: made.becomes("p", phase=phase)


def comes(**fields: object) -> Callable[[Scenario], object]:
    return lambda made: made.pod("p", cpu=1, **fields)  # type: ignore[arg-type]


# Arrow -> (steps to its first state, event of the arrow).
PLAYS: dict[tuple[str, str], tuple[Callable[[], Scenario], Callable[[Scenario], object]]] = {
    (NOWHERE, "Gated"): (world, comes(gated=True)),
    (NOWHERE, "Pending"): (world, comes()),
    (NOWHERE, "OtherScheduler"): (world, comes(scheduler="other")),
    ("Gated", "Pending"): (lambda: world().pod("p", gated=True), lambda made: made.becomes("p", gated=False)),
    ("OtherScheduler", "Bound"): (
        lambda: world().pod("p", scheduler="other"),
        lambda made: made.becomes("p", node="n1"),
    ),
    ("Pending", "Assumed"): (pending, lambda made: made.work()),
    ("Assumed", "Pending"): (placed, failed_binding),
    ("Assumed", "Bound"): (placed, lambda made: made.becomes("p", node="n1")),
    ("Bound", "Running"): (bound, ends(PodPhase.RUNNING)),
    ("Bound", "Failed"): (bound, ends(PodPhase.FAILED)),
    ("Running", "Succeeded"): (running, ends(PodPhase.SUCCEEDED)),
    ("Running", "Failed"): (running, ends(PodPhase.FAILED)),
    ("Pending", "Terminating"): (pending, leaves),
    ("Assumed", "Terminating"): (placed, leaves),
    ("Bound", "Terminating"): (bound, leaves),
    ("Pending", "Nominated"): (pending, hold),
    ("Nominated", "Pending"): (nominated, lambda made: made.state.pods.cancel_nomination(made.state.pods["p"])),
    ("Nominated", "Assumed"): (nominated, lambda made: made.work()),
    ("Bound", "Evicting"): (bound, evict),
    ("Running", "Evicting"): (running, evict),
    ("Running", "Terminating"): (running, leaves),
    ("Evicting", "Running"): (told_to_leave, refused_eviction),
    ("Evicting", "Terminating"): (told_to_leave, leaves),
    ("Terminating", "Failed"): (lambda: running().becomes("p", terminating=True), ends(PodPhase.FAILED)),
    ("Succeeded", NOWHERE): (lambda: running().finishes("p"), is_gone),
    ("Failed", NOWHERE): (lambda: running().finishes("p", phase=PodPhase.FAILED), is_gone),
    ("Terminating", NOWHERE): (lambda: running().becomes("p", terminating=True), is_gone),
}


def where(made: Scenario) -> str:
    record = made.state.pods.get("p")
    return state_of_record(record).name.title().replace("_", "") if record is not None else NOWHERE


def test_states_of_the_diagram_are_those_of_the_code() -> None:
    assert {state for arrow in ARROWS for state in arrow} == {
        NOWHERE,
        *(state.name.title().replace("_", "") for state in PodState if state is not PodState.GONE),
    }
    assert sorted(ARROWS) == sorted(PLAYS)


@pytest.mark.parametrize(("arrow", "play"), PLAYS.items(), ids=["-".join(arrow) for arrow in PLAYS])
def test_every_arrow_of_the_diagram_can_be_replayed(
    arrow: tuple[str, str], play: tuple[Callable[[], Scenario], Callable[[Scenario], object]]
) -> None:
    come, happens = play
    made = come()
    assert where(made) == arrow[0]
    happens(made)
    assert where(made) == arrow[1]
