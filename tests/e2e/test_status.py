"""Status of a group's own object through its life, in the terms of its dialect.

The rules: docs/rules/coscheduling.md, 2.3; docs/rules/volcano.md, 1.1.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, Object, World, condition

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("whosever_definitions"),
]

X_K8S = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
SIGS = Resource("scheduling.sigs.k8s.io", "v1alpha1", "podgroups", "PodGroup")
INCUBATOR = Resource("scheduling.incubator.k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
NATIVE = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
D5 = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
D4 = {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}
D1 = {"annotations": {"scheduling.k8s.io/group-name": "g"}}


def group(resource: Resource, **spec: Any) -> Object:
    body = spec or {"minMember": 2}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "g"},
        "spec": body,
    }


async def test_a_coscheduling_group_from_pending_to_finished(world: World) -> None:
    scheduler = await world.scheduler()
    await world.make(group(X_K8S))
    await world.until_status(X_K8S, "g", phase="Pending")
    await world.pods("a", "b", owner="job-1", **D5)
    await world.until_status(X_K8S, "g", phase="Scheduling", occupiedBy=f"{world.name}/job-1")
    await world.node("n1")
    await world.until_bound("a", "b")
    await world.phase("Running", "a")
    await world.until_status(X_K8S, "g", phase="Scheduling", running=1)
    await world.phase("Running", "b")
    await world.until_status(X_K8S, "g", phase="Running", running=2)
    await world.phase("Succeeded", "a")
    await world.until_status(X_K8S, "g", phase="Running", running=1, succeeded=1)
    await world.phase("Succeeded", "b")
    await world.until_status(X_K8S, "g", phase="Finished", running=0, succeeded=2)
    await world.delete(PODS, "a", "b")
    await world.settled(scheduler, quiet=0.3)
    assert (await world.get(X_K8S, "g"))["status"]["phase"] == "Finished"


async def test_a_coscheduling_group_that_fails_is_lifted_by_a_replacement(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.make(group(X_K8S))
    await world.pods("a", "b", **D5)
    await world.until_bound("a", "b")
    await world.phase("Running", "a")
    await world.phase("Failed", "b")
    await world.until_status(X_K8S, "g", phase="Failed", running=1, failed=1)
    await world.pod("c", **D5)
    await world.until_bound("c")
    await world.phase("Running", "c")
    await world.until_status(X_K8S, "g", phase="Running", running=2, failed=1)


async def test_the_older_group_has_more_phases(world: World) -> None:
    await world.scheduler()
    await world.make(group(SIGS))
    await world.until_status(SIGS, "g", phase="Pending")
    await world.pods("a", "b", **D4)
    await world.until_status(SIGS, "g", phase="PreScheduling")
    await world.node("n1")
    await world.until_bound("a", "b")
    status = await world.until_status(SIGS, "g", phase="Scheduled", scheduled=2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["scheduleStartTime"])
    await world.phase("Running", "a", "b")
    await world.until_status(SIGS, "g", phase="Running", running=2)
    await world.phase("Succeeded", "a", "b")
    await world.until_status(SIGS, "g", phase="Finished", succeeded=2)


async def test_a_kube_batch_group_says_why_it_waits_and_that_it_runs(world: World) -> None:
    await world.node("n1", cpu="1")
    await world.scheduler()
    await world.make(group(INCUBATOR))
    await world.pods("a", "b", **D1)
    await world.until_held("a", "b")

    async def unschedulable() -> Object:
        return condition(await world.get(INCUBATOR, "g"), "Unschedulable")

    said = await world.until(unschedulable, "the group says why it waits")
    assert (said["status"], said["reason"]) == ("True", "NotEnoughResources")
    assert "1 of the 2 required pods" in said["message"]
    await world.node("n2")
    await world.until_bound("a", "b")
    await world.until_status(INCUBATOR, "g", phase="Running")

    async def withdrawn() -> bool:
        return bool((await unschedulable())["status"] == "False")

    await world.until(withdrawn, "the reason is withdrawn")
    await world.phase("Running", "a", "b")
    await world.until_status(INCUBATOR, "g", phase="Running", running=2)
    await world.phase("Succeeded", "a")
    await world.until_status(INCUBATOR, "g", phase="Running", running=1, succeeded=1)
    await world.delete(PODS, "a", "b")
    await world.until_status(INCUBATOR, "g", phase="Pending", running=0, succeeded=0)


async def test_a_kube_batch_group_that_lost_its_quorum_is_unknown(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.make(group(INCUBATOR, minMember=2))
    await world.pods("a", "b", **D1)
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.delete(PODS, "b")
    await world.pod("c", cpu="2", **D1)
    await world.until_held("c")
    await world.until_status(INCUBATOR, "g", phase="Unknown", running=1)


async def test_a_volcano_group_from_pending_to_completed(world: World) -> None:
    await world.scheduler()
    await world.make(group(VOLCANO, minMember=2, minResources={"cpu": "2"}))
    await world.pods("a", "b", **D1)
    await world.until_event("AwaitingAdmission", "a")
    await world.until_event("Unschedulable", "g", "minResources request 2 cpu")
    await world.node("n1", cpu="2")
    await world.until_bound("a", "b")
    status = await world.until_status(VOLCANO, "g", phase="Running")
    assert condition({"status": status}, "Scheduled")["status"] == "True"
    await world.phase("Running", "a", "b")
    await world.until_status(VOLCANO, "g", phase="Running", running=2)
    await world.phase("Succeeded", "a", "b")
    await world.until_status(VOLCANO, "g", phase="Completed", succeeded=2)


async def test_volcano_group_whose_queue_is_missing_reports_it_before_it_has_pods(world: World) -> None:
    await world.scheduler()
    await world.make(group(VOLCANO, minMember=2, queue="absent"))
    event = await world.until_event("Unschedulable", "g", "g cannot start: queue absent does not exist")

    async def told() -> Object:
        return condition(await world.get(VOLCANO, "g"), "Unschedulable")

    condition_told = await world.until(told, "the group has the condition")
    assert condition_told["status"] == "True"
    assert event["note"] == f"{condition_told['message']}. To fix: create the queue, or name one that exists."
    await world.until_status(VOLCANO, "g", phase="Pending")


async def test_a_native_group_says_once_that_it_was_scheduled(world: World) -> None:
    await world.node("n1", cpu="1")
    await world.scheduler()
    await world.make(group(NATIVE, schedulingPolicy={"gang": {"minCount": 2}}))
    await world.pods("a", "b", schedulingGroup={"podGroupName": "g"})

    async def scheduled() -> Object:
        return condition(await world.get(NATIVE, "g"), "PodGroupScheduled")

    said = await world.until(scheduled, "the group says why it waits")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    await world.node("n2")
    await world.until_bound("a", "b")

    async def done() -> bool:
        return bool((await scheduled())["status"] == "True")

    await world.until(done, "the group says that it was scheduled")
    await world.delete(PODS, "a", "b")
    await asyncio.sleep(0.3)
    assert (await scheduled())["status"] == "True"


async def test_a_gang_that_was_satisfied_once_starts_whole_when_it_runs_again(world: World) -> None:
    """The group does not record the past run: it ended with its last member, also while no scheduler ran."""
    await world.node("n1")
    first = await world.scheduler()
    await world.make(group(SIGS, minMember=2))
    await world.pods("a", "b", **D4)
    await world.until_bound("a", "b")
    await first.kill()
    await world.delete(PODS, "a", "b")
    await world.scheduler()
    await world.pod("c", **D4)
    await world.until_held("c", words="1 of the 2 required pods")
    await world.pod("d", **D4)
    await world.until_bound("c", "d")
    assert not (await world.get(SIGS, "g"))["metadata"].get("annotations")


async def test_status_that_another_client_overwrites_is_corrected(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    await world.make(group(X_K8S))
    await world.pods("a", "b", **D5)
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.until_status(X_K8S, "g", phase="Running")
    await world.settled(scheduler, quiet=0.3)
    await world.patch(X_K8S, "g", {"status": {"phase": "Pending", "running": 7}}, status=True)
    await world.until_status(X_K8S, "g", phase="Running", running=2)


async def test_groups_of_other_schedulers_are_not_written_to(world: World) -> None:
    scheduler = await world.scheduler()
    await world.make(group(X_K8S))
    await world.pods("a", "b", scheduler="default-scheduler", **D5)
    await world.settled(scheduler, quiet=0.4)
    before = scheduler.wire.count()
    await world.phase("Running", "a", "b")
    await world.settled(scheduler, quiet=0.4)
    assert scheduler.wire.count() == before


async def test_a_gang_with_a_problem_says_it_in_its_status(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.make(group(NATIVE, schedulingPolicy={"gang": {"minCount": 2}}))
    await world.pod("a", schedulingGroup={"podGroupName": "g"})
    await world.pod("b", schedulingGroup={"podGroupName": "g"}, scheduler="default-scheduler")
    await world.until_event("SchedulerNameMismatch", "b")

    async def told() -> bool:
        said = condition(await world.get(NATIVE, "g"), "PodGroupScheduled")
        return said.get("status") == "False" and said.get("reason") == "SchedulerError"

    await world.until(told, "the group says that its members disagree")


async def test_kubectl_shows_the_columns_of_a_group(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.make(group(X_K8S))
    await world.pods("a", "b", **D5)
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.until_status(X_K8S, "g", phase="Running", running=2)
    child = await asyncio.create_subprocess_exec(
        "kubectl",
        "--kubeconfig",
        str(world.cluster.kubeconfig),
        "get",
        "podgroups.scheduling.x-k8s.io",
        "-n",
        world.name,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()
    header, row = output.decode().splitlines()
    assert header.split() == ["NAME", "PHASE", "MINMEMBER", "RUNNING", "SUCCEEDED", "FAILED", "AGE"]
    assert row.split()[:4] == ["g", "Running", "2", "2"]
