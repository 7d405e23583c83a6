"""An embedded API server with a node agent beside it, and short queries of its state."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx_local.nodeagent.agent import AgentOptions
from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
from phalanx_local.nodeagent.service import NodeAgentOptions, run_node_agent
from phalanx_local.server import ApiServer

# Most waits end in a fraction of a second; a busy machine needs much longer.
PATIENCE = 60.0
_POLL = 0.02
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


class World:
    def __init__(self, server: ApiServer, client: KubeClient, directory: Path) -> None:
        self.server = server
        self.client = client
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.nodes_file = directory / "nodes.yaml"
        self.agents: list[asyncio.Task[None]] = []

    def write_nodes(self, text: str) -> None:
        """Replace the nodes file, as an editor does."""
        fresh = self.directory / "nodes.new"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.nodes_file)

    async def start(self, nodes: str | None = None, *, execute: bool = False, **options: Any) -> asyncio.Task[None]:
        """An agent that is ready. `nodes` is the text of its nodes file."""
        if nodes is not None:
            self.write_nodes(nodes)
            options["nodes_file"] = str(self.nodes_file)
        options.setdefault("restarts", RestartBackoff(initial=0.1, limit=1.0))
        ready = asyncio.Event()
        service = NodeAgentOptions(agent=AgentOptions(**options), execute=execute)
        config = load_config(str(self.kubeconfig))
        agent = asyncio.create_task(run_node_agent(config, service, lambda nodes: ready.set()))
        self.agents.append(agent)
        waiter = asyncio.create_task(ready.wait())
        await asyncio.wait([agent, waiter], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if agent.done():
            agent.result()
        assert ready.is_set()
        return agent

    async def stop(self, agent: asyncio.Task[None]) -> None:
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)
        self.agents.remove(agent)

    async def close(self) -> None:
        for agent in list(self.agents):
            await self.stop(agent)

    # Asking

    async def get(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self.client.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def until(self, path: str, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until the object exists and is as wanted; shows the object when that does not come."""
        seen = None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            seen = await self.get(path)
            if seen is not None and holds(seen):
                return seen
            await asyncio.sleep(_POLL)
        raise AssertionError(f"waited in vain for {path}: {seen}")

    async def until_gone(self, path: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if await self.get(path) is None:
                return
            await asyncio.sleep(_POLL)
        raise AssertionError(f"{path} is still there")

    async def until_phase(self, name: str, phase: str) -> dict[str, Any]:
        return await self.until(f"{PODS}/{name}", lambda pod: pod["status"].get("phase") == phase)

    async def changes_until_phase(self, pod: dict[str, Any], phase: str) -> list[dict[str, Any]]:
        """Return all states of a pod since its creation up to the first in this phase, also short ones."""
        metadata = pod["metadata"]
        query = {
            "watch": True,
            "resourceVersion": metadata["resourceVersion"],
            "fieldSelector": f"metadata.name={metadata['name']}",
        }
        states: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE):
            async for line in self.client.stream(PODS, query, read_timeout=PATIENCE):
                states.append(json.loads(line)["object"])
                if states[-1]["status"].get("phase") == phase:
                    break
        assert states
        return states

    # Doing

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """A pod as a user creates it, with its node already named (no scheduler takes part here)."""
        metadata = {
            key: body["metadata"][key] for key in ("name", "annotations", "labels") if key in body["metadata"]
        }
        made: dict[str, Any] = await self.client.create(PODS, {**body, "metadata": metadata, "status": {}})
        return made

    async def patch(self, path: str, patch: dict[str, Any], kind: PatchType = PatchType.MERGE) -> None:
        await self.client.patch(path, patch, kind)

    async def kubectl(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            "--kubeconfig",
            str(self.kubeconfig),
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.directory), "GOGC": "off"},
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()


def condition(body: dict[str, Any], kind: str) -> str:
    conditions = body.get("status", {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")
