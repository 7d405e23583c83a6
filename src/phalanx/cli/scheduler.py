"""`phalanx scheduler`: the scheduler process."""

from __future__ import annotations

import click

from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.logs import log_format_option, log_level_option


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
    "--metrics-address", default="", metavar="HOST:PORT", help="Serve /metrics, /healthz, /livez, /readyz."
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
@log_level_option
@log_format_option
def scheduler(
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    config: str,
    leader_elect: bool,
    lease_namespace: str,
    metrics_address: str,
    concurrency: int,
    self_check: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Run the scheduler against a cluster until SIGTERM or Ctrl-C.

    Prints one line on stdout when it has seen the whole cluster and schedules. A bad policy file is refused at
    the start with every mistake named; while running, a bad change is reported and the old policy stays.
    """
    import asyncio
    import gc
    import signal

    from phalanx.cli.connection import run_connected
    from phalanx.cli.logs import set_up_logging
    from phalanx.daemon.service import SchedulerOptions, SchedulerService, ServiceError
    from phalanx.kube.client import KubeClient
    from phalanx.scheduling.framework.errors import PolicyError

    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")
    if metrics_address and not metrics_address.rpartition(":")[2].isdecimal():
        raise click.UsageError(f"--metrics-address: {metrics_address!r} is not HOST:PORT, such as 127.0.0.1:9090")
    set_up_logging(log_level, log_format)
    options = SchedulerOptions(
        scheduler_names=scheduler_names,
        config=config,
        concurrency=concurrency,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        metrics_address=metrics_address,
        self_check=self_check,
    )

    async def work(client: KubeClient) -> bool:
        try:
            service = SchedulerService(client, options)
        except PolicyError as error:
            raise click.ClickException(str(error)) from error
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.stop)

        async def announce() -> None:
            await service.ready.wait()
            # What has been read stays: the collector need not walk over it again and again.
            gc.collect()
            gc.freeze()
            click.echo(f"phalanx scheduler ready: schedules for {', '.join(scheduler_names)}")

        announcement = asyncio.create_task(announce())
        try:
            await service.run()
        except ServiceError as error:
            raise click.ClickException(str(error)) from error
        finally:
            announcement.cancel()
        return service.lost_leadership

    if run_connected(work, kubeconfig):
        raise click.ClickException("the lease was lost to another replica")
