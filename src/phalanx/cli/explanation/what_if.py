"""`phalanx what-if`: the scheduler asked about a world that is not, over a copy of one that is."""

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

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.whatif.changes import QueueChange
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.simulation.cluster import SimulatedCluster
    from phalanx.simulation.documents import FileObject


@dataclass(frozen=True, kw_only=True)
class WhatIfArguments:
    """Arguments of `phalanx what-if`; `shape` and `length` are of the pods that --free asks about."""

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
        """The queue as it would be, None without --queue. Raises click.UsageError."""
        from phalanx.reports.whatif.changes import QueueChange

        capability, deserved = _amounts(self.capability, "--capability"), _amounts(self.deserved, "--deserved")
        return QueueChange(self.queue, self.weight, capability, deserved) if self.queue else None

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes in words."""
        told = []
        if self.add_nodes:
            told.append(f"{self.add_nodes} node{'s' if self.add_nodes > 1 else ''} more like {self.like}")
        told += [f"without the nodes {text}" for text in self.without_nodes]
        if (queue := self.queue_change) is not None and not self.free:
            fields = [f"weight {queue.weight}"] if queue.weight is not None else []
            amounts = (("capability", queue.capability), ("deserved", queue.deserved))
            fields += [f"{name} {_written(value)}" for name, value in amounts if value]
            told.append(f"queue {queue.name} with {' and '.join(fields)}")
        if self.priority is not None:
            told.append(f"at priority {self.priority}")
        if self.other_policy:
            told.append(f"under the policy {Path(self.other_policy).name}")
        return tuple(told)


@click.command("what-if", short_help="Say what would happen if.")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="What would be created; - for stdin."
)
@click.option(
    "--gang",
    metavar="NAMESPACE/NAME",
    default="",
    help="Ask about a gang that waits: NAMESPACE/NAME, NAMESPACE/KIND/NAME, or NAME alone.",
)
@click.option("--free", is_flag=True, help="Say what could start now without waiting for anybody.")
@click.option("--add-nodes", type=click.IntRange(min=1), metavar="N", help="With so many nodes more; see --like.")
@click.option("--like", default="", metavar="NODE", help="The node that they are like.")
@click.option(
    "--without-nodes",
    multiple=True,
    metavar="NAMES|LABELS",
    help="Without these nodes: n1,n2 or topology.kubernetes.io/rack=r1. What runs there is lost.",
)
@click.option("--queue", default="", metavar="NAME", help="A queue that is other than it is (with --free: where).")
@click.option("--weight", type=click.IntRange(min=1), help="Its weight.")
@click.option("--capability", default="", metavar="AMOUNTS", help="Its ceiling: cpu=64,nvidia.com/gpu=8.")
@click.option("--deserved", default="", metavar="AMOUNTS", help="What it deserves, likewise.")
@click.option("--priority", type=int, help="What is asked about has this priority.")
@click.option("--policy", "other_policy", default="", metavar="FILE", help="Under this policy instead of --config.")
@click.option("--pod", "shape", default="", metavar="AMOUNTS", help="With --free: what each pod asks for.")
@click.option("--for", "length", default="", metavar="TIME", help="With --free: for how long it would run (2h).")
@click.option("--horizon", default="7d", show_default=True, metavar="TIME", help="How far to look ahead.")
@click.option(
    "--capture", "capture_file", default="", metavar="FILE", help="Over a capture instead of the cluster."
)
@namespace_option
@pass_invocation(WhatIfArguments, connection_options, scheduler_options("are its own"), output_option)
def what_if(invocation: Invocation, arguments: WhatIfArguments) -> None:
    """Say what would happen: whether this would start, now or when and where, who would have to go and who would
    start later.

    The real scheduler plans over a copy of the cluster, in virtual time: pods that run end at their limits, nothing
    else comes. Nothing is changed and nothing is held: an answer is no promise.

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
    """Answer the question. Raises click.UsageError, InputError, PolicyError."""
    from phalanx.cli.explanation.what_if_lines import answer_lines, free_lines
    from phalanx.daemon.policy_file import read_policy
    from phalanx.reports.whatif.answer import to_builtins
    from phalanx.reports.whatif.free_room import FreeRoomQuestion, free_room
    from phalanx.reports.whatif.question import Question, answer_question
    from phalanx.simulation.spans import seconds

    _refuse_lone_options(arguments)
    other = read_policy(arguments.other_policy) if arguments.other_policy else None
    queue, changes = arguments.queue_change, arguments.changes
    _refuse_no_question(arguments, changes)
    objects = _objects(arguments.files)
    cluster, where, policy = _cluster(invocation, arguments, other)
    if arguments.free:
        room = free_room(
            FreeRoomQuestion(
                cluster,
                policy,
                where,
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
            where,
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


def _print(invocation: Invocation, lines: Iterable[str], document: object) -> None:
    if invocation.prints_table:
        click.echo("\n".join(lines))
    else:
        invocation.print_document(document)


def _refuse_lone_options(arguments: WhatIfArguments) -> None:
    """Raise click.UsageError for an option without the one that it belongs to."""
    if not arguments.free and (arguments.shape or arguments.length):
        raise click.UsageError("--pod and --for go with --free")
    if (arguments.weight is not None or arguments.capability or arguments.deserved) and not arguments.queue:
        raise click.UsageError("--weight, --capability and --deserved: say of which --queue")
    if arguments.like and not arguments.add_nodes:
        raise click.UsageError("--like: say how many: --add-nodes N")


def _refuse_no_question(arguments: WhatIfArguments, changes: tuple[str, ...]) -> None:
    """Raise click.UsageError where nothing is asked, or two things."""
    subjects = bool(arguments.files or arguments.gang or changes)
    if not subjects and not arguments.free:
        raise click.UsageError("say what would be: -f FILE, --gang NAMESPACE/NAME, --free, or a change (--help)")
    if subjects and arguments.free:
        raise click.UsageError("--free is a question of its own; leave the others out")


def _amounts(text: str, option: str) -> dict[str, str]:
    """`cpu=64,nvidia.com/gpu=8`."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, equals, amount in pairs:
        if not (name and equals and amount):
            raise click.UsageError(f"{option} {text}: write amounts such as cpu=64,nvidia.com/gpu=8")
    return {name: amount for name, _, amount in pairs}


def _written(amounts: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in amounts.items())


def _objects(files: tuple[str, ...]) -> list[FileObject]:
    from phalanx.simulation.documents import read_documents
    from phalanx.simulation.errors import InputError

    found = []
    for path in files:
        try:
            text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
        found += read_documents(text, path)
    return found


def _cluster(
    invocation: Invocation, arguments: WhatIfArguments, other: Policy | None
) -> tuple[SimulatedCluster, str, Policy]:
    """The cluster, read from its file or over the API, as `other` would have it, the namespace of who asks, and the
    scheduler's policy."""
    from phalanx.daemon.policy_file import read_policy
    from phalanx.simulation.cluster import read_cluster
    from phalanx.simulation.inputs import read_text

    if arguments.capture_file:
        cluster = read_cluster(read_text(arguments.capture_file)[1], arguments.capture_file)
        return cluster, arguments.namespace or "default", read_policy(invocation.config)
    from phalanx.reports.capture.writing import capture_cluster, encode_capture

    policy_now = invocation.policy_reader()

    async def work(client: KubeClient) -> tuple[bytes, str, Policy]:
        policy, names = await policy_now(client)
        found, documents = await capture_cluster(
            client, names, other or policy, time.time(), invocation.lease_namespace, own_namespace=client.namespace
        )
        return encode_capture(found, documents, packed=False), arguments.namespace or client.namespace, policy

    content, where, policy = invocation.run(work)
    return read_cluster(content.decode(), "cluster"), where, policy
