"""`/configz` and `/debug`: served only to callers with the right to get these paths."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from phalanx.daemon.metrics.families import FAMILIES, Kind
from phalanx.kube.paths import Resource
from phalanx.scheduling.policy.loader import DEFAULT_POLICY
from phalanx_local.server import free_port
from tests.e2e.processes import Process, command
from tests.e2e.world import World
from tests.kube.certificates import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


class Inside:
    """A scheduler in a process of its own, and a way to look into it."""

    def __init__(self, world: World, port: int, name: str, process: Process, authority: Authority) -> None:
        self.world = world
        self.process = process
        self.name = name
        self.authority = authority
        self.base = f"https://127.0.0.1:{port}"
        self._trust = ssl.create_default_context(cadata=authority.pem.decode())

    async def read(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(self.base, headers=headers) as session,
            session.get(path, ssl=self._trust) as answer,
        ):
            return answer.status, await answer.text()

    async def ask(self, path: str, token: str = "") -> tuple[int, Any]:
        status, text = await self.read(path, token)
        return status, json.loads(text)

    async def metrics(self, token: str) -> dict[str, Metric]:
        status, text = await self.read("/metrics", token)
        assert status == 200
        return {family.name: family for family in text_string_to_metric_families(text)}

    def logged(self, message: str, pod: str) -> list[dict[str, Any]]:
        """The log lines of that message about a pod of the world."""
        entries = [json.loads(line) for line in self.process.lines if line.startswith("{")]
        name = f"{self.world.namespace}/{pod}"
        return [entry for entry in entries if entry["message"] == message and entry.get("pod") == name]

    async def account(self, name: str, *paths: str) -> str:
        """The token of a service account that may get the paths."""
        world, full = self.world, f"{self.world.name}-{name}"
        metadata = {"name": name, "namespace": world.namespace}
        await world.client.create(
            ACCOUNTS.path(world.namespace), {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        )
        if paths:
            rule = {"nonResourceURLs": list(paths), "verbs": ["get"]}
            head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": full}}
            await world.client.create(ROLES.path(), {**head, "kind": "ClusterRole", "rules": [rule]})
            subject = {"kind": "ServiceAccount", "name": name, "namespace": world.namespace}
            role = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": full}
            binding = {**head, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": role}
            await world.client.create(BINDINGS.path(), binding)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = await world.client.create(ACCOUNTS.path(world.namespace, name, "token"), request)
        return str(made["status"]["token"])


@pytest_asyncio.fixture(loop_scope="session")
async def inside(world: World, tmp_path: Path) -> AsyncIterator[Inside]:
    name, port, authority = f"{world.name}-seen", free_port(), Authority()
    pair, certificate, key = (
        authority.issue("phalanx", hosts=("127.0.0.1",)),
        tmp_path / "tls.crt",
        tmp_path / "tls.key",
    )
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    process = await Process.start(
        *("scheduler", "--kubeconfig", world.cluster.kubeconfig, "--scheduler-name", name),
        *("--metrics-address", f"127.0.0.1:{port}", "--guard-metrics"),
        *(
            "--metrics-certificate",
            certificate,
            "--metrics-key",
            key,
            "--log-format",
            "json",
            "--log-level",
            "debug",
        ),
    )
    await process.says("ready")
    yield Inside(world, port, name, process, authority)
    await process.end()
    for resource in (ROLES, BINDINGS):
        for each in (await world.client.list_all(resource.path()))["items"]:
            if each["metadata"]["name"].startswith(f"{world.name}-"):
                await world.client.delete(resource.path(name=each["metadata"]["name"]))


async def test_caller_without_the_right_to_a_path_is_refused(inside: Inside) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
        assert (await inside.read(path))[0] == 200
    for path in ("/configz", "/debug/state", "/debug/story?pod=a/b", "/metrics"):
        assert (await inside.ask(path))[0] == 401
        assert (await inside.ask(path, "nonsense"))[0] == 401
    stranger = await inside.account("stranger")
    status, answer = await inside.ask("/debug/state", stranger)
    assert status == 403
    assert "is not allowed to get the path /debug/state" in answer["error"]
    narrow = await inside.account("narrow", "/configz")
    assert (await inside.ask("/configz", narrow))[0] == 200
    assert (await inside.ask("/debug/state", narrow))[0] == 403


async def test_caller_with_the_right_gets_state_comparison_and_history_of_a_pod(
    world: World, inside: Inside
) -> None:
    operator = await inside.account("operator", "/configz", "/debug/*")
    await world.node("n1", cpu="2")
    await world.pod("fits", schedulerName=inside.name, cpu="1")
    await world.until_bound("fits")
    status, settings = await inside.ask("/configz", operator)
    assert (status, settings["options"]["scheduler_names"]) == (200, [inside.name])
    assert all(settings["checks"].values())
    _, state = await inside.ask("/debug/state", operator)
    assert state["selfCheck"] == []
    assert state["pods"]["bound"] >= 1
    _, compared = await inside.ask("/debug/state?compare", operator)
    assert compared["podsUnknownHere"]["count"] == compared["nodesUnknownHere"]["count"] == 0
    _, story = await inside.ask(f"/debug/story?pod={world.namespace}/fits", operator)
    assert [step["event"] for step in story["steps"]][:1] == ["ASSUME"]
    cause = story["steps"][0]["cause"]
    assert [line["cause"] for line in inside.logged("bound", "fits")] == [cause]
    assert story["causes"][cause]["events"] >= 1
    assert settings["policy"] == DEFAULT_POLICY
    await world.pod("large", schedulerName=inside.name, cpu="9")

    async def judged() -> Any:
        _, waits = await inside.ask(f"/debug/story?pod={world.namespace}/large", operator)
        return waits if waits.get("now", [{}])[0].get("verdict") else None

    waits = await world.until(judged, "a pod that waits has its verdict")
    assert waits["now"][0]["state"] == "PENDING"
    assert waits["now"][0]["verdict"]["cause"] in waits["causes"]
    for path in ("/debug/story", "/debug/story?pod=fits", "/debug/story?pod=a/b/c"):
        status, refusal = await inside.ask(path, operator)
        assert (status, "use /debug/story?pod=NAMESPACE/NAME" in refusal["error"]) == (400, True)
    unknown = await inside.ask("/debug/story?pod=no/body", operator)
    assert unknown == (404, {"error": "unknown pod no/body"})
    assert (await inside.ask("/debug/else", operator))[0] == 404


@pytest.mark.slow
async def test_caller_with_the_right_to_list_pods_gets_their_gangs_also_by_command(
    world: World, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.node("n1", cpu="4")
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "pair",
        "pod-group.scheduling.sigs.k8s.io/min-available": "2",
    }
    await world.pods("pair-0", "pair-1", schedulerName=inside.name, cpu="1", labels=labels)
    await world.pod("large", schedulerName=inside.name, cpu="9")
    await world.until_bound("pair-0", "pair-1")
    where = f"/v1/gangs?namespace={world.namespace}"
    assert (await inside.ask(where))[0] == 401
    reader = await inside.account("reader")
    status, refusal = await inside.ask(where, reader)
    assert (status, "is not allowed to list the pods of" in refusal["error"]) == (403, True)
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await world.make({**head, "kind": "Role", "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": world.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    await world.make({**head, "kind": "RoleBinding", "subjects": [subject], "roleRef": role})

    async def told() -> dict[str, Any]:
        status, answer = await inside.ask(where, reader)
        return {each["name"]: each for each in answer["items"]} if status == 200 else {}

    async def complete() -> dict[str, Any]:
        found = await told()
        return found if found.get("large", {}).get("reason") and found["pair"]["state"] == "Starting" else {}

    found = await world.until(complete, "the gang has nodes, and the pod its reason")
    assert (found["pair"]["total"], found["pair"]["nodes"]) == (2, [f"{world.name}-n1"])
    assert (found["large"]["kind"], found["large"]["state"]) == ("pod", "Pending")
    assert (await inside.ask("/v1/gangs", reader))[0] == 403

    authority = tmp_path / "authority.pem"
    authority.write_bytes(inside.authority.pem)
    monkeypatch.setenv("PHALANX_SCHEDULER_TOKEN", reader)
    asked = ("jobs", "-n", world.namespace, "--scheduler", inside.base, "--scheduler-ca", str(authority))
    code, listed = await command(*asked, "-o", "name", "--kubeconfig", world.cluster.kubeconfig)
    assert (code, set(listed.splitlines())) == (0, {"podgroup/pair", "pod/large"})
    plain = inside.base.replace("https", "http").replace("127.0.0.1", "198.51.100.1")
    code, refusal = await command("jobs", "--scheduler", plain, "--kubeconfig", world.cluster.kubeconfig)
    assert (code, "send your token unencrypted" in refusal) == (2, True)


async def test_every_metric_is_served_as_it_is_declared(world: World, inside: Inside) -> None:
    await world.node("n1", cpu="2")
    await world.pod("fits", schedulerName=inside.name, cpu="1")
    await world.pod("large", schedulerName=inside.name, cpu="9")
    await world.until_bound("fits")
    served = await inside.metrics(await inside.account("prometheus", "/metrics"))
    foreign = {name for name in served if name.startswith(("process_", "python_"))}
    declared = {name.removesuffix("_total"): family for name, family in FAMILIES.items()}
    assert served.keys() - foreign == declared.keys()
    assert "process_start_time_seconds" in foreign
    for name, family in declared.items():
        assert served[name].type == family.kind
        assert served[name].documentation == family.help
        own = {"le"} if family.kind is Kind.HISTOGRAM else set()
        for sample in served[name].samples:
            assert set(sample.labels) - own == set(family.labels)

    def value(name: str, /, **labels: str) -> float:
        base = name.removesuffix("_total").removesuffix("_count")
        found = [
            each for each in served[base].samples if each.name == name and each.labels.items() >= labels.items()
        ]
        return sum(each.value for each in found)

    assert value("scheduler_pod_scheduling_sli_duration_seconds_count", attempts="1") == 1
    assert value("phalanx_binding_duration_seconds_count") == 1
    assert value("phalanx_api_requests_total", verb="post", resource="pods/binding", code="201") == 1
    assert value("rest_client_requests_total", method="POST", code="201") >= 1
    assert value("scheduler_async_api_call_execution_total", call_type="pod_binding", result="success") == 1
    assert value("phalanx_api_requests_total", verb="watch", resource="pods") >= 1
    assert value("leader_election_master_status", name=f"{inside.name}-scheduler") == 1
    assert value("phalanx_ready", check="fresh") == 1
    assert value("phalanx_stage_duration_seconds_count", stage="act_allocate") >= 1
    assert value("phalanx_watch_lag_seconds") == value("phalanx_watch_restarts_total") == 0
    assert value("phalanx_failures_total") == value("phalanx_self_check_failures_total") == 0
