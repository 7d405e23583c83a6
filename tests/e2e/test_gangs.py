"""Gangs through their lives: roles, gang groups, match policies, edits, surplus, gates, and the cluster around
them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from phalanx.dialects.gangs.plan_marks import PLAN_ANNOTATION
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import DEFINITIONS, NODES, PODS, World, condition, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
D5 = "scheduling.x-k8s.io/pod-group"
KO = "gang.scheduling.koordinator.sh"


def group(name: str = "g", resource: Resource = GROUPS, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": resource.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec or {"minMember": 3},
    }


def labelled(minimum: int, name: str = "g", policy: str = "") -> dict[str, str]:
    prefix = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{prefix}/name": name, f"{prefix}/min-available": str(minimum)}
    return labels | ({f"{prefix}/match-policy": policy} if policy else {})


async def test_gang_that_does_not_fit_binds_no_pod_and_blocks_no_other_pod(world: World) -> None:
    await world.node("n1", cpu="4")
    await world.scheduler()
    await world.pods("big-0", "big-1", "big-2", labels=labelled(3, "big"), cpu="2")
    said = await world.until_held("big-0", "big-1", "big-2", words="2 of the 3 required pods")
    assert "Insufficient cpu" in said["message"]
    assert "To fix: add 2 cpu" in said["message"]
    await world.pods("small-0", "small-1", labels=labelled(2, "small"), cpu="2")
    await world.until_bound("small-0", "small-1")
    await world.node("n2", cpu="6")
    await world.until_bound("big-0", "big-1", "big-2")


async def test_members_of_a_gang_give_one_reason(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.pods("a", "b", "c", labels=labelled(3))
    await world.until_held("a", "b", "c", words="2 of the 3")
    assert len({condition(item, "PodScheduled")["message"] for item in await world.list(PODS)}) == 1
    await world.until_event("FailedScheduling", "a", "2 of the 3 required pods")


@pytest.mark.parametrize("minimum", [3, 1], ids=["minima-sum-to-the-minimum", "minima-above-the-minimum"])
async def test_each_role_has_a_minimum_of_its_own(world: World, minimum: int) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.make(group("g", VOLCANO, minMember=minimum, minTaskMember={"ps": 1, "worker": 2}))

    def member(role: str) -> dict[str, dict[str, str]]:
        return {"annotations": {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": role}}

    await world.pods("w-0", "w-1", "w-2", **member("worker"))
    await world.until_held("w-0", "w-1", "w-2", words="0 of the 1 required pod of role ps")
    await world.pod("ps-0", **member("ps"))
    await world.until_bound("w-0", "w-1", "w-2", "ps-0")


async def test_gangs_of_a_gang_group_start_together_over_two_namespaces(world: World, tmp_path: Path) -> None:
    """The administrator allows gang groups over these namespaces."""
    other = f"{world.name}-b"
    await world.open(other)
    world.namespace = world.name
    gang_group = json.dumps([f"{world.name}/ps", f"{other}/workers"])

    def member(name: str, minimum: int) -> dict[str, str]:
        return {f"{KO}/name": name, f"{KO}/min-available": str(minimum), f"{KO}/groups": gang_group}

    await world.node("n1", cpu="2")
    policy = tmp_path / "policy.yaml"
    allowed = {"dialects": {"gangGroupNamespaces": [[world.name, other]]}}
    policy.write_text(f'actions: "allocate"\ntiers: []\nphalanx: {json.dumps(allowed)}\n')
    await world.scheduler(config=str(policy))
    await world.pod("ps", annotations=member("ps", 1))
    await world.until_held("ps", words="no pod or object declares it")
    for name in ("w-0", "w-1"):
        await world.pod(name, annotations=member("workers", 2), namespace=other)
    await world.until_held("ps", words=f"waits for gang {other}/workers")
    await world.node("n2", cpu="1")
    await world.until_bound("ps")
    world.namespace = other
    await world.until_bound("w-0", "w-1")


@pytest.mark.parametrize("spelling", ["label", "annotation"])
@pytest.mark.parametrize(
    ("policy", "running", "succeeded", "starts"),
    [
        ("only-waiting", 2, 0, False),
        ("waiting-and-running", 2, 0, True),
        ("waiting-and-running", 1, 1, False),
        ("waiting-running-succeed", 1, 1, True),
        ("once-satisfied", 1, 1, True),
        ("once-satisfied", 0, 2, False),  # no pod of the run remains: the next run starts whole
    ],
)
async def test_a_replacement_is_judged_by_the_match_policy(
    world: World, policy: str, running: int, succeeded: int, starts: bool, spelling: str
) -> None:
    await world.node("n1")
    await world.scheduler()
    if spelling == "label":
        what = {"labels": labelled(3, policy=policy)}
    else:
        notes = {f"{KO}/name": "g", f"{KO}/min-available": "3", f"{KO}/match-policy": policy}
        what = {"annotations": notes}
    names = ["a", "b", "c"]
    await world.pods(*names, **what)
    await world.until_bound(*names)
    await world.phase("Running", *names[:running])
    await world.phase("Succeeded", *names[running : running + succeeded])
    await world.delete(PODS, "c")
    await world.pod("d", **what)
    if starts:
        await world.until_bound("d")
    else:
        await world.until_held("d")


async def test_a_gang_of_only_waiting_restarts_as_a_whole(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.pods("a", "b", labels=labelled(2, policy="only-waiting"))
    await world.until_bound("a", "b")
    await world.delete(PODS, "a")
    await world.pod("a2", labels=labelled(2, policy="only-waiting"))
    await world.until_held("a2", words="1 of the 2 required pods")
    await world.delete(PODS, "b")
    await world.pod("b2", labels=labelled(2, policy="only-waiting"))
    await world.until_bound("a2", "b2")


async def test_lowered_minimum_lets_the_gang_start(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.make(group(minMember=3))
    await world.pods("a", "b", "c", labels={D5: "g"})
    await world.until_held("a", "b", "c")
    await world.patch(GROUPS, "g", {"spec": {"minMember": 2}})
    await world.until_bound("a", "b")
    assert (await world.until_held("c", words="Insufficient cpu"))["reason"] == "Unschedulable"


async def test_raised_minimum_holds_waiting_pods_and_spares_running_ones(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.make(group(minMember=2))
    await world.pods("a", "b", labels={D5: "g"})
    await world.until_bound("a", "b")
    await world.patch(GROUPS, "g", {"spec": {"minMember": 5}})
    await world.pod("c", labels={D5: "g"})
    await world.until_held("c", words="3 of the 5 required pods")
    assert (await world.placement())["a"] == "n1"


async def test_deleted_group_holds_waiting_pods_and_spares_running_ones(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    await world.make(group(minMember=2))
    await world.pods("a", "b", labels={D5: "g"})
    await world.until_bound("a", "b")
    await world.pods("c", "d", labels={D5: "g"})
    await world.until_held("c", "d", words="Insufficient cpu")
    await world.delete(GROUPS, "g")
    await world.until_held("c", "d", words="PodGroup .*/g not found")
    await world.node("n2")
    await world.make(group(minMember=2))
    await world.until_bound("c", "d")


async def test_a_group_that_is_deleted_before_its_gang_fits_holds_it(world: World) -> None:
    await world.scheduler()
    await world.make(group(minMember=2))
    await world.pods("a", "b", labels={D5: "g"})
    await world.until_held("a", "b", words="the cluster has no nodes")
    await world.delete(GROUPS, "g")
    await world.until_held("a", "b", words="not found")
    await world.node("n1")
    await world.until_held("a", "b", words="not found")


async def test_members_above_the_minimum_start_if_there_is_room(world: World) -> None:
    await world.node("n1", cpu="3")
    await world.scheduler()
    names = ["a", "b", "c", "d", "e"]
    await world.pods(*names, labels=labelled(2))
    await world.until_bound("a", "b", "c")
    await world.until_held("d", "e", words="Insufficient cpu")
    await world.delete(PODS, "b")
    await world.until_bound("d")


async def test_a_kind_that_is_installed_while_the_scheduler_runs_is_read(world: World) -> None:
    resource = Resource("scheduling.sigs.dev", "v1alpha2", "podgroups", "PodGroup")
    definition = await world.client.get(DEFINITIONS.path(None, "podgroups.scheduling.sigs.dev"))
    await world.client.delete(DEFINITIONS.path(None, "podgroups.scheduling.sigs.dev"))

    async def is_served() -> bool:
        with contextlib.suppress(ApiError):
            return bool(await world.client.get(resource.path(world.namespace)))
        return False

    async def is_gone() -> bool:
        return not await is_served()

    await world.until(is_gone, "the kind is no longer served")
    await world.node("n1")
    await world.scheduler()
    await world.pods("a", "b", annotations={"scheduling.k8s.io/group-name": "g"})
    await world.until_held("a", "b", words="not found")
    metadata = {key: definition["metadata"][key] for key in ("name", "labels")}
    document = {**definition, "metadata": metadata, "status": {}}
    await world.client.create(DEFINITIONS.path(), document)
    await world.until(is_served, "the kind is served")
    await world.make(group("g", resource, minMember=2))
    await world.until_bound("a", "b")


async def test_gated_members_wait_for_their_gates_and_are_left_alone(world: World) -> None:
    await world.node("n1")
    scheduler = await world.scheduler()
    gates = [{"name": "example.com/hold"}]
    await world.pods("a", "b", labels=labelled(3))
    await world.pod("c", labels=labelled(3), schedulingGates=gates)
    await world.until_held("a", "b", words=r"only 2 of the 3 required pods of gang .* exist \(not counted: 1 gated")
    await world.settled(scheduler, quiet=0.3)
    gated = condition(await world.get(PODS, "c"), "PodScheduled")
    assert gated["reason"] == "SchedulingGated"
    assert not scheduler.wire.count(lambda write: "/pods/c/" in write)
    await world.patch(PODS, "c", {"spec": {"schedulingGates": None}})
    await world.until_bound("a", "b", "c")


async def test_group_admitted_by_kueue_starts_when_its_last_gate_is_removed(world: World) -> None:
    """Kueue's controller takes the gates away one by one."""
    await world.node("n1")
    scheduler = await world.scheduler()
    member = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "train", "kueue.x-k8s.io/queue-name": "team"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
    }
    await world.pods("a", "b", "c", **member)
    for name in ("a", "b"):
        await world.patch(PODS, name, {"spec": {"schedulingGates": None}})
    await world.until_held("a", "b", words=r"only 2 of the 3 required pods of gang .* exist \(not counted: 1 gated")
    await world.settled(scheduler, quiet=0.3)
    await world.patch(PODS, "c", {"spec": {"schedulingGates": None}})
    await world.until_bound("a", "b", "c")


