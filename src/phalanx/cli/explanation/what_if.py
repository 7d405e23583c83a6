"""Command `phalanx what-if`: effect of a change on the start times, in a simulation over a copy of the cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options, namespace_option, output_option, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.server.options import server_options
from phalanx.cli.server.rights import by_rights, no_server
from phalanx.kube.causes import cause_text
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.server.requests import Server
    from phalanx.kube.client import KubeClient
    from phalanx.reports.whatif.changes import QueueChange
    from phalanx.reports.whatif.remote import WhatIfCommand, WhatIfResult
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.simulation.cluster import SimulatedCluster


@dataclass(frozen=True, kw_only=True)
class WhatIfArguments:
    """Arguments of `phalanx what-if`; `shape` and `length` are the requests and the run time of --free."""

    files: tuple[str, ...]
    gang: str
    free: bool
    add_nodes: int | None
    like: str
    without_nodes: tuple[str, ...]
    queue: str
    weight: int | None
    capability: str
    deserved: str
    priority: int | None
    other_policy: str
    shape: str
    length: str
    horizon: str
    capture_file: str
    namespace: str | None

    @property
    def queue_change(self) -> QueueChange | None:
        """Queue with the changed fields of --queue; None without --queue. Raises click.UsageError."""
        from phalanx.reports.whatif.changes import QueueChange

        capability, deserved = _amounts(self.capability, "--capability"), _amounts(self.deserved, "--deserved")
        return QueueChange(self.queue, self.weight, capability, deserved) if self.queue else None

    def command(self, namespace: str, manifest: str) -> WhatIfCommand:
        """Return the question to the server. Raises click.UsageError."""
        from phalanx.reports.whatif.remote import WhatIfCommand

        return WhatIfCommand(
            namespace=namespace,
            manifest=manifest,
            gang=self.gang,
            free=self.free,
            add_nodes=self.add_nodes or 0,
            like=self.like,
            without_nodes=list(self.without_nodes),
            queue=self.queue,
            weight=self.weight or 0,
            capability=self.capability,
            deserved=self.deserved,
            priority=self.priority,
            pod=self.shape,
            run_time=self.length,
            horizon=self.horizon,
        )

    @property
    def changes(self) -> tuple[str, ...]:
        """Descriptions of the changes that the arguments request."""
        descriptions = []
        if self.add_nodes:
            descriptions.append(
                f"{self.add_nodes} additional node{'s' if self.add_nodes > 1 else ''} like {self.like}"
            )
        descriptions += [f"without nodes {text}" for text in self.without_nodes]
        if (queue := self.queue_change) is not None and not self.free:
            fields = [f"weight {queue.weight}"] if queue.weight is not None else []
            amounts = (("capability", queue.capability), ("deserved", queue.deserved))
            fields += [f"{name} {_written(value)}" for name, value in amounts if value]
            descriptions.append(f"queue {queue.name}: new {' and new '.join(fields)}")
        if self.priority is not None:
            descriptions.append(f"priority {self.priority}")
        if self.other_policy:
            descriptions.append(f"policy {Path(self.other_policy).name}")
        return tuple(descriptions)


@click.command("what-if", short_help="Predict the effect of a new job, more nodes, another queue or policy.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Manifest of the objects to create; - for stdin.",
)
@click.option(
    "--gang",
    metavar="NAMESPACE/NAME",
    default="",
    help="Predict the start of a waiting gang: NAMESPACE/NAME, NAMESPACE/KIND/NAME, or NAME alone.",
)
@click.option("--free", is_flag=True, help="Show which pods could start now without evictions.")
@click.option("--add-nodes", type=click.IntRange(min=1), metavar="N", help="Add N nodes; see --like.")
@click.option("--like", default="", metavar="NODE", help="Existing node as template of the added nodes.")
@click.option(
    "--without-nodes",
    multiple=True,
    metavar="NAMES|LABELS",
    help="Remove nodes: n1,n2 or topology.kubernetes.io/rack=r1. Their pods are lost.",
)
@click.option("--queue", default="", metavar="NAME", help="Queue to change (with --free: queue of the pods).")
@click.option("--weight", type=click.IntRange(min=1), help="New weight of --queue.")
@click.option(
    "--capability", default="", metavar="AMOUNTS", help="New capability of --queue: cpu=64,nvidia.com/gpu=8."
)
@click.option("--deserved", default="", metavar="AMOUNTS", help="New deserved amount of --queue, same format.")
@click.option("--priority", type=int, help="New priority of the gang or the created objects.")
@click.option(
    "--policy", "other_policy", default="", metavar="FILE", help="Policy of the prediction, compared with --config."
)
@click.option("--pod", "shape", default="", metavar="AMOUNTS", help="Requests of each pod (with --free).")
@click.option("--for", "length", default="", metavar="TIME", help="Run time of each pod, such as 2h (with --free).")
@click.option("--horizon", default="7d", show_default=True, metavar="TIME", help="End of the prediction, from now.")
@click.option("--capture", "capture_file", default="", metavar="FILE", help="Use a capture instead of the cluster.")
@namespace_option
@pass_invocation(
    WhatIfArguments, connection_options, server_options, scheduler_options("are scheduled"), output_option
)
def what_if(invocation: Invocation, arguments: WhatIfArguments) -> None:
    """Predict the effect of a change: start times and nodes, evictions, and delayed starts.

    The scheduler plans over a copy of the cluster in virtual time: running pods end at their limits, and no
    other pods arrive. The cluster is not changed. The answer is not a promise.

    \b
    phalanx what-if -f job.yaml
    phalanx what-if --gang ml/train --add-nodes 2 --like gpu-0
    phalanx what-if --without-nodes topology.kubernetes.io/rack=r7
    phalanx what-if --queue research --weight 4
    phalanx what-if --free --pod nvidia.com/gpu=8 --for 2h
    """
    from phalanx.scheduling.framework.errors import PolicyError
    from phalanx.simulation.errors import InputError

    try:
        _answer(invocation, arguments)
    except (InputError, PolicyError) as error:
        raise click.ClickException(str(error)) from error


def _answer(invocation: Invocation, arguments: WhatIfArguments) -> None:
    """Predict the effects and print them. Raises click.UsageError, InputError, PolicyError."""
    from phalanx.cli.explanation.what_if_lines import answer_lines, free_lines
    from phalanx.daemon.policy_file import read_policy
    from phalanx.reports.whatif.answer import to_builtins
    from phalanx.reports.whatif.free_room import FreeRoomQuestion, free_room
    from phalanx.reports.whatif.question import Question, answer_question
    from phalanx.simulation.documents import read_documents
    from phalanx.simulation.spans import seconds

    _refuse_lone_options(arguments)
    other = read_policy(arguments.other_policy) if arguments.other_policy else None
    queue, changes = arguments.queue_change, arguments.changes
    _refuse_no_question(arguments, changes)
    texts = _texts(arguments.files)
    objects = [entry for path, text in texts for entry in read_documents(text, path)]
    subject = _subject(invocation, arguments, other, "\n---\n".join(text for _, text in texts))
    if not isinstance(subject, tuple):
        _print_result(invocation, subject)
        return
    cluster, namespace, policy = subject
    if arguments.free:
        room = free_room(
            FreeRoomQuestion(
                cluster,
                policy,
                namespace,
                arguments.queue,
                _amounts(arguments.shape, "--pod"),
                seconds(arguments.length, "--for") if arguments.length else 0,
            )
        )
        _print(invocation, free_lines(room), to_builtins(room))
        return
    answer = answer_question(
        Question(
            cluster,
            policy,
            seconds(arguments.horizon, "--horizon"),
            tuple(objects),
            namespace,
            arguments.gang,
            arguments.add_nodes or 0,
            arguments.like,
            arguments.without_nodes,
            queue,
            arguments.priority,
            other,
            changes,
        )
    )
    _print(invocation, answer_lines(answer), to_builtins(answer))


def _print_result(invocation: Invocation, result: WhatIfResult) -> None:
    """Print the answer of the server."""
    from phalanx.cli.explanation.what_if_lines import answer_lines, free_lines
    from phalanx.reports.whatif.answer import to_builtins

    if result.room is not None:
        _print(invocation, free_lines(result.room), to_builtins(result.room))
    elif result.answer is not None:
        _print(invocation, answer_lines(result.answer), to_builtins(result.answer))


def _print(invocation: Invocation, lines: Iterable[str], document: object) -> None:
    if invocation.prints_table:
        click.echo("\n".join(lines))
    else:
        invocation.print_document(document)


def _refuse_lone_options(arguments: WhatIfArguments) -> None:
    """Raise click.UsageError for an option whose required option is missing."""
    if not arguments.free and (arguments.shape or arguments.length):
        raise click.UsageError("--pod and --for require --free")
    if (arguments.weight is not None or arguments.capability or arguments.deserved) and not arguments.queue:
        raise click.UsageError("--weight, --capability and --deserved require --queue NAME")
    if arguments.like and not arguments.add_nodes:
        raise click.UsageError("--like requires --add-nodes N")


def _refuse_no_question(arguments: WhatIfArguments, changes: tuple[str, ...]) -> None:
    """Raise click.UsageError if no question, or more than one, is asked."""
    subjects = bool(arguments.files or arguments.gang or changes)
    if not subjects and not arguments.free:
        raise click.UsageError("no question; set -f FILE, --gang NAMESPACE/NAME, --free, or a change (see --help)")
    if subjects and arguments.free:
        raise click.UsageError("--free excludes -f, --gang and changes")


def _amounts(text: str, option: str) -> dict[str, str]:
    """Parse the resource amounts of an option, such as `cpu=64,nvidia.com/gpu=8`. Raises click.UsageError."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, equals, amount in pairs:
        if not (name and equals and amount):
            raise click.UsageError(
                f"invalid {option} {quoted(text)}; write amounts such as cpu=64,nvidia.com/gpu=8"
            )
    return {name: amount for name, _, amount in pairs}


