"""What a readiness probe is told, from the start to the end."""

from __future__ import annotations

import urllib.error
import urllib.request
from asyncio import to_thread

import pytest

from phalanx.daemon.endpoint import STOPPING, EndpointOptions, serving
from phalanx.daemon.service import SchedulerOptions, SchedulerService
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx_local.server import free_port
from tests.daemon.test_endpoint import Nobody


def service(*, elects: bool) -> SchedulerService:
    options = SchedulerOptions(leader_elect=elects)
    return SchedulerService(KubeClient(ClusterConfig("http://127.0.0.1:1")), options)


async def test_one_that_has_not_seen_the_cluster_is_not_ready_and_one_that_waits_for_its_turn_is() -> None:
    assert service(elects=False).condition() == ""
    assert service(elects=True).condition() == "standby"


async def test_an_outage_of_the_api_server_does_not_end_readiness() -> None:
    scheduler = service(elects=False)
    scheduler.ready.set()
    assert not scheduler._checks()["fresh"]
    assert scheduler.condition() == "scheduling"


async def test_who_has_lost_the_lease_is_no_standby() -> None:
    scheduler = service(elects=True)
    scheduler.ready.set()
    assert scheduler.condition() == STOPPING
    scheduler.stop()
    scheduler.ready.clear()
    assert scheduler.condition() == STOPPING


@pytest.mark.parametrize(("word", "expected"), [("scheduling", 200), ("standby", 200), ("", 503), (STOPPING, 503)])
async def test_a_probe_hears_the_word(word: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nobody, "condition", lambda self: word)
    address = f"127.0.0.1:{free_port()}"

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{address}/readyz") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    async with serving(EndpointOptions(address), Nobody(), lambda: b""):
        assert await to_thread(ask) == (expected, f"{word or 'not synced'}\n")
