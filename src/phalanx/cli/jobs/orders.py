"""What can be told to a job: Commands for Volcano's, fields for others. Each says in a line what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from phalanx.orders.volcano_command import ABORT, RESTART, RESUME, command_to

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.orders.target import Target
    from phalanx.reports.jobs.entries import JobEntry
    from phalanx.reports.jobs.job_report import FoundJob


async def order_by_field(
    client: KubeClient,
    namespace: str,
    name: str,
    order: Callable[[KubeClient, Target], Awaitable[str]],
) -> str:
    """To the job of an operator, of whatever kind, by its own field. `name` may be that of the job, its PodGroup
    or, as pod/NAME, of one of its pods."""
    from phalanx.orders.errors import BadNameError, OrderError
    from phalanx.orders.target import TargetFinder

    try:
        return await order(client, await TargetFinder(client, namespace).find(name))
    except BadNameError as error:
        raise click.UsageError(error.message) from error
    except OrderError as error:
        raise click.ClickException(error.message) from error


async def suspend_job(client: KubeClient, job: FoundJob) -> str:
    entry = job.entry
    if entry.over:
        raise click.ClickException(f"{entry.target} is {entry.phase}: there is nothing to suspend")
    if entry.phase in ("Aborted", "Aborting", "Suspended"):
        return f"{entry.target} is suspended already"
    if entry.kind == "vcjob":
        await send_command(client, job, ABORT)
    else:
        await _set_suspend(client, job, True)
    return f"{entry.target} will be suspended; its pods end. To go on: phalanx job resume {_at(entry)}"


async def resume_job(client: KubeClient, job: FoundJob) -> str:
    entry = job.entry
    if entry.over:
        raise click.ClickException(f"{entry.target} is {entry.phase} and cannot be resumed; submit it again")
    if entry.phase not in ("Aborted", "Aborting", "Suspended"):
        return f"{entry.target} is not suspended"
    if entry.kind == "vcjob":
        await send_command(client, job, RESUME)
    else:
        await _set_suspend(client, job, False)
    return f"{entry.target} will go on. To see it start: phalanx job wait {_at(entry)} --for running"


async def restart_job(client: KubeClient, job: FoundJob) -> str:
    entry = job.entry
    if entry.kind != "vcjob":
        raise click.ClickException(f"{entry.target}: only Volcano Jobs can be restarted; suspend and resume it")
    if entry.over or entry.phase in ("Aborted", "Aborting"):
        advice = "submit it again" if entry.over else "resume it"
        raise click.ClickException(f"{entry.target} is {entry.phase} and cannot be restarted; {advice}")
    await send_command(client, job, RESTART)
    return f"{entry.target} will be restarted: all its pods are made anew"


async def cancel_job(client: KubeClient, job: FoundJob) -> str:
    from phalanx.kube.core_resources import PODS

    entry = job.entry
    if entry.kind != "gang":
        assert job.resource is not None
        path = job.resource.path(entry.namespace, entry.name)
        await client.delete(path, uid=entry.uid, propagation="Background")
        return f"{entry.target} cancelled: it and its pods are deleted"
    if entry.owner:
        raise click.ClickException(
            f"{entry.target} belongs to {entry.owner}, which would make it anew; delete that"
        )
    makers = sorted({pod.owner for pod in job.pods if pod.owner})
    if makers:
        raise click.ClickException(
            f"{entry.target}: its pods belong to {', '.join(makers)}, which would make them anew; delete that"
        )
    if job.resource is not None:
        await client.delete(job.resource.path(entry.namespace, entry.name), uid=entry.uid)
    await asyncio.gather(*(client.delete(PODS.path(entry.namespace, pod.name), uid=pod.uid) for pod in job.pods))
    return f"{entry.target} cancelled: it and its {len(job.pods)} pods are deleted"


async def send_command(client: KubeClient, job: FoundJob, action: str) -> None:
    """A Command of Volcano's to the job. The job owns it, so none is left when the job is gone."""
    from phalanx.kube.errors import ApiError
    from phalanx.reports.jobs.kinds import COMMANDS

    try:
        await client.create(COMMANDS.path(job.entry.namespace), command_to(job.entry, action))
    except ApiError as error:
        if error.status == 404:
            raise click.ClickException(
                f"{job.entry.target}: this cluster does not have the kind Command of bus.volcano.sh/v1alpha1; "
                "`phalanx install` brings it"
            ) from error
        raise


async def _set_suspend(client: KubeClient, job: FoundJob, value: bool) -> None:
    from phalanx.kube.client import PatchType

    assert job.resource is not None
    path = job.resource.path(job.entry.namespace, job.entry.name)
    await client.patch(path, {"spec": {"suspend": value}}, PatchType.MERGE)


def _at(entry: JobEntry) -> str:
    return f"{entry.target} -n {entry.namespace}"
