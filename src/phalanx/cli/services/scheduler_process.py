"""The scheduler process on a client. The command imports this module, with all of the scheduler, only when its
first reads are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from phalanx.daemon.garbage_collection import until_ready
from phalanx.daemon.service import SchedulerService, ServiceError
from phalanx.daemon.telemetry import Telemetry
from phalanx.kube.process import run_until_signal
from phalanx.scheduling.framework.errors import PolicyError

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.cli.services.scheduler import SchedulerArguments
    from phalanx.controllers.service import ControllerService
    from phalanx.daemon.tracing import Tracing
    from phalanx.kube.client import KubeClient


async def run_scheduler(
    client: KubeClient, invocation: Invocation, arguments: SchedulerArguments, tracing: Tracing | None
) -> str:
    """Run the scheduler until a signal. Return the cause of a lost lease, "" if it was not lost."""
    telemetry = Telemetry(arguments.endpoint_options(), tracing)
    try:
        service = SchedulerService(client, arguments.scheduler_options(invocation), telemetry)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    extra_services = [_controllers(client, invocation, arguments)] if arguments.with_controllers else []

    async def announce() -> None:
        await until_ready(service.ready)
        for extra in extra_services:
            await extra.ready.wait()
        click.echo(f"phalanx scheduler ready: schedules for {', '.join(invocation.scheduler_names)}")

    try:
        await run_until_signal(service, *extra_services, announce=announce)
    except ServiceError as error:
        raise click.ClickException(str(error)) from error
    leaderships = (service.leadership, *(extra.leadership for extra in extra_services))
    return next((leadership.lost_because for leadership in leaderships if leadership.lost_because), "")


def _controllers(client: KubeClient, invocation: Invocation, arguments: SchedulerArguments) -> ControllerService:
    from phalanx.controllers.registry import all_controllers
    from phalanx.controllers.service import ControllerOptions, ControllerService

    options = ControllerOptions(
        scheduler_names=invocation.scheduler_names,
        leader_elect=arguments.leader_elect,
        lease_namespace=invocation.lease_namespace,
    )
    return ControllerService(client, options, all_controllers)
