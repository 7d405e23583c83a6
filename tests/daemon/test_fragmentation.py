"""Size of the largest gang that fits, by the requests of its pods."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from phalanx.daemon.metrics.fragmentation import FragmentationMetrics, biggest_gangs
from phalanx.model.selectors import Taint
from tests.scheduling.scenario import Scenario

GPU = "nvidia.com/gpu"


def fitting(world: Scenario, resource: str) -> dict[str, int]:
    return {size: count for name, size, count in biggest_gangs(world.state.nodes) if name == resource}


def test_room_in_pieces_holds_small_pods_only() -> None:
    world = Scenario()
    for number in range(4):
        world.node(f"n{number}", cpu=64, gpu=8)
    assert fitting(world, GPU) == {"1": 32, "2": 16, "4": 8, "8": 4}
    for number in range(4):
        world.pod(f"p{number}", cpu=1, node=f"n{number}", gpu=1)
    assert fitting(world, GPU) == {"1": 28, "2": 12, "4": 4, "8": 0}


def test_nodes_that_are_closed_or_not_well_do_not_count_and_tainted_ones_do() -> None:
    world = Scenario().node("open", cpu=4).node("cordoned", cpu=4, unschedulable=True)
    world.node("sick", cpu=4, taints=(Taint("node.kubernetes.io/not-ready", "", "NoExecute"),))
    world.node("special", cpu=4, taints=(Taint("nvidia.com/gpu"),))
    assert fitting(world, "cpu")["4"] == 2


def test_slots_for_pods_are_a_limit() -> None:
    assert fitting(Scenario().node("n", cpu=64, pods=3), "cpu") == {"1": 3, "4": 3, "16": 3, "64": 1}


def test_there_are_few_series_however_many_resources_nodes_offer() -> None:
    world = Scenario()
    for number in range(40):
        offered: Any = {f"example.com/r{number}": 1}
        world.node(f"n{number}", cpu=1, **offered)
    assert len(list(biggest_gangs(world.state.nodes))) == 4 * 24


def test_fragmentation_is_counted_again_after_a_change() -> None:
    world = Scenario().node("n", cpu=4)
    series = FragmentationMetrics(world.state)

    def told() -> float:
        families = {
            family.name: family for family in text_string_to_metric_families("\n".join([*series.lines(), ""]))
        }
        (sample,) = [
            each
            for each in families["phalanx_max_available_replicas"].samples
            if each.labels == {"resource": "cpu", "per_pod": "1"}
        ]
        return float(sample.value)

    assert (told(), told()) == (4, 4)
    world.pod("p", cpu=1, node="n")
    assert told() == 3
