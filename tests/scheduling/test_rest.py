"""Back-off of a node whose kubelet rejected a pod: the pods to which it is closed, and its length."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.cluster.nodes.backoff import (
    FIRST_REST,
    FORGOTTEN_AFTER,
    LONGEST_REST,
    NodeBackoff,
    class_digest,
    recorded_reason,
)
from phalanx.model.events import NodeBackoffsRestored, PodRejected
from phalanx.model.node_rejection import BackoffScope, NodeBackoffEntry
from phalanx.model.pod import PodClass
from phalanx.model.volumes import UnboundClaim
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.start_reservations.forecasts import forecast_starts
from phalanx.scheduling.start_reservations.plugin import plan_of

from .scenario import Scenario

pytestmark = pytest.mark.feature("rejecting-nodes")

NOW = 1_800_000_000
CPU = PodClass(requests=(("cpu", 1000),))
GPU = PodClass(requests=(("cpu", 1000), ("nvidia.com/gpu", 1)))


def later(world: Scenario, moment: float) -> None:
    world.now = int(moment)
    world.scheduler.activate_due(world.now)
    world.run()


def reject(world: Scenario, node: str, pod: str, reason: str = "OutOfcpu") -> int:
    """Apply the rejection of a pod by a node; return the end of the back-off."""
    pod_spec = world.state.pods[pod].pod
    world.observe("rejection", PodRejected(node, reason, pod_spec.namespace, pod_spec.pod_class, int(world.now)))
    return int(world.now) + FIRST_REST


def two_tenants() -> Scenario:
    """Return a cluster whose best node runs a pod of each of two namespaces."""
    world = Scenario().node("best", cpu=90, memory="90Gi").node("next", cpu=9, memory="9Gi")
    world.within("one").pod("one-0", cpu=1).within("two").pod("two-0", cpu=1).run()
    assert world.where("one-0") == world.where("two-0") == "best"
    return world


def test_node_is_skipped_after_a_rejection_and_used_again_by_itself() -> None:
    world = Scenario().node("best", cpu=9, memory="9Gi").node("next", cpu=4, memory="4Gi")
    world.pod("a", cpu=1).run()
    assert world.where("a") == "best"
    until = reject(world, "best", "a")
    assert not world.scheduler.idle
    world.pod("b", cpu=1).run()
    assert world.where("b") == "next"
    assert world.scheduler.next_recheck == until
    world.pod("c", cpu=1)
    later(world, until)
    assert world.where("c") == "best"


def test_pod_that_waits_for_its_only_node_has_a_reason_and_is_placed_after_the_back_off() -> None:
    world = Scenario().node("only", cpu=1).pod("a", cpu=1)
    until = reject(world, "only", "a")
    world.run()
    assert "1 node(s) rejected a pod recently (OutOfcpu)" in world.why_pod("a").message
    later(world, until)
    assert world.where("a") == "only"


def test_changed_policy_does_not_end_the_back_off_of_a_node() -> None:
    world = Scenario().node("only", cpu=1).pod("a", cpu=1)
    reject(world, "only", "a")
    world.run()
    world.scheduler.use(world.scheduler.policy)
    assert world.pod("b", cpu=1).run().where("b") == ""


def test_exhausted_resource_closes_the_node_to_the_namespace_and_to_pods_that_request_it() -> None:
    world = two_tenants()
    reject(world, "best", "one-0", "OutOfmemory")
    reject(world, "best", "one-0", "OutOfcpu")
    world.within("one").pod("one-1", cpu=1).pod("one-2", cpu=0)
    world.within("two").pod("two-1", cpu=1).run()
    assert {name: world.where(name) for name in ("one-1", "two-1")} == {"one-1": "next", "two-1": "best"}
    assert world.where("one-2") == "best"


@pytest.mark.parametrize(
    "reason", ["NodeAffinity", "TopologyAffinityError", "UnexpectedAdmissionError", "NodePorts"]
)
def test_other_rejections_close_the_node_to_pods_of_the_class_and_namespace(reason: str) -> None:
    world = two_tenants()
    reject(world, "best", "one-0", reason)
    world.within("one").pod("one-1", cpu=1).pod("one-2", cpu=2)
    world.within("two").pod("two-1", cpu=1).run()
    places = {name: world.where(name) for name in ("one-1", "one-2", "two-1")}
    assert places == {"one-1": "next", "one-2": "best", "two-1": "best"}


def test_exhausted_resource_closes_the_node_to_all_after_rejections_in_two_namespaces() -> None:
    world = two_tenants()
    until = reject(world, "best", "one-0")
    reject(world, "best", "one-0")
    assert world.within("three").pod("three-0", cpu=1).run().where("three-0") == "best"
    reject(world, "best", "two-0")
    world.pod("three-1", cpu=1).pod("three-2", cpu=0).run()
    assert (world.where("three-1"), world.where("three-2")) == ("next", "best")
    world.pod("three-3", cpu=1)
    later(world, until + FIRST_REST)
    assert world.where("three-3") == "best"


def test_waiting_pods_of_the_namespace_learn_of_a_rejection() -> None:
    world = Scenario().node("only", cpu=2).within("one").pod("one-0", cpu=2).run()
    world.pod("one-1", cpu=1).run()
    reject(world, "only", "one-0", "OutOfcpu")
    world.gone("one-0").run()
    assert world.where("one-1") == ""
    assert "rejected a pod recently (OutOfcpu)" in world.why_pod("one-1").message


def test_forecast_of_a_pod_is_the_end_of_the_back_off_of_its_only_node() -> None:
    world = Scenario().node("only", cpu=4).within("one").pod("one-0", cpu=1).run()
    until = reject(world, "only", "one-0", "TopologyAffinityError")
    world.pod("one-1", cpu=1).run()
    session = world.scheduler.new_session(world.now)
    units = world.scheduler.waiting_units(session)
    starts = list(forecast_starts(session, plan_of(session), units, never))
    assert [(start.unit.name, start.forecast.start) for start in starts] == [("pod one/one-1", until)]


def test_restored_back_off_has_the_length_and_the_scope_of_the_recorded_one() -> None:
    world = two_tenants()
    until = reject(world, "best", "one-0", "TopologyAffinityError")
    entries = world.state.nodes.backoff.entries()
    stored = msgspec.json.decode(msgspec.json.encode(entries), type=tuple[NodeBackoffEntry, ...])
    world.observe("rejection", NodeBackoffsRestored(stored)).restart()
    world.within("one").pod("one-1", cpu=1).within("two").pod("two-1", cpu=1).run()
    assert (world.where("one-1"), world.where("two-1")) == ("next", "best")
    assert world.scheduler.next_recheck == until


def test_back_off_of_a_node_doubles_each_time_up_to_a_limit() -> None:
    backoff, now, pauses = NodeBackoff(), NOW, []
    for _ in range(7):
        until = backoff.reject("n", "NodePorts", "one", CPU, now)
        pauses.append(until - now)
        now = until
    assert pauses[:3] == [FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST]
    assert pauses[-1] == LONGEST_REST


def test_pods_already_on_their_way_count_as_one_rejection() -> None:
    backoff = NodeBackoff()
    ends = {backoff.reject("n", "OutOfcpu", "one", CPU, NOW + second) for second in range(8)}
    assert ends == {NOW + FIRST_REST}
    assert backoff.reject("n", "OutOfcpu", "one", CPU, NOW + FIRST_REST) == NOW + 3 * FIRST_REST


def test_old_rejections_are_forgotten() -> None:
    backoff = NodeBackoff()
    backoff.reject("n", "OutOfcpu", "one", CPU, NOW)
    later = NOW + FORGOTTEN_AFTER
    assert backoff.advance(later) == (set(), False)
    assert backoff.reject("n", "OutOfcpu", "one", CPU, later) == later + FIRST_REST
    assert len(backoff.entries()) == 1


def claim(size: int, storage_class: str = "late", node: str = "") -> PodClass:
    return PodClass(volumes=(UnboundClaim(storage_class, size, node=node),))


def closed(backoff: NodeBackoff, namespace: str, pod_class: PodClass, now: float = NOW) -> bool:
    backoff.advance(now)
    return bool(backoff.closed_to(pod_class, namespace))


def test_failed_provisioning_closes_the_node_to_such_claims_of_the_namespace() -> None:
    backoff = NodeBackoff()
    backoff.fail_provisioning("n", "one", "late", 10, NOW)
    assert closed(backoff, "one", claim(10))
    assert closed(backoff, "one", claim(11))
    # A smaller volume can still be possible, and a volume that is being provisioned stays where it is.
    assert not closed(backoff, "one", claim(9))
    assert not closed(backoff, "one", claim(10, node="n"))
    assert not closed(backoff, "one", claim(10, "other"))
    assert not closed(backoff, "two", claim(10))


def test_failed_provisioning_in_two_namespaces_closes_the_node_to_all_such_claims() -> None:
    backoff = NodeBackoff()
    backoff.fail_provisioning("n", "one", "late", 1, NOW)
    backoff.fail_provisioning("n", "two", "late", 10, NOW + 1)
    assert closed(backoff, "three", claim(10), NOW + 1)
    assert not closed(backoff, "three", claim(9), NOW + 1)


def test_pause_after_failed_provisioning_grows_and_is_short() -> None:
    backoff, now, pauses = NodeBackoff(), NOW, []
    for _ in range(6):
        until = backoff.fail_provisioning("n", "one", "late", 10, now)
        pauses.append(until - now)
        now = until
    assert pauses == [4, 8, 16, 32, 60, 60]


def test_only_the_rows_of_the_node_are_filtered_again() -> None:
    world = two_tenants()
    before = world.scheduler.placer.invalidations
    until = reject(world, "best", "one-0")
    world.within("one").pod("one-1", cpu=1).run()
    assert world.where("one-1") == "next"
    later(world, until)
    assert world.within("one").pod("one-2", cpu=1).run().where("one-2") == "best"
    assert world.scheduler.placer.invalidations == before


def test_resource_that_the_pod_does_not_request_limits_the_back_off_to_its_class() -> None:
    backoff = NodeBackoff()
    reason = recorded_reason("OutOfnvidia.com/gpu", CPU)
    backoff.reject("n", reason, "one", CPU, NOW)
    assert [entry.scope for entry in backoff.entries()] == [
        BackoffScope("n", "OutOf", "one", pod_class=class_digest(CPU))
    ]
    backoff.advance(NOW)
    assert backoff.closed_to(GPU, "one") == []
