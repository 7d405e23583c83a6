"""`phalanx node-agent`: play the kubelets of many nodes."""

from __future__ import annotations

import click

from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.services.logs import log_format_option, log_level_option


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
@log_level_option
@log_format_option
def node_agent(
    kubeconfig: str | None,
    nodes_file: str | None,
    all_nodes: bool,
    mode: str,
    run_seconds: float | None,
    start_seconds: float,
    terminate_seconds: float,
    restart_backoff: float,
    missing_images: tuple[str, ...],
    pod_network: str,
    log_dir: str | None,
    concurrency: int,
    log_level: str,
    log_format: str,
) -> None:
    """Play the kubelets of many nodes: heartbeats, admission, pod phases, graceful deletion.

    With --nodes the file's nodes are registered. Without it, nodes with the label or annotation
    phalanx.dev/fake: "true" are taken on as they appear (--all-nodes: every node). Pods state by annotations
    what they pretend: phalanx.dev/run-seconds, exit-code, start-seconds, terminate-seconds, log.
    """
    import asyncio
    import ipaddress
    import signal

    from phalanx.cli.services.logs import set_up_logging
    from phalanx.kube.auth.config import load_config
    from phalanx.kube.errors import ConfigError
    from phalanx_local.nodeagent.agent import AgentOptions
    from phalanx_local.nodeagent.node_file import NodeFileError
    from phalanx_local.nodeagent.node_registration import Adoption
    from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
    from phalanx_local.nodeagent.pod_runtime.images import Images
    from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults
    from phalanx_local.nodeagent.service import NodeAgentOptions, run_node_agent

    for name, seconds in (
        ("--run-seconds", run_seconds),
        ("--start-seconds", start_seconds),
        ("--terminate-seconds", terminate_seconds),
    ):
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise click.UsageError(f"{name}: {seconds:g} is not a number of seconds")
    if not 0.01 <= restart_backoff < float("inf"):
        raise click.UsageError("--restart-backoff: at least 0.01 seconds")
    if pod_network:
        try:
            ipaddress.IPv4Network(pod_network)
        except ValueError as error:
            raise click.UsageError(f"--pod-network: {error}") from error
    set_up_logging(log_level, log_format)
    adoption = Adoption.ALL if all_nodes else Adoption.NONE if nodes_file else Adoption.MARKED
    options = NodeAgentOptions(
        agent=AgentOptions(
            nodes_file=nodes_file,
            adoption=adoption,
            script=ScriptDefaults(start=start_seconds, run=run_seconds, terminate=terminate_seconds),
            restarts=RestartBackoff(initial=restart_backoff, limit=30 * restart_backoff),
            pod_network=pod_network,
            images=Images(missing_images),
            concurrency=concurrency,
        ),
        execute=mode == "exec",
        log_directory=log_dir,
    )

    def ready(nodes: int) -> None:
        click.echo(f"phalanx node-agent ready: {nodes} nodes")

    async def serve() -> None:
        config = load_config(kubeconfig)
        if options.execute:
            click.echo(
                f"phalanx node-agent: --exec runs what users of {config.server} put into their pods "
                "as local processes of this user",
                err=True,
            )
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        try:
            await run_node_agent(config, options, ready)
        except asyncio.CancelledError:
            return

    try:
        asyncio.run(serve())
    except (ConfigError, NodeFileError, OSError) as error:
        raise click.ClickException(str(error)) from error