async def test_pods_of_other_schedulers_take_room_and_are_not_touched(world: World) -> None:
    node = await world.node("n1", cpu="3")
    scheduler = await world.scheduler()
    theirs = pod("theirs", scheduler="default-scheduler", cpu="2")
    theirs["spec"]["nodeName"] = node["metadata"]["name"]
    await world.make(theirs)
    await world.pod("waits", scheduler="default-scheduler")
    await world.pods("a", "b", labels=labelled(2))
    await world.until_held("a", "b", words="1 of the 2 required pods")
    await world.delete(PODS, "theirs")
    await world.until_bound("a", "b")
    await world.settled(scheduler, quiet=0.3)
    assert not scheduler.wire.count(lambda write: "/pods/waits" in write)
    assert (await world.placement())["waits"] == ""


async def test_a_foreign_member_is_explained(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.pod("theirs", scheduler="default-scheduler", labels=labelled(2))
    await world.pod("ours", labels=labelled(2))
    await world.until_held("ours", words="1 with another schedulerName")


async def test_terminating_pods_occupy_their_room_until_they_end(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler()
    leaving = pod("leaving", cpu="2")
    leaving["metadata"]["finalizers"] = ["example.com/wait"]
    await world.make(leaving)
    await world.until_bound("leaving")
    await world.client.delete(PODS.path(world.namespace, "leaving"), grace_seconds=0)
    await world.pods("a", "b", labels=labelled(2))
    await world.until_held("a", "b")
    await world.patch(PODS, "leaving", {"metadata": {"finalizers": None}})
    await world.until_bound("a", "b")


async def test_nodes_that_are_closed_opened_added_and_removed(world: World) -> None:
    await world.node("n1")
    await world.patch_node("n1", {"spec": {"unschedulable": True}})
    await world.scheduler()
    await world.pods("a", "b", labels=labelled(2))
    await world.until_held("a", "b", words=r"1 node\(s\) were unschedulable.*uncordon")
    await world.patch_node("n1", {"spec": {"unschedulable": None, "taints": [_taint()]}})
    await world.until_held("a", "b", words="untolerated taint .*example.com/busy")
    await world.patch_node("n1", {"spec": {"taints": None}})
    await world.until_bound("a", "b")
    await world.pod("c", cpu="7")
    await world.until_held("c", words="Insufficient cpu")
    await world.node("n2")
    assert (await world.until_bound("c"))["c"] == "n2"
    await world.client.delete(NODES.path(None, f"{world.name}-n2"))
    await world.pod("d", cpu="7")
    await world.until_held("d", words="0/1 nodes")


def _taint() -> dict[str, str]:
    return {"key": "example.com/busy", "value": "yes", "effect": "NoSchedule"}


async def test_a_node_that_grows_lets_a_gang_in(world: World) -> None:
    await world.node("n1", cpu="1")
    await world.scheduler()
    await world.pods("a", "b", labels=labelled(2))
    await world.until_held("a", "b")
    await world.patch_node("n1", {"status": {"allocatable": {"cpu": "2"}}}, status=True)
    await world.until_bound("a", "b")


async def test_a_pod_that_finishes_frees_its_room(world: World) -> None:
    await world.node("n1", cpu="1")
    await world.scheduler()
    await world.pods("a", "b", labels=labelled(1))
    placement = await world.until(_one_bound(world), "one of two is bound")
    first = next(name for name, node in placement.items() if node)
    await world.phase("Succeeded", first)
    await world.until_bound("a", "b")


def _one_bound(world: World):  # type: ignore[no-untyped-def]
    async def bound() -> dict[str, str]:
        placement = await world.placement()
        return placement if any(placement.values()) else {}

    return bound


async def test_min_resources_say_no_before_anything_is_placed(world: World) -> None:
    await world.node("n1", cpu="4")
    await world.scheduler()
    await world.make(group(minMember=2, minResources={"cpu": "6"}))
    await world.pods("a", "b", labels={D5: "g"})
    await world.until_held("a", "b", words="requires 2 cpu more than the cluster has free")
    await world.node("n2", cpu="4")
    await world.until_bound("a", "b")


async def test_gang_of_higher_priority_is_scheduled_first(world: World) -> None:
    for name, value in (("low", 10), ("high", 1000)):
        await world.make(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"{world.name}-{name}"},
                "value": value,
            }
        )
    for name in ("low", "high"):
        await world.pods(
            f"{name}-0", f"{name}-1", labels=labelled(2, name), priorityClassName=f"{world.name}-{name}"
        )
    await world.scheduler()
    await world.until_held("low-0", "low-1", "high-0", "high-1")
    await world.node("n1", cpu="3")
    placement = await world.until_bound("high-0", "high-1")
    assert placement["low-0"] == placement["low-1"] == ""


