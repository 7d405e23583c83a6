"""The life of a job, as Volcano's own end-to-end specs tell it (facts of jobp and jobseq)."""

from __future__ import annotations

import pytest

from tests.controllers.api import Json
from tests.controllers.jobs import GROUPS, JOBS, JobWorld

POLICIES = [
    ("RestartJob", ["Pending", "Running", "Restarting", "Pending", "Running"]),
    ("TerminateJob", ["Pending", "Running", "Terminating", "Terminated"]),
    ("AbortJob", ["Pending", "Running", "Aborting", "Aborted"]),
    ("CompleteJob", ["Pending", "Running", "Completing", "Completed"]),
]


async def test_a_job_runs_and_completes() -> None:
    world = JobWorld()
    world.submit(tasks={"w": 3})
    await world.settle()
    assert world.phase() == "Running"
    assert world.pods() == {"j-w-0": "Running", "j-w-1": "Running", "j-w-2": "Running"}
    for index in range(3):
        world.pod_phase(f"j-w-{index}", "Succeeded")
    await world.settle()
    assert world.seen == ["Pending", "Running", "Completed"]
    assert world.status()["succeeded"] == 3
    assert len(world.pods()) == 3
    assert world.api.all(GROUPS) == []


async def test_a_steady_state_writes_nothing() -> None:
    world = JobWorld()
    world.submit(tasks={"w": 3})
    await world.settle()
    before = len(world.api.writes)
    for _ in range(3):
        await world.controller.reconcile(("default", "j"))
    await world.settle()
    assert len(world.api.writes) == before


async def test_host_list_shrinks_before_pods_are_deleted() -> None:
    world = JobWorld()
    world.submit(tasks={"w": 2}, plugins={"svc": []})
    await world.settle()
    before = len(world.api.writes)
    world.api.update(JOBS, "j", lambda job: job["spec"]["tasks"][0].update(replicas=0))
    await world.settle()
    written = world.api.writes[before:]
    hosts = [number for number, (_, path) in enumerate(written) if path.endswith("/configmaps/j-svc")]
    gone = [number for number, (verb, _) in enumerate(written) if verb == "delete"]
    assert len(hosts) == 1
    assert len(gone) == 2
    assert hosts[0] < gone[0]


@pytest.mark.parametrize(("action", "phases"), POLICIES, ids=[action for action, _ in POLICIES])
async def test_a_pod_fails(action: str, phases: list[str]) -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodFailed", "action": action}])
    await world.settle()
    world.pod_phase("j-w-1", "Failed", code=1)
    await world.settle()
    assert world.seen == phases
    if action == "RestartJob":
        assert world.status()["retryCount"] == 1
        assert world.pods() == {"j-w-0": "Running", "j-w-1": "Running"}
    else:
        assert "Running" not in world.pods().values()


@pytest.mark.parametrize(("action", "phases"), POLICIES, ids=[action for action, _ in POLICIES])
async def test_a_pod_is_evicted(action: str, phases: list[str]) -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodEvicted", "action": action}])
    await world.settle()
    world.evict("j-w-0")
    await world.settle()
    assert world.seen == phases


async def test_pod_evicted_during_downtime_is_noticed() -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    await world.settle()
    world.evict("j-w-0")
    world._start()
    await world.settle()
    assert world.status()["retryCount"] == 1


async def test_without_a_policy_an_evicted_pod_is_made_again() -> None:
    world = JobWorld()
    world.submit()
    await world.settle()
    world.evict("j-w-0")
    await world.settle()
    assert world.pods() == {"j-w-0": "Running", "j-w-1": "Running"}
    assert "retryCount" not in world.status()


def mark_disrupted(world: JobWorld, name: str, reason: str = "PreemptionByScheduler") -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    world.api.update("v1/pods", name, lambda pod: pod["status"].update(conditions=[condition]))


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask", "RestartPod"])
@pytest.mark.parametrize("way", ["evicted", "terminating", "failed"])
@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_restart_after_a_preemption_is_no_retry(action: str, way: str, retries: int) -> None:
    world = JobWorld()
    event = "PodFailed" if way == "failed" else "PodEvicted"
    world.submit(maxRetry=retries, policies=[{"event": event, "action": action}])
    await world.settle()
    for _ in range(5):
        before = world.api.get_object("v1/pods", "j-w-1")["metadata"]["uid"]
        mark_disrupted(world, "j-w-1")
        if way == "evicted":
            world.evict("j-w-1")
        elif way == "failed":
            world.pod_phase("j-w-1", "Failed", code=143)
        else:
            world.api.update(
                "v1/pods", "j-w-1", lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z")
            )
        await world.settle()
        assert world.pods() == {"j-w-0": "Running", "j-w-1": "Running"}
        assert world.api.get_object("v1/pods", "j-w-1")["metadata"]["uid"] != before
    assert "retryCount" not in world.status()
    assert world.phase() == "Running"
    assert "Restarting" in world.seen


