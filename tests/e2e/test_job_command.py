"""`phalanx submit` and `phalanx job` as child processes against a server; tests play the controllers' part."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from phalanx.reports.jobs.kinds import COMMANDS, NATIVE_JOBS, VOLCANO_JOBS
from tests.e2e.processes import Process, command
from tests.e2e.world import PODS, World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def run(world: World, *arguments: str) -> tuple[int, str]:
    return await command(*located(world, *arguments))


async def start(world: World, *arguments: str) -> Process:
    return await Process.start(*located(world, *arguments))


def located(world: World, *arguments: str) -> tuple[str, ...]:
    where = ("--kubeconfig", str(world.cluster.kubeconfig), "-n", world.namespace)
    before = arguments.index("--") if "--" in arguments else len(arguments)
    return (*arguments[:before], *where, *arguments[before:])


async def submit(world: World, name: str, *more: str) -> None:
    code, output = await run(world, "submit", "--name", name, "--image", "x", *more)
    assert code == 0, output


async def phase(world: World, name: str, phase: str, **status: Any) -> None:
    """Publish the phase as a controller would."""
    await world.patch(VOLCANO_JOBS, name, {"status": {"state": {"phase": phase}, **status}}, status=True)


async def listed(world: World) -> dict[str, Any]:
    code, output = await run(world, "job", "list", "-o", "json")
    assert code == 0, output
    return {f"{job['kind']}/{job['name']}": job for job in json.loads(output)["jobs"]}


async def test_submitted_job_matches_its_flags_and_submit_prints_the_next_commands(world: World) -> None:
    code, output = await run(
        world, "submit", "--name", "train", "--image", "torch", "--replicas", "2", "--", "sleep"
    )
    assert code == 0, output
    assert "job.batch.volcano.sh/train created" in output
    assert f"phalanx job wait train -n {world.namespace} --for running" in output
    made = await world.get(VOLCANO_JOBS, "train")
    assert (made["spec"]["minAvailable"], made["spec"]["tasks"][0]["replicas"]) == (2, 2)


async def test_a_job_in_a_queue_that_is_not_there_is_refused_with_the_queues_that_are(world: World) -> None:
    code, output = await run(world, "submit", "--name", "a", "--image", "x", "--queue", "nowhere")
    assert code == 1
    assert 'no queue "nowhere"; expected one of ' in output
    assert "default" in output
    assert not await world.list(VOLCANO_JOBS)


async def test_second_job_of_the_same_name_is_refused_with_a_plain_message(world: World) -> None:
    await submit(world, "twice")
    code, output = await run(world, "submit", "--name", "twice", "--image", "x")
    assert code == 1
    assert "the name already exists" in output


@pytest.mark.slow
async def test_file_whose_second_object_is_refused_prints_the_created_first_object(world: World) -> None:
    made = pod("a", namespace=world.namespace)
    process = await start(world, "submit", "/dev/stdin")
    assert await process.ends() == 1
    assert "no objects found" in process.output
    unknown = {"apiVersion": "training.example/v1", "kind": "TrainJob", "metadata": {"name": "x"}}
    again = {**made, "metadata": {**made["metadata"], "name": "b"}}
    for documents, words in (
        ([made, unknown], "the cluster has no kind TrainJob of training.example/v1"),
        ([again, again], "pod/b was not created: the name already exists"),
    ):
        file = world.cluster.kubeconfig.parent / f"{world.name}.yaml"
        file.write_text("\n---\n".join(map(json.dumps, documents)))
        code, output = await run(world, "submit", str(file))
        assert (code, words in output) == (1, True), output
    assert "(already created: pod/b)" in output
    assert [each["metadata"]["name"] for each in await world.list(PODS)] == ["b"]


async def test_list_shows_all_kinds_of_jobs_and_no_row_for_objects_owned_by_a_job(world: World) -> None:
    await submit(world, "train", "--replicas", "2")
    uid = (await world.get(VOLCANO_JOBS, "train"))["metadata"]["uid"]
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "train",
        "uid": uid,
        "controller": True,
    }
    group: dict[str, Any] = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": f"train-{uid}", "ownerReferences": [owner]},
        "spec": {"minMember": 2},
    }
    await world.make(group)
    await world.make({**group, "metadata": {"name": "alone"}})
    await world.pod("alone-0", annotations={"scheduling.k8s.io/group-name": "alone"})
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "labelled",
        "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    }
    await world.pod("labelled-0", labels=labels)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}}
    await world.make(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "native"},
            "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template},
        }
    )
    found = await listed(world)
    assert set(found) == {"vcjob/train", "gang/alone", "gang/labelled", "job/native"}
    assert found["vcjob/train"]["group"] == f"train-{uid}"
    assert [found[f"gang/{name}"]["minimum"] for name in ("alone", "labelled")] == [2, 3]
    assert [found[f"gang/{name}"]["pending"] for name in ("alone", "labelled")] == [1, 1]
    code, output = await run(world, "job", "describe", "train")
    assert code == 0, output
    assert "task   2" in output


async def test_suspend_and_resume_of_a_volcano_job_are_commands_that_the_job_owns(world: World) -> None:
    await submit(world, "train")
    await phase(world, "train", "Running", running=1)
    code, output = await run(world, "job", "suspend", "train")
    assert code == 0, output
    await phase(world, "train", "Aborted")
    code, output = await run(world, "job", "resume", "train")
    assert code == 0, output
    uid = (await world.get(VOLCANO_JOBS, "train"))["metadata"]["uid"]
    commands = await world.list(COMMANDS)
    assert sorted(each["action"] for each in commands) == ["AbortJob", "ResumeJob"]
    for each in commands:
        assert each["metadata"]["name"].startswith(f"train-{each['action'].lower()}-")
        assert each["metadata"]["ownerReferences"][0]["uid"] == each["target"]["uid"] == uid


@pytest.mark.slow
async def test_suspend_of_a_suspended_or_ended_job_prints_its_state_and_creates_no_command(world: World) -> None:
    await submit(world, "train")
    await phase(world, "train", "Aborted")
    assert (await run(world, "job", "suspend", "train"))[0] == 0
    await phase(world, "train", "Completed")
    for order in ("suspend", "resume", "restart"):
        code, output = await run(world, "job", order, "train")
        assert (code, "it is Completed" in output) == (1, True), output
    assert not await world.list(COMMANDS)


async def test_a_native_job_is_suspended_by_its_own_field(world: World) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}}
    spec = {"template": template}
    await world.make({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "native"}, "spec": spec})
    for order, value in (("suspend", True), ("resume", False)):
        code, output = await run(world, "job", order, "native")
        assert code == 0, output
        assert (await world.get(NATIVE_JOBS, "native"))["spec"]["suspend"] is value


async def test_cancel_of_several_jobs_deletes_the_existing_ones_despite_a_missing_one(world: World) -> None:
    await submit(world, "a")
    await submit(world, "b")
    code, output = await run(world, "job", "cancel", "a", "nowhere", "b")
    assert code == 1
    assert "no job or PodGroup 'nowhere'" in output
    assert not await world.list(VOLCANO_JOBS)


async def test_job_cancel_with_dry_run_prints_the_objects_and_deletes_none(world: World) -> None:
    await submit(world, "a")
    code, output = await run(world, "job", "cancel", "a", "--dry-run")
    assert code == 0, output
    assert output.strip() == f"would delete vcjob/a in namespace {world.namespace}, with its 0 pods (0 running)"
    assert len(await world.list(VOLCANO_JOBS)) == 1
    code, output = await run(world, "job", "cancel", "a", "--yes")
    assert (code, "a cancelled" in output) == (0, True), output
    assert not await world.list(VOLCANO_JOBS)


async def test_submit_with_an_unknown_priority_class_creates_nothing(world: World) -> None:
    code, output = await run(world, "submit", "--name", "a", "--image", "x", "--priority", "nosuch")
    assert (code, 'no PriorityClass "nosuch"; ' in output) == (1, True), output
    assert not await world.list(VOLCANO_JOBS)


async def test_cancel_of_a_bare_gang_spares_pods_that_a_controller_would_recreate(world: World) -> None:
    for name, owner in (("free", ""), ("kept", "maker")):
        labels = {
            "pod-group.scheduling.sigs.k8s.io/name": name,
            "pod-group.scheduling.sigs.k8s.io/min-available": "1",
        }
        made = pod(f"{name}-0", labels=labels, owner=owner)
        for reference in made["metadata"].get("ownerReferences", ()):
            reference["controller"] = True
        await world.make(made)
    code, output = await run(world, "job", "cancel", "kept", "free")
    assert (code, "its pods belong to Job/maker" in output) == (1, True), output
    assert [each["metadata"]["name"] for each in await world.list(PODS)] == ["kept-0"]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("last", "code"),
    [("Completed", 0), ("Failed", 1), ("Terminated", 1)],
    ids=["completed", "failed", "terminated"],
)
async def test_the_exit_code_of_wait_says_how_the_job_ended(world: World, last: str, code: int) -> None:
    await submit(world, "train")
    waiting = await start(world, "job", "wait", "train")
    await waiting.says("Pending, 0 of 1 run")
    await phase(world, "train", "Running", running=1)
    await waiting.says("Running, 1 of 1 run")
    await phase(world, "train", last, running=0)
    assert await waiting.ends() == code, waiting.output


@pytest.mark.slow
async def test_wait_reports_a_timeout_and_a_deleted_job(world: World) -> None:
    await submit(world, "train")
    code, output = await run(world, "job", "wait", "train", "--timeout", "1")
    assert (code, "not completed after 1 s" in output) == (124, True), output
    waiting = await start(world, "job", "wait", "train")
    await waiting.says("Pending")
    await world.delete(VOLCANO_JOBS, "train")
    assert await waiting.ends() == 1
    assert "was deleted, not completed" in waiting.output
    assert (await run(world, "job", "wait", "train", "--for", "deleted"))[0] == 0


async def test_wait_reaches_the_last_state_of_a_job_that_is_deleted_as_soon_as_it_ends(world: World) -> None:
    await submit(world, "train")
    waiting = await start(world, "job", "wait", "train")
    await waiting.says("Pending")
    await phase(world, "train", "Completed")
    await world.delete(VOLCANO_JOBS, "train")
    assert await waiting.ends() == 0, waiting.output


@pytest.mark.slow
async def test_a_watch_prints_the_list_again_when_it_has_changed(world: World) -> None:
    await submit(world, "train")
    watch = await start(world, "job", "list", "-w", "--interval", "0.5")
    await watch.says("Pending")
    await phase(world, "train", "Running", running=1)
    await watch.says("Running")
    watch.child.terminate()
    await asyncio.wait_for(watch.child.wait(), 30)


@pytest.mark.slow
async def test_logs_of_a_job_without_pods_say_so(world: World) -> None:
    await submit(world, "train")
    code, output = await run(world, "job", "logs", "train")
    assert (code, "train has no pods yet" in output) == (1, True), output
