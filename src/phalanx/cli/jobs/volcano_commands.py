"""Volcano's short commands with its flags and columns: vsub, vjobs, vcancel, vsuspend, vresume, vqueues.

The commands are links to this program (`phalanx shell-commands`). Volcano's own commands can be installed
beside it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.arguments import combined, pass_arguments
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.jobs.entries import JobEntry
    from phalanx.reports.jobs.job_report import FoundJob

    JobOrder = Callable[[KubeClient, FoundJob], Awaitable[str]]

_JOB_COLUMNS = (
    *(("Name", 0), ("Creation", 15), ("Phase", 12), ("JobType", 12), ("Replicas", 12), ("Min", 6), ("Pending", 10)),
    *(("Running", 10), ("Succeeded", 12), ("Failed", 10), ("Unknown", 12), ("RetryCount", 10)),
)
_QUEUE_COLUMNS = (
    *(("Name", 25), ("Weight", 8), ("State", 8), ("Inqueue", 8), ("Pending", 8), ("Running", 8), ("Unknown", 8)),
)
_POD_RESOURCES = "cpu=1000m,memory=100Mi"

_kubeconfig = click.option("-k", "--kubeconfig", metavar="FILE", help="Path to the kubeconfig.")
_namespace = click.option(
    "-N",
    "--namespace",
    envvar="VOLCANO_DEFAULT_JOB_NAMESPACE",
    help="Namespace. Default: the one of the kubeconfig's context.",
)
_HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, kw_only=True)
class VsubArguments:
    """Arguments of `vsub`."""

    name: str
    namespace: str | None
    image: str
    command: str
    replicas: int
    minimum: int
    requests: str
    limits: str
    scheduler: str


@click.command("vsub", context_settings=_HELP)
@click.option("-n", "--name", required=True, help="Name of the job.")
@_namespace
@click.option("-i", "--image", envvar="VOLCANO_DEFAULT_IMAGE", default="busybox", show_default=True)
@click.option("-c", "--command", default="", help="Command of the containers.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Number of pods.")
@click.option("-m", "--min", "minimum", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("-R", "--requests", default=_POD_RESOURCES, show_default=True, help="Requests per pod.")
@click.option("-L", "--limits", default=_POD_RESOURCES, show_default=True, help="Limits per pod.")
@click.option("-S", "--scheduler", envvar="VOLCANO_SCHEDULER_NAME", default="phalanx", show_default=True)
@pass_invocation(VsubArguments, _kubeconfig)
def vsub(invocation: Invocation, arguments: VsubArguments) -> None:
    """Submit a job of one task. For manifests use `phalanx submit FILE`.

    \b
    vsub --name train --image busybox --replicas 4 --min 4 --requests cpu=2,memory=1Gi
    """
    from phalanx.cli.jobs.order_errors import shown_errors
    from phalanx.cli.jobs.served_names import warn_of_unserved_names
    from phalanx.orders.submission.creation import create_all, refuse_bad_job

    document = short_job(
        name=arguments.name,
        image=arguments.image,
        command=arguments.command,
        replicas=arguments.replicas,
        minimum=arguments.minimum,
        requests=arguments.requests,
        limits=arguments.limits,
        scheduler=arguments.scheduler,
    )

    async def work(client: KubeClient) -> None:
        await create_all(client, [document], arguments.namespace or client.namespace)
        await warn_of_unserved_names(invocation, client, [document])

    with shown_errors():
        refuse_bad_job(document)
        invocation.run(work)
    click.echo(f"run job {arguments.name} successfully")


def short_job(
    *, name: str, image: str, command: str, replicas: int, minimum: int, requests: str, limits: str, scheduler: str
) -> dict[str, Any]:
    """Return the Volcano Job for the flags of `vsub`. Raises click.UsageError for an invalid amount or command
    line."""
    from phalanx.cli.jobs.submit import pairs

    resources = {
        "limits": pairs(limits.split(",") if limits else [], "--limits"),
        "requests": pairs(requests.split(",") if requests else [], "--requests"),
    }
    container: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
    }
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--command {quoted(command)}: {error}") from error
    if words:
        container["command"] = words
    template = {
        "metadata": {"labels": {"job.volcano.sh": name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    # Upstream's command sets no task name; its webhook sets this one.
    task = {"name": "default0", "replicas": replicas, "minAvailable": min(minimum, replicas), "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "minAvailable": minimum, "tasks": [task]},
    }


@dataclass(frozen=True, kw_only=True)
class VjobsArguments:
    """Arguments of `vjobs`; `selector` is a text that job names contain, as in Volcano's command."""

    name: str
    namespace: str | None
    scheduler: str
    all_namespaces: bool
    selector: str