async def test_failures_between_preemptions_count_as_retries() -> None:
    world = JobWorld()
    world.submit(maxRetry=2, policies=[{"event": "*", "action": "RestartJob"}])
    await world.settle()
    for number in range(4):
        if number % 2 == 0:
            mark_disrupted(world, "j-w-0")
            world.evict("j-w-0")
        else:
            world.pod_phase("j-w-0", "Failed", code=1)
        await world.settle()
        assert world.status().get("retryCount", 0) == (number + 1) // 2
    assert world.phase() == "Failed"


async def test_pod_that_fails_because_its_peer_is_preempted_is_no_retry() -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodFailed", "action": "RestartJob"}])
    await world.settle()
    mark_disrupted(world, "j-w-1")
    world.pod_phase("j-w-0", "Failed", code=1)
    await world.settle()
    assert "Restarting" in world.seen
    assert "retryCount" not in world.status()


@pytest.mark.parametrize("condition", ["none", "group-restart"])
async def test_deletion_that_is_no_preemption_is_a_retry(condition: str) -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    await world.settle()
    if condition == "group-restart":
        mark_disrupted(world, "j-w-1", "GroupRestart")
    world.evict("j-w-1")
    await world.settle()
    assert world.status()["retryCount"] == 1


async def test_preemption_is_remembered_for_a_delayed_restart_over_a_restart_of_the_controller() -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodEvicted", "action": "RestartJob", "timeout": "5m"}])
    await world.settle()
    world.runs = False
    mark_disrupted(world, "j-w-0")
    world.evict("j-w-0")
    await world.settle()
    world.api.now += 299
    world.restart()
    await world.settle()
    assert "Restarting" not in world.seen
    world.api.now += 2
    await world.settle()
    assert "Restarting" in world.seen
    assert "retryCount" not in world.status()


async def test_a_failed_pod_restarts_alone() -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodFailed", "action": "RestartPod"}])
    await world.settle()
    survivor = world.api.get_object("v1/pods", "j-w-0")["metadata"]["uid"]
    world.pod_phase("j-w-1", "Failed")
    await world.settle()
    assert world.seen == ["Pending", "Running", "Restarting", "Pending", "Running"]
    assert world.api.get_object("v1/pods", "j-w-0")["metadata"]["uid"] == survivor
    assert world.pods()["j-w-1"] == "Running"


@pytest.mark.parametrize("action", ["RestartJob", "RestartTask", "RestartPod"])
async def test_the_last_try_keeps_the_failed_pod(action: str) -> None:
    world = JobWorld()
    world.submit(maxRetry=2, policies=[{"event": "PodFailed", "action": action}])
    await world.settle()
    for _ in range(2):
        world.pod_phase("j-w-1", "Failed", code=9)
        await world.settle()
    assert world.phase() == "Failed"
    assert world.status()["retryCount"] == 2
    assert world.pods() == {"j-w-1": "Failed"}
    assert world.status()["state"]["reason"] == "RetryLimitReached"
    assert world.status()["state"]["message"] == "retry limit reached: maxRetry is 2"


async def test_an_exit_code_of_any_container_counts() -> None:
    world = JobWorld()
    world.submit(policies=[{"exitCode": 3, "action": "AbortJob"}])
    await world.settle()

    def fail(pod: dict[str, object]) -> None:
        ended = [{"state": {"terminated": {"exitCode": code}}} for code in (0, 3)]
        pod["status"] = {"phase": "Failed", "initContainerStatuses": ended}

    world.api.update("v1/pods", "j-w-0", fail)
    await world.settle()
    assert world.phase() == "Aborted"


async def test_a_timeout_survives_a_restart_of_the_controller() -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodEvicted", "action": "TerminateJob", "timeout": "5m"}])
    await world.settle()
    world.runs = False
    world.evict("j-w-0")
    await world.settle()
    assert world.phase() in ("Running", "Pending")
    world.api.now += 299
    world._start()
    await world.settle()
    assert world.phase() in ("Running", "Pending")
    world.api.now += 2
    await world.settle()
    assert world.phase() == "Terminated"


async def test_a_timeout_ends_when_the_pod_runs_again() -> None:
    world = JobWorld()
    world.submit(policies=[{"event": "PodEvicted", "action": "TerminateJob", "timeout": "5m"}])
    await world.settle()
    world.evict("j-w-0")
    await world.settle()
    world.api.now += 1000
    await world.settle()
    assert world.phase() == "Running"


async def test_min_success_ends_the_job_and_its_remaining_pods() -> None:
    world = JobWorld()
    world.submit(tasks={"w": 5}, minSuccess=2)
    await world.settle()
    world.pod_phase("j-w-0", "Succeeded")
    world.pod_phase("j-w-3", "Succeeded")
    await world.settle()
    assert world.phase() == "Completed"
    assert world.pods() == {"j-w-0": "Succeeded", "j-w-3": "Succeeded"}