def _written(amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items())


def _texts(files: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the paths and texts of the files. Raises InputError."""
    from phalanx.simulation.errors import InputError

    texts = []
    for path in files:
        try:
            texts.append((path, sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {path}: {cause_text(error)}") from error
    return texts


def _subject(
    invocation: Invocation, arguments: WhatIfArguments, other: Policy | None, manifest: str
) -> tuple[SimulatedCluster, str, Policy] | WhatIfResult:
    """Return the cluster to simulate (of a capture or the API, under policy `other`), the user's namespace, and the
    policy; or the server's answer, if the user cannot read the cluster."""
    from phalanx.daemon.policy_file import parse_policy, read_policy
    from phalanx.simulation.cluster import read_cluster
    from phalanx.simulation.inputs import read_text

    if arguments.capture_file:
        cluster = read_cluster(read_text(arguments.capture_file)[1], arguments.capture_file)
        captured = cluster.capture.policy if cluster.capture is not None and not invocation.config else ""
        policy = parse_policy(captured, arguments.capture_file) if captured else read_policy(invocation.config)
        return cluster, arguments.namespace or "default", policy
    from phalanx.kube.errors import ApiError
    from phalanx.reports.capture.writing import capture_cluster, encode_capture

    read_policy_now = invocation.policy_reader()

    async def capture(client: KubeClient) -> tuple[bytes, str, Policy] | WhatIfResult:
        policy, names = await read_policy_now(client)
        captured, documents = await capture_cluster(
            client, names, other or policy, time.time(), invocation.lease_namespace, own_namespace=client.namespace
        )
        return encode_capture(captured, documents, packed=False), arguments.namespace or client.namespace, policy

    async def work(client: KubeClient) -> tuple[bytes, str, Policy] | WhatIfResult:
        async def ask(server: Server) -> tuple[bytes, str, Policy] | WhatIfResult:
            from phalanx.reports.whatif.remote import WhatIfResult

            if other is not None or invocation.config:
                raise click.UsageError("--policy and --config need the rights to read the whole cluster")
            namespace = arguments.namespace or client.namespace
            command = arguments.command(namespace, manifest)
            return await server.post("commands/what-if", WhatIfResult, command, {"namespace": namespace})

        async def limited(client: KubeClient, line: str) -> tuple[bytes, str, Policy] | WhatIfResult:
            # Who can list nodes, but pods of one namespace only, gets an answer that states its limits.
            try:
                return await capture(client)
            except ApiError as error:
                if error.status != 403:
                    raise
                raise no_server(line) from error

        # An administrator's question has no limits here, and no user waits for it.
        return await by_rights(invocation, capture, ask, limited, own_first=True)(client)

    found = invocation.run(work)
    if not isinstance(found, tuple):
        return found
    content, namespace, policy = found
    return read_cluster(content.decode(), "cluster"), namespace, policy
