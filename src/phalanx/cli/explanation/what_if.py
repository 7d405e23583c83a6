"""`phalanx what-if`: the scheduler asked about a world that is not, over a copy of one that is."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import (
    connection_options,
    lease_namespace_option,
    namespace_option,
    output_option,
    policy_option,
    scheduler_names_option,
)

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.whatif.changes import QueueChange
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.simulation.cluster import SimulatedCluster
    from phalanx.simulation.documents import FileObject


@click.command("what-if", short_help="Say what would happen if.")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="What would be created; - for stdin."
)
@click.option("--gang", metavar="NAMESPACE/NAME", default="", help="Ask about a PodGroup that is there and waits.")
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
@connection_options
@scheduler_names_option("are its own")
@policy_option
@lease_namespace_option
@output_option
def what_if(**options: Any) -> None:
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
        _what_if(**options)
    except (InputError, PolicyError) as error:
        raise click.ClickException(str(error)) from error


def _what_if(
    files: tuple[str, ...],
    gang: str,
    free: bool,
    add_nodes: int | None,
    like: str,
    without_nodes: tuple[str, ...],
    queue: str,
    weight: int | None,
    capability: str,
    deserved: str,
    priority: int | None,
    other_policy: str,
    shape: str,
    length: str,
    horizon: str,
    capture_file: str,
    namespace: str | None,
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    config: str,
    lease_namespace: str,
    output: str,
) -> None:
    from phalanx.cli.connection import print_structured
    from phalanx.cli.explanation.what_if_lines import answer_lines, free_lines
    from phalanx.daemon.policy_file import read_policy
    from phalanx.reports.whatif.answer import to_builtins
    from phalanx.reports.whatif.changes import QueueChange
    from phalanx.reports.whatif.free_room import FreeRoomQuestion, free_room
    from phalanx.reports.whatif.question import Question, answer_question
    from phalanx.simulation.spans import seconds

    if not free and (shape or length):
        raise click.UsageError("--pod and --for go with --free")
    if (weight is not None or capability or deserved) and not queue:
        raise click.UsageError("--weight, --capability and --deserved: say of which --queue")
    if like and not add_nodes:
        raise click.UsageError("--like: say how many: --add-nodes N")
    other = read_policy(other_policy) if other_policy else None
    change = QueueChange(queue, weight, _amounts(capability, "--capability"), _amounts(deserved, "--deserved"))
    changes = _changes(
        add_nodes, like, without_nodes, change if queue and not free else None, priority, other_policy
    )
    if not (files or gang or free or changes):
        raise click.UsageError("say what would be: -f FILE, --gang NAMESPACE/NAME, --free, or a change (--help)")
    if free and (files or gang or changes):
        raise click.UsageError("--free is a question of its own; leave the others out")
    objects = _objects(files)
    cluster, where, policy = _cluster(
        capture_file, namespace, kubeconfig, scheduler_names, config, other, lease_namespace
    )
    if free:
        room = free_room(
            FreeRoomQuestion(
                cluster,
                policy,
                where,
                queue,
                _amounts(shape, "--pod"),
                seconds(length, "--for") if length else 0,
            )
        )
        if output == "table":
            click.echo("\n".join(free_lines(room)))
        else:
            print_structured(to_builtins(room), output)
        return
    answer = answer_question(
        Question(
            cluster,
            policy,
            seconds(horizon, "--horizon"),
            tuple(objects),
            where,
            gang,
            add_nodes or 0,
            like,
            without_nodes,
            change if queue else None,
            priority,
            other,
            changes,
        )
    )
    if output == "table":
        click.echo("\n".join(answer_lines(answer)))
    else:
        print_structured(to_builtins(answer), output)


def _amounts(text: str, option: str) -> dict[str, str]:
    """`cpu=64,nvidia.com/gpu=8`."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    for name, equals, amount in pairs:
        if not (name and equals and amount):
            raise click.UsageError(f"{option} {text}: write amounts such as cpu=64,nvidia.com/gpu=8")
    return {name: amount for name, _, amount in pairs}


def _changes(
    add_nodes: int | None,
    like: str,
    without_nodes: tuple[str, ...],
    queue: QueueChange | None,
    priority: int | None,
    policy: str,
) -> tuple[str, ...]:
    """The changes in words."""
    told = []
    if add_nodes:
        told.append(f"{add_nodes} node{'s' if add_nodes > 1 else ''} more like {like}")
    told += [f"without the nodes {text}" for text in without_nodes]
    if queue is not None:
        fields = [f"weight {queue.weight}"] if queue.weight is not None else []
        fields += [f"{name} {_written(amounts)}" for name, amounts in
                   (("capability", queue.capability), ("deserved", queue.deserved)) if amounts]  # fmt: skip
        told.append(f"queue {queue.name} with {' and '.join(fields)}")
    if priority is not None:
        told.append(f"at priority {priority}")
    if policy:
        told.append(f"under the policy {Path(policy).name}")
    return tuple(told)


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
    capture_file: str,
    namespace: str | None,
    kubeconfig: str | None,
    scheduler_names: tuple[str, ...],
    config: str,
    other: Policy | None,
    lease_namespace: str,
) -> tuple[SimulatedCluster, str, Policy]:
    """The cluster, read from its file or over the API, as `other` would have it, the namespace of who asks, and the
    scheduler's policy."""
    from phalanx.daemon.policy_file import read_policy
    from phalanx.simulation.cluster import read_cluster
    from phalanx.simulation.inputs import read_text

    if capture_file:
        cluster = read_cluster(read_text(capture_file)[1], capture_file)
        return cluster, namespace or "default", read_policy(config)
    from phalanx.cli.connection import run_connected
    from phalanx.cli.scheduler_policy import policy_reader
    from phalanx.reports.capture.writing import capture_cluster, encode_capture

    policy_now = policy_reader(config, lease_namespace, scheduler_names)

    async def work(client: KubeClient) -> tuple[bytes, str, Policy]:
        policy, names = await policy_now(client)
        found, documents = await capture_cluster(
            client, names, other or policy, time.time(), lease_namespace, own_namespace=client.namespace
        )
        return encode_capture(found, documents, packed=False), namespace or client.namespace, policy

    content, where, policy = run_connected(work, kubeconfig)
    return read_cluster(content.decode(), "cluster"), where, policy
