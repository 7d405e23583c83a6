"""Command `phalanx up`: an embedded cluster for experiments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from phalanx.cli.arguments import pass_arguments
from phalanx.cli.invocation import refuse_empty_names
from phalanx.cli.services.options import served_names_option
from phalanx_local.cli.apiserver import certificate_file, tenant_file, tenant_option

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
    aggregated_api: bool
    run_processes: bool
    webhook: bool
    with_dashboard: bool
    history: bool


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
@click.option(
    "--aggregated-api",
    is_flag=True,
    help="Serve the aggregated API, and write for each --tenant a kubeconfig with a client certificate, which "
    "commands use with it.",
)
@click.option("--exec", "run_processes", is_flag=True, help="Run container commands as local processes.")
@click.option(
    "--dashboard/--no-dashboard",
    "with_dashboard",
    default=True,
    show_default=True,
    help="Serve the dashboard.",
)
@click.option(
    "--history/--no-history",
    default=True,
    show_default=True,
    help="Record usage for `phalanx history` and `phalanx report`: beside --data, else in a new file of "
    "--directory at each start. Records are removed after 90 days.",
)
@click.option("--webhook", is_flag=True, help="Run the admission webhook.")
@pass_arguments(UpArguments)
def up(arguments: UpArguments) -> None:
    """Start an embedded cluster with nodes and the scheduler, and run it until Ctrl-C.

    Writes a kubeconfig that works with kubectl. Pods do not run real processes unless --exec is set.

    \b
    phalanx up
    phalanx up --tenant team-a --data objects.db
    phalanx up --directory second --config policy.yaml
    """
    with _locked(arguments.directory, arguments.data):
        _run_cluster(arguments)


def _run_cluster(arguments: UpArguments) -> None:
    """Run the embedded cluster until it ends. Raises click.ClickException."""
    import asyncio

    from phalanx.demo.localcluster import LocalCluster, LocalOptions, StartError

    refuse_empty_names(arguments.scheduler_names)
    if arguments.aggregated_api and not arguments.tenants:
        raise click.UsageError("--aggregated-api needs --tenant: the page of the tenants serves it")
    directory = arguments.directory
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
        history=_history_file(arguments),
        tenants=tuple(
            (namespace, file or tenant_file(kubeconfig, namespace)) for namespace, file in arguments.tenants
        ),
        aggregated=arguments.aggregated_api,
    )
    click.echo("phalanx: starting API server, kubelets and scheduler ...", err=True)
    try:
        asyncio.run(_stay_up(LocalCluster(options)))
    except StartError as error:
        raise click.ClickException(str(error)) from error


def _history_file(arguments: UpArguments) -> Path | None:
    """Return the path of the usage database; print one line if its libraries are missing."""
    import time

    from phalanx.demo.local_history import history_file, missing_extra

    if not arguments.history:
        return None
    if line := missing_extra():
        click.echo(f"phalanx: {line}", err=True)
        return None
    return history_file(arguments.directory, arguments.data, time.time()).absolute()


@contextlib.contextmanager
def _locked(directory: Path, data: Path | None) -> Iterator[None]:
    """Lock `directory` and the file `data` for this process inside the context.

    The kernel releases the locks, also after SIGKILL, so that the pid of an ended process locks nothing. Raises
    click.ClickException if a cluster of another process uses one of them.
    """
    with contextlib.ExitStack() as locks:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            locks.enter_context(_lock(directory / "up.pid", f"in {directory.resolve()}", "--directory"))
            if data is not None:
                locks.enter_context(_lock(Path(f"{data}.pid"), f"with {data.resolve()}", "--data"))
        except OSError as error:
            raise click.ClickException(f"cannot use {error.filename or directory}: {error.strerror}") from error
        yield


def _lock(file: Path, place: str, option: str) -> TextIO:
    """Return `file`, locked until it is closed, with the pid of this process as its content."""
    import fcntl
    import os

    lock = file.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        pid = lock.read().strip()
        lock.close()
        raise click.ClickException(
            f"phalanx up runs already {place} (pid {pid}); stop it, or start a second cluster with another {option}"
        ) from error
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


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
    import os

    options = cluster.options
    click.echo(f"phalanx up: {cluster.client.config.server}")
    click.echo(f"  export KUBECONFIG={options.kubeconfig.resolve()}")
    for namespace, file in options.tenants:
        click.echo(f"  tenant of {namespace}: export KUBECONFIG={file.resolve()}")
        if options.aggregated:
            certified = certificate_file(file, namespace).resolve()
            click.echo(f"  tenant of {namespace}, with a client certificate: export KUBECONFIG={certified}")
    if cluster.tenants_address:
        click.echo(f"  page of the tenants: {cluster.tenants_address} (log in with the token of a tenant)")
    click.echo("  kubectl get nodes")
    if cluster.dashboard_address:
        click.echo(f"  dashboard: {cluster.dashboard_address} (one-time link; next link: {cluster.dashboard_file})")
    if cluster.history_failure:
        click.echo(f"phalanx: history is not recorded: {cluster.history_failure}", err=True)
    elif options.history is not None:
        click.echo(f"  history: {os.path.relpath(options.history)} (phalanx history, phalanx report)")
    click.echo(f"  nodes file: {options.nodes_file} (edit it to add or change nodes)")
    click.echo(f"  logs: {options.directory}/*.log    Ctrl-C stops the cluster")
