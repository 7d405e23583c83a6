"""The list of gangs that the scheduler serves, and the rights to it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from phalanx.daemon.gang_entries import GangEntry, ListedGangs
from phalanx.daemon.gang_list import GangList
from phalanx.kube.path_access import AccessError, PathAccess
from phalanx.model.gang import GangKey, GroupRef
from phalanx.model.pod import PodPhase
from phalanx.model.verdict import Verdict
from phalanx.views.gang_state import GangState
from phalanx.views.promises import promises_of_scheduler
from tests.scheduling.scenario import NAMESPACE, Scenario

SHORT = Verdict("NotEnoughResources", "2 of 4 fit")


async def told(scenario: Scenario, namespace: str = "", queue: str = "") -> dict[str, GangEntry]:
    def verdict(key: GangKey) -> Verdict | None:
        return SHORT

    made = GangList(scenario.state, lambda: promises_of_scheduler(scenario.scheduler), verdict, lambda: 5000.0)
    answer = msgspec.json.decode(await made.answer(namespace, queue), type=ListedGangs)
    assert answer.moment == "1970-01-01T01:23:20Z"
    return {entry.name: entry for entry in answer.items}


async def test_gang_is_listed_with_its_members_nodes_and_waiting_reason() -> None:
    scenario = Scenario().queue("research").nodes(2)
    source = GroupRef("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", NAMESPACE, "runs", "u1")
    scenario.gang("runs", 2, queue="research", source=source)
    for number, started in ((0, 3000), (1, 2000), (2, 4000)):
        scenario.pod(f"runs-{number}", gang="runs", node=f"n{1 + number % 2}", gpu=1, more={"started": started})
    scenario.job("waits", 4, gpu=2)
    scenario.pod("alone", node="n2", cpu=1, user="ada")
    scenario.pod("theirs", node="n2", scheduler="default-scheduler")
    found = await told(scenario)
    assert set(found) == {"runs", "waits", "alone"}
    runs = found["runs"]
    assert (runs.kind, runs.state, runs.queue, runs.uid) == ("podgroup", GangState.RUNNING, "research", "u1")
    assert (runs.running, runs.minimum, runs.total, runs.gpus) == (3, 2, 3, 3)
    assert (runs.nodes, runs.started) == (("n1", "n2"), "1970-01-01T00:50:00Z")
    assert runs.reason == ""
    waits = found["waits"]
    assert (waits.state, waits.gpus, waits.nodes) == (GangState.PENDING, 8, ())
    assert (waits.reason, waits.message) == ("NotEnoughResources", "2 of 4 fit")
    assert (found["alone"].kind, found["alone"].user) == ("pod", "ada")


@pytest.mark.parametrize(
    ("members", "state"),
    [
        ([("n1", PodPhase.RUNNING), ("n1", PodPhase.RUNNING)], GangState.RUNNING),
        ([("n1", PodPhase.RUNNING), ("n1", PodPhase.PENDING)], GangState.STARTING),
        ([("n1", PodPhase.RUNNING), ("", PodPhase.PENDING)], GangState.PARTIAL),
        ([("", PodPhase.PENDING), ("", PodPhase.PENDING)], GangState.PENDING),
        ([("n1", PodPhase.SUCCEEDED), ("n1", PodPhase.SUCCEEDED)], GangState.COMPLETED),
        ([("n1", PodPhase.SUCCEEDED), ("n1", PodPhase.FAILED)], GangState.FAILED),
        ([], GangState.PENDING),
    ],
)
async def test_the_state_follows_from_the_members(members: list[tuple[str, PodPhase]], state: GangState) -> None:
    scenario = Scenario().nodes(1).gang("g", 2)
    for number, (node, phase) in enumerate(members):
        scenario.pod(f"g-{number}", gang="g", node=node, phase=phase, cpu=1)
    assert (await told(scenario))["g"].state is state


async def test_list_is_limited_to_the_requested_namespace_and_queue() -> None:
    scenario = Scenario().queue("research")
    scenario.job("here", 1)
    scenario.within("other").job("there", 1, queue="research")
    assert set(await told(scenario)) == {"here", "there"}
    assert set(await told(scenario, namespace="other")) == {"there"}
    assert set(await told(scenario, queue="default")) == {"here"}


async def test_a_list_is_made_in_slices_and_kept_for_a_moment() -> None:
    scenario = Scenario().nodes(1)
    for number in range(40):
        scenario.job(f"g{number}", 2, cpu=1)
    made = GangList(scenario.state, lambda: promises_of_scheduler(scenario.scheduler), lambda key: None)
    first, second = await asyncio.gather(made.answer(), made.answer())
    scenario.job("later", 1)
    assert first == second == await made.answer()
    assert len(msgspec.json.decode(first)["items"]) == 40


class Reviews:
    """An API server that knows one token, whose user may list pods in one namespace."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def create(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/tokenreviews"):
            return {"status": {"authenticated": document["spec"]["token"] == "good", "user": {"username": "ada"}}}
        self.asked.append(document["spec"])
        wanted = document["spec"].get("resourceAttributes", {})
        return {"status": {"allowed": wanted == {"verb": "list", "resource": "pods", "namespace": "team-a"}}}


async def test_caller_who_may_list_pods_of_a_namespace_sees_only_its_gangs() -> None:
    reviews = Reviews()
    access = PathAccess(reviews)  # type: ignore[arg-type]
    await access.check_pods("Bearer good", "team-a")
    for header, namespace, status in (
        ("", "team-a", 401),
        ("Bearer bad", "team-a", 401),
        ("Bearer good", "team-b", 403),
        ("Bearer good", "", 403),
    ):
        with pytest.raises(AccessError) as refused:
            await access.check_pods(header, namespace)
        assert refused.value.status == status
    with pytest.raises(AccessError, match="is not allowed to get the path"):
        await access.check("Bearer good", "/debug/state")
    assert [spec["user"] for spec in reviews.asked] == ["ada"] * 4
