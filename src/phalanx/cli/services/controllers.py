"""`phalanx controllers`: the life cycle of jobs and groups, beside the scheduler."""

from __future__ import annotations

import click

from phalanx.cli.connection import kubeconfig_option
from phalanx.cli.services.logs import log_format_option, log_level_option


@click.command()
@kubeconfig_option
@click.option(
    "--scheduler-name",
    "scheduler_names",
    multiple=True,
    default=("phalanx",),
    show_default=True,
    metavar="NAME",
    help="Whose pods suspended jobs may have; the first is the spec.schedulerName of pods whose job names none. "
    "May be repeated.",
)
@click.option("--leader-elect", is_flag=True, help="Work only while holding a lease, for several replicas.")
@click.option("--lease-namespace", default="kube-system", show_default=True, help="Where the lease is kept.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Writes to the API at the same time.",
)
@log_level_option
@log_format_option
def controllers(
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    leader_elect: bool,
    lease_namespace: str,
    concurrency: int,
    log_level: str,
    log_format: str,
) -> None:
    """Run the controllers of jobs, job flows and groups until SIGTERM or Ctrl-C.

    Creates the pods of Volcano Jobs, restarts them by their policies, and ends them. Prints one line on stdout when
    it has seen the whole cluster and works. Never run it beside Volcano's own controller manager.
    """
    from phalanx.cli.connection import run_connected
    from phalanx.cli.services.logs import set_up_logging
    from phalanx.cli.services.service_run import run_until_signal
    from phalanx.controllers.registry import all_controllers
    from phalanx.controllers.service import ControllerOptions, ControllerService
    from phalanx.kube.client import KubeClient

    if not all(scheduler_names):
        raise click.UsageError("--scheduler-name must not be empty")
    set_up_logging(log_level, log_format)
    options = ControllerOptions(
        scheduler_names=scheduler_names,
        concurrency=concurrency,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
    )

    async def work(client: KubeClient) -> str:
        service = ControllerService(client, options, all_controllers)
        await run_until_signal(
            service, lambda: f"phalanx controllers ready: {', '.join(each.name for each in service.controllers)}"
        )
        return service.leadership.lost_because

    if lost := run_connected(work, kubeconfig):
        raise click.ClickException(lost)
