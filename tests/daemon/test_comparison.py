"""`/debug/state?compare`: lasting differences are reported, changes in flight are not."""

from __future__ import annotations

from typing import Any, cast

from phalanx.daemon.metrics.debugging import compared_with_api
from phalanx.kube.client import KubeClient
from tests.scheduling.scenario import Scenario


class Listed:
    """An API server that lists these."""

    def __init__(self, pods: dict[str, tuple[str, str]], nodes: list[str]) -> None:
        self.pods = pods
        self.nodes = nodes
        self.looks = 0

    async def list_all(self, path: str) -> dict[str, Any]:
        if path.endswith("/nodes"):
            self.looks += 1
            return {"items": [{"metadata": {"name": name}} for name in self.nodes]}
        return {
            "items": [
                {"metadata": {"uid": uid, "namespace": "ns", "name": name}, "spec": {"nodeName": node}}
                for uid, (name, node) in self.pods.items()
            ]
        }


def world() -> Scenario:
    return Scenario().node("n1", cpu=4).pod("a", cpu=1).pod("b", cpu=1).settle()


def as_listed(scenario: Scenario) -> Listed:
    pods = {uid: (record.pod.name, record.pod.node) for uid, record in scenario.state.pods.items()}
    return Listed(pods, ["n1"])


async def compared(server: Listed, scenario: Scenario) -> dict[str, Any]:
    return await compared_with_api(cast(KubeClient, server), scenario.state, pause=0)


async def test_cached_objects_that_equal_the_list_are_equal_at_the_first_comparison() -> None:
    scenario = world()
    server = as_listed(scenario)
    assert (await compared(server, scenario))["equal"] is True
    assert server.looks == 1


async def test_each_kind_of_difference_is_named() -> None:
    scenario = world()
    server = as_listed(scenario)
    (first, second) = server.pods
    server.pods[first] = ("a", "n9")
    del server.pods[second]
    server.pods["uid-new"] = ("new", "")
    server.nodes = ["n2"]
    found = await compared(server, scenario)
    assert found == {
        "equal": False,
        "podsUnknownHere": {"count": 1, "first": ["ns/new"]},
        "podsGoneThere": {"count": 1, "first": ["ns/b"]},
        "podsElsewhere": {"count": 1, "first": ["ns/a"]},
        "nodesUnknownHere": {"count": 1, "first": ["n2"]},
        "nodesGoneThere": {"count": 1, "first": ["n1"]},
    }


async def test_change_in_flight_is_no_difference() -> None:
    scenario = world()

    class Arriving(Listed):
        async def list_all(self, path: str) -> dict[str, Any]:
            answer = await super().list_all(path)
            if self.looks == 1 and path.endswith("/nodes"):
                scenario.node("late", cpu=1)
            return answer

    server = as_listed(scenario)
    late = Arriving(server.pods, ["n1", "late", "lost"])
    found = await compared(late, scenario)
    assert late.looks == 2
    assert found["nodesUnknownHere"] == {"count": 1, "first": ["lost"]}
