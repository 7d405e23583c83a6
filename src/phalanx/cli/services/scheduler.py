"""`phalanx scheduler`: the scheduler process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.services.logs import log_format_option, log_level_option

if TYPE_CHECKING:
    from phalanx.controllers.service import ControllerService
    from phalanx.daemon.tracing import Tracing
    from phalanx.kube.client import KubeClient


@click.command()
@kubeconfig_option
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    default=("phalanx",),
    show_default=True,
    metavar="NAME",
    help="Schedule pods with this spec.schedulerName; may be repeated.",
)
@click.option(
    "--config", default="", metavar="POLICY", help="A policy file in Volcano's format; watched for changes."
)
@click.option("--leader-elect", is_flag=True, help="Work only while holding a lease, for several replicas.")
@click.option("--lease-namespace", default="kube-system", show_default=True, help="Where the lease is kept.")
@click.option(
    "--lease-name",
    default="",
    metavar="NAME",
    help="What the lease is called that the replicas have in common. By default NAME-scheduler of the first "
    "--scheduler-name: phalanx-scheduler.",
)
@click.option(
    "--metrics-address", default="", metavar="HOST:PORT", help="Serve /metrics, /healthz, /livez, /readyz."
)
@click.option(
    "--metrics-certificate", default="", metavar="FILE", help="Serve them with TLS: the certificate, in PEM."
)
@click.option("--metrics-key", default="", metavar="FILE", help="The key of the certificate, in PEM.")
@click.option(
    "--guard-metrics",
    is_flag=True,
    help="Serve /metrics only to whom the API server lets get that path, as /configz and /debug always are.",
)
@click.option(
    "--account-metrics",
    type=click.IntRange(min=0),
    default=500,
    show_default=True,
    metavar="N",
    help="How many queues and quotas, those with the largest shares, have metrics of their own; the rest is one.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Writes to the API at the same time.",
)
@click.option(
    "--self-check",
    is_flag=True,
    help="Count every queue and quota again from the pods once a second; stop with code 1 if the sums differ.",
)
@click.option(
    "--with-controllers",
    is_flag=True,
    help="Run the controllers of jobs and groups in this process too, for small clusters.",
)
@click.option(
    "--otlp-endpoint",
    default="",
    metavar="URL",
    help="Send spans of cycles and writes to this collector of OpenTelemetry (OTLP over HTTP, such as "
    "http://localhost:4318). By default $OTEL_EXPORTER_OTLP_ENDPOINT, or none. Needs the extra otel.",
)
@log_level_option
@log_format_option
def scheduler(
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    config: str,
    leader_elect: bool,
    lease_namespace: str,
    lease_name: str,
    metrics_address: str,
    metrics_certificate: str,
    metrics_key: str,
    guard_metrics: bool,
    account_metrics: int,
    concurrency: int,
    self_check: bool,
    with_controllers: bool,
    otlp_endpoint: str,
    log_level: str,
    log_format: str,
) -> None:
    """Run the scheduler against a cluster until SIGTERM or Ctrl-C.

    Prints one line on stdout when it has seen the whole cluster and schedules. A bad policy file is refused at
    the start with every mistake named; while running, a bad change is reported and the old policy stays.
    """
    import asyncio
    import signal

    from phalanx.admission.names import subdomain_faults
    from phalanx.cli.connection import run_connected
    from phalanx.cli.services.logs import set_up_logging
    from phalanx.daemon.endpoint import EndpointOptions
    from phalanx.daemon.garbage_collection import until_ready
    from phalanx.daemon.service import SchedulerOptions, SchedulerService, ServiceError
    from phalanx.daemon.telemetry import Telemetry
    from phalanx.scheduling.framework.errors import PolicyError

    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")
    if metrics_address and not metrics_address.rpartition(":")[2].isdecimal():
        raise click.UsageError(f"--metrics-address: {metrics_address!r} is not HOST:PORT, such as 127.0.0.1:9090")
    if bool(metrics_certificate) != bool(metrics_key):
        raise click.UsageError("--metrics-certificate and --metrics-key belong together")
    if lease_name and not leader_elect:
        raise click.UsageError("--lease-name is of no effect without --leader-elect")
    if faults := subdomain_faults(lease_name) if lease_name else []:
        raise click.UsageError(f"--lease-name: no object may be called {lease_name!r}: {'; '.join(faults)}")
    set_up_logging(log_level, log_format)
    endpoint = EndpointOptions(metrics_address, metrics_certificate, metrics_key, guard_metrics, account_metrics)
    telemetry = Telemetry(endpoint, _tracing(otlp_endpoint))
    options = SchedulerOptions(
        scheduler_names=scheduler_names,
        config=config,
        concurrency=concurrency,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        self_check=self_check,
    )

    async def work(client: KubeClient) -> str:
        try:
            service = SchedulerService(client, options, telemetry)
        except PolicyError as error:
            raise click.ClickException(str(error)) from error
        beside = _controllers(client, scheduler_names, leader_elect, lease_namespace) if with_controllers else None

        def stop() -> None:
            service.stop()
            if beside is not None:
                beside.stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

        async def announce() -> None:
            await until_ready(service.ready)
            if beside is not None:
                await beside.ready.wait()
            click.echo(f"phalanx scheduler ready: schedules for {', '.join(scheduler_names)}")

        announcement = asyncio.create_task(announce())
        try:
            await asyncio.gather(*(_until_end(part.run(), stop) for part in (service, beside) if part is not None))
        except ServiceError as error:
            raise click.ClickException(str(error)) from error
        finally:
            announcement.cancel()
        return service.leadership.lost_because or (beside.leadership.lost_because if beside is not None else "")

    if lost := run_connected(work, kubeconfig):
        raise click.ClickException(lost)


def _tracing(endpoint: str) -> Tracing | None:
    """What an environment says that was made for many programs must not keep one from starting."""
    import logging
    import os

    wanted = endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not wanted:
        return None
    try:
        from phalanx.daemon.tracing import connect

        return connect(wanted)
    except ImportError as error:
        text = f"spans cannot be sent to {wanted}: {error}; install phalanx-scheduler[otel]"
        if endpoint:
            raise click.ClickException(text) from error
        logging.getLogger(__name__).warning("%s", text)
        return None


def _controllers(
    client: KubeClient, scheduler_names: tuple[str, ...], leader_elect: bool, namespace: str
) -> ControllerService:
    from phalanx.controllers.registry import all_controllers
    from phalanx.controllers.service import ControllerOptions, ControllerService

    options = ControllerOptions(
        scheduler_names=scheduler_names, leader_elect=leader_elect, lease_namespace=namespace
    )
    return ControllerService(client, options, all_controllers)


async def _until_end(run: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
    """One part of the process; when it ends, for whatever reason, the other is stopped."""
    try:
        await run
    finally:
        stop()
