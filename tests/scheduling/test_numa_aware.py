"""`numa-aware`: pods with whole CPUs are placed where the kubelet's topology manager would admit them."""

from __future__ import annotations

from itertools import combinations
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.devices.numa import NUMA, NumaNodes, deal
from phalanx.model.devices.numa import AS_THE_NODE, NumaPolicy, NumaTopology, NumaTopologyGone
from phalanx.model.events import AllocatorFact
from phalanx.model.pod import PodClass

from .scenario import Scenario

BEST, RESTRICTED, SINGLE = NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED, NumaPolicy.SINGLE
POLICY = """
actions: "enqueue, allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: predicates},
  {name: numa-aware, arguments: {weight: 10}}]}]
"""


class Numa(Scenario):
    def __init__(self) -> None:
        super().__init__(POLICY)

    def zones(
        self,
        node: str,
        *free: int,
        policy: NumaPolicy = SINGLE,
        cpus: tuple[int, ...] = (),
        pinned: bool = True,
        assigned: frozenset[str] = frozenset(),
    ) -> Self:
        """Node with this number of free CPUs on each NUMA node (of the same number, or of `cpus`)."""
        if node not in self.state.nodes.names:
            self.node(node)
        topology = NumaTopology(node, policy, pinned, cpus or free, free, assigned)
        return self.observe(f"zones of {node}", AllocatorFact(NUMA, topology))

    def want(self, name: str, *cpus: int, policy: str = SINGLE, **fields: object) -> Self:
        pod_class = PodClass(numa=policy, cpus=cpus)
        return self.pod(name, pod_class=pod_class, **({"cpu": sum(cpus)} | fields))  # type: ignore[arg-type]

    def free(self, node: str) -> tuple[int, ...]:
        allocator = self.state.nodes.allocators[NUMA]
        assert isinstance(allocator, NumaNodes)
        return allocator.free(self.state.nodes.row(node))


def test_pod_must_fit_one_numa_node() -> None:
    s = Numa().zones("split", 4, 4, cpus=(8, 8)).zones("whole", 6, 0, cpus=(8, 8))
    s.want("p", 6).want("q", 6).run()
    assert s.placed() == ["p"]
    assert s.where("p") == "whole"
    assert "node(s) had no NUMA nodes with enough free CPUs for a container" in s.why_pod("q").message


def test_members_of_a_gang_share_numa_nodes() -> None:
    s = Numa().zones("n1", 8, 8).zones("n2", 8, 8)
    s.gang("g", 5, created=1)
    for number in range(5):
        s.want(f"g-{number}", 6, gang="g")
    s.run()
    assert s.placed() == []
    s.zones("n3", 8, 8).run()
    assert sorted(s.spread().values()) == [1, 2, 2]


def test_containers_of_a_pod_can_use_different_numa_nodes() -> None:
    s = Numa().zones("n", 4, 4)
    s.want("p", 3, 3).run()
    assert s.where("p") == "n"
    assert s.free("n") == (1, 1)


@pytest.mark.parametrize(
    ("policy", "free", "expected"),
    [
        (BEST, (2, 2), True),  # four CPUs that would fit one NUMA node are spread over two
        (RESTRICTED, (2, 2), False),
        (SINGLE, (2, 2), False),
        (RESTRICTED, (4, 0), True),
        (BEST, (2, 1), False),  # not even over both
    ],
)
def test_topology_policies_differ_in_the_placements_they_admit(
    policy: NumaPolicy, free: tuple[int, int], expected: bool
) -> None:
    s = Numa().zones("n", *free, policy=policy, cpus=(4, 4))
    s.want("p", 4, policy=policy).run()
    assert bool(s.where("p")) == expected


def test_pod_larger_than_any_numa_node_can_use_two_under_restricted() -> None:
    s = Numa().zones("n", 4, 4, policy=RESTRICTED)
    s.want("p", 6, policy=RESTRICTED).run()
    assert s.where("p") == "n"


def test_only_nodes_whose_kubelet_has_the_requested_policy_fit() -> None:
    s = Numa().zones("other", 8, policy=BEST).zones("loose", 8, pinned=False).node("plain")
    s.want("p", 2).run()
    assert "3 node(s) had no topology manager with policy single-numa-node and whole CPUs" in s.why_pod("p").message


def test_without_a_requested_policy_the_kubelets_policy_applies() -> None:
    s = Numa().zones("strict", 2, 2, cpus=(4, 4))
    s.want("p", 4, policy=AS_THE_NODE).run()
    assert s.waiting() == ["p"]
    s.node("plain").run()
    assert s.where("p") == "plain"


def test_node_with_fewer_numa_nodes_used_scores_higher() -> None:
    s = Numa().zones("two", 3, 3, policy=BEST, cpus=(6, 6)).zones("one", 6, 0, policy=BEST, cpus=(6, 6))
    s.want("p", 4, policy=BEST).run()
    assert s.where("p") == "one"