@click.command("vjobs", context_settings=_HELP)
@click.option("-n", "--name", default="", help="Show the details of this job.")
@_namespace
@click.option("-S", "--scheduler", default="", help="Only jobs of this scheduler.")
@click.option("--all-namespaces", is_flag=True)
@click.option("--selector", default="", metavar="TEXT", help="Only jobs with this text in their names.")
@pass_invocation(VjobsArguments, _kubeconfig)
def vjobs(invocation: Invocation, arguments: VjobsArguments) -> None:
    """List Volcano Jobs.

    \b
    vjobs
    vjobs --all-namespaces --selector train
    """
    import time

    from phalanx.cli.jobs.job_tables import description
    from phalanx.cli.jobs.target import find_job
    from phalanx.reports.jobs.job_report import JobReader

    async def work(client: KubeClient) -> list[str]:
        reader, namespace = JobReader(client), arguments.namespace or client.namespace
        if arguments.name:
            details = await reader.describe(await find_job(reader, "vcjob", arguments.name, namespace))
            return description(details, time.time())
        all_namespaces, scheduler = arguments.all_namespaces, arguments.scheduler
        all_jobs = await reader.jobs(None if all_namespaces else namespace, time.time(), ("vcjob",))
        jobs = [job.entry for job in all_jobs if arguments.selector in job.entry.name]
        jobs = [job for job in jobs if not scheduler or job.scheduler == scheduler]
        return volcano_job_lines(jobs, namespaces=all_namespaces) if jobs else ["No resources found"]

    click.echo("\n".join(invocation.run(work)))


def volcano_job_lines(jobs: list[JobEntry], *, namespaces: bool) -> list[str]:
    widths = [width for _, width in _JOB_COLUMNS]
    widths[0] = max(len("Name"), *(len(job.name) for job in jobs)) + 3
    namespace_width = max(len("Namespace"), *(len(job.namespace) for job in jobs)) + 3
    rows = [[title for title, _ in _JOB_COLUMNS]]
    for job in jobs:
        counts = (
            job.total,
            job.minimum,
            job.pending,
            job.running,
            job.succeeded,
            job.failed,
            job.unknown,
            job.retries,
        )
        rows.append([job.name, job.created[:10], job.phase, job.job_type or "Batch", *map(str, counts)])
    lines = [_padded(row, widths) for row in rows]
    if namespaces:
        heads = ["Namespace", *(job.namespace for job in jobs)]
        lines = [f"{head:<{namespace_width}}{line}" for head, line in zip(heads, lines, strict=True)]
    return lines


def _padded(cells: list[str], widths: list[int]) -> str:
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


@dataclass(frozen=True, kw_only=True)
class VolcanoJobArguments:
    """Name of a Volcano Job on the command line, in `namespace` (None: that of the kubeconfig's context)."""

    name: str
    namespace: str | None


_one_job = combined(click.option("-n", "--name", required=True, help="Name of the job."), _namespace, _kubeconfig)


@click.command("vcancel", context_settings=_HELP)
@pass_invocation(VolcanoJobArguments, _one_job)
def vcancel(invocation: Invocation, arguments: VolcanoJobArguments) -> None:
    """Delete a Volcano Job.

    \b
    vcancel --name train
    """
    from phalanx.cli.jobs.orders import cancel_job

    _apply(invocation, arguments, cancel_job)
    click.echo(f"delete job {arguments.name} successfully")


@click.command("vsuspend", context_settings=_HELP)
@pass_invocation(VolcanoJobArguments, _one_job)
def vsuspend(invocation: Invocation, arguments: VolcanoJobArguments) -> None:
    """Suspend a Volcano Job: its pods are deleted, the job is kept.

    \b
    vsuspend --name train
    """
    from phalanx.cli.jobs.orders import suspend_job

    click.echo(_apply(invocation, arguments, suspend_job))


@click.command("vresume", context_settings=_HELP)
@pass_invocation(VolcanoJobArguments, _one_job)
def vresume(invocation: Invocation, arguments: VolcanoJobArguments) -> None:
    """Resume a suspended Volcano Job.

    \b
    vresume --name train
    """
    from phalanx.cli.jobs.orders import resume_job

    click.echo(_apply(invocation, arguments, resume_job))


