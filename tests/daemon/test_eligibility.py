"""The last check before a binding: no later step checks whether the node still exists and is schedulable."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.eligibility import Eligibility
from phalanx.model.decisions import Bind
from phalanx.model.events import NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort, Taint
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.cluster_content import node, pod, state_of

BIND = Bind("uid-p", "ns", "p", "n1")


def objection_after(change: Node | None, state: ClusterState | None = None) -> str | float | None:
    """The guard of a plan that was made before the change; None removes the node."""
    state = state or state_of(pod("p", ""))
    scheduler = Scheduler(state, load_policy())
    guard = Eligibility(state, lambda: scheduler.placer).since_now()
    state.apply(NodeUpdated(change) if change is not None else NodeRemoved("n1"))
    return guard(BIND)


def test_a_node_that_is_as_it_was_is_bound_to() -> None:
    assert objection_after(node()) is None


def test_deleted_node_is_not_eligible() -> None:
    assert objection_after(None) == "node n1 is gone"


@pytest.mark.parametrize("change", ["cordon", "taint"])
def test_node_cordoned_since_the_plan_is_not_eligible(change: str) -> None:
    closed = (
        msgspec.structs.replace(node(), unschedulable=True)
        if change == "cordon"
        else msgspec.structs.replace(node(), taints=(Taint("maintenance"),))
    )
    assert "no longer fits the pod" in str(objection_after(closed))


def test_a_change_that_does_not_concern_the_pod_is_none() -> None:
    assert objection_after(msgspec.structs.replace(node(), labels=(("zone", "z1"),))) is None


def test_deleted_pod_is_not_bound() -> None:
    state = state_of(pod("p", ""))
    scheduler = Scheduler(state, load_policy())
    guard = Eligibility(state, lambda: scheduler.placer).since_now()
    state.apply(PodRemoved("uid-p"))
    assert guard(BIND) == "the pod is gone"


def test_another_node_may_change() -> None:
    assert objection_after(msgspec.structs.replace(node("n2"), unschedulable=True)) is None


def test_pod_does_not_conflict_with_itself() -> None:
    """A placed pod occupies its host port on the node: that is no reason against its binding."""
    cls = PodClass(requests=(("cpu", 1000),), host_ports=(HostPort(8080),))
    state = state_of(msgspec.structs.replace(pod("p", ""), pod_class=cls))
    scheduler = Scheduler(state, load_policy())
    assert len(scheduler.cycle(1000.0).binds) == 1
    guard = Eligibility(state, lambda: scheduler.placer).since_now()
    state.apply(NodeUpdated(msgspec.structs.replace(node(), labels=(("zone", "z1"),))))
    assert guard(BIND) is None


def test_a_full_node_is_no_objection() -> None:
    """The plan has charged the placed pod: its requests are not counted twice."""
    state = state_of(pod("p", ""), nodes=(node(cpu=1),))
    scheduler = Scheduler(state, load_policy())
    assert len(scheduler.cycle(1000.0).binds) == 1
    guard = Eligibility(state, lambda: scheduler.placer).since_now()
    state.apply(PodUpdated(pod("other", "")))
    state.apply(NodeUpdated(msgspec.structs.replace(node(cpu=1), labels=(("zone", "z1"),))))
    assert guard(BIND) is None
