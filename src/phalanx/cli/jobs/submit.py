"""`phalanx submit`: a job from a file or from what is typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import connection_options, namespace_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.jobs.job_builder import FRAMEWORKS, GPU, RESTARTS, JobRequest, build_job

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.kube.discovery import Discovery

Json = dict[str, Any]

_OF_FLAGS = (
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
    """Arguments of `phalanx submit`; `words` are a file, or the command of a job that is described by flags."""

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
    namespace: str | None
    dry_run: bool
    output: str | None
    wait: bool
    timeout: float | None


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("words", metavar="[FILE | -- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", help="Of the job that is made.")
@click.option("--image", help="Of its containers.")
@click.option(
    "--replicas", type=click.IntRange(min=1), help="How many pods it has, all roles together.  [default: 1]"
)
@click.option("--gpu", metavar="N|RESOURCE=N", help=f"GPUs of each pod; a number means {GPU}.")
@click.option("--cpu", metavar="AMOUNT", help="CPUs of each pod, such as 2 or 500m.")
@click.option("--memory", metavar="AMOUNT", help="Memory of each pod, such as 4Gi.")
@click.option(
    "--gang/--no-gang", default=None, help="Start all pods together (the default), or each as soon as it fits."
)
@click.option(
    "--min", "minimum", type=click.IntRange(min=1), metavar="N", help="Start with N pods; the others as they fit."
)
@click.option("--framework", type=click.Choice(FRAMEWORKS), help="Tell the pods of each other, as it expects it.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option(
    "--restart",
    type=click.Choice(RESTARTS),
    help="What is made anew when a pod fails or is evicted.  [default: job with --framework, else never]",
)
@click.option("--max-retry", type=click.IntRange(min=0), help="Restarts after which the job fails.  [default: 3]")
@click.option("--queue", default="", help="Where the file states none; without it the queue `default`.")
@click.option("--priority", "priority_class", default="", metavar="CLASS", help="A PriorityClass, likewise.")
@click.option(
    "--scheduler-name",
    default=None,
    metavar="NAME",
    help="The spec.schedulerName. A job of flags gets `phalanx`; in a file it is set where none is stated.",
)
@namespace_option
@click.option("--dry-run", is_flag=True, help="Print what would be created and touch nothing.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json", "name"]), help="Print what is created.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended, as `phalanx job wait` does.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Of --wait.")
@pass_invocation(SubmitArguments, connection_options)
def submit(invocation: Invocation, arguments: SubmitArguments) -> None:
    """Submit a job: one that is described by flags, or what is in a file.

    Flags make a Volcano Job (batch.volcano.sh), a gang unless --no-gang or --min says otherwise. FILE is any
    manifest, of several documents too: Volcano Jobs, native Jobs, a PodGroup with its pods. Of a file nothing is
    changed but what flags ask for and the file leaves open. `-` reads stdin.

    \b
    phalanx submit --name train --image torch --replicas 4 --gpu 1 --framework pytorch -- python train.py
    phalanx submit job.yaml --queue research --wait
    phalanx submit --name train --image torch --replicas 4 --dry-run
    """
    documents = _from_file(arguments) if arguments.name is None else _from_flags(arguments, arguments.name)
    for document in documents:
        refuse_bad_job(document)
    if arguments.dry_run:
        _print(documents, arguments.output or "yaml")
        return

    async def work(client: KubeClient) -> list[Json]:
        where = arguments.namespace or client.namespace
        return await create_all(client, documents, where, quiet=arguments.output is not None)

    created = invocation.run(work)
    if arguments.output is not None:
        _print(created, arguments.output)
    jobs = [found for each in created if (found := _reference(each)) is not None]
    if arguments.wait:
        if not jobs:
            raise click.UsageError("--wait: there is no job or group among what was created to wait for")
        from phalanx.cli.jobs.wait import wait_for_all

        raise click.exceptions.Exit(wait_for_all(invocation, jobs, "completed", arguments.timeout))
    if arguments.output is None:
        _say_what_next(jobs)


def _from_flags(arguments: SubmitArguments, name: str) -> list[Json]:
    from phalanx.admission.names import subdomain_faults

    if not arguments.image:
        raise click.UsageError("--name makes a job, which needs an --image too")
    if faults := subdomain_faults(name):
        raise click.UsageError(f"--name {name!r}: {faults[0]}")
    if arguments.minimum is not None and arguments.gang is not None:
        raise click.UsageError("--min says how many pods start together; leave out --gang and --no-gang")
    if arguments.framework == "ray" and arguments.words:
        raise click.UsageError(
            "--framework ray starts a Ray cluster and no command; use `ray job submit` once it runs"
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
    from phalanx.cli.jobs.manifest_file import fill_in, read_manifests

    if len(arguments.words) != 1:
        raise click.UsageError("expected one FILE, or --name and --image of a job")
    stated = [name for name in _OF_FLAGS if getattr(arguments, name) not in (None, ())]
    if stated:
        flag = {"minimum": "min", "environment": "env"}.get(stated[0], stated[0]).replace("_", "-")
        raise click.UsageError(f"--{flag} describes a job of flags; FILE says it itself")
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


def amounts(cpu: str | None, memory: str | None, gpu: str | None) -> dict[str, str]:
    """Amounts of a pod. Raises click.UsageError for what is no amount."""
    from phalanx.model.text.quantity import QuantityError, parse_quantity

    resource, _, count = (gpu or "").rpartition("=")
    named = {"cpu": ("--cpu", cpu), "memory": ("--memory", memory), resource or GPU: ("--gpu", gpu and count)}
    found = {}
    for name, (flag, amount) in named.items():
        if not amount:
            continue
        try:
            thousandths = parse_quantity(amount, 1000)
            if thousandths < 0:
                raise QuantityError("it is negative")
            if "/" in name and thousandths % 1000:
                raise QuantityError(f"{name} is had whole only")
        except QuantityError as error:
            raise click.UsageError(f"{flag} {amount!r} is no amount such as 1, 500m or 4Gi: {error}") from error
        found[name] = amount
    return found


def pairs(stated: Sequence[str], flag: str) -> dict[str, str]:
    """NAME=VALUE each. Raises click.UsageError."""
    found = {}
    for text in stated:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{flag} {text!r}: expected NAME=VALUE")
        found[name] = value
    return found


def refuse_bad_job(document: Json) -> None:
    """Says before anything is created what an admission webhook would say. Raises click.ClickException."""
    from phalanx.admission.context import AdmissionContext
    from phalanx.admission.jobs import validate
    from phalanx.cli.jobs.manifest_file import VOLCANO_JOB, group_of

    if (group_of(document), document["kind"]) != (VOLCANO_JOB, "Job"):
        return
    refusals = validate(document, None, AdmissionContext())
    if refusals:
        raise click.ClickException(f"job {document['metadata'].get('name')!r}: {' '.join(refusals)}")


async def create_all(
    client: KubeClient, documents: list[Json], namespace: str, *, quiet: bool = False
) -> list[Json]:
    """Creates them in order and says so. What exists already by then stays, and is named, if one is refused."""
    from phalanx.kube.discovery import discover
    from phalanx.kube.errors import ApiError, ConnectionLost

    served = await discover(client)
    paths = [_collection(served, document, namespace) for document in documents]
    await _refuse_queues(client, documents)
    created: list[Json] = []
    for path, document in zip(paths, documents, strict=True):
        try:
            created.append(await client.create(path, document))
        except (ApiError, ConnectionLost) as error:
            done = ", ".join(label(each) for each in created)
            more = f" (created before that: {done})" if done else ""
            raise click.ClickException(f"{label(document)} was not created: {_words(error)}{more}") from error
        if not quiet:
            click.echo(f"{label(created[-1])} created")
    return created


def _words(error: Exception) -> str:
    status = getattr(error, "status", None)
    if status == 409:
        return "there is one of that name already; see `phalanx job list`, or choose another name"
    if status == 404 and "namespaces" in str(error):
        return f"{getattr(error, 'message', error)}; create the namespace first"
    return str(getattr(error, "message", error))


def _collection(served: Discovery, document: Json, namespace: str) -> str:
    group, _, version = document["apiVersion"].rpartition("/")
    found = served.find_kind(group, document["kind"])
    resource = next((each for each in found if each.version == version), None)
    if resource is None:
        raise click.ClickException(unknown_kind(document["apiVersion"], document["kind"], bool(found)))
    return resource.path(document["metadata"].get("namespace") or namespace if resource.namespaced else None)


def unknown_kind(api_version: str, kind: str, other_versions: bool = False) -> str:
    """What to say where a cluster does not have a kind."""
    text = f"this cluster does not have the kind {kind} of {api_version}"
    if other_versions:
        return f"{text}, but another version of it; write that into apiVersion"
    if ".volcano.sh/" in api_version:
        return f"{text}; `phalanx install` brings it"
    return f"{text}; its operator brings it"


async def _refuse_queues(client: KubeClient, documents: list[Json]) -> None:
    """A job in a queue that does not exist, is closed or has children would wait for ever: say it now.

    Only a webhook would refuse it otherwise, and need not be there. Who may not read queues is not told.
    """
    from phalanx.admission.context import QueueCatalog
    from phalanx.admission.queue_state import refusals_of_queue
    from phalanx.cli.jobs.manifest_file import VOLCANO_JOB, group_of
    from phalanx.kube.errors import ApiError
    from phalanx.reports.jobs.kinds import QUEUES

    jobs = [each for each in documents if (group_of(each), each["kind"]) == (VOLCANO_JOB, "Job")]
    if not jobs:
        return
    try:
        queues = QueueCatalog((await client.list_all(QUEUES.path()))["items"])
    except ApiError:
        return
    for job in jobs:
        name = (job.get("spec") or {}).get("queue") or "default"
        refusals = refusals_of_queue(queues, name, "job")
        if refusals:
            known = [queue["metadata"]["name"] for queue in queues.all() if queue["metadata"]["name"] != "root"]
            advice = f" Known queues: {', '.join(known)}." if queues.get(name) is None and known else ""
            raise click.ClickException(f"{label(job)}: {' '.join(refusals)}{advice}")


def label(document: Json) -> str:
    """As kubectl says it: `job.batch.volcano.sh/train`."""
    from phalanx.cli.jobs.manifest_file import group_of

    group, kind = group_of(document), document["kind"].lower()
    name = document["metadata"].get("name") or f"{document['metadata'].get('generateName')}…"
    return f"{f'{kind}.{group}' if group else kind}/{name}"


def _reference(document: Json) -> tuple[str, str, str] | None:
    """(kind as `phalanx job` calls it, namespace, name), None for what is no job."""
    from phalanx.reports.jobs.kinds import kind_of

    kind = kind_of(document)
    return (kind, document["metadata"].get("namespace", ""), document["metadata"]["name"]) if kind else None


def _say_what_next(jobs: list[tuple[str, str, str]]) -> None:
    for kind, namespace, name in jobs[:1]:
        target = f"{name if kind == 'vcjob' else f'{kind}/{name}'} -n {namespace}"
        click.echo(f"  see it start:  phalanx job wait {target} --for running")
        click.echo(f"  why it waits:  phalanx job describe {target}")


def _print(documents: list[Json], output: str) -> None:
    import json

    import yaml

    if output == "name":
        for document in documents:
            click.echo(label(document))
    elif output == "json":
        shown = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, explicit_start=len(documents) > 1)
        click.echo(text, nl=False)
