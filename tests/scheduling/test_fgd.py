"""Fragmentation gradient descent: idle amounts that no class can use, and nodes where a pod adds least to them."""

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


def test_all_idle_gpus_are_fragmented_where_a_class_cannot_run() -> None:
    # Both lack CPU; the large one alone lacks CPU; the large one alone lacks a whole GPU.
    assert fragmentation(1000, 1000, 700) == 1700
    assert fragmentation(4000, 1000, 700) == 1700 / 4
    assert fragmentation(9000, 700, 700) == 1400 / 4


def test_only_too_small_gpus_are_fragmented_where_a_class_can_run() -> None:
    assert fragmentation(9000, 1000, 300) == (300 * 3 + 300 * 1) / 4
    assert fragmentation(9000, 1000, 700) == 700 / 4
    assert fragmentation(9000, 1000, 1000) == 0


def test_all_idle_gpus_are_fragmented_for_classes_without_gpus() -> None:
    typical = Fragmentation([TypicalPod(1000, 0, 0, 1.0)])
    assert typical.of(np.array([9000]), np.array([[1000, 200]]))[0] == 1200


def shared(scenario: Scenario, name: str, gpus: int, cpu: int = 64) -> None:
    cards = tuple(Card(Family.KOORDINATOR, str(number), 1000, 100) for number in range(gpus))
    offered = requests_of({"cpu": cpu * 1000, "memory": 2**38, "pods": 110, "gpu-milli": gpus * 1000})
    scenario.observe(f"node {name}", NodeUpdated(Node(name, allocatable=offered, cards=cards)))


def share(scenario: Scenario, name: str, milli: int, cpu: int = 4) -> None:
    need = DeviceNeed(Family.KOORDINATOR, (CardShare(1, milli),))
    scenario.pod(name, pod_class=PodClass(devices=need), cpu=cpu)


def test_gpu_share_is_placed_where_its_cpu_strands_no_other_class() -> None:
    scenario = Scenario(POLICY % ("fgd", TYPICAL))
    # With the pod `small` could run no other pod: 500 more would be fragmented on it, 125 on `large`.
    shared(scenario, "small", 1, cpu=7)
    shared(scenario, "large", 2)
    share(scenario, "a", 500)
    scenario.run()
    assert scenario.where("a") == "large"


def test_two_halves_are_placed_on_one_gpu() -> None:
    scenario = Scenario(POLICY % ("fgd", TYPICAL))
    shared(scenario, "n1", 2)
    shared(scenario, "n2", 2)
    for name in ("a", "b"):
        share(scenario, name, 500)
    scenario.run()
    assert scenario.where("a") == scenario.where("b")


def test_fgd_scores_whole_gpus_too() -> None:
    scenario = Scenario(POLICY % ("fgd", TYPICAL))
    scenario.node("tight", cpu=9, gpu=2)
    scenario.node("wide", cpu=64, gpu=2)
    scenario.pod("a", cpu=8, gpu=1)
    scenario.run()
    # On `tight` one more GPU would be left without CPU for any class.
    assert scenario.where("a") == "wide"


def test_best_fit_chooses_the_node_with_the_least_remainder() -> None:
    scenario = Scenario(POLICY % ("bestfit", ""))
    shared(scenario, "large", 8)
    shared(scenario, "small", 1, cpu=8)
    share(scenario, "a", 500)
    scenario.run()
    assert scenario.where("a") == "small"


def test_random_scores_are_equal_for_equal_seeds() -> None:
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
def test_invalid_workload_is_reported(stated: str, told: str) -> None:
    with pytest.raises(PolicyError) as error:
        load_policy(POLICY % ("fgd", stated))
    assert told in str(error.value)
    assert "write a list such as" in str(error.value)


def test_policy_without_a_workload_scores_nothing_and_says_so() -> None:
    (remark,) = load_policy(POLICY % ("fgd", "")).inactive
    assert "fgd.workload: has no expected pods" in remark
