"""Jobs that are created suspended with a queue are let go when their whole gang has its turn."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from phalanx.controllers.groups.suspended_jobs import SuspendedJobController
from phalanx.kube.errors import ApiError
from tests.controllers.api import Json, Killed, MemoryApi, context
from tests.controllers.quotas import Quotas

JOBS, JOB_SETS, GROUPS = (
    "batch/v1/jobs",
    "jobset.x-k8s.io/v1alpha2/jobsets",
    "scheduling.volcano.sh/v1beta1/podgroups",
)
PYTORCH = "kubeflow.org/v1/pytorchjobs"
TRAIN_JOBS = "trainer.kubeflow.org/v1alpha1/trainjobs"
PODS = "v1/pods"


def template(cpu: str = "1", scheduler: str = "phalanx") -> Json:
    resources = {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}
    return {"spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": resources}]}}


class SuspendedWorld:
    """`admit` lets groups of the scheduler's queue through. Jobs that are not suspended have pods at once."""

    def __init__(self, *scheduler_names: str) -> None:
        self.scheduler_names = scheduler_names or ("phalanx",)
        self.api = MemoryApi()
        self.quotas = Quotas(self.api)
        self.admits = True
        self.deaths = 0
        self._start()

    def _start(self) -> None:
        self.controller = SuspendedJobController(context(self.api, self.scheduler_names))
        self.api.list_into(self.controller)

    def job(self, name: str = "j", count: int = 4, *, at: int = 0, pod: Json | None = None, **spec: Any) -> None:
        created = f"2026-01-01T00:00:{at:02}Z"
        labels = {"phalanx.dev/queue": "research"}
        body = {"suspend": True, "parallelism": count, "completions": count, "completionMode": "Indexed", **spec}
        body["template"] = pod or template()
        metadata = {"name": name, "labels": labels, "creationTimestamp": created, "uid": f"0123456789-{name}"}
        self.api.apply(JOBS, {"metadata": metadata, "spec": body})

    async def settle(self) -> None:
        for _ in range(100):
            before = self.deaths, len(self.api.writes), copy.deepcopy(self.api.objects)
            await self._work()
            for group in self.api.all(GROUPS):
                if self.admits and "status" not in group:
                    name = group["metadata"]["name"]
                    self.api.update(GROUPS, name, lambda it: it.update(status={"phase": "Inqueue"}))
            if before == (self.deaths, len(self.api.writes), self.api.objects):
                return
        raise AssertionError(f"never at rest: {self.api.writes[-8:]}")

    async def _work(self) -> None:
        try:
            while self.api.deliver(self.controller):
                pass
            keys = {(kind, key) for kind, store in self.controller.jobs.items() for key, _ in store.items()}
            keys |= {group.job for _, group in self.controller.groups.items()}
            for key in sorted(keys):
                with contextlib.suppress(ApiError):
                    await self.controller.reconcile(key)
        except Killed:
            self.deaths += 1
            self.api.dies_at = None
            self._start()

    # -- the Job controller, and the scheduler that evicts ------------------------------------------------------

    def make_pods(self, count: int = 4, node: str = "n") -> None:
        """Create the pods of job `j`, on `node` or pending without one, and delete surplus ones."""
        for pod in self.api.all(PODS):
            if self.suspended() or "deletionTimestamp" in pod["metadata"]:
                self.api.erase(PODS, pod["metadata"]["name"])
        present = {pod["metadata"]["name"] for pod in self.api.all(PODS)}
        metadata = self.api.get_object(JOBS, "j")["spec"]["template"].get("metadata", {})
        for index in range(0 if self.suspended() else count):
            if f"j-{index}" not in present:
                body = {"metadata": {"name": f"j-{index}", **copy.deepcopy(metadata)}}
                status = {"phase": "Running" if node else "Pending"}
                self.api.apply(PODS, {**body, "spec": {"nodeName": node} if node else {}, "status": status})

    def evict(self, *indexes: int, reason: str = "PreemptionByScheduler") -> None:
        """The condition first, then the deletion, as the scheduler does."""
        told = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        gone = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
        for index in indexes:
            self.api.update(PODS, f"j-{index}", lambda pod: pod["status"].update(conditions=[told]))
        for index in indexes:
            self.api.update(PODS, f"j-{index}", lambda pod: pod["metadata"].update(gone))

    def suspended(self, name: str = "j", collection: str = JOBS) -> bool:
        return bool(self.api.get_object(collection, name)["spec"]["suspend"])

    def groups(self) -> list[str]:
        return [group["metadata"]["name"] for group in self.api.all(GROUPS)]


