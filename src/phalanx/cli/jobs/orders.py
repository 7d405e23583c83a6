"""Commands to jobs (suspend, resume, restart, cancel): Volcano's Command for Volcano Jobs, fields for other jobs.
Each returns a message for the user."""

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
    """Execute a command such as suspend on the job of another operator through its own field, and return the
    message.

    `name` is the job, its PodGroup, or one of its pods (pod/NAME). Raises click.UsageError, click.ClickException.
    """
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
        raise click.ClickException(f"{entry.target} cannot be suspended: it is {entry.phase}")
    if entry.phase in ("Aborted", "Aborting", "Suspended"):
        return f"{entry.target} is already suspended"
    if entry.kind == "vcjob":
        await send_command(client, job, ABORT)
    else:
        await _set_suspend(client, job, True)
    return f"{entry.target} will be suspended; its pods are deleted. To resume: phalanx job resume {_at(entry)}"


async def resume_job(client: KubeClient, job: FoundJob) -> str:
    entry = job.entry
    if entry.over:
        raise click.ClickException(f"{entry.target} cannot be resumed: it is {entry.phase}; submit it again")
    if entry.phase not in ("Aborted", "Aborting", "Suspended"):
        return f"{entry.target} is not suspended"
    if entry.kind == "vcjob":
        await send_command(client, job, RESUME)
    else:
        await _set_suspend(client, job, False)
    return f"{entry.target} will be resumed. To wait for its start: phalanx job wait {_at(entry)} --for running"


async def restart_job(client: KubeClient, job: FoundJob) -> str:
    entry = job.entry
    if entry.kind != "vcjob":
        raise click.ClickException(
            f"{entry.target} cannot be restarted: only Volcano Jobs can; suspend and resume it instead"
        )
    if entry.over or entry.phase in ("Aborted", "Aborting"):
        advice = "submit it again" if entry.over else "resume it"
        raise click.ClickException(f"{entry.target} cannot be restarted: it is {entry.phase}; {advice}")
    await send_command(client, job, RESTART)
    return f"{entry.target} will be restarted: all its pods are recreated"


def described(job: FoundJob) -> str:
    """Return a one-line description of the objects that `cancel_job` deletes."""
    entry, running = job.entry, sum(pod.phase == "Running" for pod in job.pods)
    name = entry.target if "/" in entry.target else f"{entry.kind}/{entry.target}"
    return f"{name} in namespace {entry.namespace}, with its {len(job.pods)} pods ({running} running)"


def refuse_owned(job: FoundJob) -> None:
    """Raise click.ClickException for a gang without a job if an owner would recreate it or its pods."""
    entry = job.entry
    if entry.kind != "gang":
        return
    if entry.owner:
        raise click.ClickException(
            f"{entry.target} belongs to {entry.owner}, which would recreate it; delete {entry.owner} instead"
        )
    owners = sorted({pod.owner for pod in job.pods if pod.owner})
    if owners:
        raise click.ClickException(
            f"{entry.target}: its pods belong to {', '.join(owners)}, which recreates them; delete the owner"
        )


async def cancel_job(client: KubeClient, job: FoundJob) -> str:
    from phalanx.kube.core_resources import PODS

    entry = job.entry
    if entry.kind != "gang":
        assert job.resource is not None
        path = job.resource.path(entry.namespace, entry.name)
        await client.delete(path, uid=entry.uid, propagation="Background")
        return f"{entry.target} cancelled: the job and its pods are deleted"
    refuse_owned(job)
    if job.resource is not None:
        await client.delete(job.resource.path(entry.namespace, entry.name), uid=entry.uid)
    await asyncio.gather(*(client.delete(PODS.path(entry.namespace, pod.name), uid=pod.uid) for pod in job.pods))
    return f"{entry.target} cancelled: the gang and its {len(job.pods)} pods are deleted"


async def send_command(client: KubeClient, job: FoundJob, action: str) -> None:
    """Create a Command of Volcano for the job. The job owns the Command, so it is deleted with the job."""
    from phalanx.kube.errors import ApiError
    from phalanx.reports.jobs.kinds import COMMANDS

    try:
        await client.create(COMMANDS.path(job.entry.namespace), command_to(job.entry, action))
    except ApiError as error:
        if error.status == 404:
            raise click.ClickException(
                f"{job.entry.target}: the cluster has no kind Command of bus.volcano.sh/v1alpha1; "
                "install it with: phalanx install"
            ) from error
        raise


async def _set_suspend(client: KubeClient, job: FoundJob, value: bool) -> None:
    from phalanx.kube.client import PatchType

    assert job.resource is not None
    path = job.resource.path(job.entry.namespace, job.entry.name)
    await client.patch(path, {"spec": {"suspend": value}}, PatchType.MERGE)


def _at(entry: JobEntry) -> str:
    return f"{entry.target} -n {entry.namespace}"
