"""Command `phalanx controllers`: the controllers of jobs and PodGroups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.logs import LogArguments, log_options
from phalanx.cli.services.options import (
    health_address_option,
    leader_elect_option,
    own_lease_namespace_option,
    served_names_option,
    ssh_option,
    write_concurrency_option,
)

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient


@dataclass(frozen=True, kw_only=True)
class ControllersArguments(LogArguments):
    """Arguments of `phalanx controllers`."""

    leader_elect: bool
    concurrency: int
    metrics_address: str
    ssh: bool


@click.command()
@connection_options
@served_names_option(
    "Scheduler of suspended jobs that a queue can start; the first is set as spec.schedulerName of pods whose job "
    "has none. Repeatable."
)
@leader_elect_option
@own_lease_namespace_option
@write_concurrency_option
@ssh_option
@health_address_option
@pass_invocation(ControllersArguments, log_options)
def controllers(invocation: Invocation, arguments: ControllersArguments) -> None:
    """Run the controllers of jobs, job flows and PodGroups until SIGTERM or Ctrl-C.

    They create the pods of Volcano Jobs, restart them by the job policies, and delete them at the end. One line on
    stdout reports when all controllers are ready. Do not run them beside Volcano's controller manager.

    \b
    phalanx controllers --kubeconfig kubeconfig
    phalanx controllers --leader-elect
    """
    from phalanx.cli.services.service_run import run_announced, run_leading
    from phalanx.controllers.registry import all_controllers
    from phalanx.controllers.service import ControllerOptions, ControllerService

    invocation.refuse_empty_names()
    arguments.set_up_logging()
    options = ControllerOptions(
        scheduler_names=invocation.scheduler_names,
        concurrency=arguments.concurrency,
        leader_elect=arguments.leader_elect,
        lease_namespace=invocation.lease_namespace,
        ssh=arguments.ssh,
    )

    async def work(client: KubeClient) -> str:
        service = ControllerService(client, options, all_controllers)
        await run_announced(
            service,
            lambda: (
                f"phalanx controllers ready: {', '.join(controller.name for controller in service.controllers)}"
            ),
            address=arguments.metrics_address,
            part="controllers",
            leads=service.leadership.holds,
        )
        return service.leadership.lost_because

    run_leading(invocation, work)