async def test_suspended_job_waits_for_its_queue_and_is_admitted_as_a_gang() -> None:
    world = SuspendedWorld()
    world.admits = False
    world.job()
    await world.settle()
    assert world.suspended()
    (group,) = world.api.all(GROUPS)
    assert group["metadata"]["name"] == "job-j-01234567-1"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert group["spec"] == {
        "minMember": 4,
        "queue": "research",
        "minResources": {
            "cpu": "4",
            "requests.cpu": "4",
            "nvidia.com/gpu": "4",
            "requests.nvidia.com/gpu": "4",
            "pods": "4",
            "count/pods": "4",
        },
    }
    world.admits = True
    await world.settle()
    assert not world.suspended()
    job = world.api.get_object(JOBS, "j")
    notes = job["spec"]["template"]["metadata"]["annotations"]
    assert notes == {"scheduling.k8s.io/group-name": "job-j-01234567-1"}
    assert ("j", "Resumed", "admitted to queue research") in world.api.events


async def test_nothing_is_written_while_it_waits_or_runs() -> None:
    world = SuspendedWorld()
    world.admits = False
    world.job()
    await world.settle()
    waiting = len(world.api.writes)
    await world.settle()
    assert len(world.api.writes) == waiting
    world.admits = True
    await world.settle()
    running = len(world.api.writes)
    await world.settle()
    assert len(world.api.writes) == running


async def test_job_without_a_queue_is_not_managed() -> None:
    world = SuspendedWorld()
    world.job()
    world.api.update(JOBS, "j", lambda job: job["metadata"].pop("labels"))
    await world.settle()
    assert world.suspended()
    assert world.groups() == []


async def test_pods_that_take_work_from_a_queue_need_room_together_and_start_one_by_one() -> None:
    world = SuspendedWorld()
    world.admits = False
    world.job(completionMode="NonIndexed", completions=100)
    await world.settle()
    (group,) = world.api.all(GROUPS)
    assert group["spec"]["minMember"] == 1
    assert group["spec"]["minResources"]["cpu"] == "4"


async def test_job_set_waits_for_room_for_its_first_stage_and_later_stages_join_its_gang() -> None:
    """The scheduler excludes pods that are created later (tests/workloads/test_staged_groups.py)."""
    world = SuspendedWorld()
    sets: list[Json] = [
        {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": template()}}},
        {
            "name": "b",
            "template": {"spec": {"template": template()}},
            "dependsOn": [{"name": "a", "status": "Ready"}],
        },
    ]
    metadata = {"name": "s", "labels": {"phalanx.dev/queue": "q"}}
    world.api.apply(JOB_SETS, {"metadata": metadata, "spec": {"suspend": True, "replicatedJobs": sets}})
    await world.settle()
    (group,) = world.api.all(GROUPS)
    assert group["spec"]["minMember"] == 7
    assert group["spec"]["minResources"]["cpu"] == "6"
    spec = world.api.get_object(JOB_SETS, "s")["spec"]
    assert spec["suspend"] is False
    for each in spec["replicatedJobs"]:
        notes = each["template"]["spec"]["template"]["metadata"]["annotations"]
        assert notes == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}


async def test_operator_job_with_its_own_suspend_field_is_admitted() -> None:
    world = SuspendedWorld()
    replicas = {
        "Master": {"replicas": 1, "template": template()},
        "Worker": {"replicas": 3, "template": template()},
    }
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": replicas}
    world.api.apply(PYTORCH, {"metadata": {"name": "p", "labels": {"phalanx.dev/queue": "q"}}, "spec": spec})
    await world.settle()
    job = world.api.get_object(PYTORCH, "p")
    assert job["spec"]["runPolicy"]["suspend"] is False
    assert world.api.all(GROUPS)[0]["spec"]["minMember"] == 4


