"""Fragmentation of GPUs: what of the idle is of use to nobody, and nodes where a pod adds least to it."""

from __future__ import annotations

import numpy as np
import pytest

from phalanx.model.devices.cards import Card, CardShare, DeviceNeed, Family
from phalanx.model.events import NodeUpdated
from phalanx.model.node import Node
from phalanx.model.pod import PodClass
from phalanx.model.resources import requests_of
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.plugins.nodes.fgd import Fragmentation, TypicalPod
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario

POLICY = """
actions: "allocate"
tiers:
- plugins:
  - {name: predicates}
  - {name: deviceshare, arguments: {deviceshare.SchedulePolicy: binpack}}
  - {name: %s, arguments: {%s}}
"""
TYPICAL = "fgd.workload: [{cpu: 4, gpus: 1, share: 0.5, frequency: 3}, {cpu: 8, gpus: 1, frequency: 1}]"


def fragmentation(cpu: int, *cards: int) -> float:
    typical = [TypicalPod(4000, 1, 500, 3.0), TypicalPod(8000, 1, 1000, 1.0)]
    found = Fragmentation(typical).of(np.array([cpu], dtype=np.int64), np.array([cards], dtype=np.int64))
    return float(found[0])


def test_all_that_is_idle_is_broken_up_where_a_class_cannot_run_at_all() -> None:
    # Both lack CPU; the large one alone lacks CPU; the large one alone lacks a whole GPU.
    assert fragmentation(1000, 1000, 700) == 1700
    assert fragmentation(4000, 1000, 700) == 1700 / 4
    assert fragmentation(9000, 700, 700) == 1400 / 4


def test_of_a_node_that_runs_a_class_only_the_gpus_that_are_too_small_are_broken_up() -> None:
    assert fragmentation(9000, 1000, 300) == (300 * 3 + 300 * 1) / 4
    assert fragmentation(9000, 1000, 700) == 700 / 4
    assert fragmentation(9000, 1000, 1000) == 0


def test_to_classes_without_gpus_all_that_is_idle_is_of_no_use() -> None:
    typical = Fragmentation([TypicalPod(1000, 0, 0, 1.0)])
    assert typical.of(np.array([9000]), np.array([[1000, 200]]))[0] == 1200


def shared(scenario: Scenario, name: str, gpus: int, cpu: int = 64) -> None:
    cards = tuple(Card(Family.KOORDINATOR, str(number), 1000, 100) for number in range(gpus))
    offered = requests_of({"cpu": cpu * 1000, "memory": 2**38, "pods": 110, "gpu-milli": gpus * 1000})
    scenario.observe(f"node {name}", NodeUpdated(Node(name, allocatable=offered, cards=cards)))


def share(scenario: Scenario, name: str, milli: int, cpu: int = 4) -> None:
    need = DeviceNeed(Family.KOORDINATOR, (CardShare(1, milli),))
    scenario.pod(name, pod_class=PodClass(devices=need), cpu=cpu)


def test_a_part_of_a_gpu_goes_where_it_takes_the_cpu_of_nobody() -> None:
    scenario = Scenario(POLICY % ("fgd", TYPICAL))
    # With the pod on it `small` could run nobody else: 500 more would be lost there, on `large` 125.
    shared(scenario, "small", 1, cpu=7)
    shared(scenario, "large", 2)
    share(scenario, "a", 500)
    scenario.run()
    assert scenario.where("a") == "large"


def test_halves_come_together_on_one_gpu() -> None:
    scenario = Scenario(POLICY % ("fgd", TYPICAL))
    shared(scenario, "n1", 2)
    shared(scenario, "n2", 2)
    for name in ("a", "b"):
        share(scenario, name, 500)
    scenario.run()
    assert scenario.where("a") == scenario.where("b")


def test_whole_gpus_count_as_well() -> None:
    scenario = Scenario(POLICY % ("fgd", TYPICAL))
    scenario.node("tight", cpu=9, gpu=2)
    scenario.node("wide", cpu=64, gpu=2)
    scenario.pod("a", cpu=8, gpu=1)
    scenario.run()
    # On `tight` one more GPU would be left without CPU for anybody.
    assert scenario.where("a") == "wide"


def test_best_fit_takes_the_node_on_which_least_is_left() -> None:
    scenario = Scenario(POLICY % ("bestfit", ""))
    shared(scenario, "large", 8)
    shared(scenario, "small", 1, cpu=8)
    share(scenario, "a", 500)
    scenario.run()
    assert scenario.where("a") == "small"


def test_random_nodes_are_the_same_for_the_same_seed() -> None:
    def placed(seed: int) -> list[str]:
        scenario = Scenario(POLICY % ("random", f"random.seed: {seed}")).nodes(8)
        scenario.pods("p", 12, cpu=1)
        scenario.run()
        return [scenario.where(f"p-{number}") for number in range(12)]

    assert placed(1) == placed(1)
    assert placed(1) != placed(2)
    assert len(set(placed(1))) > 3


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("fgd.workload: [{cpus: 4}]", "[0] has unknown keys; expected cpu, gpus, share, frequency"),
        ("fgd.workload: [{cpu: many}]", "[0].cpu is 'many'; expected a number of at least 0"),
        ("fgd.workload: [{gpus: 1, share: 2}]", "[0] needs whole gpus, a share above 0 and at most 1"),
        ("fgd.workload: [{gpus: 1.5}]", "[0] needs whole gpus"),
    ],
)
def test_what_is_no_workload_is_told(stated: str, told: str) -> None:
    with pytest.raises(PolicyError) as error:
        load_policy(POLICY % ("fgd", stated))
    assert told in str(error.value)
    assert "write a list such as" in str(error.value)


def test_without_a_workload_nothing_is_scored_and_the_policy_says_so() -> None:
    (remark,) = load_policy(POLICY % ("fgd", "")).inactive
    assert "fgd.workload: has no expected pods" in remark
