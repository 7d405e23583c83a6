"""Termination of reclaim: a reclaimed amount is never reclaimed back, on random trees, quotas, pods and takers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.pod import MemberState, PodPhase

from ..extent import examples
from .desk import policy
from .reclaim_trial import ReclaimTrial, takes, total
from .scenario import Scenario

SEEDS = range(examples(60))
ALL_SEEDS = range(60)
_SIZES: list[dict[str, Any]] = [
    {"cpu": 1},
    {"cpu": 2},
    {"cpu": 3},
    {"gpu": 1},
    {"cpu": 1, "gpu": 1},
    {"cpu": 2, "gpu": 3},
]
_PLUGINS = [
    "capacity",
    "capacity, arguments: {ancestorReclaimLevel: 0}",
    "capacity, arguments: {ancestorReclaimLevel: 1}",
    "proportion",
]
_NAMESPACES = ["na", "nb", "nc"]


class Disorder:
    """A cluster that was filled without any rule."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.plugin = self.draw.choice(_PLUGINS)
        self.scenario = Scenario(policy(f"name: {self.plugin}")).node("n", cpu=1000, gpu=1000, pods=1000)
        self.leaves = [*self._queues("", "q", 0), "default"]
        if self.draw.random() < 0.5:
            self._quotas()
        self._pods = 0
        for _ in range(self.draw.randint(5, 25)):
            self.pod(running=True)
        used = {name: self.scenario.used(AccountKey(Tree.QUEUE, "root"), name) for name in ("cpu", "gpu")}
        free = self.draw.choice([0, 0, 2])
        self.scenario.node("n", cpu=used["cpu"] // 1000 + free, gpu=used["gpu"] + free, pods=1000)

    def _queues(self, parent: str, name: str, level: int) -> list[str]:
        draw = self.draw
        leaves: list[str] = []
        for number in range(draw.randint(2, 3) if level < 2 else 0):
            child = f"{name}{number}"
            fields: dict[str, Any] = {"weight": draw.randint(1, 4)}
            if draw.random() < 0.8:
                fields["deserved"] = self._amounts(6)
            if draw.random() < 0.3:
                fields["guarantee"] = self._amounts(2)
            self.scenario.queue(child, parent=parent, reclaimable=draw.random() < 0.9, **fields)
            below = self._queues(child, child, level + 1) if draw.random() < 0.6 else []
            leaves += below or [child]
        return leaves

    def _amounts(self, most: int) -> dict[str, object]:
        return {name: self.draw.randint(0, most) for name in ("cpu", "gpu") if self.draw.random() < 0.8}

    def _quotas(self) -> None:
        kind = self.draw.choice([Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK])
        for namespace in self.draw.sample(_NAMESPACES, self.draw.randint(1, 3)):
            key = AccountKey(kind, namespace)
            stated = {"deserved": self._amounts(6), "capability": {"cpu": 30, "gpu": 20}}
            self.scenario.account(key, label=f"quota {namespace}", namespaces=(namespace,), **stated)

    def pod(self, running: bool, **fields: Any) -> str:
        draw = self.draw
        self._pods += 1
        name = f"p{self._pods}"
        given = {
            "queue": draw.choice(self.leaves),
            "priority": draw.choice([0, 0, 1, 5]),
            "node": "n" if running else "",
            **draw.choice(_SIZES),
        } | fields
        self.scenario.within(fields.pop("namespace", None) or draw.choice(_NAMESPACES))
        given.pop("namespace", None)
        self.scenario.pod(name, **given)
        return name

    def unit(self) -> list[str]:
        """Return waiting pods of one charge path."""
        alike: dict[str, Any] = {"queue": self.draw.choice(self.leaves), "namespace": self.draw.choice(_NAMESPACES)}
        alike["priority"] = self.draw.choice([0, 1, 5])
        return [self.pod(running=False, **alike) for _ in range(self.draw.randint(1, 3))]

    def take(self, trial: ReclaimTrial) -> list[str]:
        """Reclaim some of the allowed pods, in any order. If the takers fit they run, and the victims wait again;
        otherwise nothing changes.
        """
        running = list(trial.running())
        for record in self.draw.sample(running, k=len(running)):
            if trial.may_take(record) and self.draw.random() < 0.7:
                trial.take(record)
        evicted = [record.pod.name for record in trial.taken]
        if not evicted or not self._room(trial):
            return []
        for name in evicted:
            self.scenario.becomes(name, node="", phase=PodPhase.PENDING)
        for record in trial.takers:
            self.scenario.becomes(record.pod.name, node="n", phase=PodPhase.RUNNING)
        return evicted

    def _room(self, trial: ReclaimTrial) -> bool:
        state = self.scenario.state
        idle = dict(zip(state.space.names, state.nodes.idle[:, state.nodes.row("n")].tolist(), strict=True))
        freed = total(record.footprint.amounts for record in trial.taken)
        return all(idle.get(name, 0) + freed.get(name, 0) >= amount for name, amount in trial.wanted.items())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_reclaimee_has_no_rule_to_reclaim_the_same_amount_back(seed: int) -> None:
    disorder = Disorder(seed)
    scenario, draw = disorder.scenario, disorder.draw
    for _ in range(12):
        unit = disorder.unit()
        evicted = disorder.take(ReclaimTrial(scenario, unit))
        charge_paths: dict[object, list[str]] = {}
        for name in evicted:
            charge_paths.setdefault(scenario.state.pods[name].charge_path, []).append(name)
        for names in charge_paths.values():
            for size in {1, len(names)}:
                for priority in {scenario.state.pods[name].pod.priority for name in names}:
                    alike = [name for name in names if scenario.state.pods[name].pod.priority == priority]
                    claim = ReclaimTrial(scenario, draw.sample(alike, min(size, len(alike))))
                    back = [name for name in unit if claim.may_take(scenario.state.pods[name])]
                    assert not back, f"{claim.takers} take {back} back on {claim.word(back[0])}"
        scenario.gone(*evicted, *(name for name in unit if not evicted))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_reclaim_terminates(seed: int) -> None:
    """Every victim requests its room again, and reclaims if the rules allow it; no new pod arrives."""
    disorder = Disorder(seed)
    scenario, draw = disorder.scenario, disorder.draw
    for _ in range(6):
        disorder.unit()
    for _ in range(300):
        waiting = [name for name, record in scenario.state.pods.items() if record.state is MemberState.PENDING]
        draw.shuffle(waiting)
        if not any(disorder.take(ReclaimTrial(scenario, [name])) for name in waiting):
            return
    raise AssertionError("pods go on taking each other's places")


def test_random_trees_have_reclaims_to_check() -> None:
    """Otherwise the properties above would be vacuous."""
    kinds = set()
    for seed in ALL_SEEDS:
        disorder = Disorder(seed)
        for _ in range(4):
            trial = ReclaimTrial(disorder.scenario, disorder.unit())
            trial.everything()
            for record in trial.taken:
                word = trial.word(record.pod.name)
                kinds.add((word.reason, word.lower_priority_only, bool(word.must_keep), word.distance))  # type: ignore[union-attr]
        if len(kinds) >= 7:
            return
    pytest.fail(f"only {kinds}")


def test_reclaim_trial_agrees_with_the_rule_on_forbidden_reclaims() -> None:
    scenario = Scenario(policy("name: capacity")).node("n", cpu=10).queue("a", deserved={"cpu": 1}).queue("b")
    scenario.pod("b", queue="b", node="n", cpu=1).pod("a-1", queue="a", cpu=1).pod("a-2", queue="a", cpu=1)
    assert takes(scenario, "a-1").everything() == ["b"]
    assert takes(scenario, "a").everything() == []
