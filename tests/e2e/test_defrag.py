"""`phalanx defrag` as a child process: its plan, its moves, and the cluster afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.processes import Process, command
from tests.e2e.world import NODES, PODS, Object, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ALL = "kubernetes.io/hostname in (n1,n2,n3)"
GROUP = "pod-group.scheduling.sigs.k8s.io/name"
MINIMUM = "pod-group.scheduling.sigs.k8s.io/min-available"


def owned(name: str, owner: str, **what: Any) -> Object:
    """A pod that a controller has made."""
    document = pod(name, **what)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}
    document["metadata"]["ownerReferences"] = [reference]
    return document


@asynccontextmanager
async def controller(world: World, owner: str, count: int, **what: Any) -> AsyncIterator[None]:
    """Replace deleted pods up to `count`, as a ReplicaSet's controller does."""

    async def keep() -> None:
        number = 0
        while True:
            pods = [item for item in await world.list(PODS) if item["metadata"].get("ownerReferences")]
            alive = [item for item in pods if item["metadata"]["ownerReferences"][0]["name"] == owner]
            for _ in range(count - len(alive)):
                number += 1
                await world.make(owned(f"{owner}-again-{number}", owner, **what))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def spread(world: World) -> None:
    """Three nodes of four CPUs; pods of one CPU: one on the first, two on the second, three on the third."""
    for number in (1, 2, 3):
        node = (await world.node(f"n{number}", cpu="4"))["metadata"]["name"]
        for place in range(number):
            await world.make(owned(f"web-{number}-{place}", "web", nodeName=node))
            await world.phase("Running", f"web-{number}-{place}")


async def ask(world: World, *arguments: str) -> tuple[int, str]:
    return await command("defrag", *arguments, "--kubeconfig", world.cluster.kubeconfig)


async def taints(world: World) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in await world.list(NODES)
        if any(taint["key"] == "phalanx.dev/defragmentation" for taint in node["spec"].get("taints") or ())
    ]


class TestDryRun:
    async def test_the_plan_is_shown_and_nothing_is_changed(self, world: World) -> None:
        await spread(world)
        before = await world.list(PODS)
        code, output = await ask(world, "--nodes", "1", "-l", ALL)
        assert code == 0, output
        assert output.startswith(f"1 pod moves so that {world.name}-n1 becomes free")
        assert f"{world.namespace}/web-1-0" in output
        assert "Nothing was changed. To execute the plan: --apply" in output
        assert await world.list(PODS) == before
        assert await taints(world) == []

    async def test_defrag_plan_is_printed_as_json(self, world: World) -> None:
        await spread(world)
        code, output = await ask(world, "--nodes", "1", "-l", ALL, "-o", "json")
        assert code == 0, output
        answer = json.loads(output)
        (move,) = answer["moves"]
        assert (answer["reached"], answer["freed"]) == (True, [f"{world.name}-n1"])
        assert (move["name"], move["from"], move["requests"]) == ("web-1-0", f"{world.name}-n1", {"cpu": "1"})
        assert move["to"] in (f"{world.name}-n2", f"{world.name}-n3")
        assert answer["applied"] is None

    async def test_without_a_plan_the_code_is_1_and_the_reasons_are_named(self, world: World) -> None:
        await spread(world)
        code, output = await ask(world, "--nodes", "3", "-l", ALL)
        assert code == 1, output
        assert "can be empty" in output
        assert "fits on no other node" in output

    async def test_a_disruption_budget_that_allows_nothing_leaves_the_node_as_it_is(self, world: World) -> None:
        await spread(world)
        await world.make(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "web"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            }
        )
        await world.patch(PODS, "web-1-0", {"metadata": {"labels": {"app": "web"}}})
        code, output = await ask(world, "--nodes", "1", "-l", "kubernetes.io/hostname=n1")
        assert code == 1, output
        assert "the PodDisruptionBudgets that count it allow no further disruption" in output

    @pytest.mark.slow
    async def test_defrag_skips_pods_without_a_controller(self, world: World) -> None:
        await spread(world)
        await world.pod("bare", nodeName=f"{world.name}-n1")
        code, output = await ask(world, "--nodes", "1", "-l", "kubernetes.io/hostname=n1")
        assert code == 1
        assert "has no controller that would recreate it" in output

    async def test_room_for_a_gang_that_waits(self, world: World) -> None:
        await spread(world)
        await world.pod("big", cpu="4", labels={GROUP: "llm", MINIMUM: "1"})
        code, output = await ask(world, "--for", "podgroup/llm", "-n", world.namespace, "-o", "json")
        assert code == 0, output
        answer = json.loads(output)
        assert [move["name"] for move in answer["moves"]] == ["web-1-0"]
        assert answer["placements"] == [{"pod": f"{world.namespace}/big", "node": f"{world.name}-n1"}]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "set either --nodes N or --for KIND/NAME"),
            (("--nodes", "1", "--for", "pod/x"), "set either"),
            (("--nodes", "1", "--dry-run", "--apply"), "exclude each other"),
            (("--for", "pod/x", "-l", "a=b"), "work with --nodes"),
            (("--nodes", "1", "-l", "=="), "--selector"),
            (("--nodes", "1", "--timeout", "soon"), "'soon' is not a duration"),
        ],
    )
    async def test_invalid_defrag_options_are_a_usage_error(
        self, world: World, arguments: tuple[str, ...], words: str
    ) -> None:
        code, output = await ask(world, *arguments)
        assert (code, words in output) == (2, True), output

    async def test_missing_node_of_defrag_is_named(self, world: World) -> None:
        code, output = await ask(world, "--for", "podgroup/ghost", "-n", world.namespace)
        assert code == 1
        assert "gang 'ghost'" in output


