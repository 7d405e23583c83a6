"""`usage`: pods are placed where measured CPU and memory usage is low."""

from __future__ import annotations

from typing import Self

import pytest

from phalanx.model.events import NodesMeasured
from phalanx.model.node_load import NodeLoad
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario

GIB = 2**30


def policy(arguments: str = "") -> str:
    return f"""
actions: "enqueue, allocate, backfill"
tiers: [{{plugins: [{{name: gang}}, {{name: predicates}}, {{name: usage, arguments: {{{arguments}}}}}]}}]
"""


class Measured(Scenario):
    """Nodes of 10 CPU and 100 GiB; loads in percent of them."""

    def __init__(self, arguments: str = "") -> None:
        super().__init__(policy(arguments))

    def busy(self, name: str, cpu: float | None = None, memory: float = 0) -> Self:
        if name not in self.state.nodes.names:
            self.node(name, cpu=10, memory="100Gi")
        return self.measure(name, cpu, memory) if cpu is not None else self

    def measure(self, name: str, cpu: float, memory: float = 0) -> Self:
        load = NodeLoad(name, int(cpu * 100), int(memory * GIB))
        return self.observe(f"load of {name}", NodesMeasured((load,)))

    def forget(self, name: str) -> Self:
        return self.observe(f"load of {name}", NodesMeasured((), (name,)))


def test_node_with_less_usage_scores_higher_whatever_its_requests() -> None:
    s = Measured().busy("a", 50).busy("b", 20)
    s.pod("idle", node="b", cpu=5).measure("b", 20)
    s.pod("p", cpu=1).run()
    assert s.where("p") == "b"


@pytest.mark.parametrize(("weights", "expected"), [("", "b"), ("cpu.weight: 9, memory.weight: 1", "a")])
def test_cpu_and_memory_count_by_their_weights(weights: str, expected: str) -> None:
    s = Measured(weights).busy("a", 10, 70).busy("b", 40, 20)
    s.pod("p", cpu=1).run()
    assert s.where("p") == expected


def test_node_above_a_threshold_accepts_no_pod() -> None:
    s = Measured("thresholds: {cpu: 60, mem: 30}").busy("hot", 60.5).busy("full", 0, 31)
    s.pod("p", cpu=1).run()
    message = s.why_pod("p").message
    assert "1 node(s) used more than 60% of their CPU" in message
    assert "1 node(s) used more than 30% of their memory" in message
    s.measure("hot", 60).run()
    assert s.where("p") == "hot"


def test_node_without_a_measurement_is_neither_excluded_nor_preferred() -> None:
    s = Measured().busy("unknown").busy("hot", 99)
    s.pod("p", cpu=1).run()
    assert s.where("p") == "unknown"
    s.forget("hot").no_node("unknown")
    s.pod("q", cpu=1).run()
    assert s.where("q") == "hot"


def test_pods_placed_since_the_measurement_count_by_their_requests() -> None:
    s = Measured().busy("a", 10).busy("b", 30)
    s.job("g", 4, cpu=2)
    s.run()
    # a: 10% and 14% a pod, b: 30% and the same: three of four use a before b scores higher.
    assert s.spread() == {"a": 3, "b": 1}
    # The next measurement includes the pods.
    s.measure("a", 10).measure("b", 30)
    s.pod("p", cpu=1).run()
    assert s.where("p") == "a"


def test_expected_usage_of_new_pods_rises_with_the_usage_of_the_node() -> None:
    calm, wary = "estimator: {risk_factor: 1}", "estimator: {risk_factor: 3, risk_threshold: 0.2}"
    for arguments, expected in ((calm, "a"), (wary, "b")):
        s = Measured(f"memory.weight: 0, thresholds: {{cpu: 100}}, {arguments}").busy("a", 30).busy("b", 48)
        s.busy("c", 100)
        s.pod("new", node="a", cpu=2)
        s.pod("p", cpu=0.001).run()
        assert s.where("p") == expected


def test_a_gang_is_placed_as_its_members_would_be_one_by_one() -> None:
    together, single = Measured(), Measured()
    for s in (together, single):
        for number in range(6):
            s.busy(f"n{number}", 7 * number, 3 * number)
    together.job("g", 12, cpu=1, memory="3Gi").run()
    for number in range(12):
        single.pod(f"p{number}", cpu=1, memory="3Gi").run()
    assert together.spread() == single.spread()


def test_usage_arguments_without_effect_are_reported_and_wrong_ones_refused() -> None:
    found = load_policy(policy("type: max, estimator: {be_cpu: 250m, burst_ratio: 0}"))
    assert [remark for remark in found.inactive if "only average is supported" in remark]
    assert [remark for remark in found.inactive if "burst_ratio, be_cpu have no effect" in remark]
    for wrong in ("thresholds: {memory: 3}", "thresholds: {cpu: hot}", "estimator: {risk_factor: 0.5}"):
        with pytest.raises(PolicyError, match="usage"):
            load_policy(policy(wrong))
