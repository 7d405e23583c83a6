"""`phalanx node-agent`: play the kubelets of many nodes."""

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
    concurrency: int

    def refuse_mistakes(self) -> None:
        """Raise click.UsageError for values that cannot be."""
        import ipaddress

        for name, seconds in (
            ("--run-seconds", self.run_seconds),
            ("--start-seconds", self.start_seconds),
            ("--terminate-seconds", self.terminate_seconds),
        ):
            if seconds is not None and not 0 <= seconds < float("inf"):
                raise click.UsageError(f"{name}: {seconds:g} is not a number of seconds")
        if not 0.01 <= self.restart_backoff < float("inf"):
            raise click.UsageError("--restart-backoff: at least 0.01 seconds")
        if self.pod_network:
            try:
                ipaddress.IPv4Network(self.pod_network)
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
        )


@click.command("node-agent")
@kubeconfig_option
@click.option(
    "--nodes",
    "nodes_file",
    metavar="FILE",
    help="Nodes to register and keep alive (YAML or JSON); the file is followed while the agent runs.",
)
@click.option("--all-nodes", is_flag=True, help="Play every node that exists in the API.")
@click.option("--fake", "mode", flag_value="fake", default="fake", help="Pods pretend to run (the default).")
@click.option(
    "--exec",
    "mode",
    flag_value="exec",
    help="Run container commands as local processes of the user who runs the agent, without isolation.",
)
@click.option("--run-seconds", type=float, metavar="S", help="How long pods that are meant to end pretend to run.")
@click.option("--start-seconds", type=float, metavar="S", default=0.0, help="How long pods take to start.")
@click.option(
    "--terminate-seconds",
    type=float,
    metavar="S",
    default=0.1,
    show_default=True,
    help="How long they take to stop.",
)
@click.option(
    "--restart-backoff",
    type=float,
    metavar="S",
    default=1.0,
    show_default=True,
    help="Pause before a container is started again; doubles up to 30 times as much.",
)
@click.option(
    "--missing-image",
    "missing_images",
    metavar="PATTERN",
    multiple=True,
    help="Images that cannot be pulled, such as 'registry.invalid/*' (repeatable).",
)
@click.option("--pod-network", metavar="CIDR", default="", help="Where pod addresses come from.")
@click.option(
    "--log-dir", metavar="DIR", help="Where --exec keeps logs (default: a directory that goes with the agent)."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    help="Pod writes in flight at most.",
)
@pass_arguments(NodeAgentArguments, log_options)
def node_agent(arguments: NodeAgentArguments) -> None:
    """Play the kubelets of many nodes: heartbeats, admission, pod phases, graceful deletion.

    With --nodes the file's nodes are registered. Without it, nodes with the label or annotation
    phalanx.dev/fake: "true" are taken on as they appear (--all-nodes: every node). Pods state by annotations
    what they pretend: phalanx.dev/run-seconds, exit-code, start-seconds, terminate-seconds, log.
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
    """Run the agent until SIGTERM or Ctrl-C."""
    from phalanx.kube.leadership import unless_stopped
    from phalanx.kube.process import StoppableWork, run_until_signal
    from phalanx_local.nodeagent.service import run_node_agent

    if options.execute:
        click.echo(
            f"phalanx node-agent: --exec runs what users of {config.server} put into their pods "
            "as local processes of this user",
            err=True,
        )

    def announce(nodes: int) -> None:
        click.echo(f"phalanx node-agent ready: {nodes} nodes")

    async def work(stopping: asyncio.Event) -> None:
        await unless_stopped(stopping, run_node_agent(config, options, announce))

    await run_until_signal(StoppableWork(work))
