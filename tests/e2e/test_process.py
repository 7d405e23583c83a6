"""The scheduler as a process: its start, its end, and its log."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.status.verdict_publisher import VerdictPublisher
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer, free_port
from tests.e2e.processes import PATIENCE, Process
from tests.e2e.world import NODES, PODS, World, pod
from tests.kube.certificates import Authority
from tests.kube.stub_server import StubServer

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

GANG = {"pod-group/name": "g", "pod-group/min-available": "4"}
NAMES = ["a", "b", "c", "d"]


class Place:
    """A port, a data file and a kubeconfig for an API server that starts and stops."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.kubeconfig = directory / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
        self.kubeconfig.write_text(yaml.safe_dump({**document, "current-context": "c"}), "utf-8")
        self.client = KubeClient(load_config(str(self.kubeconfig)))
        self.server: ApiServer | None = None
        self.processes: list[Process] = []

    async def serve(self) -> None:
        options = ServerOptions(
            port=self.port, insecure=True, data=self.directory / "data", controllers=frozenset()
        )
        self.server = ApiServer(options)
        await self.server.start()

    async def stop_serving(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None

    async def scheduler(self, *arguments: str) -> Process:
        made = await Process.start("scheduler", "--kubeconfig", self.kubeconfig, *arguments)
        self.processes.append(made)
        return made

    async def node(self, name: str) -> None:
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts}
        await self.client.create(NODES.path(), {"metadata": {"name": name}, "status": status})

    async def gang(self) -> None:
        for name in NAMES:
            await self.client.create(PODS.path("default"), pod(name, labels=GANG))

    async def until_bound(self, count: int = 4) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                items = (await self.client.list_all(PODS.path("default")))["items"]
                if sum(bool(item["spec"].get("nodeName")) for item in items) >= count:
                    return
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for process in self.processes:
            await process.end(signal.SIGKILL)
        await self.client.close()
        await self.stop_serving()


@pytest_asyncio.fixture(loop_scope="session")
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.close()


@pytest.mark.slow
async def test_scheduler_waits_for_a_missing_api_server_and_logs_it_once(place: Place) -> None:
    scheduler = await place.scheduler()
    await scheduler.says("waiting for the API server at http://127.0.0.1")
    await asyncio.sleep(1.5)
    await place.serve()
    await scheduler.says("phalanx scheduler ready")
    await place.node("n1")
    await place.gang()
    await place.until_bound()
    assert scheduler.count("waiting for the API server") == 1
    # Nothing else is logged: no watcher connects before the server is ready.
    assert scheduler.count("WARNING") == 1
    assert await scheduler.end() == 0


@pytest.mark.slow
async def test_scheduler_ends_on_signal_while_it_waits_for_the_api_server(place: Place) -> None:
    scheduler = await place.scheduler()
    await scheduler.says("waiting for the API server")
    assert await scheduler.end() == 0


ALL = [("scheduler",), ("controllers",), ("scheduler", "--with-controllers")]


def other_authority(place: Place, server: str, data: bytes) -> None:
    document = yaml.safe_load(place.kubeconfig.read_text("utf-8"))
    authority = {"certificate-authority-data": base64.b64encode(data).decode()}
    document["clusters"][0]["cluster"] = {"server": server, **authority}
    place.kubeconfig.write_text(yaml.safe_dump(document), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL, ids=" ".join)
async def test_server_of_an_unknown_certificate_authority_is_logged_once(
    place: Place, command: tuple[str, ...], tmp_path: Path
) -> None:
    async with StubServer(Authority().server_context(tmp_path, "127.0.0.1")) as server:
        other_authority(place, server.url, Authority("stranger").pem)
        process = await Process.start(*command, "--kubeconfig", place.kubeconfig)
        place.processes.append(process)
        await process.says(f"is not signed by the certificate authority of kubeconfig {place.kubeconfig}")
        await asyncio.sleep(2.0)
        assert process.count("WARNING") == len(process.lines) == process.count(server.url) == 1
        assert await process.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ALL, ids=" ".join)
async def test_an_authority_that_cannot_be_read_is_one_clear_error(place: Place, command: tuple[str, ...]) -> None:
    other_authority(place, "https://127.0.0.1:1", b"no certificate")
    process = await Process.start(*command, "--kubeconfig", place.kubeconfig)
    assert await process.ends() == 1
    assert len(process.lines) == 1
    assert process.lines[0].startswith(f"Error: kubeconfig {place.kubeconfig}: cluster 'c', user 'u': cannot load")


@pytest.mark.slow
async def test_scheduler_survives_a_restart_of_the_api_server(place: Place) -> None:
    await place.serve()
    scheduler = await place.scheduler()
    await scheduler.says("phalanx scheduler ready")
    await place.gang()
    await place.stop_serving()
    await scheduler.says("is unreachable, all its clients retry")
    await place.serve()
    await place.node("n1")
    await place.until_bound()
    assert await scheduler.end() == 0
    assert "Traceback" not in scheduler.output


@pytest.mark.slow
async def test_scheduler_ends_on_signal_while_the_api_server_is_down(place: Place) -> None:
    await place.serve()
    scheduler = await place.scheduler()
    await scheduler.says("phalanx scheduler ready")
    await place.gang()
    await place.stop_serving()
    await scheduler.says("is unreachable, all its clients retry")
    assert await scheduler.end() == 0