async def test_a_volcano_group_is_admitted_before_it_has_pods(world: World) -> None:
    """The controller creates the pods at phase Inqueue; a group that can never fit is not admitted."""
    await world.node("n1", cpu="4")
    await world.scheduler()
    await world.make(group("fits", VOLCANO, minMember=2, minResources={"cpu": "3"}))
    await world.until_status(VOLCANO, "fits", phase="Inqueue")
    await world.make(group("big", VOLCANO, minMember=2, minResources={"cpu": "30"}))
    await world.pod("eager", annotations={"scheduling.k8s.io/group-name": "big"})
    await world.until_event("Unschedulable", "big")

    async def held() -> bool:
        said = condition(await world.get(PODS, "eager"), "phalanx.dev/Admitted")
        return said.get("status") == "False" and said.get("reason") == "AwaitingAdmission"

    await world.until(held, "the pod says that it waits for its turn")
    assert condition(await world.get(PODS, "eager"), "PodScheduled").get("reason") != "Unschedulable"
    assert ((await world.get(VOLCANO, "big")).get("status") or {}).get("phase") in (None, "", "Pending")
    await world.node("n2", cpu="40")
    await world.until_status(VOLCANO, "big", phase="Inqueue")
    await world.pod("second", annotations={"scheduling.k8s.io/group-name": "big"})
    await world.until_bound("eager", "second")

    async def admitted() -> bool:
        return condition(await world.get(PODS, "eager"), "phalanx.dev/Admitted").get("status") == "True"

    await world.until(admitted, "the pod says that it was admitted")


