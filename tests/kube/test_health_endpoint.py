"""Health and metrics of a process: readiness tells the role."""

from __future__ import annotations

import aiohttp
import pytest

from phalanx.kube.health_endpoint import health_endpoint
from phalanx.kube.listening import ListenError


async def get(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("ready", "leads", "answer"),
    [
        (True, True, (200, "ready\nrole: leader\n")),
        (False, True, (503, "not ready\nrole: leader\n")),
        (False, False, (200, "ready\nrole: standby\n")),
    ],
)
async def test_readiness_tells_the_role(ready: bool, leads: bool, answer: tuple[int, str]) -> None:
    async with health_endpoint("127.0.0.1:0", "hub", lambda: ready, lambda: leads) as port:
        assert await get(port, "/readyz") == answer
        assert await get(port, "/healthz") == (200, "ok\n")
        _, metrics = await get(port, "/metrics")
    assert f'phalanx_process_leader{{part="hub"}} {float(leads)}' in metrics
    assert f'phalanx_process_ready{{part="hub"}} {float(ready)}' in metrics
    assert "process_cpu_seconds_total" in metrics


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:"])
async def test_unusable_address_is_an_error(address: str) -> None:
    with pytest.raises(ListenError):
        async with health_endpoint(address, "hub", lambda: True, lambda: True):
            pass
