"""One embedded API server per end-to-end test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer

from .world import World

# Periods (seconds) at which the agent looks at files and objects, shortened so that tests do not wait for them.
PERIODS = {
    "phalanx_local.nodeagent.agent._FILE_PERIOD": 0.02,
    "phalanx_local.nodeagent.agent._CLAIM_PERIOD": 0.05,
    "phalanx_local.nodeagent.pod_runtime.containers._PULL_PAUSE": 0.05,
    "phalanx_local.nodeagent.pod_runtime.processes._OBJECT_PERIOD": 0.05,
}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for name, seconds in PERIODS.items():
        monkeypatch.setattr(name, seconds)
    server = ApiServer(ServerOptions())
    await server.start()
    try:
        server.write_kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient(load_config(str(tmp_path / "kubeconfig"))) as client:
            made = World(server, client, tmp_path)
            try:
                yield made
            finally:
                await made.close()
    finally:
        await server.stop()
