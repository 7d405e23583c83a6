"""`phalanx jobs`, `nodes`, `order` and `reservations` as child processes against a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.listing.change_watch import ChangeWatch
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.processes import Process, command
from tests.e2e.test_job_command import phase, run, submit
from tests.e2e.world import World, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

JOBS = Resource("batch", "v1", "jobs", "Job")
GROUP = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}


async def gang(world: World, name: str, minimum: int, members: int, **what: Any) -> None:
    await world.make({**GROUP, "metadata": {"name": name}, "spec": {"minMember": minimum, "queue": "default"}})
    for number in range(members):
        annotations = {"scheduling.k8s.io/group-name": name}
        await world.pod(f"{name}-{number}", annotations=annotations, **what)


async def cluster_wide(world: World, *arguments: str) -> tuple[int, str]:
    return await command(*arguments, "--kubeconfig", world.cluster.kubeconfig)


async def items(world: World, *arguments: str) -> list[dict[str, Any]]:
    code, output = await run(world, *arguments, "-o", "json")
    assert code == 0, output
    found: list[dict[str, Any]] = json.loads(output)["items"]
    return found


@pytest.mark.slow
async def test_list_prints_one_line_per_gang_of_any_dialect(world: World) -> None:
    await world.node("a", gpu="4")
    await gang(world, "runs", 2, 2, cpu="1")
    await gang(world, "waits", 3, 1, cpu="1")
    await submit(world, "vol")
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "labelled",
        "pod-group.scheduling.sigs.k8s.io/min-available": "1",
    }
    await world.pod("labelled-0", labels=labels)
    await world.pod("alone")
    await world.pod("theirs", scheduler="default-scheduler")
    for owner in ("Trainer", "ReplicaSet"):
        reference = {"apiVersion": "x.io/v1", "kind": owner, "name": "own", "uid": owner, "controller": True}
        for number in range(2):
            made = pod(f"{owner.lower()}-{number}")
            made["metadata"]["ownerReferences"] = [reference]
            await world.make(made)
    for name in ("runs-0", "runs-1"):
        binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": f"{world.name}-a"}}
        path = f"/api/v1/namespaces/{world.namespace}/pods/{name}/binding"
        await world.client.create(path, {**binding, "metadata": {"name": name}})
    await world.phase("Running", "runs-0", "runs-1")

    code, table = await run(world, "jobs")
    assert code == 0, table
    lines = [line.split() for line in table.splitlines()]
    assert " ".join(lines[0]) == "GANG KIND QUEUE USER ST AGE/RUN MEMBERS GPUS START NODES(REASON)"
    found = {line[0]: line for line in lines[1:]}
    assert {name: line[1] for name, line in found.items()} == {
        "alone": "pod",
        "labelled": "gang",
        "own": "trainer",
        "runs": "podgroup",
        "vol": "vcjob",
        "waits": "podgroup",
    }
    assert (found["runs"][4], found["runs"][6], found["runs"][-1]) == ("R", "2/2/2", f"{world.name}-a")
    assert (found["waits"][4], found["waits"][6]) == ("PD", "0/3/1")
    assert (found["own"][6], found["alone"][6]) == ("0/-/2", "0/1/1")
    assert (found["labelled"][2], found["alone"][2]) == ("default", "default")

    assert [each["name"] for each in await items(world, "jobs", "-t", "R")] == ["runs"]
    assert [each["name"] for each in await items(world, "jobs", "--kind", "vcjob")] == ["vol"]
    code, names = await run(world, "jobs", "-o", "name", "--sort-by", "-gang")
    assert names.split() == [
        *("podgroup/waits", "vcjob/vol", "podgroup/runs"),
        *("trainer/own", "podgroup/labelled", "pod/alone"),
    ]
    code, names = await run(world, "jobs", "-o", "jsonpath={.items[*].name}")
    assert names == "alone labelled own runs vol waits"


@pytest.mark.slow
async def test_gang_without_pods_shows_no_outdated_obstacle(world: World) -> None:
    await world.node("a", cpu="1")
    await world.scheduler()
    await gang(world, "waits", 2, 2, cpu="1")
    await world.until_held("waits-0", "waits-1")
    (told,) = await items(world, "jobs")
    assert told["reason"] == "NotEnoughResources"
    await world.delete(PODS, "waits-0", "waits-1")
    (told,) = await items(world, "jobs")
    assert (told["reason"], told["message"]) == ("NoPods", "none of its pods exists")


async def test_an_empty_list_says_so_and_a_bad_option_is_a_usage_error(world: World) -> None:
    assert await run(world, "jobs") == (0, f"No resources found in {world.namespace} namespace.")
    for wrong in (("--state", "nope"), ("-o", "yamll"), ("-l", "a=b=c"), ("--sort-by", "nope"), ("--me",)):
        code, output = await run(world, "jobs", *wrong)
        assert (code, "Traceback" in output) == (2, False), output


@pytest.mark.slow
async def test_control_characters_in_a_tenants_pods_do_not_reach_the_terminal(world: World, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("phalanx: {dialects: {userAnnotation: example.com/user}}\n", "utf-8")
    esc = "\x1b[2J\x1b]0;x\x07"
    await world.make({**GROUP, "metadata": {"name": "evil"}, "spec": {"minMember": 1}})
    annotations = {"scheduling.k8s.io/group-name": "evil", "example.com/user": f"eve{esc}\nroot"}
    await world.pod("evil-0", annotations=annotations)
    for form in ("table", "wide", "json", "name", "custom-columns=U:.user"):
        code, output = await run(world, "jobs", "--config", str(policy), "-o", form)
        assert code == 0, output
        assert "\x1b" not in output
        assert "evil" in output or "eve" in output


@pytest.mark.slow
async def test_only_ones_own_are_shown_by_the_name_that_the_server_knows(world: World, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("phalanx: {dialects: {userLabel: example.com/user}}\n", "utf-8")
    for name, user in (("mine", "ada"), ("theirs", "bob")):
        await world.make({**GROUP, "metadata": {"name": name}, "spec": {"minMember": 1}})
        annotations = {"scheduling.k8s.io/group-name": name}
        await world.pod(f"{name}-0", annotations=annotations, labels={"example.com/user": user})
    asked = ("jobs", "--config", str(policy))
    assert [each["user"] for each in await items(world, *asked)] == ["ada", "bob"]
    assert [each["name"] for each in await items(world, *asked, "-u", "bob")] == ["theirs"]
    shown = await items(world, *asked, "--me", "--as", "ada@example.com", "--as-group", "system:masters")
    assert [each["name"] for each in shown] == ["mine"]
    code, output = await run(world, "jobs", "--as", "nobody")
    assert (code, "pods is forbidden" in output) == (1, True), output


async def test_user_with_rights_in_one_namespace_sees_its_gangs_without_a_warning(world: World) -> None:
    await gang(world, "waits", 2, 1)
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "dora"}}
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    await world.make({**rbac, "kind": "Role", "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dora"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dora"}
    await world.make({**rbac, "kind": "RoleBinding", "subjects": [subject], "roleRef": role})
    code, output = await run(world, "jobs", "--as", "dora", "--lease-namespace", "kube-system")
    assert code == 0, output
    assert "waits" in output
    assert "policy" not in output


async def test_watch_continues_with_changed_lines(world: World) -> None:
    await submit(world, "first")
    await submit(world, "second")
    where = ("--kubeconfig", world.cluster.kubeconfig, "-n", world.namespace)
    watch = await Process.start("jobs", "-w", "--interval", "0.5", "-o", "custom-columns=N:.name,S:.state", *where)
    await watch.says("second")
    await phase(world, "first", "Running", running=1)
    await watch.says("Running")
    await world.client.delete(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{world.namespace}/jobs/second", grace_seconds=0
    )
    await watch.says("Deleted")
    watch.child.terminate()
    await asyncio.wait_for(watch.child.wait(), 30)
    assert watch.lines[0].split() == ["N", "S"]
    assert [line.split()[0] for line in watch.lines[1:]] == ["first", "second", "first", "second"]


async def test_a_watch_looks_again_when_an_object_changes_and_not_before(world: World) -> None:
    told: list[str] = []
    async with ChangeWatch.running(world.client, [PODS], world.namespace, told.append) as changes:
        looking = asyncio.create_task(changes.changes(0.0))
        done, _ = await asyncio.wait([looking], timeout=0.5)
        assert not done
        await world.pod("new")
        async with asyncio.timeout(30):
            await looking
    assert told == []


async def test_list_without_a_watch_right_polls_and_warns_once() -> None:
    class Forbidding:
        async def request(self, method: str, path: str, params: object = None) -> bytes:
            raise ApiError(403, "Forbidden", "pods is forbidden")

    told: list[str] = []
    client: KubeClient = Forbidding()  # type: ignore[assignment]
    async with ChangeWatch.running(client, [PODS, JOBS], "default", told.append) as changes:
        async with asyncio.timeout(30):
            await changes.changes(0.0)
            await changes.changes(0.0)
    assert told == ["pods cannot be watched (pods is forbidden); the list is polled every --interval instead"]


@pytest.mark.slow
async def test_nodes_are_listed_by_pool_and_state_with_free_amounts(world: World) -> None:
    for name in ("g1", "g2", "g3"):
        await world.node(name, cpu="4", nvidia_com_gpu="2")
        labels = {"metadata": {"labels": {"pool-of": world.name, "volcano.sh/nodegroup-name": "gpus"}}}
        await world.patch_node(name, labels)
    await world.patch_node("g3", {"spec": {"unschedulable": True}})
    await world.pod("taken", cpu="3", nodeName=f"{world.name}-g1")
    select = ("-l", f"pool-of={world.name}")
    code, output = await cluster_wide(world, "nodes", *select)
    assert code == 0, output
    rows = [line.split() for line in output.splitlines()]
    assert " ".join(rows[0]) == "POOL STATE NODES FREE(CPU,MEM,GPU) BIGGEST-FREE NODELIST"
    assert rows[1][:3] == ["gpus", "idle", "1"]
    assert rows[2][:3] == ["gpus", "mixed", "1"]
    assert rows[2][3].startswith("1,")
    assert rows[3][:3] == ["gpus", "drained", "1"]
    code, output = await cluster_wide(world, "nodes", "-s", *select, "--no-headers")
    assert output.split()[:3] == ["gpus", "1/1/1/3", "3/5/4/12"]
    assert output.split()[-1] == f"{world.name}-g[1-3]"
    code, output = await cluster_wide(world, "nodes", "-R", *select, "--no-headers")
    assert output.split()[0] == "Cordoned"
    code, output = await cluster_wide(world, "nodes", "-N", *select, "-t", "idle", "-o", "name")
    assert output == f"node/{world.name}-g2"


async def test_the_order_is_that_of_the_scheduler_and_names_the_key(world: World) -> None:
    await world.node("small", cpu="1")
    await world.make(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"{world.name}-high"},
            "value": 1000,
        }
    )
    await gang(world, "old", 1, 1, cpu="3")
    await gang(world, "young", 1, 1, cpu="3")
    await world.pod("urgent", cpu="3", priorityClassName=f"{world.name}-high", priority=1000)
    found = await items(world, "order")
    assert [each["name"] for each in found] == ["urgent", "old", "young"]
    assert found[0]["priority"] == 1000
    assert found[1]["behind"] == "priority"
    assert found[2]["behind"] in ("age", "name")
    code, output = await run(world, "order")
    assert (code, output.split()[:4]) == (0, ["POS", "GANG", "QUEUE", "QUEUE-SHARE"])


async def test_reservations_in_advance_are_listed_with_their_phase(world: World) -> None:
    spec = {
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        "start": "2999-12-01T09:00:00Z",
        "duration": "3h",
        "owners": [{"namespaces": [world.namespace]}],
    }
    name = f"{world.name}-course"
    await world.make(
        {"apiVersion": "phalanx.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}
    )
    code, output = await cluster_wide(world, "reservations", "-o", "json")
    assert code == 0, output
    found = {each["name"]: each for each in json.loads(output)["items"]}
    assert (found[name]["kind"], found[name]["phase"]) == ("reservation", "Pending")


async def test_two_impossible_identities_are_plain_errors(world: World) -> None:
    code, output = await run(world, "jobs", "--context", "nowhere")
    assert (code, "there is no context 'nowhere'" in output) == (1, True), output
    code, output = await run(world, "jobs", "--as-group", "x")
    assert (code, "--as-group needs --as" in output) == (1, True), output
    code, output = await run(world, "jobs", "--request-timeout", "soon")
    assert (code, "is not a duration" in output) == (2, True), output
