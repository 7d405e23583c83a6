"""A group whose running members fall below its minimum is restarted as a whole, if it requests that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from phalanx.jobs.group_restarts import RESTART_STATUS
from tests.controllers.api import Json
from tests.controllers.groups import GROUPS, PODS, VOLCANO_GROUPS, GroupWorld, owned_by, put_owner

SET = owned_by("apps/v1", "StatefulSet")
JOB = owned_by("batch/v1", "Job")
IGNORED_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


async def running(**annotations: Any) -> GroupWorld:
    world = GroupWorld(owner=SET, **annotations)
    put_owner(world, SET)
    await world.settle()
    await world.pass_time(100)
    assert set(world.phases().values()) == {"Running"}
    return world


def restarted(world: GroupWorld, before: dict[str, str]) -> bool:
    """Return whether every pod was replaced, and all run."""
    now = world.uids()
    return set(now.values()).isdisjoint(before.values()) and set(world.phases().values()) == {"Running"}


async def test_group_below_its_minimum_restarts_whole_after_the_grace() -> None:
    world = await running()
    before = world.uids()
    world.recreates = False
    world.lose("p-1")
    await world.settle()
    await world.pass_time(59)
    assert world.uids() == {name: before[name] for name in ("p-0", "p-2")}
    world.recreates = True
    world.starts = False
    await world.pass_time(1)
    world.starts = True
    await world.settle()
    assert restarted(world, before)
    status = world.status
    assert status.restarts == 1
    assert status.last is not None
    assert status.last.cause == "2 of at least 3 members run"
    assert status.last.pods == ("p-0", "p-2")
    assert [event for event in world.api.events if event[1] == "GroupRestarted"] == [
        (
            "g",
            "GroupRestarted",
            "restart 1 of 3: 2 of at least 3 members run; deletes p-0, p-2, next restart in 10s at the earliest",
        )
    ]


async def test_group_that_recovers_in_time_is_not_restarted() -> None:
    world = await running()
    before = world.uids()
    world.starts = False
    world.lose("p-1")
    await world.settle()
    await world.pass_time(30)
    world.starts = True
    await world.pass_time(10)
    await world.pass_time(500)
    assert world.uids()["p-0"] == before["p-0"]
    assert world.status.restarts == 0
    assert world.status.below_since == 0


async def test_a_steady_state_writes_nothing() -> None:
    world = await running()
    before = len(world.api.writes)
    await world.pass_time(1000)
    assert len(world.api.writes) == before


async def test_pods_are_marked_before_their_deletion_so_that_no_job_counts_them_as_failed() -> None:
    world = await running(restart_grace="0s")
    world.lose("p-1")
    world.recreates = False
    await world.settle()
    verbs = [(verb, path.rpartition("/pods/")[2]) for verb, path in world.api.writes if "/pods/" in path]
    assert verbs == [("patch", "p-0/status"), ("patch", "p-2/status"), ("delete", "p-0"), ("delete", "p-2")]


async def test_a_group_that_never_met_its_minimum_is_not_restarted() -> None:
    world = GroupWorld(3, owner=SET)
    put_owner(world, SET)
    world.starts = False
    await world.settle()
    world.api.update(PODS, "p-0", lambda pod: pod.update(status={"phase": "Running"}))
    await world.settle()
    await world.pass_time(1000)
    assert world.phases()["p-0"] == "Running"
    assert not any(verb == "delete" for verb, _ in world.api.writes)


async def test_group_that_lost_all_pods_and_starts_again_is_not_below_its_minimum() -> None:
    world = await running()
    for index in range(3):
        world.lose(f"p-{index}")
    world.starts = False
    await world.pass_time(10)
    world.api.update(PODS, "p-0", lambda pod: pod.update(status={"phase": "Running"}))
    await world.pass_time(1000)
    assert world.phases() == {"p-0": "Running", "p-1": "Pending", "p-2": "Pending"}
    assert not any(verb == "delete" for verb, _ in world.api.writes)


async def test_group_with_preempted_members_is_not_restarted() -> None:
    world = await running()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}

    def evict(pod: Json) -> None:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pod["status"]["conditions"] = [condition]

    world._cluster = lambda: None  # type: ignore[method-assign]
    world.api.update(PODS, "p-1", evict)
    await world.settle()
    await world.pass_time(1000)
    assert not any(verb == "delete" for verb, _ in world.api.writes)


async def test_the_limit_holds_and_back_off_doubles() -> None:
    world = await running(max_restarts="2", restart_grace="0s", restart_backoff="1m")
    moments = []
    for _ in range(3):
        world.recreates = world.starts = True
        await world.settle()
        world.api.now += 1
        await world.settle()
        world.recreates = False
        world.lose("p-0")
        for _ in range(400):
            if not any(phase == "Running" for phase in world.phases().values()):
                break
            await world.pass_time(1)
        if world.status.last is not None:
            moments.append(world.status.last.at)
    assert world.status.restarts == 2
    assert moments[1] - moments[0] == 60
    assert world.status.message == ("not restarted: 2 of at least 3 members run, and 2 of 2 restarts are used up")
    assert ("g", "GroupNotRestarted", world.status.message) in world.api.events


@pytest.mark.parametrize(
    ("codes", "code", "restarts"),
    [
        ({}, 1, 1),
        ({"terminal_exit_codes": "2-5"}, 3, 0),
        ({"terminal_exit_codes": "2-5"}, 6, 1),
        ({"retryable_exit_codes": "137,143"}, 137, 1),
        ({"retryable_exit_codes": "137,143"}, 1, 0),
    ],
)
async def test_exit_codes_decide(codes: dict[str, str], code: int, restarts: int) -> None:
    world = await running(restart_grace="5s", **codes)
    world.fail("p-1", code)
    await world.settle()
    world.lose("p-1")
    world.starts = False
    await world.pass_time(6)
    world.starts = True
    await world.settle()
    assert world.status.restarts == restarts
    if restarts:
        assert world.status.last is not None
        assert world.status.last.cause == f"2 of at least 3 members run: pod p-1 failed with exit code {code}"


JOB, JOBSET = owned_by("batch/v1", "Job", "j"), owned_by("jobset.x-k8s.io/v1alpha2", "JobSet", "js")
WRAPPER = owned_by("workload.codeflare.dev/v1beta2", "AppWrapper", "w")


@pytest.mark.parametrize(
    ("owner", "spec", "above", "said"),
    [
        (None, {}, None, "pod p-0 has no controller"),
        (owned_by("ray.io/v1", "RayCluster"), {}, None, "RayCluster o replaces lost workers itself"),
        (owned_by("batch.volcano.sh/v1alpha1", "Job"), {}, None, "Job o has policies of its own"),
        (
            owned_by("example.com/v1", "Thing"),
            {},
            None,
            "of a kind that does not always replace its pods",
        ),
        (JOB, {"backoffLimit": 6}, None, ""),
        (
            JOB,
            {"backoffLimit": 1},
            None,
            "Job j would count the 2 pods as failures and end (backoffLimit 1, 0 so far)",
        ),
        (
            JOB,
            {
                "backoffLimit": 0,
                "podFailurePolicy": {
                    "rules": [
                        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
                    ]
                },
            },
            None,
            "",
        ),
        (JOB, {"backoffLimit": 6}, (JOBSET, {}), ""),
        (
            JOB,
            {"backoffLimit": 6},
            (JOBSET, {"failurePolicy": {"maxRestarts": 3}}),
            "JobSet js has a failurePolicy",
        ),
        (SET, {}, (WRAPPER, {}), "AppWrapper w restarts the jobs that it wraps itself"),
        (owned_by("batch/v1", "Job", "gone"), None, None, "Job gone is unreadable"),
    ],
)
async def test_restart_requires_a_controller_that_recreates_pods_and_no_other_restart_rule(
    owner: Json | None, spec: dict[str, Any] | None, above: tuple[Json, dict[str, Any]] | None, said: str
) -> None:
    world = GroupWorld(3, owner=owner, restart_grace="0s")
    if owner is not None and spec is not None and "batch.volcano" not in owner["apiVersion"]:
        if owner["kind"] in ("Job", "StatefulSet"):
            put_owner(world, owner, above[0] if above else None, **spec)
        if above is not None:
            put_owner(world, above[0], **above[1])
    await world.settle()
    await world.pass_time(10)
    world.recreates = False
    world.lose("p-2")
    await world.settle()
    assert world.status.restarts == (0 if said else 1)
    assert said in world.status.message
    if said:
        assert set(world.phases()) == {"p-0", "p-1"}
        before = len(world.api.writes)
        await world.pass_time(300)
        assert len(world.api.writes) == before


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"restart_policy": "always"}, "is 'always'; write Never or WhenBelowMinimum"),
        ({"max_restarts": "-1"}, "write a whole number such as 3"),
        ({"restart_grace": "soon"}, "write a duration such as 30s or 5m"),
        ({"terminal_exit_codes": "0"}, "write exit codes from 1 to 255 such as 3,100-120"),
    ],
)
async def test_a_bad_policy_is_named_and_restarts_nothing(annotations: dict[str, str], said: str) -> None:
    world = await running(**annotations)
    world.recreates = False
    world.lose("p-0")
    await world.pass_time(1000)
    assert said in world.status.message
    assert not any(verb == "delete" for verb, _ in world.api.writes)


async def test_a_count_that_was_copied_from_another_group_does_not_count() -> None:
    world = await running(restart_grace="0s", max_restarts="1")

    def forge(group: Json) -> None:
        group["metadata"]["annotations"][RESTART_STATUS] = '{"group":"another","restarts":7,"met":1}'

    world.api.update(GROUPS, "g", forge)
    await world.settle()
    assert world.status.restarts == 0
    world.api.update(
        GROUPS, "g", lambda group: group["metadata"]["annotations"].update({RESTART_STATUS: "{[[" * 900})
    )
    await world.settle()
    assert world.status.met > 0


@pytest.mark.parametrize("restart", [False, True], ids=["same-process", "controller-restarted"])
@pytest.mark.parametrize("seen", [False, True], ids=["deleted-at-once", "deleted-later"])
@pytest.mark.parametrize("collection", [GROUPS, VOLCANO_GROUPS], ids=["scheduler-plugins", "volcano"])
async def test_success_counts_after_its_pod_is_deleted(collection: str, seen: bool, restart: bool) -> None:
    world = GroupWorld(owner=JOB, collection=collection)
    put_owner(world, JOB, podFailurePolicy=IGNORED_DISRUPTIONS)
    await world.settle()
    before = world.uids()
    world.recreates = False
    world.succeed("p-1")
    if seen:
        await world.settle()
    else:
        # The controller sees the success and the deletion in one go.
        world.observe()
    world.lose("p-1")
    await world.settle()
    if restart:
        world.restart()
    await world.pass_time(1000)
    assert world.uids() == {name: before[name] for name in ("p-0", "p-2")}
    assert world.status.restarts == 0
    world.succeed("p-0")
    await world.settle()
    world.lose("p-0")
    await world.settle()
    await world.pass_time(1000)
    assert world.uids() == {"p-2": before["p-2"]}
    writes = len(world.api.writes)
    await world.pass_time(1000)
    assert len(world.api.writes) == writes


async def test_failure_after_a_deleted_success_still_restarts_the_others() -> None:
    world = GroupWorld(owner=SET)
    put_owner(world, SET)
    await world.settle()
    world.recreates = False
    world.succeed("p-1")
    await world.settle()
    world.lose("p-1")
    await world.settle()
    world.lose("p-0")
    await world.settle()
    await world.pass_time(61)
    assert world.status.restarts == 1
    assert world.status.last is not None
    assert world.status.last.pods == ("p-2",)


async def test_success_of_an_earlier_run_does_not_count_for_new_controllers() -> None:
    world = GroupWorld(owner=SET)
    put_owner(world, SET)
    await world.settle()
    world.recreates = False
    for name in ("p-0", "p-1", "p-2"):
        world.succeed(name)
    await world.settle()
    for name in ("p-0", "p-1", "p-2"):
        world.lose(name)
    await world.settle()
    world.owner = {**SET, "uid": "second-run"}
    put_owner(world, world.owner)
    world.recreates = True
    await world.settle()
    await world.pass_time(100)
    world.recreates = False
    world.lose("p-1")
    await world.settle()
    await world.pass_time(61)
    assert world.status.restarts == 1


async def test_exit_with_success_of_a_deleted_member_is_no_success() -> None:
    world = await running()
    world.recreates = False
    world.api.update(PODS, "p-1", lambda pod: pod["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z"))
    world.succeed("p-1")
    world.observe()
    world.lose("p-1")
    await world.settle()
    await world.pass_time(61)
    assert world.status.restarts == 1


Story = Callable[[GroupWorld], Awaitable[None]]


async def loses_one(world: GroupWorld) -> None:
    await world.settle()
    await world.pass_time(100)
    world.recreates = False
    world.lose("p-1")
    await world.settle()
    await world.pass_time(61)
    world.recreates = True
    await world.pass_time(1)


async def loses_twice(world: GroupWorld) -> None:
    await loses_one(world)
    await world.pass_time(100)
    world.fail("p-0")
    await world.settle()
    world.recreates = False
    world.lose("p-0")
    await world.pass_time(61)
    world.recreates = True
    await world.pass_time(1)


@pytest.mark.parametrize("story", [loses_one, loses_twice])
async def test_no_death_changes_the_end(story: Story) -> None:
    def fresh() -> GroupWorld:
        world = GroupWorld(3, owner=SET)
        put_owner(world, SET)
        return world

    undisturbed = fresh()
    await story(undisturbed)
    writes, made = len(undisturbed.api.writes), undisturbed.made
    assert undisturbed.status.restarts == (1 if story is loses_one else 2)
    assert set(undisturbed.phases().values()) == {"Running"}
    for number in range(1, writes + 1):
        for applied in (False, True):
            world = fresh()
            world.api.dies_at = (number, applied)
            await story(world)
            assert world.deaths == 1
            where = f"dead {'after' if applied else 'before'} write {number}"
            assert world.status == undisturbed.status, where
            assert world.phases() == undisturbed.phases(), where
            assert world.made == made, f"{where}: no pod is deleted twice"