async def test_a_jax_job() -> None:
    world = SuspendedWorld()
    spec = {"runPolicy": {"suspend": True}, "jaxReplicaSpecs": {"Worker": {"replicas": 3, "template": template()}}}
    collection = "kubeflow.org/v1/jaxjobs"
    world.api.apply(collection, {"metadata": {"name": "x", "labels": {"phalanx.dev/queue": "q"}}, "spec": spec})
    await world.settle()
    assert world.api.get_object(collection, "x")["spec"]["runPolicy"]["suspend"] is False
    assert world.api.all(GROUPS)[0]["spec"]["minMember"] == 3


def train_job(world: SuspendedWorld, **labels: str) -> None:
    """The user's object, and the suspended JobSet that the trainer makes of it."""
    queue = {"labels": {"phalanx.dev/queue": "q"}}
    world.api.apply(TRAIN_JOBS, {"metadata": {"name": "t", "uid": "uid-t", **queue}, "spec": {"suspend": True}})
    node = {"name": "node", "template": {"spec": {"parallelism": 3, "template": template()}}}
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": "t",
        "uid": "uid-t",
        "controller": True,
    }
    metadata = {"name": "t", "labels": labels, "ownerReferences": [owner]}
    world.api.apply(JOB_SETS, {"metadata": metadata, "spec": {"suspend": True, "replicatedJobs": [node]}})


