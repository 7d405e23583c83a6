"""Setup and teardown of the whole node agent: API client, pods and nodes, runtime and log server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import decode_json
from phalanx_local.nodeagent.agent import AgentOptions, NodeAgent
from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.log_access import AnonymousAccess, DelegatedAccess
from phalanx_local.nodeagent.node_objects import PODS
from phalanx_local.nodeagent.pod_runtime.config_objects import Read
from phalanx_local.nodeagent.pod_runtime.fake_log import FakeLogs
from phalanx_local.nodeagent.pod_runtime.log_server import LogServer
from phalanx_local.nodeagent.pod_runtime.processes import LocalProcesses


class NodeAgentOptions(msgspec.Struct, frozen=True):
    """Options of the node agent.

    `execute`: run containers as local processes instead of simulating them. `log_directory` contains the logs of
    the processes; None for a temporary directory. `anonymous_logs`: serve logs to every local user.
    """

    agent: AgentOptions = AgentOptions()
    execute: bool = False
    log_directory: str | None = None
    anonymous_logs: bool = False


async def run_node_agent(config: ClusterConfig, options: NodeAgentOptions, ready: Callable[[int], None]) -> None:
    """Run the node agent until cancelled. `ready(nodes)` is called once. Raise NodeFileError or OSError at the
    start.
    """
    temporary = None
    async with KubeClient(config, user_agent="phalanx-node-agent", max_connections=96) as client:
        # An API server without TLS has no authentication that the agent could delegate to.
        anonymous = options.anonymous_logs or config.server.startswith("http://")
        logs = LogServer(AnonymousAccess() if anonymous else DelegatedAccess(client, config))
        try:
            await logs.start()
            if options.execute:
                directory = options.log_directory
                if directory is None:
                    directory = temporary = tempfile.mkdtemp(prefix="phalanx-node-agent-")
                agent, processes = _executing(client, options.agent, Path(directory), logs.port)
                logs.connect(processes, _finder(client, agent))
            else:
                agent = NodeAgent(client, options.agent, log_port=logs.port)
                logs.connect(FakeLogs(_runs(agent)), _finder(client, agent))
            await agent.run(ready)
        finally:
            await logs.close()
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)


def _executing(
    client: KubeClient, options: AgentOptions, directory: Path, log_port: int
) -> tuple[NodeAgent, LocalProcesses]:
    made: list[LocalProcesses] = []

    def make(agent: NodeAgent) -> LocalProcesses:
        made.append(
            LocalProcesses(
                agent,
                directory,
                address=agent.address,
                allocatable=agent.allocatable,
                read=_object_reader(client),
            )
        )
        return made[0]

    return NodeAgent(client, options, make_runtime=make, log_port=log_port), made[0]


def _object_reader(client: KubeClient) -> Read:
    async def read(plural: str, namespace: str, name: str) -> bytes | None:
        try:
            return await client.request("GET", Resource("", "v1", plural).path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    return read


def _runs(agent: NodeAgent) -> Callable[[str], bool]:
    def runs(uid: str) -> bool:
        life = agent.pods.life(uid)
        return life is not None and not life.finished

    return runs


def _finder(client: KubeClient, agent: NodeAgent) -> Callable[[str, str], Awaitable[V1Pod | None]]:
    async def find(namespace: str, name: str) -> V1Pod | None:
        # The pod is read from the API: the agent drops finished pods, and users mostly read their logs.
        try:
            answer = await client.request("GET", PODS.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        pod = decode_json(answer, V1Pod)
        return pod if pod.node in agent.pods.nodes else None

    return find
