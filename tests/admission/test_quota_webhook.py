"""Quota that is reserved for a gang, defended by the webhook: accounts, rights and registration as installed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from phalanx.admission.webhook import registration
from phalanx.admission.webhook.service import WebhookOptions, WebhookService
from phalanx.cli.installation.controller_manifests import controller_access
from phalanx.cli.installation.manifests import volcano_queues
from phalanx.cli.installation.webhook_manifests import webhook_access
from phalanx.controllers.groups import quota_reservations
from phalanx.controllers.groups.quota_reservations import QuotaReservationController
from phalanx.controllers.service import ControllerOptions, ControllerService
from phalanx.jobs.reservations import CLAIM_SECONDS
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.authentication.authenticator import User
from phalanx_local.authentication.kubeconfig import write_private
from phalanx_local.server import ApiServer, ServerOptions
from tests.admission.conftest import known_definitions
from tests.admission.test_webhook_service import refusal

Json = dict[str, Any]

SYSTEM, TEAM = "phalanx-system", "team"
PODS, JOBS = f"/api/v1/namespaces/{TEAM}/pods", f"/apis/batch/v1/namespaces/{TEAM}/jobs"
GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{TEAM}/podgroups"
LEDGER = f"/api/v1/namespaces/kube-system/configmaps/phalanx-quota-{TEAM}"
GANG = "scheduling.k8s.io/group-name"
COLLECTIONS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


class Clock:
    """Wall time, ahead by as much as a test has skipped."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def admin(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeClient]:
    """A cluster with a quota of four pods in the namespace `team`; webhook and controllers run with their own
    accounts."""
    monkeypatch.setattr(quota_reservations, "_GATHER", 0.02)
    # How often the controller looks whether a claim is old enough. How old that is, the clock of the test decides.
    monkeypatch.setattr(quota_reservations, "CLAIM_SECONDS", 0.02)
    accounts = ("phalanx-webhook", "phalanx-controllers")
    users = {
        name: User(f"system:serviceaccount:{SYSTEM}:{name}", ("system:serviceaccounts", "system:authenticated"))
        for name in accounts
    }
    server = ApiServer(ServerOptions(users=users))
    await server.start()
    server.write_kubeconfig(tmp_path / "admin")
    clients = []
    for name in accounts:
        config = server.kubeconfig()
        config["users"][0]["user"] = {"token": name}
        write_private(tmp_path / name, config)
        clients.append(KubeClient(load_config(str(tmp_path / name))))
    async with KubeClient(load_config(str(tmp_path / "admin"))) as client, clients[0], clients[1]:
        for definition in known_definitions():
            if definition["spec"]["group"] == "scheduling.volcano.sh":
                await client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for queue in volcano_queues():
            await client.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue)
        labels = {"phalanx.dev/quota-reservation": "enabled"}
        await client.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
        await client.create("/api/v1/namespaces", {"metadata": {"name": TEAM, "labels": labels}})
        for manifest in (*webhook_access(SYSTEM), *controller_access("phalanx-controllers", SYSTEM)):
            where = COLLECTIONS[manifest["kind"]].format(manifest["metadata"].get("namespace"))
            await client.create(where, manifest)
        quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "4"}}}
        await client.create(f"/api/v1/namespaces/{TEAM}/resourcequotas", quota)
        webhook = WebhookService(clients[0], WebhookOptions(listen="127.0.0.1:0"), clock)
        controllers = ControllerService(
            clients[1],
            ControllerOptions(),
            lambda context: (QuotaReservationController(msgspec.structs.replace(context, clock=clock)),),
        )
        async with asyncio.TaskGroup() as tasks:
            for service in (webhook, controllers):
                tasks.create_task(service.run())
            async with asyncio.timeout(60):
                await webhook.ready.wait()
                await controllers.ready.wait()
            try:
                yield client
            finally:
                webhook.stop()
                controllers.stop()
    await server.stop()


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await look():  # noqa: ASYNC110 - it stands in the API
            await asyncio.sleep(0.01)


async def until_reserved(admin: KubeClient, clock: Clock, name: str) -> None:
    """Wait until the quota of a group is claimed, and then until the claim holds."""
    await until(answered(admin, name, "False: the quota is being reserved"))
    clock.ahead += CLAIM_SECONDS
    await until(answered(admin, name, "True"))


def pod(gang: str = "") -> Json:
    notes = {"annotations": {GANG: gang}} if gang else {}
    containers = [{"name": "main", "image": "busybox"}]
    return {"metadata": notes, "spec": {"restartPolicy": "Never", "containers": containers}}


async def group(admin: KubeClient, name: str, pods: int) -> None:
    notes = {"phalanx.dev/total-resources": f'{{"pods": "{pods}"}}'}
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"minMember": pods},
    }
    await admin.create(GROUPS, body)


def answered(admin: KubeClient, name: str, words: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        found = await admin.get(f"{GROUPS}/{name}")
        told = str(found["metadata"]["annotations"].get("phalanx.dev/quota-reserved", ""))
        return told.startswith(words)

    return look


async def test_one_of_two_gangs_that_share_a_quota_gets_all_of_its_pods(admin: KubeClient, clock: Clock) -> None:
    await group(admin, "first", 4)
    await until_reserved(admin, clock, "first")
    await group(admin, "second", 4)
    await until(answered(admin, "second", "False: quota team lacks"))
    # Their owners come in the other order, and make pods one by one.
    for gang in ("second", "first"):
        spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": pod(gang)}
        await admin.create(JOBS, {"metadata": {"name": gang}, "spec": spec})

    async def gangs() -> list[str]:
        found = await admin.get(PODS)
        return [item["metadata"]["annotations"][GANG] for item in found["items"]]

    async def complete() -> bool:
        now = await gangs()
        assert "second" not in now, "half a gang was admitted"
        return len(now) == 4

    await until(complete)
    assert await gangs() == ["first"] * 4


async def test_pod_beyond_reserved_quota_is_refused_in_the_words_of_a_quota(
    admin: KubeClient, clock: Clock
) -> None:
    await group(admin, "held", 3)
    await until_reserved(admin, clock, "held")
    for name, dry_run in (("tried", True), ("other", False)):
        body = {**pod(), "metadata": {"name": name}}
        await admin.create(PODS, body, params={"dryRun": "All"} if dry_run else {})
    ledger = await admin.get(LEDGER)
    said = await refusal(admin.create(PODS, {**pod(), "metadata": {"name": "late"}}))
    assert "exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=4" in said
    assert "of which pods=3 is reserved for the pods of held" in said
    assert ledger["data"]["ledger"].count('"at"') == 1, "a dry run takes nothing"


async def test_pods_pass_where_nothing_is_reserved_and_the_registration_fails_open(admin: KubeClient) -> None:
    hooks = (await admin.get(registration.VALIDATING.path(None, registration.NAME)))["webhooks"]
    (quota,) = [each for each in hooks if each["name"] == "quota.pods.webhook.phalanx.dev"]
    assert (quota["failurePolicy"], quota["sideEffects"]) == ("Ignore", "NoneOnDryRun")
    assert quota["namespaceSelector"]["matchLabels"] == {"phalanx.dev/quota-reservation": "enabled"}
    await admin.create(PODS, {**pod(), "metadata": {"name": "free"}})
    assert "not found" in await refusal(admin.get(LEDGER))