def _apply(invocation: Invocation, arguments: VolcanoJobArguments, order: JobOrder) -> str:
    from phalanx.cli.jobs.target import find_job
    from phalanx.reports.jobs.job_report import JobReader

    async def work(client: KubeClient) -> str:
        namespace = arguments.namespace or client.namespace
        return await order(client, await find_job(JobReader(client), "vcjob", arguments.name, namespace))

    return invocation.run(work)


@dataclass(frozen=True, kw_only=True)
class VqueuesArguments:
    """Arguments of `vqueues`; `name` is empty for all queues."""

    name: str


@click.command("vqueues", context_settings=_HELP)
@click.option("-n", "--name", default="", help="Only this queue.")
@pass_invocation(VqueuesArguments, _kubeconfig)
def vqueues(invocation: Invocation, arguments: VqueuesArguments) -> None:
    """List Volcano queues with the number of their PodGroups in each phase.

    \b
    vqueues
    vqueues --name research
    """
    from phalanx.reports.jobs.kinds import QUEUES
    from phalanx.reports.jobs.read_documents import mapping

    name = arguments.name

    async def work(client: KubeClient) -> list[list[str]]:
        listed = (await client.list_all(QUEUES.path()))["items"]
        rows = []
        for queue in listed:
            if name in ("", queue["metadata"]["name"]):
                spec, status = mapping(queue.get("spec")), mapping(queue.get("status"))
                counts = [status.get(key, 0) for key in ("inqueue", "pending", "running", "unknown")]
                cells = (queue["metadata"]["name"], spec.get("weight", 0), status.get("state", ""), *counts)
                rows.append([str(cell) for cell in cells])
        return rows

    rows = invocation.run(work)
    if not rows:
        if name:
            raise click.ClickException(f'queues.scheduling.volcano.sh "{name}" not found')
        click.echo("No resources found")
        return
    widths = [width for _, width in _QUEUE_COLUMNS]
    click.echo("\n".join(_padded(row, widths) for row in ([title for title, _ in _QUEUE_COLUMNS], *rows)))


@dataclass(frozen=True, kw_only=True)
class ShellCommandsArguments:
    """Arguments of `phalanx shell-commands`; `which` is volcano, slurm or all."""

    directory: str | None
    which: str


@click.command("shell-commands")
@click.option(
    "--install",
    "directory",
    type=click.Path(exists=True, file_okay=False),
    help="Directory for the links; it should be in the PATH.",
)
@click.option(
    "--set",
    "which",
    type=click.Choice(["volcano", "slurm", "all"]),
    default="volcano",
    show_default=True,
    help="volcano: vsub, vjobs, ...; slurm: pq, pinfo, psub, pcancel, pprio, pshare; all: both.",
)
@pass_arguments(ShellCommandsArguments)
def shell_commands(arguments: ShellCommandsArguments) -> None:
    """Link short commands to this program, which acts by the name under which it is called.

    Existing files with these names, such as Volcano's own commands, are not replaced.

    \b
    phalanx shell-commands
    phalanx shell-commands --set slurm --install ~/bin
    """
    import shutil
    import sys
    from pathlib import Path

    from phalanx.cli.main import SHORT_COMMANDS, SLURM_COMMANDS

    directory, which = arguments.directory, arguments.which
    sets = {"volcano": SHORT_COMMANDS, "slurm": SLURM_COMMANDS, "all": {**SHORT_COMMANDS, **SLURM_COMMANDS}}
    commands = sets[which]
    if directory is None:
        for name, (_, summary) in commands.items():
            click.echo(f"{name:10}{summary}")
        chosen = "" if which == "volcano" else f"--set {which} "
        click.echo(f"To install them:  phalanx shell-commands {chosen}--install DIRECTORY")
        return
    program = shutil.which(sys.argv[0]) or shutil.which("phalanx")
    if program is None or Path(program).suffix == ".py":
        raise click.ClickException("phalanx is not in the PATH; add its directory to the PATH")
    foreign_files = []
    for name in commands:
        link = Path(directory) / name
        if link.is_symlink() and os.readlink(link) == os.path.abspath(program):
            click.echo(f"{link} unchanged")
        elif link.exists() or link.is_symlink():
            foreign_files.append(str(link))
        else:
            link.symlink_to(os.path.abspath(program))
            click.echo(f"{link} created")
    if foreign_files:
        raise click.ClickException(f"not replaced, because other files exist: {', '.join(foreign_files)}")