async def test_job_grows_and_shrinks_by_the_highest_index() -> None:
    world = JobWorld()
    world.submit(tasks={"w": 2}, minAvailable=1)
    await world.settle()
    for count in (4, 1, 0, 3):
        world.api.update(JOBS, "j", lambda job, count=count: job["spec"]["tasks"][0].update(replicas=count))  # type: ignore[misc]
        await world.settle()
        assert sorted(world.pods()) == [f"j-w-{index}" for index in range(count)]
        assert "retryCount" not in world.status()


async def test_task_waits_for_the_tasks_that_it_depends_on() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    world = JobWorld(runs=False)
    world.submit(
        task_specs=[
            {"name": "a", "replicas": 2, "template": template},
            {"name": "b", "replicas": 1, "template": template, "dependsOn": {"name": ["a"]}},
        ],
        minAvailable=1,
    )
    await world.settle()
    assert sorted(world.pods()) == ["j-a-0", "j-a-1"]
    world.runs = True
    await world.settle()
    assert sorted(world.pods()) == ["j-a-0", "j-a-1", "j-b-0"]


async def test_commands_suspend_and_resume_without_a_retry() -> None:
    world = JobWorld()
    world.submit()
    await world.settle()
    for turn in range(4):
        world.command("AbortJob", as_name=f"stop-{turn}")
        await world.settle()
        assert world.phase() == "Aborted"
        assert world.pods() == {}
        world.command("ResumeJob", as_name=f"go-{turn}")
        await world.settle()
        assert world.phase() == "Running"
    assert "retryCount" not in world.status()
    assert world.api.all("bus.volcano.sh/v1alpha1/commands") == []
    assert not any(key.startswith("command-") for key in world.status().get("controlledResources", {}))


async def test_command_for_an_earlier_job_of_the_name_is_deleted_without_effect() -> None:
    world = JobWorld()
    world.submit()
    await world.settle()
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "earlier"}
    body = {"metadata": {"name": "late"}, "action": "AbortJob", "target": target}
    world.api.apply("bus.volcano.sh/v1alpha1/commands", body)
    await world.settle()
    assert world.phase() == "Running"
    assert world.api.all("bus.volcano.sh/v1alpha1/commands") == []


async def test_command_for_a_missing_job_is_deleted() -> None:
    world = JobWorld()
    world.command("AbortJob", "nobody")
    await world.settle()
    assert world.api.all("bus.volcano.sh/v1alpha1/commands") == []


async def test_ended_job_is_deleted_after_its_time_to_live() -> None:
    world = JobWorld()
    world.submit(ttlSecondsAfterFinished=60)
    await world.settle()
    for name in list(world.pods()):
        world.pod_phase(name, "Succeeded")
    await world.settle()
    assert world.phase() == "Completed"
    world.api.now += 61
    await world.settle()
    assert world.api.all(JOBS) == []


async def test_a_job_that_no_webhook_has_looked_at_is_refused_in_its_words() -> None:
    world = JobWorld()
    world.submit(minAvailable=5, policies=[{"event": "PodFailed", "action": "Dance"}])
    world.submit("good")
    await world.settle()
    state = world.status()["state"]
    assert state["reason"] == "InvalidJob"
    assert "job 'minAvailable' should not be greater than total replicas in tasks;" in state["message"]
    assert "invalid policy action" in state["message"]
    assert sorted(world.pods()) == ["good-w-0", "good-w-1"]
    world.api.update(JOBS, "j", lambda job: job["spec"].update(minAvailable=2, policies=[]))
    await world.settle()
    assert world.phase() == "Running"
    assert world.status()["state"].get("reason", "") == ""


def with_classes(**classes: str) -> list[Json]:
    """Return a task with two pods for each class; those of the first request one CPU, of the second two, and so
    on.
    """
    return [
        {
            "name": name,
            "replicas": 2,
            "template": {
                "spec": {
                    "priorityClassName": of,
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                }
            },
        }
        for cpu, (name, of) in enumerate(classes.items(), 1)
    ]


def priority_class(world: JobWorld, name: str, value: int) -> None:
    world.api.apply("scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}, "")


async def test_the_tasks_of_the_highest_priority_are_the_first_of_which_room_is_promised() -> None:
    """As upstream, where the job starts with fewer pods than its tasks need together."""
    world = JobWorld()
    priority_class(world, "low", 10)
    priority_class(world, "high", 20)
    world.submit(task_specs=with_classes(small="low", large="high"), minAvailable=3)
    await world.settle()
    (group,) = world.api.all(GROUPS)
    assert group["spec"]["minResources"]["cpu"] == "5"


async def test_a_class_that_comes_later_counts_from_the_next_look_on() -> None:
    world = JobWorld()
    world.submit(task_specs=with_classes(small="", large="late"), minAvailable=3)
    await world.settle()
    assert world.api.all(GROUPS)[0]["spec"]["minResources"]["cpu"] == "4"
    priority_class(world, "late", 5)
    world.pod_phase("j-small-0", "Pending")
    await world.settle()
    assert world.api.all(GROUPS)[0]["spec"]["minResources"]["cpu"] == "5"
    before = len(world.api.writes)
    await world.settle()
    assert len(world.api.writes) == before