@pytest.mark.slow
async def test_an_order_to_end_lets_the_bindings_under_way_finish(place: Place) -> None:
    await place.serve()
    assert place.server is not None
    scheduler = await place.scheduler("--concurrency", "1")
    await scheduler.says("phalanx scheduler ready")
    await place.node("n1")
    place.server.faults.delay("POST", "/binding$", 0.3, times=4)
    await place.gang()
    await place.until_bound(1)
    assert await scheduler.end() == 0
    await place.until_bound(4)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_orderly_end_has_the_exit_code_of_success(place: Place, number: signal.Signals) -> None:
    await place.serve()
    scheduler = await place.scheduler()
    await scheduler.says("phalanx scheduler ready")
    assert await scheduler.end(number) == 0


async def test_killed_for_real_in_the_middle_of_a_gang(place: Place) -> None:
    await place.serve()
    assert place.server is not None
    scheduler = await place.scheduler("--concurrency", "1")
    await scheduler.says("phalanx scheduler ready")
    await place.node("n1")
    place.server.faults.delay("POST", "/binding$", 0.0, times=2)
    place.server.faults.delay("POST", "/binding$", 3600.0)  # the third does not get through in this life
    await place.gang()
    await place.until_bound(2)
    await scheduler.end(signal.SIGKILL)
    await place.scheduler()
    await place.until_bound(4)


async def test_a_bad_policy_is_refused_at_the_start_with_every_mistake(place: Place) -> None:
    await place.serve()
    policy = place.directory / "policy.yaml"
    policy.write_text('actions: "alocate"\ntiers: [{plugins: [{name: binpak}]}]\n', "utf-8")
    scheduler = await place.scheduler("--config", str(policy))
    assert await scheduler.ends() == 1
    assert "unknown action 'alocate'; did you mean 'allocate'?" in scheduler.output
    assert "unknown plugin 'binpak'; did you mean 'binpack'?" in scheduler.output
    assert "Traceback" not in scheduler.output


@pytest.mark.slow
async def test_invalid_change_of_the_policy_is_reported_and_the_old_policy_stays(place: Place) -> None:
    await place.serve()
    await place.node("n1")
    policy = place.directory / "policy.yaml"
    good = 'actions: "allocate"\ntiers: [{plugins: [{name: predicates}]}]\n'
    policy.write_text(good, "utf-8")
    scheduler = await place.scheduler("--config", str(policy))
    await scheduler.says("phalanx scheduler ready")
    policy.write_text("actions: [", "utf-8")
    await scheduler.says("the policy file is invalid; the old policy stays in force")
    await place.gang()
    await place.until_bound()
    policy.write_text(good.replace("predicates", "binpack"), "utf-8")
    await scheduler.says("policy reloaded")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("address", "code", "words"), [("nonsense", 2, "write HOST:PORT"), ("taken", 1, "cannot serve metrics on")]
)
async def test_an_address_that_cannot_be_used_is_one_clear_error(
    place: Place, address: str, code: int, words: str
) -> None:
    await place.serve()
    if address == "taken":
        address = f"127.0.0.1:{place.port}"
    scheduler = await place.scheduler("--metrics-address", address)
    assert await scheduler.ends() == code
    assert words in " ".join(scheduler.lines)


async def test_probes_and_metrics(place: Place) -> None:
    port = free_port()
    scheduler = await place.scheduler("--metrics-address", f"127.0.0.1:{port}")
    await scheduler.says("health and metrics on")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(path) as answer:
                return answer.status, await answer.text()

        # Alive without an API server, but not ready.
        assert await ask("/livez") == (200, "ok\n")
        assert (await ask("/readyz"))[0] == 503
        await place.serve()
        await scheduler.says("phalanx scheduler ready")
        assert await ask("/readyz") == (200, "scheduling\nrole: leader\n")
        await place.node("n1")
        await place.gang()
        await place.until_bound()
        _, metrics = await ask("/metrics")
        assert (await ask("/readyz?verbose"))[1].splitlines() == [
            "[+]leader",
            "[+]synced",
            "[+]fresh",
            "[+]policy",
            "scheduling",
            "role: leader",
        ]
        # The endpoints refuse callers without a token.
        assert (await ask("/debug/state"))[0] == 401
    assert 'phalanx_bindings_total{outcome="bound"} 4' in metrics
    assert 'scheduler_pending_pods{queue="unschedulable"} 0' in metrics
    assert 'leader_election_master_status{name="phalanx-scheduler"} 1' in metrics


async def test_failed_part_of_the_service_is_restarted_and_the_process_continues(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole, tries = VerdictPublisher.publish_due, 0

    def broken(self: VerdictPublisher) -> float | None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ZeroDivisionError("nobody expected this")
        return whole(self)

    await world.node("n1")
    await world.scheduler()
    monkeypatch.setattr(VerdictPublisher, "publish_due", broken)
    await world.pod("hopeless", cpu="100")
    await world.pods(*NAMES, labels=GANG)
    await world.until_bound(*NAMES)
    async with asyncio.timeout(60):
        while tries < 3:  # noqa: ASYNC110 - the verdict publisher tells nobody
            await asyncio.sleep(0.05)
    failed = [record for record in caplog.records if "nobody expected this" in record.getMessage()]
    assert [record.getMessage() for record in failed] == [
        "task: verdict publisher failed and is skipped: ZeroDivisionError: 'nobody expected this'"
    ]


async def test_object_that_cannot_be_decoded_affects_only_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from phalanx.dialects.intake import Intake

    take_in = Intake.pod

    def stumbling(self: Intake, entry: Any) -> Any:
        if entry.metadata.name == "odd":
            raise ZeroDivisionError("an odd pod")
        return take_in(self, entry)

    monkeypatch.setattr(Intake, "pod", stumbling)
    await world.node("n1")
    await world.scheduler()
    await world.pod("odd")
    await world.pods(*NAMES, labels=GANG)
    await world.until_bound(*NAMES)
    assert "odd failed and is skipped: ZeroDivisionError" in caplog.text
    assert (await world.placement())["odd"] == ""
