"""`resource-strategy-fit`: packed, spread and scarce resources."""

from __future__ import annotations

import pytest

from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario


def policy(arguments: str) -> str:
    return f"""
actions: "enqueue, allocate, backfill"
tiers: [{{plugins: [{{name: gang}}, {{name: predicates}},
  {{name: resource-strategy-fit, arguments: {{{arguments}}}}}]}}]
"""


SRA = (
    "resourceStrategyFitWeight: 0, sra: {enable: true, weight: 1, resources: 'nvidia.com/gpu, ephemeral-storage'%s}"
)


def test_without_arguments_cpu_and_memory_are_spread() -> None:
    s = Scenario(policy("")).node("n1").node("n2")
    s.pod("there", node="n1", cpu=8)
    s.pod("p", cpu=8).run()
    assert s.where("p") == "n2"


def test_pods_avoid_nodes_with_scarce_resources_that_they_do_not_need() -> None:
    s = Scenario(policy(SRA % "")).node("gpus", gpu=8).node("plain")
    s.pod("p", cpu=1).pod("q", cpu=1, gpu=1).run()
    assert (s.where("p"), s.where("q")) == ("plain", "gpus")


def test_scarcer_resources_weigh_more() -> None:
    weights = ", resourceWeight: {nvidia.com/gpu: 3, ephemeral-storage: 1}"
    s = Scenario(policy(SRA % weights)).node("gpu", gpu=8).node("disk", storage=1)
    s.pod("p", cpu=1).run()
    assert s.where("p") == "disk"


def test_scarcity_is_added_to_the_fit_by_its_weight() -> None:
    fit = "resourceStrategyFitWeight: 10, resources: {cpu: {type: MostAllocated, weight: 1}}"
    scarce = "sra: {enable: %s, weight: 1, resources: nvidia.com/gpu}"
    for enabled, expected in (("true", "gpus"), ("false", "gpus")):
        s = Scenario(policy(f"{fit}, {scarce % enabled}")).node("plain").node("gpus", gpu=8)
        s.pod("there", node="gpus", cpu=32)
        s.pod("p", cpu=1).run()
        assert s.where("p") == expected  # half a node of CPU outweighs one scarce resource
    heavy = "sra: {enable: true, weight: 20, resources: nvidia.com/gpu}"
    s = Scenario(policy(f"{fit}, {heavy}")).node("plain").node("gpus", gpu=8)
    s.pod("there", node="gpus", cpu=32)
    s.pod("p", cpu=1).run()
    assert s.where("p") == "plain"


def test_identical_pods_are_placed_as_one_by_one() -> None:
    s = Scenario(policy(SRA % "")).node("gpus", gpu=8, cpu=4).node("plain", cpu=4)
    s.job("j", 6, cpu=1).run()
    assert s.spread() == {"gpus": 2, "plain": 4}


PROPORTIONAL = (
    "proportional: {enable: true, resources: nvidia.com/gpu,"
    " resourceProportion: {nvidia.com/gpu.cpu: 4, nvidia.com/gpu.memory: 8}}"
)


def test_pods_without_gpus_leave_cpu_and_memory_for_idle_gpus() -> None:
    s = Scenario(policy(PROPORTIONAL)).node("n", cpu=32, memory="64G", gpu=6)
    s.job("cpus", 10, minimum=1, cpu=1, memory="1G").run()
    # Six idle GPUs reserve 24 CPU and 48 GB.
    assert len(s.placed()) == 8
    assert "1 node(s) reserved CPU and memory for pods that request nvidia.com/gpu" in s.why_pod("cpus-9").message
    s.pod("gpus", cpu=12, memory="20G", gpu=3).run()
    assert s.where("gpus") == "n"


def test_resources_that_a_pod_does_not_request_are_not_reserved() -> None:
    s = Scenario(policy(PROPORTIONAL)).node("n", cpu=8, memory="64G", gpu=6).node("plain", cpu=2, memory="256M")
    s.pod("memory", memory="1G").pod("cpu", cpu=1).pod("neither").run()
    assert (s.where("memory"), s.where("cpu")) == ("n", "plain")
    assert s.where("neither")


def test_members_of_a_gang_count_while_they_are_placed() -> None:
    s = Scenario(policy(PROPORTIONAL)).nodes(2, cpu=12, memory="64G", gpu=2)
    s.job("g", 8, cpu=1).job("h", 1, cpu=1).run()
    assert s.spread("g") == {"n1": 4, "n2": 4}
    assert s.waiting() == ["h-0"]


@pytest.mark.parametrize(
    "wrong",
    [
        "proportional: {rate: 1}",
        "proportional: {resources: r, resourceProportion: {r.cpu: much}}",
        "sra: {enabled: true}",
        "sra: {enable: maybe}",
        "sra: {resourceWeight: {nvidia.com/gpu: -1}, resources: nvidia.com/gpu}",
    ],
)
def test_unreadable_arguments_are_errors(wrong: str) -> None:
    with pytest.raises(PolicyError, match="resource-strategy-fit"):
        load_policy(policy(wrong))