async def test_bound_members_carry_the_mark_of_their_plan(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.pods("a", "b", labels=labelled(2))
    await world.pod("lone")
    await world.until_bound("a", "b", "lone")
    marks = {
        item["metadata"]["name"]: (item["metadata"].get("annotations") or {}).get(PLAN_ANNOTATION)
        for item in await world.list(PODS)
    }
    assert marks["lone"] is None
    plans = [(marks[name] or "").split("/") for name in "ab"]
    assert [plan[1] for plan in plans] == ["2", "2"]
    assert plans[0][:3] == plans[1][:3]
    assert plans[0][3] != plans[1][3]  # each pod's own signature


async def test_a_member_that_changes_its_gang_counts_in_the_new_one(world: World) -> None:
    await world.node("n1")
    await world.scheduler()
    await world.make(group("one", minMember=3))
    await world.make(group("two", minMember=2))
    await world.pods("a", "b", labels={D5: "one"})
    await world.pod("c", labels={D5: "two"})
    await world.until_held("a", "b", "c")
    await world.patch(PODS, "b", {"metadata": {"labels": {D5: "two"}}})
    await world.until_bound("b", "c")
    await world.until_held("a", words="1 of the 3 required pods")
    await world.until_status(GROUPS, "two", phase="Scheduling")


async def test_a_burst_of_gangs_all_start_whole(world: World) -> None:
    """Ten gangs of three on room for four of them: some start, none in part; the rest follows as room comes."""
    await world.node("n1", cpu="13")
    await world.scheduler()
    names = [f"g{gang}-{member}" for gang in range(10) for member in range(3)]
    await asyncio.gather(*(world.pod(name, labels=labelled(3, name.split("-")[0])) for name in names))

    async def four() -> dict[str, str]:
        placement = await world.placement()
        return placement if sum(map(bool, placement.values())) == 12 else {}

    placement = await world.until(four, "four gangs run")
    for gang in range(10):
        assert len({bool(placement[f"g{gang}-{member}"]) for member in range(3)}) == 1
    await world.node("n2", cpu="18")
    await world.until_bound(*names)
