"""`phalanx hold`, `release`, `cancel` and `move` as child processes; tests play the controllers' part."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.jobs.suspended import HOLD, QUEUE_LABEL
from phalanx.reports.jobs.kinds import COMMANDS, NATIVE_JOBS, VOLCANO_JOBS, group_kinds
from tests.e2e.test_job_command import phase, run, submit
from tests.e2e.test_list_commands import GROUP, gang
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POD_GROUPS = next(each for each in group_kinds() if each.group == "scheduling.volcano.sh")
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


async def native(world: World, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}}
    return await world.make(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"template": template, **spec},
        }
    )


def controlled_by(owner: dict[str, Any], kind: str, api_version: str = "batch/v1") -> list[dict[str, Any]]:
    metadata = owner["metadata"]
    return [
        {
            "apiVersion": api_version,
            "kind": kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
    ]


async def member(world: World, name: str, owner: dict[str, Any], **what: Any) -> None:
    from tests.e2e.world import pod

    document = pod(name, **what)
    document["metadata"]["ownerReferences"] = controlled_by(owner, "Job")
    await world.make(document)


async def test_a_job_is_held_by_its_own_field_and_released(world: World) -> None:
    await native(world, "plain")
    for order, value in (("hold", True), ("release", False)):
        code, output = await run(world, order, "plain")
        assert code == 0, output
        assert (await world.get(NATIVE_JOBS, "plain"))["spec"]["suspend"] is value
    code, output = await run(world, "release", "plain")
    assert (code, "is not held" in output) == (0, True), output


async def test_a_job_in_one_of_our_queues_is_held_so_that_its_controller_knows(world: World) -> None:
    await native(world, "queued", labels={QUEUE_LABEL: "default"}, suspend=True)
    code, output = await run(world, "hold", "queued")
    assert code == 0, output
    assert (await world.get(NATIVE_JOBS, "queued"))["metadata"]["annotations"][HOLD] == "true"
    code, output = await run(world, "release", "queued")
    found = await world.get(NATIVE_JOBS, "queued")
    assert (HOLD in found["metadata"].get("annotations", {}), found["spec"]["suspend"]) == (False, True)
    code, output = await run(world, "release", "queued")
    assert (code, "waits in queue default" in output) == (0, True), output


async def test_a_volcano_job_is_held_by_a_command(world: World) -> None:
    await submit(world, "train")
    await phase(world, "train", "Pending")
    code, output = await run(world, "hold", "train")
    assert code == 0, output
    await phase(world, "train", "Aborted")
    code, output = await run(world, "hold", "vcjob/train")
    assert (code, "already held" in output) == (0, True), output
    code, output = await run(world, "release", "train")
    assert code == 0, output
    assert sorted(each["action"] for each in await world.list(COMMANDS)) == ["AbortJob", "ResumeJob"]


async def test_order_on_a_pod_without_its_kind_names_the_pod(world: World) -> None:
    from tests.e2e.world import pod

    await world.make(pod("lone"))
    code, output = await run(world, "cancel", "lone", "--dry-run")
    assert (code, "no job or PodGroup 'lone'" in output, "; write pod/lone for the pod" in output) == (
        1,
        True,
        True,
    )
    code, output = await run(world, "cancel", "pod/lone", "--dry-run")
    assert (code, output.strip()) == (0, f"would delete pod/lone in namespace {world.namespace} (not running)")
    code, output = await run(world, "cancel", "pod/lone", "--yes")
    assert (code, output.strip()) == (0, "pod/lone cancelled: the pod is deleted")


async def test_order_commands_refuse_running_foreign_and_unordered_gangs_by_name(world: World) -> None:
    job = await native(world, "runs")
    await member(world, "runs-0", job)
    await world.phase("Running", "runs-0")
    await native(world, "kueues", labels={"kueue.x-k8s.io/queue-name": "team"}, suspend=True)
    await gang(world, "bare", 1, 1)
    code, output = await run(world, "hold", "runs", "kueues", "bare", "nowhere")
    assert code == 1
    for words in (
        "job/runs is running (1 pods)",
        "job/kueues is in Kueue's queue team",
        "podgroup/bare cannot be held: its pods exist already",
        "no job or PodGroup 'nowhere'",
    ):
        assert words in output, output
    code, output = await run(world, "release", "bare")
    assert (code, "podgroup/bare is not held and cannot be held" in output) == (0, True), output
    for name in ("runs", "kueues"):
        assert (await world.get(NATIVE_JOBS, name))["spec"].get("suspend", False) is (name == "kueues")
    code, output = await run(world, "hold", "website/x")
    assert (code, "expected one of vcjob, podgroup, pod, job" in output) == (2, True), output


async def test_cancel_deletes_the_owner_after_a_confirmation(world: World) -> None:
    schedule = {"metadata": {"name": "nightly", "uid": "u-nightly"}}
    job = await native(world, "run-1")
    path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs/run-1"
    owners = controlled_by(schedule, "CronJob")
    from phalanx.kube.client import PatchType

    await world.client.patch(path, {"metadata": {"ownerReferences": owners}}, PatchType.MERGE)
    await member(world, "run-1-a", job, annotations={"scheduling.k8s.io/group-name": "g"})
    code, output = await run(world, "cancel", "pod/run-1-a")
    assert (code, "add --yes" in output) == (2, True), output
    code, output = await run(world, "cancel", "pod/run-1-a", "--dry-run")
    assert f"would delete job/run-1 in namespace {world.namespace}, the owner of pod/run-1-a" in output, output
    assert len(await world.list(NATIVE_JOBS)) == 1
    code, output = await run(world, "cancel", "podgroup/g", "--yes")
    assert code == 0, output
    assert not await world.list(NATIVE_JOBS)


async def test_cancel_of_a_gang_without_a_job_deletes_its_group_and_pods(world: World) -> None:
    await gang(world, "bare", 2, 2)
    await world.pod("other")
    code, output = await run(world, "cancel", "bare", "--yes")
    assert (code, "podgroup/bare cancelled: the gang and its 2 pods" in output) == (0, True), output
    assert [each["metadata"]["name"] for each in await world.list(PODS)] == ["other"]
    assert not await world.list(POD_GROUPS)


async def test_move_changes_only_objects_that_name_their_queue_themselves(world: World) -> None:
    queue = f"{world.name}-q"
    await world.make(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": queue},
            "spec": {"weight": 1},
        }
    )
    await gang(world, "own", 1, 1)
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "labelled",
        "pod-group.scheduling.sigs.k8s.io/min-available": "1",
    }
    await world.pod("labelled-0", labels=labels)
    await native(world, "queued", labels={QUEUE_LABEL: "default"}, suspend=True)
    code, output = await run(world, "move", "own", "labelled", "queued", "--queue", queue)
    assert code == 0, output
    assert (await world.get(POD_GROUPS, "own"))["spec"]["queue"] == queue
    assert (await world.get(PODS, "labelled-0"))["metadata"]["annotations"][QUEUE_ANNOTATION] == queue
    assert (await world.get(NATIVE_JOBS, "queued"))["metadata"]["labels"][QUEUE_LABEL] == queue

    await submit(world, "train")
    owner = await world.get(VOLCANO_JOBS, "train")
    group = {**GROUP, "metadata": {"name": "theirs"}, "spec": {"minMember": 1, "queue": "default"}}
    group["metadata"]["ownerReferences"] = controlled_by({"metadata": {"name": "x", "uid": "gone"}}, "Job")  # type: ignore[index]
    await world.make(group)
    code, output = await run(world, "move", "train", "theirs", "--queue", queue)
    assert (code, "the queue of a Volcano Job cannot be changed" in output) == (1, True), output
    assert "the controller of Job/x writes the queue" in output
    assert owner["spec"]["queue"] == (await world.get(VOLCANO_JOBS, "train"))["spec"]["queue"]
    code, output = await run(world, "move", "own", "--queue", "nowhere")
    assert (code, "unable to find queue" in output) == (1, True), output