def test_gang_is_placed_as_its_members_would_be_one_by_one() -> None:
    together, single = Numa(), Numa()
    for s in (together, single):
        s.zones("a", 5, 3, 3, policy=BEST).zones("b", 4, 4, 4, policy=BEST).zones("c", 2, 2, 9, policy=BEST)
    together.gang("g", 8, created=1)
    for number in range(8):
        together.want(f"g-{number}", 3, policy=BEST, gang="g")
        single.want(f"g-{number}", 3, policy=BEST).run()
    together.run()
    assert together.spread() == single.spread()


def test_pods_count_until_the_topology_object_includes_them() -> None:
    s = Numa().zones("n", 8, 8)
    s.want("p", 6).run()
    assert s.free("n") == (2, 8)
    # The node reports the pod's CPUs as allocated: they count once.
    s.zones("n", 2, 8, cpus=(8, 8), assigned=frozenset({"p"}))
    assert s.free("n") == (2, 8)
    s.gone("p").zones("n", 8, 8)
    assert s.free("n") == (8, 8)


def test_pods_outside_of_the_topology_object_count_after_a_restart() -> None:
    s = Numa().zones("n", 8, 8)
    s.want("p", 6).run()
    s.restart()
    assert s.free("n") == (2, 8)


def test_deleted_topology_removes_its_rules() -> None:
    s = Numa().zones("n", 2, 2, cpus=(4, 4))
    s.want("p", 4, policy=AS_THE_NODE).run()
    s.observe("zones of n", AllocatorFact(NUMA, NumaTopologyGone("n"))).run()
    assert s.where("p") == "n"


def test_pod_of_higher_priority_preempts_within_a_numa_node() -> None:
    s = Numa().zones("n", 8, 8)
    s.want("low-0", 6).want("low-1", 6).run()
    s.want("high", 8, priority=10)
    s.settle()
    assert len(s.evicted) == 1
    assert s.where("high") == "n"


def test_binding_has_the_numa_decision_as_annotation() -> None:
    s = Numa().zones("n", 2, 4, policy=BEST)
    s.want("p", 6, policy=BEST).run()
    (bind,) = [bind for plan in s.plans for bind in plan.binds]
    assert bind.annotations == (("volcano.sh/topology-decision", '{"numa":{"0":{"cpu":"2"},"1":{"cpu":"4"}}}'),)


counts = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@given(free=counts, more=counts, asked=st.lists(st.integers(1, 8), max_size=3), policy=st.sampled_from(NumaPolicy))
def test_dealt_cpus_respect_the_topology_rules(
    free: list[int], more: list[int], asked: list[int], policy: NumaPolicy
) -> None:
    cpus = tuple(left + (more[at] if at < len(more) else 0) for at, left in enumerate(free))
    dealt = deal(tuple(free), cpus, policy, tuple(asked))
    if dealt is None:
        assert asked
        return
    assert sum(dealt) == sum(asked)
    assert all(taken <= left for taken, left in zip(dealt, free, strict=True))
    if len(asked) == 1 and policy is SINGLE:
        assert sum(1 for taken in dealt if taken) == 1
    if len(asked) == 1 and policy is RESTRICTED:
        # No smaller set of NUMA nodes could hold it, even if they were idle.
        span = sum(1 for taken in dealt if taken)
        assert all(sum(zones) < asked[0] for zones in combinations(cpus, span - 1))


def literal(free: list[int], cpus: tuple[int, ...], policy: NumaPolicy, count: int) -> set[int] | None:
    """Return the NUMA nodes that the kubelet's topology manager chooses for one container, hint by hint. None if it
    does not admit the container or CPUs are insufficient.
    """
    masks = [set(mask) for size in range(1, len(cpus) + 1) for mask in combinations(range(len(cpus)), size)]
    least = min((len(mask) for mask in masks if sum(cpus[at] for at in mask) >= count), default=len(cpus))
    hints = [(mask, len(mask) == least) for mask in masks if sum(free[at] for at in mask) >= count]
    if policy is SINGLE:
        hints = [(mask, preferred) for mask, preferred in hints if preferred and len(mask) == 1]
    if sum(free) < count:
        return None
    if not hints:
        return None if policy in (RESTRICTED, SINGLE) else set(range(len(cpus)))
    best, preferred = min(hints, key=lambda hint: (not hint[1], len(hint[0]), sum(1 << at for at in hint[0])))
    return best if preferred or policy is BEST else None


@given(
    free=counts,
    more=counts,
    count=st.integers(1, 14),
    policy=st.sampled_from([BEST, RESTRICTED, SINGLE]),
)
def test_container_gets_the_numa_nodes_that_the_kubelet_would_choose(
    free: list[int], more: list[int], count: int, policy: NumaPolicy
) -> None:
    cpus = tuple(left + (more[at] if at < len(more) else 0) for at, left in enumerate(free))
    expected, dealt = literal(free, cpus, policy, count), deal(tuple(free), cpus, policy, (count,))
    assert (dealt is None) == (expected is None)
    if dealt is not None and expected is not None:
        assert {at for at, taken in enumerate(dealt) if taken} <= expected
