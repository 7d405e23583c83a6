"""The recorder over HTTP, with the rights of its own account: observed pods, and gaps in the observation."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.accounting.batch import Batch
from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.history import read_runs
from phalanx.accounting.questions import RunEntry, RunFilter
from phalanx.accounting.recorder import Recorder
from phalanx.accounting.service import AccountingOptions, AccountingService
from phalanx.cli.installation.accounting_manifests import accounting_access
from phalanx.dialects.options import DialectOptions
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.notifications.settings import NoticeTarget, Settings, WebhookChannel
from phalanx_local.authorization.rules import parse_rules
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.accounting.postgres import Postgres
from tests.accounting.world import rows
from tests.e2e.wire import Wire
from tests.e2e.world import PODS, pod
from tests.notifications.servers import http_server

pytestmark = pytest.mark.e2e

PATIENCE = 90.0
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/phalanx-system/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/kube-system/roles",
    "RoleBinding": f"{RBAC}/namespaces/kube-system/rolebindings",
}
GANG = {"pod-group/name": "g", "pod-group/min-available": "2"}


class Cluster:
    """An API server with a recorder on it, which may come and go; the test is scheduler and kubelet."""

    def __init__(self, server: ApiServer, admin: KubeClient, account: Path, location: str) -> None:
        self.server = server
        self.admin = admin
        self.wire = Wire()
        self.location = location
        self._account = account
        self._running: tuple[AccountingService, asyncio.Task[None], KubeClient, Database] | None = None

    async def record(self, *, notifications: Settings | None = None, **options: Any) -> None:
        """Starts one, and waits until it has seen everything."""
        client = KubeClient(load_config(str(self._account)), transports=self.wire.transports)
        database = Database(self.location)
        accounting = AccountingOptions(dialects=DialectOptions(**options), notifications=notifications)
        service = AccountingService(client, database, accounting)
        task = asyncio.create_task(service.run())
        self._running = (service, task, client, database)
        ready = asyncio.create_task(service.ready.wait())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            await self._end()

    async def stop(self) -> None:
        if self._running is not None:
            self._running[0].stop()
            await self._end()

    async def _end(self) -> None:
        assert self._running is not None
        _, task, client, database = self._running
        self._running = None
        try:
            async with asyncio.timeout(PATIENCE):
                await task
        finally:
            await client.close()
            database.close()

    async def make(self, name: str, **what: Any) -> str:
        """Its uid."""
        made = await self.admin.create(PODS.path("default"), pod(name, **what))
        return str(made["metadata"]["uid"])

    async def bind(self, *names: str) -> None:
        for name in names:
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
            await self.admin.create(f"{PODS.path('default', name)}/binding", binding)

    async def status(self, name: str, **status: Any) -> None:
        path = f"{PODS.path('default', name)}/status"
        await self.admin.patch(path, {"status": status}, PatchType.STRATEGIC)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.admin.delete(PODS.path("default", name), grace_seconds=0)

    def runs(self) -> list[RunEntry]:
        database = Database(self.location)
        try:
            with database.reading() as connection:
                return read_runs(connection, RunFilter(0, 2**40), 2**40)
        finally:
            database.close()

    async def until(self, holds: Callable[[list[RunEntry]], bool]) -> list[RunEntry]:
        found: list[RunEntry] = []
        async with asyncio.timeout(PATIENCE):
            while not holds(found := await asyncio.to_thread(self.runs)):  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.02)
        return found

    def members(self) -> dict[str, dict[str, Any]]:
        database = Database(self.location)
        try:
            return {row["name"]: row for row in rows(database, "members")}
        finally:
            database.close()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    # Changes within this many seconds are written together: a short period speeds up the tests.
    monkeypatch.setattr("phalanx.accounting.service._GATHER", 0.05)
    server = ApiServer(ServerOptions(controllers=frozenset({"definitions"})))
    await server.start()
    admin_file, account_file = tmp_path / "admin", tmp_path / "account"
    server.write_kubeconfig(admin_file)
    admin = KubeClient(load_config(str(admin_file)))
    try:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": "phalanx-system"}})
        for manifest in accounting_access("phalanx-accounting", "phalanx-system"):
            await admin.create(PATHS[manifest["kind"]], manifest)
        path = f"{PATHS['ServiceAccount']}/phalanx-accounting/token"
        issued = await admin.create(path, {"spec": {"expirationSeconds": 3600}})
        config = json.loads(admin_file.read_text("utf-8"))
        config["users"][0]["user"] = {"token": issued["status"]["token"]}
        account_file.write_text(json.dumps(config), "utf-8")
        made = Cluster(server, admin, account_file, location)
        try:
            yield made
        finally:
            await made.stop()
    finally:
        await admin.close()
        await server.stop()


def state(name: str, wanted: str, count: int = 1) -> Callable[[list[RunEntry]], bool]:
    return lambda runs: [each.state for each in runs if each.name == name] == [wanted] * count


async def test_a_gang_is_followed_from_its_pods_to_its_end(cluster: Cluster) -> None:
    await cluster.record(user_label="example.com/user")
    labels = {**GANG, "example.com/user": "ada"}
    for name in ("a", "b"):
        await cluster.make(name, labels=labels, requests={"cpu": "500m", "example.com/gpu": "2"})
    (run,) = await cluster.until(state("g", "PENDING"))
    assert (run.user, run.queue, run.used) == ("ada", "default", {})
    await cluster.bind("a", "b")
    await cluster.until(state("g", "RUNNING"))
    finished = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2099-01-01T00:00:00Z"}}
    await cluster.status("a", phase="Succeeded", containerStatuses=[{**finished, "state": ended}])
    await cluster.status("b", phase="Succeeded")
    (run,) = await cluster.until(state("g", "COMPLETED"))
    assert run.members == 2
    # An end in the future is not believed.
    assert run.ended is not None
    assert run.ended < 4_000_000_000
    await cluster.delete("a", "b")
    await cluster.make("other", scheduler="default-scheduler")
    await cluster.make("single")
    await cluster.until(state("single", "PENDING"))
    assert {each.name for each in cluster.runs()} == {"g", "single"}
    await cluster.stop()
    assert {row["outcome"] for name, row in cluster.members().items() if name != "single"} == {"Succeeded"}


async def test_recorder_requests_only_granted_resources(cluster: Cluster) -> None:
    await cluster.record()
    await cluster.make("a")
    await cluster.until(state("a", "PENDING"))
    await cluster.stop()
    roles = [each for each in accounting_access("x", "x") if each["kind"] in ("ClusterRole", "Role")]
    rules = parse_rules([rule for role in roles for rule in role["rules"]])
    asked = [each for each in cluster.wire.asked if not each.path and each.resource]
    assert asked
    refused = [each for each in asked if not any(rule.allows(each) for rule in rules)]
    assert refused == []
    assert {each.verb for each in asked} <= {"get", "list", "watch"}


async def test_evicted_and_deleted_pods_are_distinguished(cluster: Cluster) -> None:
    await cluster.record()
    for name in ("evicted", "deleted"):
        await cluster.make(name)
    await cluster.bind("evicted", "deleted")
    await cluster.until(lambda runs: [each.state for each in runs] == ["RUNNING"] * 2)
    told = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "phalanx: x",
    }
    await cluster.status("evicted", conditions=[{**told, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    await cluster.delete("evicted", "deleted")
    runs = await cluster.until(lambda runs: all(each.ended for each in runs))
    assert {each.name: (each.state, each.evictions) for each in runs} == {
        "evicted": ("PREEMPTED", 1),
        "deleted": ("CANCELLED", 0),
    }


async def test_changes_during_downtime_are_derived_from_the_remaining_objects(cluster: Cluster) -> None:
    await cluster.record()
    for name in ("stays", "finishes", "vanishes"):
        await cluster.make(name)
    await cluster.bind("stays", "finishes", "vanishes")
    await cluster.until(lambda runs: [each.state for each in runs] == ["RUNNING"] * 3)
    await cluster.stop()
    await cluster.status("finishes", phase="Failed")
    await cluster.delete("vanishes")
    await cluster.make("comes")
    before = cluster.members()["vanishes"]
    await cluster.record()
    found = {each.name: each for each in cluster.runs()}
    states = {name: (run.state, run.estimated) for name, run in found.items()}
    assert states == {
        "stays": ("RUNNING", False),
        "finishes": ("FAILED", True),
        "vanishes": ("UNKNOWN", True),
        "comes": ("PENDING", False),
    }
    lost = cluster.members()["vanishes"]
    assert lost["uid"] == before["uid"]
    assert before["bound"] <= lost["ended"] <= lost["ended_before"]


async def test_a_gang_that_cannot_be_recorded_harms_itself_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poisoned(Batch):
        def write(self) -> None:
            if any(each.name == "poison" for change in self._changes for each in change.pods):
                raise ZeroDivisionError("a mistake of ours")
            super().write()

    monkeypatch.setattr("phalanx.accounting.recorder.Batch", Poisoned)
    for name in ("a", "poison", "z"):
        await cluster.make(name)
    await cluster.record()
    await cluster.make("later")
    runs = await cluster.until(lambda runs: len(runs) == 3)
    assert {each.name for each in runs} == {"a", "z", "later"}


@pytest.mark.slow
async def test_a_database_that_is_away_is_waited_for(
    cluster: Cluster, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.location = postgres.new_url()
    await cluster.record()
    await cluster.make("before")
    await cluster.until(state("before", "PENDING"))
    await asyncio.to_thread(postgres.stop)
    try:
        await cluster.make("meanwhile")
        await cluster.bind("before")
        async with asyncio.timeout(PATIENCE):
            while "retrying" not in caplog.text:  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(0.02)
        await cluster.delete("before")
    finally:
        await asyncio.to_thread(postgres.start)
    runs = await cluster.until(
        lambda runs: all(each.ended for each in runs if each.name == "before") and len(runs) == 2
    )
    assert {each.name: each.state for each in runs} == {"before": "CANCELLED", "meanwhile": "PENDING"}


async def test_another_cluster_is_refused(cluster: Cluster) -> None:
    database = Database(cluster.location)
    database.upgrade()
    Recorder(database).adopt("somebody else's")
    database.close()
    with pytest.raises(DatabaseError, match="another cluster"):
        await cluster.record()


async def test_pods_of_all_published_scheduler_names_are_recorded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.accounting.served_names._PERIOD", 0.05)
    policies = "/api/v1/namespaces/kube-system/configmaps"
    record = {"phalanx": '{"schedulerNames":["phalanx","volcano"],"policy":""}'}
    await cluster.admin.create(policies, {"metadata": {"name": "phalanx-policies-in-force"}, "data": record})
    await cluster.make("a", scheduler="volcano")
    await cluster.make("b", scheduler="mine")
    await cluster.record()
    await cluster.until(state("a", "PENDING"))
    record["mine"] = '{"schedulerNames":["mine"],"policy":""}'
    await cluster.admin.patch(f"{policies}/phalanx-policies-in-force", {"data": record}, PatchType.MERGE)
    await cluster.until(state("b", "PENDING"))
    await cluster.until(state("a", "PENDING"))


async def test_run_of_a_volcano_job_that_ended_before_the_recorder_started_has_its_queue(cluster: Cluster) -> None:
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    manifest = pod("j-0", annotations={"scheduling.k8s.io/group-name": "j-1", "volcano.sh/queue-name": "research"})
    manifest["metadata"]["ownerReferences"] = [owner]
    await cluster.admin.create(PODS.path("default"), manifest)
    await cluster.bind("j-0")
    await cluster.status("j-0", phase="Succeeded")
    await cluster.record()
    (run,) = await cluster.until(lambda runs: [each.state for each in runs] == ["COMPLETED"])
    assert run.queue == "research"


async def test_webhook_receives_the_start_of_a_job_that_names_it_once_despite_a_restart(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.notifications.delivery._FIRST_PAUSE", 0)
    async with http_server(503) as server:
        hook = NoticeTarget("team", WebhookChannel(f"http://127.0.0.1:{server.port}/", "", "json"), None, 30)
        settings = Settings({"team": hook}, {}, (ipaddress.ip_network("127.0.0.0/8"),))
        await cluster.record(notifications=settings)
        asked = {"phalanx.dev/notify": "start", "phalanx.dev/notify-target": "team"}
        await cluster.make("a", annotations=asked)
        await cluster.make("b")
        await cluster.bind("a", "b")
        async with asyncio.timeout(PATIENCE):
            while len(server.bodies) < 2:  # noqa: ASYNC110 - the other side is a server
                await asyncio.sleep(0.02)
        await cluster.stop()
        await cluster.record(notifications=settings)
        await cluster.until(state("a", "RUNNING"))
        await cluster.stop()
    assert [(body["event"], body["gang"]) for body in server.bodies] == [("start", "a")] * 2
    assert len({body["id"] for body in server.bodies}) == 1
