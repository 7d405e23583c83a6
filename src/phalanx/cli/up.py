"""Command `phalanx up`: an embedded cluster for experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.arguments import pass_arguments
from phalanx.cli.invocation import refuse_empty_names
from phalanx.cli.services.options import served_names_option
from phalanx_local.cli.apiserver import tenant_file, tenant_option

if TYPE_CHECKING:
    from phalanx.demo.localcluster import LocalCluster

DEFAULT_NODES = """\
# The nodes of this cluster. Edit and save the file to add, change or remove nodes while the cluster runs.
- name: node-{i}
  count: 4
  allocatable: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 2, pods: 110}
"""


@dataclass(frozen=True, kw_only=True)
class UpArguments:
    """Arguments of `phalanx up`; `tenants` are namespaces, each with the path of its kubeconfig (None: default)."""

    directory: Path
    nodes: Path | None
    kubeconfig: Path | None
    port: int
    data: Path | None
    config: str
    scheduler_names: tuple[str, ...]
    metrics_address: str
    tenants: tuple[tuple[str, Path | None], ...]
    run_processes: bool
    webhook: bool
    with_dashboard: bool


@click.command()
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".phalanx"),
    show_default=True,
    help="Directory of kubeconfig, nodes file and logs.",
)
@click.option(
    "--nodes", type=click.Path(dir_okay=False, path_type=Path), help="Nodes file; created if it does not exist."
)
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Path of the kubeconfig to write."
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Port of the API server; 0 picks a free one."
)
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), help="Store the objects in this file.")
@click.option("--config", default="", metavar="POLICY", help="Policy file of the scheduler.")
@served_names_option(
    "Schedule pods with this spec.schedulerName; repeatable. All other pods stay pending.",
    default=("phalanx", "default-scheduler", "volcano"),
)
@click.option(
    "--metrics-address",
    default="",
    metavar="HOST:PORT",
    help="Serve the scheduler's metrics and health checks on this address.",
)
@tenant_option
@click.option("--exec", "run_processes", is_flag=True, help="Run container commands as local processes.")
@click.option(
    "--dashboard/--no-dashboard",
    "with_dashboard",
    default=True,
    show_default=True,
    help="Serve the dashboard.",
)
@click.option("--webhook", is_flag=True, help="Run the admission webhook.")
@pass_arguments(UpArguments)
def up(arguments: UpArguments) -> None:
    """Start an embedded cluster with nodes and the scheduler, and run it until Ctrl-C.

    Writes a kubeconfig that works with kubectl. Pods do not run real processes unless --exec is set.
    """
    import asyncio

    from phalanx.demo.localcluster import LocalCluster, LocalOptions, StartError

    refuse_empty_names(arguments.scheduler_names)
    directory = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    nodes_file = arguments.nodes or directory / "nodes.yaml"
    if not nodes_file.exists():
        nodes_file.write_text(DEFAULT_NODES, "utf-8")
    kubeconfig = arguments.kubeconfig or directory / "kubeconfig"
    options = LocalOptions(
        directory=directory,
        nodes_file=nodes_file,
        kubeconfig=kubeconfig,
        port=arguments.port,
        data=arguments.data,
        policy=arguments.config,
        scheduler_names=arguments.scheduler_names,
        metrics_address=arguments.metrics_address,
        run_processes=arguments.run_processes,
        webhook=arguments.webhook,
        dashboard=arguments.with_dashboard,
        tenants=tuple(
            (namespace, file or tenant_file(kubeconfig, namespace)) for namespace, file in arguments.tenants
        ),
    )
    click.echo("phalanx: starting API server, kubelets and scheduler ...", err=True)
    try:
        asyncio.run(_stay_up(LocalCluster(options)))
    except StartError as error:
        raise click.ClickException(str(error)) from error


async def _stay_up(cluster: LocalCluster) -> None:
    """Run the embedded cluster until SIGTERM, Ctrl-C or the failure of a component."""
    import asyncio

    from phalanx.demo.localcluster import StartError
    from phalanx.kube.process import StoppableWork, run_until_signal

    async def work(stopping: asyncio.Event) -> None:
        async with cluster.running():
            _announce(cluster)
            failure, stopped = asyncio.create_task(cluster.failure()), asyncio.create_task(stopping.wait())
            await asyncio.wait([failure, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if failure.done():
                raise StartError(failure.result())
            failure.cancel()

    await run_until_signal(StoppableWork(work))


def _announce(cluster: LocalCluster) -> None:
    options = cluster.options
    click.echo(f"phalanx up: {cluster.client.config.server}")
    click.echo(f"  export KUBECONFIG={options.kubeconfig.resolve()}")
    for namespace, file in options.tenants:
        click.echo(f"  tenant of {namespace}: export KUBECONFIG={file.resolve()}")
    if cluster.tenants_address:
        click.echo(f"  page of the tenants: {cluster.tenants_address} (log in with the token of a tenant)")
    click.echo("  kubectl get nodes")
    if cluster.dashboard_address:
        click.echo(f"  dashboard: {cluster.dashboard_address} (one-time link; next link: {cluster.dashboard_file})")
    click.echo(f"  nodes file: {options.nodes_file} (edit it to add or change nodes)")
    click.echo(f"  logs: {options.directory}/*.log    Ctrl-C stops the cluster")
