"""One gang has one name: every command prints it, and accepts the name that any other prints."""

from __future__ import annotations

import json

import pytest

from tests.e2e.test_job_command import run
from tests.e2e.test_list_commands import cluster_wide, gang
from tests.e2e.test_workloads import job, member
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def indexed_job(world: World, pods: int) -> str:
    """Its uid."""
    made = await world.make(job(pods))
    for index in range(pods):
        await world.make(member(made, index))
    return str(made["metadata"]["uid"])


@pytest.mark.slow
async def test_every_command_calls_the_gang_of_a_job_as_the_job_is_called(world: World) -> None:
    await world.node("small", cpu="2")
    uid = await indexed_job(world, 3)

    for command in (("jobs",), ("jobs", "--start"), ("order",), ("why", "train"), ("why", "podgroup/train")):
        code, output = await run(world, *command)
        assert (code, "train" in output, uid in output) == (0, True, False), f"{command}: {output}"
    code, output = await cluster_wide(world, "what-if", "--gang", f"{world.namespace}/train")
    assert code == 0, output
    assert f"{world.namespace}/train (3 pods)" in output
    assert uid not in output


@pytest.mark.parametrize("name", ["train", "job/train", "podgroup/train", "podgroup/job:train:UID"])
async def test_gang_names_printed_by_any_command_are_accepted_by_why_and_job_commands(
    world: World, name: str
) -> None:
    await world.node("small", cpu="2")
    name = name.replace("UID", await indexed_job(world, 3))
    code, output = await run(world, "why", name)
    assert (code, f"Gang {world.namespace}/train: Pending" in output) == (0, True), output
    code, output = await run(world, "cancel", name, "--dry-run")
    assert (code, "job/train" in output) == (0, True), output


@pytest.mark.slow
async def test_names_in_lists_as_data_are_taken_as_well(world: World) -> None:
    await world.node("small", cpu="2")
    await indexed_job(world, 3)
    for command in (("order",), ("jobs",), ("jobs", "--start")):
        code, output = await run(world, *command, "-o", "name")
        assert code == 0, output
        code, answer = await run(world, "why", output.strip())
        assert (code, "Gang" in answer) == (0, True), f"{command}: {output}: {answer}"


async def test_a_name_alone_may_be_a_pod_or_nothing(world: World) -> None:
    await world.node("small", cpu="2")
    await world.pod("alone", cpu="5")
    code, output = await run(world, "why", "alone")
    assert (code, output.startswith(f"Pod {world.namespace}/alone: Pending")) == (0, True), output
    code, output = await run(world, "why", "nobody")
    assert (code, f"no gang, job or pod 'nobody' in namespace '{world.namespace}'" in output) == (1, True), output


async def test_why_about_a_gang_of_another_scheduler_names_that_scheduler(world: World) -> None:
    await world.node("small", cpu="2")
    await gang(world, "theirs", 2, 2, scheduler="volcano")
    for name in ("theirs", "podgroup/theirs"):
        code, output = await run(world, "why", name)
        assert code == 0, output
        assert f"Gang {world.namespace}/theirs: OtherScheduler" in output
        assert '2 pods of the gang have spec.schedulerName "volcano"' in output
        assert "Phalanx does not" in output
        assert "--scheduler-name volcano" in output


async def test_a_job_with_a_group_needs_as_many_members_as_its_group_says(world: World) -> None:
    made = job(3)
    del made["spec"]["completionMode"]
    made = await world.make(made)
    await world.make(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "tied"},
            "spec": {"minMember": 3},
        }
    )
    for index in range(3):
        pod = member(made, index)
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "tied"}
        await world.make(pod)
    code, output = await run(world, "jobs", "-o", "json")
    assert code == 0, output
    (entry,) = json.loads(output)["items"]
    assert (entry["name"], entry["running"], entry["minimum"], entry["total"]) == ("train", 0, 3, 3)