class TestApply:
    async def test_a_node_is_emptied_and_open_again_in_the_end(self, world: World) -> None:
        await spread(world)
        await world.scheduler()
        async with controller(world, "web", 6):
            code, output = await ask(world, "--nodes", "1", "-l", ALL, "--apply")
        assert code == 0, output
        assert "Evicted: 1 pod" in output
        placement = await world.placement()
        assert len(placement) == 6
        assert "n1" not in placement.values()
        assert "web-1-0" not in placement
        assert await taints(world) == []

    @pytest.mark.slow
    async def test_defrag_leaves_the_node_cordoned_on_request(self, world: World) -> None:
        await spread(world)
        await world.scheduler()
        async with controller(world, "web", 6):
            code, output = await ask(world, "--nodes", "1", "-l", ALL, "--apply", "--keep-closed")
        assert code == 0, output
        assert await taints(world) == [f"{world.name}-n1"]
        _, output = await ask(world, "--nodes", "1", "-l", ALL)
        assert f"node {world.name}-n1 is still closed by an earlier defrag" in output

    async def test_pods_may_be_deleted_instead(self, world: World) -> None:
        await spread(world)
        await world.scheduler()
        async with controller(world, "web", 6):
            code, output = await ask(world, "--nodes", "1", "-l", ALL, "--apply", "--through", "delete")
        assert code == 0, output
        assert "n1" not in (await world.placement()).values()

    async def test_a_gang_gets_the_room_that_was_made_for_it(self, world: World) -> None:
        await spread(world)
        await world.scheduler()
        await world.pod("big", cpu="4", labels={GROUP: "llm", MINIMUM: "1"})
        await world.until_held("big")
        async with controller(world, "web", 6):
            code, output = await ask(world, "--for", "podgroup/llm", "-n", world.namespace, "--apply")
        assert code == 0, output
        assert (await world.placement())["big"] == "n1"
        assert await taints(world) == []

    @pytest.mark.slow
    async def test_a_second_time_there_is_nothing_to_do(self, world: World) -> None:
        await spread(world)
        await world.scheduler()
        async with controller(world, "web", 6):
            assert (await ask(world, "--nodes", "1", "-l", ALL, "--apply"))[0] == 0
            code, output = await ask(world, "--nodes", "1", "-l", ALL, "--apply", "-o", "json")
        assert code == 0, output
        assert (json.loads(output)["moves"], json.loads(output)["free"]) == ([], [f"{world.name}-n1"])

    async def test_defrag_without_replacement_pods_halts_and_uncordons_the_node(self, world: World) -> None:
        await spread(world)
        code, output = await ask(world, "--nodes", "1", "-l", ALL, "--apply", "--timeout", "1s")
        assert code == 1, output
        assert "Stopped: timeout after 1 seconds: not all moved pods have nodes again" in output
        assert await taints(world) == []

    async def test_ctrl_c_opens_the_node(self, world: World) -> None:
        await spread(world)
        process = await Process.start(
            "defrag", "--nodes", "1", "-l", ALL, "--apply", "--kubeconfig", world.cluster.kubeconfig
        )
        await process.says("wave 1 of 1")
        assert await taints(world) == [f"{world.name}-n1"]
        assert await process.end(signal.SIGINT) != 0
        assert await taints(world) == []
