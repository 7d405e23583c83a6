"""Command `phalanx submit`: submit a job from a file or from flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import connection_options, namespace_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.jobs.order_errors import shown_errors
from phalanx.model.text.decoding import quoted
from phalanx.orders.submission.job_request import FRAMEWORKS, GPU, RESTARTS, JobRequest, build_job

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient

Json = dict[str, Any]

_JOB_FLAGS = (
    *(
        "name",
        "image",
        "replicas",
        "gpu",
        "cpu",
        "memory",
        "gang",
        "minimum",
        "framework",
        "environment",
        "restart",
    ),
    "max_retry",
)


@dataclass(frozen=True, kw_only=True)
class SubmitArguments:
    """Arguments of `phalanx submit`; `words` are a file name, or the command of a job described by flags."""

    words: tuple[str, ...]
    name: str | None
    image: str | None
    replicas: int | None
    gpu: str | None
    cpu: str | None
    memory: str | None
    gang: bool | None
    minimum: int | None
    framework: str | None
    environment: tuple[str, ...]
    restart: str | None
    max_retry: int | None
    queue: str
    priority_class: str
    scheduler_name: str | None
    notify: str
    notify_target: str
    notify_to: str
    namespace: str | None
    dry_run: bool
    output: str | None
    wait: bool
    timeout: float | None


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("words", metavar="[FILE | -- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", help="Name of the job.")
@click.option("--image", help="Image of the containers.")
@click.option("--replicas", type=click.IntRange(min=1), help="Number of pods, including all roles.  [default: 1]")
@click.option("--gpu", metavar="N|RESOURCE=N", help=f"GPUs per pod; a plain number requests {GPU}.")
@click.option("--cpu", metavar="AMOUNT", help="CPUs per pod, such as 2 or 500m.")
@click.option("--memory", metavar="AMOUNT", help="Memory per pod, such as 4Gi.")
@click.option(
    "--gang/--no-gang", default=None, help="Start all pods together (default), or each as soon as it fits."
)
@click.option(
    "--min",
    "minimum",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start as soon as N pods fit; further pods as they fit.",
)
@click.option(
    "--framework", type=click.Choice(FRAMEWORKS), help="Framework whose roles, services and environment are set up."
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment variable of the containers; repeatable.",
)
@click.option(
    "--restart",
    type=click.Choice(RESTARTS),
    help="What is recreated after the failure or eviction of a pod.  [default: job with --framework, else never]",
)
@click.option(
    "--max-retry", type=click.IntRange(min=0), help="Number of restarts after which the job fails.  [default: 3]"
)
@click.option("-q", "--queue", default="", help="Queue of objects without queue. Default: the queue `default`.")
@click.option(
    "--priority", "priority_class", default="", metavar="CLASS", help="PriorityClass of objects without one."
)
@click.option(
    "--scheduler-name",
    default=None,
    metavar="NAME",
    help="spec.schedulerName of objects without one. Default: phalanx for a job from flags, unset for a file.",
)
@click.option(
    "--notify",
    default="",
    metavar="EVENTS",
    help="Notify of these events of the job: start, end, failure, eviction, promise-broken (comma-separated), "
    "or all.",
)
@click.option(
    "--notify-target",
    default="",
    metavar="TARGET",
    help="Target that the administrator has defined (with --notify). Default: the only one of the namespace.",
)
@click.option(
    "--notify-to",
    default="",
    metavar="NAME",
    help="Recipient of mail, without a domain (with --notify). Default: the user of the job.",
)
@namespace_option
@click.option("--dry-run", is_flag=True, help="Print the objects; create nothing.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="Print the created objects in this format."
)
@click.option("--wait", is_flag=True, help="Wait until the job ends, like `phalanx job wait`.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Maximum seconds to wait (with --wait)."
)
@pass_invocation(SubmitArguments, connection_options)
def submit(invocation: Invocation, arguments: SubmitArguments) -> None:
    """Submit a job described by flags, or the objects in a file.

    Flags create a Volcano Job (batch.volcano.sh). It is a gang, unless --no-gang or --min is set. FILE is any
    manifest, also with several documents: Volcano Jobs, native Jobs, a PodGroup with its pods. Flags only set
    fields that the file leaves empty. `-` reads stdin.

    \b
    phalanx submit --name train --image torch --replicas 4 --gpu 1 --framework pytorch -- python train.py
    phalanx submit job.yaml --queue research --wait
    phalanx submit job.yaml --notify end,eviction
    phalanx submit --name train --image torch --replicas 4 --dry-run
    """
    from phalanx.cli.jobs.served_names import warn_of_unserved_names
    from phalanx.orders.submission.creation import create_all, job_reference, refuse_bad_job
    from phalanx.orders.submission.manifests import label
    from phalanx.orders.submission.notify import notify

    with shown_errors():
        documents = _from_file(arguments) if arguments.name is None else _from_flags(arguments, arguments.name)
        notify(documents, arguments.notify, arguments.notify_target, arguments.notify_to)
        for document in documents:
            refuse_bad_job(document)
    if arguments.dry_run:
        _print(documents, arguments.output or "yaml")
        return

    async def work(client: KubeClient) -> list[Json]:
        namespace = arguments.namespace or client.namespace
        created = await create_all(client, documents, namespace, announce)
        await warn_of_unserved_names(invocation, client, documents)
        return created

    def announce(document: Json) -> None:
        if arguments.output is None:
            click.echo(f"{label(document)} created")

    with shown_errors():
        created = invocation.run(work)
    if arguments.output is not None:
        _print(created, arguments.output)
    jobs = [job for document in created if (job := job_reference(document)) is not None]
    if arguments.wait:
        if not jobs:
            raise click.UsageError("--wait needs a job or PodGroup among the created objects")
        from phalanx.cli.jobs.wait import wait_for_all

        raise click.exceptions.Exit(wait_for_all(invocation, jobs, "completed", arguments.timeout))
    if arguments.output is None:
        _print_next_commands(jobs)


def _from_flags(arguments: SubmitArguments, name: str) -> list[Json]:
    from phalanx.admission.names import subdomain_faults
    from phalanx.orders.submission.creation import amounts

    if not arguments.image:
        raise click.UsageError("--name requires --image")
    if faults := subdomain_faults(name):
        raise click.UsageError(f"invalid --name {quoted(name)}: {faults[0]}")
    if arguments.minimum is not None and arguments.gang is not None:
        raise click.UsageError("--min excludes --gang and --no-gang")
    if arguments.framework == "ray" and arguments.words:
        raise click.UsageError(
            "--framework ray starts a Ray cluster without a command; when it runs, use: ray job submit"
        )
    minimum = 1 if arguments.gang is False else arguments.minimum
    request = JobRequest(
        name=name,
        image=arguments.image,
        replicas=arguments.replicas or 1,
        minimum=minimum,
        namespace=arguments.namespace or "",
        queue=arguments.queue,
        priority_class=arguments.priority_class,
        scheduler_name=arguments.scheduler_name or "phalanx",
        framework=arguments.framework or "",
        resources=amounts(arguments.cpu, arguments.memory, arguments.gpu),
        environment=pairs(arguments.environment, "--env"),
        command=arguments.words,
        restart=arguments.restart or "",
        max_retry=arguments.max_retry,
    )
    return [build_job(request)]


def _from_file(arguments: SubmitArguments) -> list[Json]:
    from phalanx.orders.submission.manifests import fill_in, read_manifests

    if len(arguments.words) != 1:
        raise click.UsageError("set either one FILE, or --name and --image")
    job_flags = [name for name in _JOB_FLAGS if getattr(arguments, name) not in (None, ())]
    if job_flags:
        flag = {"minimum": "min", "environment": "env"}.get(job_flags[0], job_flags[0]).replace("_", "-")
        raise click.UsageError(f"--{flag} excludes FILE; set the field in the file")
    documents = read_manifests(arguments.words[0])
    for document in documents:
        fill_in(
            document,
            queue=arguments.queue,
            scheduler_name=arguments.scheduler_name or "",
            priority_class=arguments.priority_class,
        )
        if arguments.namespace and arguments.dry_run:
            document["metadata"].setdefault("namespace", arguments.namespace)
    return documents


def pairs(stated: Sequence[str], flag: str) -> dict[str, str]:
    """Parse NAME=VALUE texts of a flag. Raises click.UsageError."""
    values = {}
    for text in stated:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"invalid {flag} {quoted(text)}; write NAME=VALUE")
        values[name] = value
    return values


def _print_next_commands(jobs: list[tuple[str, str, str]]) -> None:
    for kind, namespace, name in jobs[:1]:
        target = f"{name if kind == 'vcjob' else f'{kind}/{name}'} -n {namespace}"
        click.echo(f"  to wait for its start:  phalanx job wait {target} --for running")
        click.echo(f"  to see its state:       phalanx job describe {target}")


def _print(documents: list[Json], output: str) -> None:
    import json

    import yaml

    from phalanx.orders.submission.manifests import label

    if output == "name":
        for document in documents:
            click.echo(label(document))
    elif output == "json":
        shown = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, explicit_start=len(documents) > 1)
        click.echo(text, nl=False)
