"""`phalanx node-agent`: simulate the kubelets of many nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.arguments import pass_arguments
from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.services.logs import LogArguments, log_options

if TYPE_CHECKING:
    import asyncio

    from phalanx.kube.auth.config import ClusterConfig
    from phalanx_local.nodeagent.service import NodeAgentOptions


@dataclass(frozen=True, kw_only=True)
class NodeAgentArguments(LogArguments):
    """Arguments of `phalanx node-agent`; times are in seconds."""

    kubeconfig: str | None
    nodes_file: str | None
    all_nodes: bool
    mode: str
    run_seconds: float | None
    start_seconds: float
    terminate_seconds: float
    restart_backoff: float
    missing_images: tuple[str, ...]
    pod_network: str
    log_dir: str | None
    anonymous_logs: bool
    concurrency: int

    def refuse_mistakes(self) -> None:
        """Raise click.UsageError if a command-line option has an invalid value."""
        from phalanx_local.nodeagent.addresses import AddressPool
        from phalanx_local.nodeagent.pod_runtime.script import MAX_SECONDS

        for name, seconds in (
            ("--run-seconds", self.run_seconds),
            ("--start-seconds", self.start_seconds),
            ("--terminate-seconds", self.terminate_seconds),
        ):
            if seconds is not None and not 0 <= seconds <= MAX_SECONDS:
                raise click.UsageError(f"{name}: expected 0 to {MAX_SECONDS:.0f} seconds, found {seconds:g}")
        if not 0.01 <= self.restart_backoff <= MAX_SECONDS:
            raise click.UsageError(
                f"--restart-backoff: expected 0.01 to {MAX_SECONDS:.0f} seconds, found {self.restart_backoff:g}"
            )
        if self.pod_network:
            try:
                AddressPool(self.pod_network)
            except ValueError as error:
                raise click.UsageError(f"--pod-network: {error}") from error

    def agent_options(self) -> NodeAgentOptions:
        from phalanx_local.nodeagent.agent import AgentOptions
        from phalanx_local.nodeagent.node_registration import Adoption
        from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
        from phalanx_local.nodeagent.pod_runtime.images import Images
        from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults
        from phalanx_local.nodeagent.service import NodeAgentOptions

        backoff = self.restart_backoff
        return NodeAgentOptions(
            agent=AgentOptions(
                nodes_file=self.nodes_file,
                adoption=Adoption.ALL if self.all_nodes else Adoption.NONE if self.nodes_file else Adoption.MARKED,
                script=ScriptDefaults(
                    start=self.start_seconds, run=self.run_seconds, terminate=self.terminate_seconds
                ),
                restarts=RestartBackoff(initial=backoff, limit=30 * backoff),
                pod_network=self.pod_network,
                images=Images(self.missing_images),
                concurrency=self.concurrency,
            ),
            execute=self.mode == "exec",
            log_directory=self.log_dir,
            anonymous_logs=self.anonymous_logs,
        )


@click.command("node-agent")
@kubeconfig_option
@click.option(
    "--nodes",
    "nodes_file",
    metavar="FILE",
    help="Nodes to register and run (YAML or JSON); the agent applies changes of the file.",
)
@click.option("--all-nodes", is_flag=True, help="Simulate every node of the API.")
@click.option("--fake", "mode", flag_value="fake", default="fake", help="Simulate the containers (the default).")
@click.option(
    "--exec",
    "mode",
    flag_value="exec",
    help="Run container commands as local processes of the agent's user, without isolation.",
)
@click.option("--run-seconds", type=float, metavar="S", help="Simulated run time of pods that end.")
@click.option("--start-seconds", type=float, metavar="S", default=0.0, help="Simulated start time of pods.")
@click.option(
    "--terminate-seconds",
    type=float,
    metavar="S",
    default=0.1,
    show_default=True,
    help="Simulated stop time of pods.",
)
@click.option(
    "--restart-backoff",
    type=float,
    metavar="S",
    default=1.0,
    show_default=True,
    help="Pause before a container restarts; doubles with each restart, up to 30 times this value.",
)
@click.option(
    "--missing-image",
    "missing_images",
    metavar="PATTERN",
    multiple=True,
    help="Images whose pull fails, such as 'registry.invalid/*' (repeatable).",
)
@click.option("--pod-network", metavar="CIDR", default="", help="Network of the pod addresses.")
@click.option("--log-dir", metavar="DIR", help="Directory of the --exec logs (default: temporary).")
@click.option(
    "--anonymous-logs",
    is_flag=True,
    help="Serve logs to every local user, for a kube-apiserver without --kubelet-client-certificate.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    help="Maximum number of concurrent pod writes.",
)
@pass_arguments(NodeAgentArguments, log_options)
def node_agent(arguments: NodeAgentArguments) -> None:
    """Simulate the kubelets of many nodes: heartbeats, admission, pod phases, graceful deletion.

    With --nodes the agent registers the nodes of the file. Without it, the agent adopts nodes with the label or
    annotation phalanx.dev/fake: "true" (--all-nodes: every node). Annotations of a pod define its simulated run:
    phalanx.dev/run-seconds, exit-code, start-seconds, terminate-seconds, log.

    \b
    phalanx node-agent --kubeconfig kubeconfig --nodes nodes.yaml
    phalanx node-agent --all-nodes --run-seconds 30
    """
    import asyncio

    from phalanx.kube.auth.config import load_config
    from phalanx.kube.errors import ConfigError
    from phalanx_local.nodeagent.node_file import NodeFileError

    arguments.refuse_mistakes()
    arguments.set_up_logging()
    options = arguments.agent_options()
    try:
        asyncio.run(_serve(load_config(arguments.kubeconfig), options))
    except (ConfigError, NodeFileError, OSError) as error:
        raise click.ClickException(str(error)) from error


async def _serve(config: ClusterConfig, options: NodeAgentOptions) -> None:
    """Run the node agent until SIGTERM or Ctrl-C."""
    from phalanx.kube.leadership import unless_stopped
    from phalanx.kube.process import StoppableWork, run_until_signal
    from phalanx_local.nodeagent.service import run_node_agent

    if options.execute:
        click.echo(
            f"phalanx node-agent: --exec runs the containers of all users of {config.server} "
            "as local processes of this user",
            err=True,
        )

    def announce(nodes: int) -> None:
        click.echo(f"phalanx node-agent ready: {nodes} nodes")

    async def work(stopping: asyncio.Event) -> None:
        await unless_stopped(stopping, run_node_agent(config, options, announce))

    await run_until_signal(StoppableWork(work))
