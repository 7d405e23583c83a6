"""JobFlows and JobTemplates: order of the jobs, and status, also over a death of the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.controllers.api import Json
from tests.controllers.flows import FLOWS, TEMPLATES, FlowWorld, step
from tests.controllers.jobs import JOBS

Story = Callable[[FlowWorld], Awaitable[None]]


async def started(*steps: Json, **spec: Any) -> FlowWorld:
    world = FlowWorld()
    world.template("a", "b", "c")
    world.submit(*steps, **spec)
    await world.settle()
    return world


async def test_jobs_are_created_after_the_completion_of_their_predecessors() -> None:
    world = await started(step("a"), step("b", "a"), step("c", "a", "b"))
    assert world.jobs() == ["f-a"]
    assert world.phase() == "Pending"
    world.phase_of_job("f-a", "Running")
    await world.settle()
    assert world.jobs() == ["f-a"]
    assert world.phase() == "Running"
    for name, jobs in (("f-a", ["f-a", "f-b"]), ("f-b", ["f-a", "f-b", "f-c"])):
        world.phase_of_job(name, "Completed")
        await world.settle()
        assert world.jobs() == jobs
    world.phase_of_job("f-c", "Completed")
    await world.settle()
    assert world.phase() == "Succeed"
    assert world.jobs() == ["f-a", "f-b", "f-c"]
    assert world.reasons() == ["Created"] * 3


async def test_job_records_its_flow_and_template() -> None:
    world = await started(step("a"))
    job = world.api.get_object(JOBS, "f-a")
    origin = {"volcano.sh/createdByJobFlow": "default.f", "volcano.sh/createdByJobTemplate": "default.a"}
    assert job["metadata"]["labels"] == job["metadata"]["annotations"] == origin
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("flow.volcano.sh/v1alpha1", "JobFlow", "f")
    assert job["spec"] == world.api.get_object(TEMPLATES, "a")["spec"]
    assert world.api.get_object(TEMPLATES, "a")["status"] == {"jobDependsOnList": ["f-a"]}
    assert world.api.events == [("f", "Created", "create a job named f-a!")]


async def test_names_too_long_for_a_label_stay_annotations() -> None:
    world = FlowWorld()
    world.template("a")
    world.submit(step("a"), name="f" * 60)
    await world.settle()
    metadata = world.api.all(JOBS)[0]["metadata"]
    assert list(metadata["labels"]) == ["volcano.sh/createdByJobTemplate"]
    assert len(metadata["annotations"]) == 2


async def test_the_status_has_the_fields_of_upstream() -> None:
    world = await started(step("a"), step("b"))
    world.api.now += 10
    world.phase_of_job("f-a", "Running", Running=2)
    world.phase_of_job("f-b", "Aborted")
    await world.settle()
    status = world.status()
    assert {name: status[name] for name in ("runningJobs", "unKnowJobs", "state")} == {
        "runningJobs": ["f-a"],
        "unKnowJobs": ["f-b"],
        "state": {"phase": "Running"},
    }
    assert "pendingJobs" not in status
    assert status["conditions"]["f-a"] == {
        "phase": "Running",
        "createTime": "2023-11-14T22:13:20Z",
        "runningDuration": "1m30s",
        "taskStatusCount": {"w": {"phase": {"Running": 2}}},
    }
    assert status["jobStatusList"][0] == {
        "name": "f-a",
        "state": "Running",
        "startTimestamp": "2023-11-14T22:13:20Z",
        "endTimestamp": "2023-11-14T22:14:50Z",
        "restartCount": 1,
        "runningHistories": [{"startTimestamp": "2023-11-14T22:13:30Z", "state": "Running"}],
    }
    world.api.now += 10
    world.phase_of_job("f-a", "Completed")
    await world.settle()
    assert world.status()["jobStatusList"][0]["runningHistories"] == [
        {"startTimestamp": "2023-11-14T22:13:30Z", "endTimestamp": "2023-11-14T22:13:40Z", "state": "Running"},
        {"startTimestamp": "2023-11-14T22:13:40Z", "state": "Completed"},
    ]


async def test_a_definition_that_keeps_a_part_of_the_status_is_not_written_to_for_ever() -> None:
    world = FlowWorld()
    replace = world.api.replace

    async def cut(path: str, obj: Json) -> Json:
        status = {name: value for name, value in obj["status"].items() if name != "conditions"}
        return await replace(path, {**obj, "status": status})

    world.api.replace = cut  # type: ignore[method-assign]
    world.template("a")
    world.submit(step("a"))
    await world.settle()
    assert world.phase() == "Pending"
    world.phase_of_job("f-a", "Running")
    await world.settle()
    assert world.phase() == "Running"


@pytest.mark.parametrize("phase", ["Failed", "Terminated"])
async def test_a_job_that_fails_fails_the_flow(phase: str) -> None:
    world = await started(step("a"), step("b", "a"), step("c"))
    world.phase_of_job("f-a", phase)
    world.phase_of_job("f-c", "Completed")
    await world.settle()
    assert world.phase() == "Failed"
    assert world.jobs() == ["f-a", "f-c"]
    world.api.erase(JOBS, "f-a")
    await world.settle()
    assert world.phase() == "Failed"
    assert world.jobs() == ["f-c"]


async def test_jobs_are_kept_or_deleted_when_all_are_complete() -> None:
    world = await started(step("a"), step("b", "a"), jobRetainPolicy="delete")
    world.phase_of_job("f-a", "Completed")
    await world.settle()
    assert world.jobs() == ["f-a", "f-b"]
    world.phase_of_job("f-b", "Completed")
    await world.settle()
    assert world.jobs() == []
    assert world.phase() == "Succeed"
    assert world.status()["completedJobs"] == ["f-a", "f-b"]
    assert "status" in world.api.get_object(TEMPLATES, "a")
    assert world.api.get_object(TEMPLATES, "a")["status"]["jobDependsOnList"] == []
    writes = len(world.api.writes)
    world.restart()
    await world.settle()
    assert len(world.api.writes) == writes


async def test_complete_job_past_its_time_to_live_is_not_created_again() -> None:
    world = await started(step("a"), step("b", "a"))
    world.phase_of_job("f-a", "Completed")
    await world.settle()
    world.api.erase(JOBS, "f-a")
    world.phase_of_job("f-b", "Completed")
    await world.settle()
    assert world.jobs() == ["f-b"]
    assert world.phase() == "Succeed"


async def test_a_job_that_is_deleted_before_its_end_is_made_again() -> None:
    world = await started(step("a"))
    world.phase_of_job("f-a", "Running")
    await world.settle()
    world.api.erase(JOBS, "f-a")
    await world.settle()
    assert world.jobs() == ["f-a"]


async def test_a_step_that_is_added_later_is_begun() -> None:
    world = await started(step("a"))
    world.phase_of_job("f-a", "Completed")
    await world.settle()
    assert world.phase() == "Succeed"
    world.submit(step("a"), step("b", "a"))
    world.api.update(FLOWS, "f", lambda body: body.update(status={"state": {"phase": "Succeed"}}))
    await world.settle()
    assert world.jobs() == ["f-a", "f-b"]
    assert world.phase() == "Running"


@pytest.mark.parametrize(
    ("steps", "part"),
    [
        ((step("a"), step("a")), "spec.flows[0].name: 'a' occurs 2 times"),
        ((step("a", "b"), step("b", "a")), "form a cycle"),
        ((step("a", "a"),), "form a cycle"),
        ((step("a"), step("b", "x")), "spec.flows[1].dependsOn.targets: 'x' is not a name in spec.flows"),
        ((step("a"), {"dependsOn": {}}), "spec.flows[1].name: is missing"),
        ((step("a"), {"name": "b", "dependsOn": {"targets": 7}}), "spec.flows[1].dependsOn.targets"),
    ],
)
async def test_invalid_flow_is_refused_and_continues_after_its_correction(
    steps: tuple[Json, ...], part: str
) -> None:
    world = await started(*steps)
    assert world.jobs() == []
    assert world.phase() == "Failed"
    assert world.reasons() == ["InvalidJobFlow"]
    assert part in world.api.events[0][2]
    writes = len(world.api.writes)
    await world.settle()
    assert len(world.api.writes) == writes
    world.submit(step("a"), step("b", "a"))
    await world.settle()
    assert world.jobs() == ["f-a"]
    assert world.phase() == "Pending"


async def test_a_template_may_come_later() -> None:
    world = FlowWorld()
    world.submit(step("a"))
    await world.settle()
    await world.settle()
    assert world.jobs() == []
    assert world.reasons() == ["JobTemplateNotFound"]
    assert world.api.writes == []  # its version still is the one in the submitter's answer
    world.template("a")
    await world.settle()
    assert world.jobs() == ["f-a"]


async def test_foreign_job_is_not_changed() -> None:
    world = FlowWorld()
    world.template("a")
    world.api.apply(
        JOBS, {"metadata": {"name": "f-a"}, "spec": {"mine": True}, "status": {"state": {"phase": "Completed"}}}
    )
    world.submit(step("a"))
    await world.settle()
    await world.settle()
    assert world.reasons() == ["ForeignJob"]
    assert world.phase() == "Pending"
    assert [verb for verb, _ in world.api.writes].count("create") == 1
    assert world.wake == 10.0
    world.api.erase(JOBS, "f-a")
    await world.settle()
    assert "mine" not in world.api.get_object(JOBS, "f-a")["spec"]


async def test_refused_job_is_reported_and_retried() -> None:
    world = FlowWorld()
    world.template("a")

    def refuse(collection: str, body: dict[str, Any]) -> None:
        raise ApiError(403, "Forbidden", "no such queue")

    world.api.refuse = refuse
    world.submit(step("a"))
    await world.settle()
    assert world.api.events == [("f", "FailedCreate", "Failed to create job f-a: no such queue")]
    world.api.refuse = lambda collection, body: None
    await world.settle()
    assert world.jobs() == ["f-a"]


# -- probes and patches --------------------------------------------------------------------------------------


async def test_a_step_may_begin_when_a_task_before_it_runs() -> None:
    probe = {"taskStatusList": [{"taskName": "w", "phase": "Running"}]}
    world = await started(step("a"), step("b", "a", probe=probe))
    world.phase_of_job("f-a", "Running", Running=1, Pending=1)
    await world.settle()
    assert world.jobs() == ["f-a"]
    world.phase_of_job("f-a", "Running", Running=1, Succeeded=1)
    await world.settle()
    assert world.jobs() == ["f-a", "f-b"]


async def test_a_step_may_begin_when_pods_before_it_answer() -> None:
    probe = {
        "tcpSocketList": [{"taskName": "w", "port": 22}],
        "httpGetList": [{"taskName": "w", "port": 80, "path": "/ready", "httpHeader": {"name": "X", "value": "y"}}],
    }
    world = await started(step("a"), step("b", "a", probe=probe))
    world.phase_of_job("f-a", "Running")
    world.open = {("w", 22, None)}
    await world.settle()
    assert world.jobs() == ["f-a"]
    assert world.wake == 5.0
    assert world.asked[-1].header == ("X", "y")
    assert world.asked[-1].replicas == 2
    world.open.add(("w", 80, "/ready"))
    await world.settle()
    assert world.jobs() == ["f-a", "f-b"]
    asked = len(world.asked)
    await world.settle()
    assert len(world.asked) == asked
    assert world.wake is None


async def test_a_complete_job_is_not_asked_any_more() -> None:
    world = await started(step("a"), step("b", "a", probe={"tcpSocketList": [{"taskName": "w", "port": 22}]}))
    world.phase_of_job("f-a", "Completed")
    await world.settle()
    assert world.jobs() == ["f-a", "f-b"]


async def test_a_probe_of_a_task_that_there_is_not_waits_for_the_end() -> None:
    probe = {"taskStatusList": [{"taskName": "x", "phase": "Running"}]}
    world = await started(step("a"), step("b", "a", probe=probe))
    world.phase_of_job("f-a", "Running", Running=2)
    await world.settle()
    assert world.jobs() == ["f-a"]


async def test_a_step_may_change_the_spec() -> None:
    container = {"name": "c", "env": [{"name": "E", "value": "1"}]}
    patch = {
        "jobSpec": {
            "queue": "default",  # defaults of the definition
            "maxRetry": 3,
            "minAvailable": 1,
            "tasks": [{"name": "w", "replicas": 5, "template": {"spec": {"containers": [container]}}}],
        }
    }
    world = FlowWorld()
    world.template("a", queue="research", maxRetry=7)
    world.submit(step("a", patch=patch))
    await world.settle()
    assert world.api.get_object(JOBS, "f-a")["spec"] == {
        "queue": "research",
        "maxRetry": 7,
        "minAvailable": 1,
        "tasks": [
            {"name": "w", "replicas": 5, "template": {"spec": {"containers": [{**container, "image": "i"}]}}}
        ],
    }


# -- deaths ----------------------------------------------------------------------------------------------------


async def succeeds(world: FlowWorld) -> None:
    world.template("a", "b", "c")
    world.submit(step("a"), step("b"), step("c", "a", "b"), jobRetainPolicy="delete")
    await world.settle()
    for name in ("f-a", "f-b", "f-c"):
        world.phase_of_job(name, "Completed")
        await world.settle()


async def fails(world: FlowWorld) -> None:
    world.template("a", "b", "c")
    world.submit(step("a"), step("b"), step("c", "b"))
    await world.settle()
    world.phase_of_job("f-b", "Completed")
    await world.settle()
    world.phase_of_job("f-c", "Failed")
    await world.settle()


@pytest.mark.parametrize("story", [succeeds, fails], ids=lambda story: story.__name__)
async def test_no_death_changes_the_end(story: Story) -> None:
    undisturbed = FlowWorld()
    await story(undisturbed)
    writes, verbs = len(undisturbed.api.writes), [verb for verb, _ in undisturbed.api.writes]
    assert writes > 6
    for number in range(1, writes + 1):
        for applied in (False, True):
            world = FlowWorld()
            world.api.dies_at = (number, applied)
            await story(world)
            assert world.deaths == 1
            where = f"dead {'after' if applied else 'before'} write {number}"
            assert (world.jobs(), world.status()) == (undisturbed.jobs(), undisturbed.status()), where
            assert [verb for verb, _ in world.api.writes].count("create") == verbs.count("create")
            for name in ("a", "b", "c"):
                mine, other = (each.api.get_object(TEMPLATES, name).get("status") for each in (world, undisturbed))
                assert mine == other, where