async def test_a_train_job_declares_its_pods_in_the_job_set_that_is_made_of_it() -> None:
    world = SuspendedWorld()
    train_job(world)
    await world.settle()
    (group,) = world.api.all(GROUPS)
    assert group["spec"]["minMember"] == 3
    assert group["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    assert not world.suspended("t", TRAIN_JOBS)
    (node,) = world.api.get_object(JOB_SETS, "t")["spec"]["replicatedJobs"]
    notes = node["template"]["spec"]["template"]["metadata"]["annotations"]
    assert notes == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
    assert world.suspended("t", JOB_SETS), "the trainer resumes it"
    changed = [path.rpartition("/")[2] for verb, path in world.api.writes if verb == "replace"]
    assert len(changed) == 2
    assert world.api.writes[-2][1].endswith("jobsets/t"), "pods never come without their group"


async def test_a_train_job_waits_until_its_job_set_is_there() -> None:
    world = SuspendedWorld()
    train_job(world)
    world.api.erase(JOB_SETS, "t")
    await world.settle()
    assert world.groups() == []
    assert world.api.writes == []
    train_job(world)
    await world.settle()
    assert not world.suspended("t", TRAIN_JOBS)


async def test_the_job_set_of_a_train_job_is_not_resumed_for_itself() -> None:
    world = SuspendedWorld()
    train_job(world, **{"phalanx.dev/queue": "q"})
    world.api.erase(TRAIN_JOBS, "t")
    await world.settle()
    assert world.suspended("t", JOB_SETS)
    said = "it belongs to TrainJob t: set the label phalanx.dev/queue on that object"
    assert world.api.events == [("t", "NotQueued", said)]


async def test_a_kind_is_handled_in_the_version_that_is_served() -> None:
    world = SuspendedWorld()
    spec = {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": {"Worker": {"replicas": 2, "template": template()}}}
    collection = "kubeflow.org/v1/mpijobs"
    world.api.apply(collection, {"metadata": {"name": "m", "labels": {"phalanx.dev/queue": "q"}}, "spec": spec})
    await world.settle()
    assert world.api.get_object(collection, "m")["spec"]["runPolicy"]["suspend"] is False
    (group,) = world.api.all(GROUPS)
    assert group["metadata"]["ownerReferences"][0]["apiVersion"] == "kubeflow.org/v1"


async def test_a_job_that_is_suspended_again_waits_again_in_a_group_of_its_own() -> None:
    world = SuspendedWorld()
    world.job()
    await world.settle()
    world.admits = False
    world.api.update(JOBS, "j", lambda job: job["spec"].update(suspend=True))
    await world.settle()
    assert world.suspended()
    assert world.groups() == ["job-j-01234567-2"]
    world.admits = True
    await world.settle()
    assert not world.suspended()
    notes = world.api.get_object(JOBS, "j")["spec"]["template"]["metadata"]["annotations"]
    assert notes["scheduling.k8s.io/group-name"] == "job-j-01234567-2"


async def test_a_job_on_hold_stays_and_takes_no_room() -> None:
    world = SuspendedWorld()
    world.job()
    world.admits = False
    await world.settle()
    world.api.update(JOBS, "j", lambda job: job["metadata"].update(annotations={"phalanx.dev/hold": "true"}))
    await world.settle()
    world.admits = True
    await world.settle()
    assert world.suspended()
    assert world.groups() == []


async def test_a_job_that_leaves_the_queue_takes_no_room_there() -> None:
    world = SuspendedWorld()
    world.admits = False
    world.job()
    await world.settle()
    world.api.update(JOBS, "j", lambda job: job["metadata"].update(labels={}))
    await world.settle()
    assert world.groups() == []
    assert world.suspended()


async def test_the_group_follows_a_job_that_changes_while_it_waits() -> None:
    world = SuspendedWorld()
    world.admits = False
    world.job()
    await world.settle()
    world.api.update(JOBS, "j", lambda job: job["spec"].update(parallelism=2, completions=2))
    await world.settle()
    (group,) = world.api.all(GROUPS)
    assert group["spec"]["minMember"] == 2
    assert group["spec"]["minResources"]["cpu"] == "2"


async def test_job_with_pods_of_another_scheduler_is_not_queued_and_gets_a_message() -> None:
    world = SuspendedWorld()
    world.job(pod=template(scheduler=""))
    await world.settle()
    assert world.suspended()
    assert world.groups() == []
    said = "its pods have schedulerName default-scheduler; set schedulerName: phalanx in every pod template"
    assert world.api.events == [("j", "NotQueued", said)]


async def test_a_scheduler_of_several_names_queues_the_pods_of_all() -> None:
    world = SuspendedWorld("phalanx", "batch")
    world.job("first", pod=template())
    world.job("second", pod=template(scheduler="batch"))
    world.job("third", pod=template(scheduler="theirs"))
    await world.settle()
    assert world.groups() == ["job-first-01234567-1", "job-second-01234567-1"]
    said = "its pods have schedulerName theirs; set schedulerName: phalanx or batch in every pod template"
    assert ("third", "NotQueued", said) in world.api.events


async def test_quota_comes_first_and_the_older_job_before_the_younger() -> None:
    world = SuspendedWorld()
    world.quotas.set("team", {"requests.cpu": "3"})
    world.job("older", at=1)
    world.job("younger", 2, at=2)
    await world.settle()
    assert world.groups() == ["job-younger-01234567-1"], "the older one could never have room"
    world.quotas.set("team", {"requests.cpu": "4"})
    world.api.update(JOBS, "younger", lambda job: job["spec"].update(suspend=True))
    await world.settle()
    assert not world.suspended("older")
    (said,) = {note for name, reason, note in world.api.events if (name, reason) == ("older", "QuotaExceeded")}
    assert said == "quota team lacks 1 requests.cpu: 4 new pods request 4, 3 left (limit 3)"


async def test_job_whose_gang_is_evicted_waits_in_its_queue_again() -> None:
    world = SuspendedWorld()
    world.job()
    await world.settle()
    world.make_pods()
    await world.settle()
    world.admits = False
    world.evict(0, 1, 2, 3)
    await world.settle()
    assert world.suspended()
    assert world.groups() == ["job-j-01234567-2"]
    assert ("j", "Requeued", "its gang was evicted: it is requeued in queue research") in world.api.events
    world.make_pods()
    world.admits = True
    await world.settle()
    assert not world.suspended()
    writes = len(world.api.writes)
    world.make_pods()
    await world.settle()
    assert len(world.api.writes) == writes


async def test_an_eviction_wakes_the_controller() -> None:
    world = SuspendedWorld()
    world.job()
    await world.settle()
    world.make_pods()
    running = asyncio.create_task(world.controller.run(1))
    try:
        while world.controller.waiting():
            world.api.deliver(world.controller)
            await asyncio.sleep(0)
        world.evict(0, 1, 2, 3)
        async with asyncio.timeout(30):
            while not world.suspended():
                world.api.deliver(world.controller)
                await asyncio.sleep(0)
    finally:
        running.cancel()


async def test_a_gang_that_has_lost_one_member_too_many_waits_as_a_whole() -> None:
    world = SuspendedWorld()
    world.job()
    await world.settle()
    world.make_pods()
    world.admits = False
    world.evict(3)
    await world.settle()
    assert world.suspended()


async def test_replacements_without_a_node_do_not_keep_an_evicted_job_running() -> None:
    world = SuspendedWorld()
    world.job(completionMode="NonIndexed")
    world.api.update(JOBS, "j", lambda job: job["metadata"].update(annotations={"phalanx.dev/min-count": "2"}))
    await world.settle()
    world.make_pods()
    await world.settle()
    minimum = world.api.all(GROUPS)[0]["spec"]["minMember"]
    world.admits = False
    for index in range(4):
        assert not world.suspended()
        world.evict(index)
        await world.settle()
        if 3 - index < minimum:
            break
        world.make_pods(node="")
    assert world.suspended()


@pytest.mark.parametrize("lost", [(1, 2), (0, 1, 2)], ids=str)
async def test_independent_pods_are_replaced_while_one_remains(lost: tuple[int, ...]) -> None:
    world = SuspendedWorld()
    world.job(completionMode="NonIndexed")
    await world.settle()
    world.make_pods()
    world.evict(*lost)
    await world.settle()
    assert not world.suspended()
    world.admits = False
    world.evict(3, *{0, 1, 2}.difference(lost))
    await world.settle()
    assert world.suspended()


async def test_pods_that_finish_fail_or_are_drained_suspend_nothing() -> None:
    world = SuspendedWorld()
    world.job()
    await world.settle()
    world.make_pods()
    world.evict(0, 1, reason="EvictionByEvictionAPI")
    world.api.update(PODS, "j-2", lambda pod: pod.update(status={"phase": "Failed"}))
    world.api.update(PODS, "j-3", lambda pod: pod.update(status={"phase": "Succeeded"}))
    await world.settle()
    assert not world.suspended()


async def test_a_job_that_was_never_in_the_queue_or_has_left_it_is_not_suspended() -> None:
    world = SuspendedWorld()
    world.job("other", suspend=False)
    world.job()
    await world.settle()
    world.api.update(JOBS, "j", lambda job: job["metadata"].update(labels={}))
    world.make_pods()
    world.evict(0, 1, 2, 3)
    await world.settle()
    assert not world.suspended()
    assert not world.suspended("other")


Story = Callable[[SuspendedWorld], Awaitable[None]]


async def goes(world: SuspendedWorld) -> None:
    world.job()
    await world.settle()


async def comes_back(world: SuspendedWorld) -> None:
    await goes(world)
    world.api.update(JOBS, "j", lambda job: job["spec"].update(suspend=True))
    await world.settle()


async def is_evicted(world: SuspendedWorld) -> None:
    await goes(world)
    world.make_pods()
    await world.settle()
    world.evict(0, 1, 2, 3)
    await world.settle()
    world.make_pods()
    await world.settle()


async def trains(world: SuspendedWorld) -> None:
    train_job(world)
    await world.settle()


async def test_no_death_changes_the_end_of_a_train_job() -> None:
    for number in range(1, 4):
        for applied in (False, True):
            world = SuspendedWorld()
            world.api.dies_at = (number, applied)
            await trains(world)
            assert world.deaths == 1
            assert not world.suspended("t", TRAIN_JOBS)
            (node,) = world.api.get_object(JOB_SETS, "t")["spec"]["replicatedJobs"]
            notes = node["template"]["spec"]["template"]["metadata"]["annotations"]
            assert [notes["scheduling.k8s.io/group-name"]] == world.groups()


@pytest.mark.parametrize("story", [goes, comes_back, is_evicted])
async def test_no_death_changes_the_end(story: Story) -> None:
    undisturbed = SuspendedWorld()
    await story(undisturbed)
    writes = len(undisturbed.api.writes)
    for number in range(1, writes + 1):
        for applied in (False, True):
            world = SuspendedWorld()
            world.api.dies_at = (number, applied)
            await story(world)
            assert world.deaths == 1
            assert not world.suspended()
            assert world.groups() == undisturbed.groups()
            assert world.api.get_object(JOBS, "j")["spec"] == undisturbed.api.get_object(JOBS, "j")["spec"]
