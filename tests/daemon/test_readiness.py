"""Answers to a readiness probe, from start to end."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from asyncio import to_thread

import pytest
from prometheus_client.exposition import generate_latest

from phalanx.daemon.endpoint import STOPPING, EndpointOptions, serving
from phalanx.daemon.observer import Observer
from phalanx.daemon.service import SchedulerOptions, SchedulerService
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from tests.daemon.test_endpoint import Nobody


def service(*, elects: bool) -> SchedulerService:
    options = SchedulerOptions(leader_elect=elects)
    return SchedulerService(KubeClient(ClusterConfig("http://127.0.0.1:1")), options)


async def test_one_that_has_not_seen_the_cluster_is_not_ready() -> None:
    """Nor one that waits for its turn: it may lack the rights, or the token, to be of any use."""
    assert service(elects=False).condition() == ""
    assert service(elects=True).condition() == ""


async def test_one_that_has_seen_the_cluster_and_waits_for_its_turn_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Observer, "complete", True)
    assert service(elects=True).condition() == "standby"


@pytest.mark.parametrize("elects", [True, False])
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("plans", [True, False])
async def test_probe_and_verdict_agree(
    elects: bool, seen: bool, plans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader has seen pods and nodes long before an answer of 500 about a queue lets it plan."""
    monkeypatch.setattr(Observer, "complete", seen)
    scheduler = service(elects=elects)
    if plans:
        scheduler.ready.set()
    assert scheduler.assembly.observation.readiness.checks()["synced"] == (scheduler.condition() != "")


async def test_standby_exports_no_values_that_only_a_leader_decides() -> None:
    """A sum over both replicas would count waiting gangs twice, and the standby's oldest turn would never end."""

    def told(elects: bool) -> set[str]:
        scheduler = service(elects=elects)
        telemetry = scheduler.telemetry
        text = [
            *scheduler.assembly.observation.inspection.counted(),
            *generate_latest(telemetry.registry).decode().splitlines(),
        ]
        return {re.split("[ {]", line)[0] for line in text if not line.startswith("#")}

    assert told(elects=False) - told(elects=True) == {"scheduler_pending_pods"}


async def test_an_outage_of_the_api_server_does_not_end_readiness() -> None:
    scheduler = service(elects=False)
    scheduler.ready.set()
    assert not scheduler.assembly.observation.readiness.checks()["fresh"]
    assert scheduler.condition() == "scheduling"


async def test_scheduler_that_lost_the_lease_is_stopping_and_no_standby() -> None:
    scheduler = service(elects=True)
    scheduler.ready.set()
    assert scheduler.condition() == STOPPING
    scheduler.stop()
    scheduler.ready.clear()
    assert scheduler.condition() == STOPPING


@pytest.mark.parametrize(("word", "expected"), [("scheduling", 200), ("standby", 200), ("", 503), (STOPPING, 503)])
@pytest.mark.parametrize("role", ["leader", "standby"])
async def test_probe_hears_the_condition_and_the_role(
    word: str, expected: int, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nobody, "condition", lambda self: word)
    monkeypatch.setattr(Nobody, "checks", lambda self: {"leader": role == "leader"})

    def ask(port: int) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    async with serving(EndpointOptions("127.0.0.1:0"), Nobody(), lambda: b"") as port:
        assert await to_thread(ask, port) == (expected, f"{word or 'not synced'}\nrole: {role}\n")
