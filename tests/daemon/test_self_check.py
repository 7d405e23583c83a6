"""`--self-check`: books that do not agree with the pods end the scheduler, and say where."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.daemon import ledger_check
from phalanx.daemon.service import SchedulerOptions, SchedulerService, ServiceError
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.model.events import PodUpdated
from phalanx.model.pod import Pod, PodClass


@pytest.mark.asyncio
async def test_sums_that_differ_from_the_pods_end_the_service(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger_check, "_PERIOD", 0.01)
    checked = SchedulerService(KubeClient(ClusterConfig("http://127.0.0.1:1")), SchedulerOptions(self_check=True))
    pod = Pod("ns", "p", "u", PodClass(requests=(("cpu", 500),)), scheduler="phalanx", node="n")
    checked.state.apply(PodUpdated(pod))
    checking = asyncio.create_task(checked.assembly.controllers.ledger_check.run())
    await asyncio.sleep(0.1)
    assert not checking.done()
    for account in checked.state.ledger.accounts.values():
        account.used["cpu"] = 400
    checked.state._changes.version += 1
    with pytest.raises(ServiceError, match="differ from the sum of their pods"):
        await asyncio.wait_for(checking, 60)
    assert "queue default" in caplog.text
