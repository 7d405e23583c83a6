"""`task-topology`: affinity and anti-affinity between tasks of one group."""

from __future__ import annotations

from typing import Self

import pytest

from phalanx.model.tasks import TaskTopology

from .scenario import Scenario

# Without task-topology every pod is placed on the emptiest node.
POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates},
  {name: nodeorder, arguments: {balancedresource.weight: 0}}, {name: task-topology, arguments: {%s}}]}]
"""


class Tasks(Scenario):
    def __init__(self, arguments: str = "task-topology.weight: 10") -> None:
        super().__init__(POLICY % arguments)

    def group(
        self, name: str, tasks: dict[str, int], cpu: int = 1, minimum: int | None = None, **fields: object
    ) -> Self:
        """`fields` are the fields of the task topology."""
        total = sum(tasks.values())
        topology = TaskTopology(**fields)  # type: ignore[arg-type]
        self.gang(name, total if minimum is None else minimum, created=self.now, tasks=topology)
        for task, count in tasks.items():
            for number in range(count):
                self.pod(f"{name}-{task}-{number}", gang=name, role=task, cpu=cpu)
        return self

    def together(self, *tasks: str) -> dict[str, int]:
        """Return the number of pods of these tasks by node."""
        counts: dict[str, int] = {}
        for name in self.placed():
            if self.state.pods[name].pod.role in tasks:
                counts[self.where(name)] = counts.get(self.where(name), 0) + 1
        return counts


def test_servers_are_spread_and_each_has_its_workers() -> None:
    s = Tasks().nodes(4, cpu=8)
    s.group("g", {"ps": 2, "worker": 4}, affinity=(("ps", "worker"),), anti_affinity=(("ps",),)).run()
    assert sorted(s.together("ps").values()) == [1, 1]
    assert sorted(s.together("ps", "worker").values()) == [3, 3]


def test_pods_spread_by_default_without_weight_or_rules() -> None:
    rules = {"affinity": (("ps", "worker"),)}
    for s, fields in ((Tasks("task-topology.weight: 0"), rules), (Tasks(), {})):
        s.nodes(4, cpu=8).group("g", {"ps": 2, "worker": 2}, **fields).run()  # type: ignore[arg-type]
        assert sorted(s.spread().values()) == [1, 1, 1, 1]


def test_task_with_affinity_to_itself_uses_one_node() -> None:
    s = Tasks().nodes(3, cpu=8).group("g", {"w": 5}, affinity=(("w",),)).run()
    assert sorted(s.spread().values()) == [5]


def test_task_with_anti_affinity_to_itself_spreads_even_over_busier_nodes() -> None:
    s = Tasks().node("idle", cpu=64).node("busy", cpu=8)
    s.pod("there", node="busy", cpu=6)
    s.group("g", {"w": 2}, anti_affinity=(("w",),)).run()
    assert s.together("w") == {"idle": 1, "busy": 1}


def test_bucket_is_placed_where_all_of_it_fits() -> None:
    s = Tasks().node("small", cpu=3).node("large", cpu=8)
    s.pod("there", node="large", cpu=4)
    s.group("g", {"a": 1, "b": 3}, affinity=(("a", "b"),)).run()
    assert s.spread("g") == {"large": 4}


def test_members_above_the_minimum_follow_the_topology_too() -> None:
    s = Tasks().nodes(4, cpu=8)
    s.group("g", {"ps": 2, "worker": 4}, minimum=2, affinity=(("ps", "worker"),), anti_affinity=(("ps",),))
    s.gang("g", 2, roles=(("ps", 2),)).run()
    assert sorted(s.together("ps").values()) == [1, 1]
    assert sorted(s.together("ps", "worker").values()) == [3, 3]


def test_task_topology_is_a_preference_only() -> None:
    s = Tasks().nodes(1, cpu=8)
    s.group("g", {"w": 4}, anti_affinity=(("w",),)).run()
    assert s.spread() == {"n1": 4}


def test_later_members_join_running_ones() -> None:
    s = Tasks().nodes(3, cpu=8)
    s.group("g", {"ps": 1, "worker": 1}, affinity=(("ps", "worker"),), minimum=2).run()
    home = s.where("g-ps-0")
    s.becomes("g-worker-0", gang="g").gone("g-worker-0")
    s.pod("g-worker-1", gang="g", role="worker", cpu=1).run()
    assert s.where("g-worker-1") == home


@pytest.mark.parametrize(("order", "first"), [((), "ps"), (("worker", "ps"), "worker")])
def test_owner_can_order_the_tasks(order: tuple[str, ...], first: str) -> None:
    s = Tasks().nodes(1, cpu=2)
    rules = {"affinity": (("ps", "worker"),), "anti_affinity": (("ps",),), "order": order}
    s.group("g", {"ps": 2, "worker": 2}, minimum=1, **rules).run()  # type: ignore[arg-type]
    assert s.state.pods[s.order[0]].pod.role == first
