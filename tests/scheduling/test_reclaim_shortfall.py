"""Shortfall of reclaimees: reclaim takes what is borrowed before it takes a queue or quota below its own share."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from phalanx.model.account import AccountKey, Tree

from ..extent import examples
from .eviction.problem import Candidate, Problem
from .scenario import Scenario
from .test_reclaim import CAPACITY, PROPORTION

SEEDS = examples(400)


def flat(policy: str, low: int = 0, high: int = 100) -> Scenario:
    """Each of three queues deserves 4 of 12 CPUs: q2 holds a pod of 5 (`low`), q3 pods of 3 and 4 (`high`)."""
    deserved: dict[str, Any] = {"deserved": {"cpu": 4}} if policy == CAPACITY else {}
    scenario = Scenario(policy).node("n1", cpu=12)
    for name in ("q1", "q2", "q3"):
        scenario.queue(name, **deserved)
    scenario.pod("five", cpu=5, queue="q2", priority=low, node="n1")
    scenario.pod("three", cpu=3, queue="q3", priority=high, node="n1")
    return scenario.pod("four", cpu=4, queue="q3", priority=high, node="n1")


@pytest.mark.parametrize("policy", [CAPACITY, PROPORTION], ids=["capacity", "proportion"])
@pytest.mark.parametrize(("low", "high"), [(0, 100), (0, 0), (100, 0)])
def test_surplus_of_a_queue_is_reclaimed_before_a_share_whatever_the_priorities(
    policy: str, low: int, high: int
) -> None:
    assert flat(policy, low, high).pod("ask", cpu=3, queue="q1").run().evicted == ["three"]


def test_lower_priority_of_one_queue_is_reclaimed_first_even_if_it_takes_more() -> None:
    scenario = Scenario(CAPACITY).node("n1", cpu=8)
    scenario.queue("q1", deserved={"cpu": 4}).queue("q2", deserved={"cpu": 4})
    scenario.pod("low", cpu=4, queue="q2", node="n1").pod("high", cpu=3, queue="q2", priority=100, node="n1")
    assert scenario.pod("ask", cpu=3, queue="q1").run().evicted == ["low"]


def test_smallest_of_two_shortfalls_is_chosen_as_an_exact_fraction() -> None:
    """q2 would keep 2 of 3 (1/3 lacking), q3 would keep 10 of 16 (3/8 lacking)."""
    scenario = Scenario(CAPACITY).node("n1", cpu=21)
    scenario.queue("q1", deserved={"cpu": 2})
    scenario.queue("q2", deserved={"cpu": 3}).queue("q3", deserved={"cpu": 16})
    scenario.pod("a", cpu=2, queue="q2", priority=100, node="n1").pod(
        "b", cpu=2, queue="q2", priority=100, node="n1"
    )
    scenario.pod("c", cpu=7, queue="q3", node="n1").pod("d", cpu=10, queue="q3", node="n1")
    assert scenario.pod("ask", cpu=2, queue="q1").run().evicted in (["a"], ["b"])


def test_share_of_a_parent_queue_counts_like_the_share_of_its_child() -> None:
    """Both children hold surplus; the parent of one of them would fall below its own share."""
    scenario = Scenario(CAPACITY).node("n1", cpu=16)
    scenario.queue("mine", deserved={"cpu": 4})
    scenario.queue("x", deserved={"cpu": 6}).queue("xa", parent="x", deserved={"cpu": 2})
    scenario.queue("y", deserved={"cpu": 6}).queue("ya", parent="y", deserved={"cpu": 2})
    scenario.pod("xa-3", cpu=3, queue="xa", node="n1").pod("xa-4", cpu=4, queue="xa", node="n1")
    scenario.pod("ya-3", cpu=3, queue="ya", priority=9, node="n1")
    scenario.pod("ya-6", cpu=6, queue="ya", priority=9, node="n1")
    assert scenario.pod("ask", cpu=3, queue="mine").run().evicted == ["ya-3"]


def test_far_surplus_is_reclaimed_before_the_share_of_a_near_queue() -> None:
    scenario = Scenario(CAPACITY).node("n1", cpu=12)
    scenario.queue("x", deserved={"cpu": 8}).queue("far", deserved={"cpu": 4})
    scenario.queue("mine", parent="x", deserved={"cpu": 4}).queue("near", parent="x", deserved={"cpu": 4})
    scenario.pod("near-5", cpu=5, queue="near", node="n1")
    scenario.pod("far-3", cpu=3, queue="far", node="n1").pod("far-4", cpu=4, queue="far", node="n1")
    assert scenario.pod("ask", cpu=3, queue="mine").run().evicted == ["far-3"]


def test_min_of_elastic_quotas_is_kept_where_another_quota_holds_only_surplus() -> None:
    scenario = Scenario().node("n1", cpu=12)
    for name in ("q1", "q2", "q3"):
        scenario.elastic_quota(name, {"cpu": 4}, {"cpu": 12})
    scenario.within("q2").pod("five", cpu=5, node="n1")
    scenario.within("q3").pod("three", cpu=3, priority=100, node="n1").pod("four", cpu=4, priority=100, node="n1")
    assert scenario.within("q1").pod("ask", cpu=3).run().evicted == ["three"]


def test_min_of_a_parent_in_a_quota_tree_counts_like_the_min_of_its_leaf() -> None:
    scenario = Scenario().node("n1", cpu=16)
    parts = (
        ("root", "", 16),
        ("mine", "root", 4),
        ("x", "root", 6),
        ("xa", "x", 2),
        ("y", "root", 6),
        ("ya", "y", 2),
    )
    for name, parent, least in parts:
        scenario.account(
            AccountKey(Tree.ACK, name),
            parent=AccountKey(Tree.ACK, parent) if parent else None,
            deserved={"cpu": least},
            capability={"cpu": 16},
            namespaces=(name,) if name in ("mine", "xa", "ya") else (),
        )
    scenario.within("xa").pod("xa-3", cpu=3, node="n1").pod("xa-4", cpu=4, node="n1")
    scenario.within("ya").pod("ya-3", cpu=3, priority=9, node="n1").pod("ya-6", cpu=6, priority=9, node="n1")
    assert scenario.within("mine").pod("ask", cpu=3).run().evicted == ["ya-3"]


def test_runtime_quota_of_koordinator_is_kept_where_another_quota_loses_less_of_it() -> None:
    """The runtime quotas of q2 and q3 are 4.5; q3 would keep 4 of them, q2 nothing."""
    root = AccountKey(Tree.KOORDINATOR, "koordinator-root-quota")
    scenario = Scenario().node("n1", cpu=12).account(root, parental=True)
    for name in ("q1", "q2", "q3"):
        key = AccountKey(Tree.KOORDINATOR, name)
        amounts: dict[str, dict[str, object]] = {"deserved": {"cpu": 4}, "capability": {"cpu": 12}}
        scenario.account(key, label=f"quota {name}", parent=root, namespaces=(name,), **amounts)
    scenario.within("q2").pod("five", cpu=5, node="n1")
    scenario.within("q3").pod("three", cpu=3, priority=100, node="n1").pod("four", cpu=4, priority=100, node="n1")
    assert scenario.within("q1").pod("ask", cpu=3).run().evicted == ["three"]


def test_resource_that_the_victims_do_not_use_counts_no_shortfall() -> None:
    """q3 holds no GPU, which is no reason to spare its surplus CPUs."""
    scenario = Scenario(CAPACITY).node("n1", cpu=12, gpu=4)
    for name in ("q1", "q2", "q3"):
        scenario.queue(name, deserved={"cpu": 4, "gpu": 1})
    scenario.pod("five", cpu=5, queue="q2", priority=0, node="n1")
    scenario.pod("three", cpu=3, queue="q3", priority=100, node="n1")
    scenario.pod("four", cpu=4, queue="q3", priority=100, node="n1")
    assert scenario.pod("ask", cpu=3, gpu=1, queue="q1").run().evicted == ["three"]


def test_many_victims_on_many_nodes_are_all_surplus_where_surplus_suffices() -> None:
    """More candidates than are searched exhaustively."""
    scenario = Scenario(CAPACITY)
    for name, deserved in (("q1", 60), ("q2", 150), ("q3", 150)):
        scenario.queue(name, deserved={"cpu": deserved})
    for node in range(60):
        scenario.node(f"n{node}", cpu=6)
        name, priority = ("q2", 0) if node < 27 else ("q3", 100)
        scenario.pods(f"{name}-{node}", 6, cpu=1, queue=name, priority=priority, node=f"n{node}")
    scenario.job("ask", 10, cpu=6, queue="q1").run()
    lost = [name.split("-")[0] for name in scenario.evicted]
    assert (lost.count("q2"), lost.count("q3")) == (12, 48)


class SmallWorld:
    """Up to nine pods in three queues or quotas on one or two nodes, and one pod that reclaims."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.kind = ("capacity", "tree", "quotas")[seed % 3]
        self.names = ["xa", "xb", "y"] if self.kind == "tree" else ["q1", "q2", "q3"]
        self.resources = ("cpu", "gpu") if draw.random() < 0.3 else ("cpu",)
        nodes = {f"n{number}": dict.fromkeys(self.resources, 0) for number in range(draw.choice([1, 1, 2]))}
        self.priorities = draw.choice([(0,), (0, 100), (0, 50, 100)])
        pods = []
        for number in range(draw.randint(3, 9)):
            amounts = {name: draw.choice([1, 1, 2, 3, 4, 5]) for name in self.resources}
            node = draw.choice(sorted(nodes))
            for name, amount in amounts.items():
                nodes[node][name] += amount
            pods.append((f"p{number}", draw.choice(self.names[1:]), node, amounts, draw.choice(self.priorities)))
        self.scenario = scenario = Scenario(CAPACITY if self.kind != "quotas" else None)
        totals = {name: sum(node[name] for node in nodes.values()) for name in self.resources}
        self.deserved = self._deserve(totals)
        for name, amounts in nodes.items():
            scenario.node(name, **amounts)  # type: ignore[arg-type]
        for name, account, node, amounts, priority in pods:
            self._pod(name, account, amounts, priority=priority, node=node)
        ask = {
            name: draw.randint(1, max(1, min(4, amount))) for name, amount in self.deserved[self.names[0]].items()
        }
        self._pod("ask", self.names[0], ask, priority=draw.choice([0, 200]))

    def _deserve(self, totals: dict[str, int]) -> dict[str, dict[str, int]]:
        """Draw the shares of the leaves, and of the parent of two of them."""
        draw, deserved = self.draw, dict[str, dict[str, int]]()
        for name in self.names:
            deserved[name] = {each: draw.randint(1, max(1, total // 2)) for each, total in totals.items()}
        if self.kind == "quotas":
            for name in self.names:
                self.scenario.elastic_quota(name, dict(deserved[name]), dict(totals))
            return deserved
        parents = {"xa": "x", "xb": "x"} if self.kind == "tree" else {}
        for parent in sorted(set(parents.values())):
            deserved[parent] = {each: draw.randint(1, total) for each, total in totals.items()}
            self.scenario.queue(parent, deserved=dict(deserved[parent]))
        for name in self.names:
            self.scenario.queue(name, parent=parents.get(name, ""), deserved=dict(deserved[name]))
        return deserved

    def _pod(self, name: str, account: str, amounts: dict[str, int], **fields: object) -> None:
        if self.kind == "quotas":
            self.scenario.within(account)
        else:
            fields["queue"] = account
        self.scenario.pod(name, **amounts, **fields)  # type: ignore[arg-type]


Cost = tuple[Fraction, int, int, int, int]


class BruteForce:
    """All sets of victims of a small world, each with the shortfall computed from the declared shares."""

    def __init__(self, world: SmallWorld) -> None:
        self._world = world
        self._problem = Problem(world.scenario, ["ask"])
        accounts = {account for pod in self._problem.pods for account in pod.charge_path.path}
        self._used = {account: dict(account.used) for account in accounts}
        self._unit = {name: self._amount(name) for name in world.resources}
        self.ways = [frozenset(way) for way in self._sufficient()]

    def _amount(self, name: str) -> int:
        """Return the integer of one unit of a resource in the books."""
        return {"cpu": 1000}.get(name, 1)

    def _sufficient(self) -> Iterator[tuple[Candidate, ...]]:
        problem = self._problem
        pods = [pod for pod in problem.pods if pod.rule is not None]
        ((cls, _),) = problem.wanted
        for count in range(len(pods) + 1):
            for way in combinations(pods, count):
                if not self._within_limits(way):
                    continue
                for row in problem.rows:
                    free = dict(problem.idle[row])
                    for pod in way:
                        for name, amount in pod.amounts.items() if pod.row == row else ():
                            free[name] += amount
                    if all(free[name] >= amount for name, amount in cls.footprint.amounts.items()):
                        if problem.in_turn(problem.units(way)):
                            yield way
                        break

    def _within_limits(self, way: Collection[Candidate]) -> bool:
        for account, name, most, wanted, _ in self._problem.account_limits:
            freed = sum(pod.amounts.get(name, 0) for pod in way if account in pod.charge_path.path)
            if account.used.get(name, 0) - freed + wanted > most:
                return False
        return True

    def shortfall(self, way: Collection[Candidate]) -> Fraction:
        largest = Fraction(0)
        for account in {account for pod in way for account in pod.charge_path.path}:
            tree = Tree.ELASTIC_QUOTA if self._world.kind == "quotas" else Tree.QUEUE
            deserved = self._world.deserved.get(account.key.name) if account.key.tree is tree else None
            # A queue that the preemptor shares with the reclaimee loses nothing.
            if deserved is None or account.key.name == "x":
                continue
            for resource, units in deserved.items():
                full = {"gpu": "nvidia.com/gpu"}.get(resource, resource)
                lost = sum(pod.amounts.get(full, 0) for pod in way if account in pod.charge_path.path)
                left = self._used[account].get(full, 0) - lost
                share = units * self._unit[resource]
                if lost:
                    largest = max(largest, Fraction(share - left, share))
        return largest

    def cost(self, way: Collection[Candidate]) -> Cost:
        return (self.shortfall(way), *self.rest(way))

    def rest(self, way: Collection[Candidate]) -> tuple[int, int, int, int]:
        if not way:
            return (0, -1, 0, 0)
        _, distance, _, _, highest, pods, priorities, _ = self._problem.cost(way)
        return (distance, highest, pods, priorities)

    def best(self) -> Cost | None:
        """Return the smallest cost of the sets that respect priorities within each queue."""
        costs = [self.cost(way) for way in self.ways if not any(self._precedes(other, way) for other in self.ways)]
        return min(costs, default=None)

    def _precedes(self, other: frozenset[Candidate], way: frozenset[Candidate]) -> bool:
        """Return whether `other` differs in one queue only, takes lower priorities there, and costs less."""
        queues = {pod.charge_path for pod in way ^ other}
        if len(queues) != 1:
            return False
        ours = [pod.priority for pod in way if pod.charge_path in queues]
        theirs = [pod.priority for pod in other if pod.charge_path in queues]
        return bool(ours and theirs) and max(theirs) < max(ours) and self.rest(other) < self.rest(way)

    def named(self, names: Collection[str]) -> frozenset[Candidate]:
        return self._problem.named(names)


def test_victims_have_the_smallest_shortfall_then_the_lowest_priorities_in_random_worlds() -> None:
    reclaims = lacking = 0
    for seed in range(SEEDS):
        world = SmallWorld(seed)
        force = BruteForce(world)
        best = force.best()
        plan = world.scenario.cycle()
        victims = force.named([eviction.name for eviction in plan.evictions])
        assert (best is not None) == bool(plan.nominations or plan.binds), f"SmallWorld({seed})"
        if victims:
            assert force.cost(victims) == best, f"SmallWorld({seed}): {sorted(pod.name for pod in victims)}"
            reclaims += 1
            lacking += best is not None and best[0] > 0
    assert reclaims >= SEEDS // 5
    assert lacking >= SEEDS // 50
