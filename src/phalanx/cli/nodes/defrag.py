"""Command `phalanx defrag`: move pods to empty nodes or to make room for a gang."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import connection_options, namespace_option, output_option, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.nodes.relocation import RelocationResult
    from phalanx.kube.client import KubeClient
    from phalanx.model.selectors import Requirement
    from phalanx.reports.snapshot import Snapshot
    from phalanx.scheduling.defragmentation.relocation import Goal, Relocation
    from phalanx.scheduling.framework.policy import Policy


@dataclass(frozen=True, kw_only=True)
class DefragArguments:
    """Arguments of `phalanx defrag`; `target` is the gang or pod of --for, `timeout` the duration as the user typed
    it."""

    count: int | None
    selector: str
    target: str
    namespace: str | None
    schedule: bool
    dry_run: bool
    apply: bool
    max_evictions: int
    max_per_gang: int | None
    whole_gangs: bool
    through: str
    timeout: str
    keep_closed: bool

    def refuse_with_schedule(self) -> None:
        """Raise click.UsageError for options that --schedule does not honour."""
        if self.count is not None or self.target or self.selector or self.apply or self.keep_closed:
            raise click.UsageError("--schedule excludes --nodes, --for, --selector, --apply and --keep-closed")

    def refuse_contradictions(self) -> None:
        """Raise click.UsageError for options that exclude each other."""
        if (self.count is None) == (not self.target):
            raise click.UsageError("set either --nodes N or --for KIND/NAME")
        if self.target and (self.selector or self.keep_closed):
            raise click.UsageError("--selector and --keep-closed work with --nodes only")
        if self.dry_run and self.apply:
            raise click.UsageError("--dry-run and --apply exclude each other")


@click.command()
@click.option(
    "--nodes",
    "count",
    type=click.IntRange(min=1),
    metavar="N",
    help="Empty nodes until N nodes have no pods; nodes that are already empty count.",
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="Label selector of the nodes to empty.")
@click.option("--for", "target", default="", metavar="KIND/NAME", help="Make room for a waiting gang or pod.")
@namespace_option
@click.option(
    "--schedule",
    is_flag=True,
    help="Show the scheduler's defragmentation schedule (action defragment of its policy), the evictions left, "
    "and the moves that it would make now.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan only. This is the default.")
@click.option("--apply", is_flag=True, help="Execute the plan, and wait until the moved pods run again.")
@click.option(
    "--max-evictions",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Maximum number of moved pods.",
)
@click.option("--max-per-gang", type=click.IntRange(min=0), help="Maximum number of moved members per gang.")
@click.option("--whole-gangs", is_flag=True, help="Also move whole gangs (gangs that need all their members).")
@click.option(
    "--through",
    type=click.Choice(["eviction-api", "delete"]),
    default="eviction-api",
    show_default=True,
    help="API for evictions; the Eviction API respects PodDisruptionBudgets.",
)
@click.option(
    "--timeout", default="5m", show_default=True, metavar="DURATION", help="Timeout of each wave of moves."
)
@click.option("--keep-closed", is_flag=True, help="Keep the emptied nodes closed to new pods.")
@pass_invocation(DefragArguments, connection_options, scheduler_options("can be moved"), output_option)
def defrag(invocation: Invocation, arguments: DefragArguments) -> None:
    """Empty whole nodes, or make room for a waiting gang, by moving pods.

    A plan is valid only if the scheduler, in a dry run over the live cluster, finds a new node for every moved
    pod. A pod is moved only if it is evictable and has a controller that recreates it. No gang falls below its
    quorum, and no disruption budget is violated. Without --apply nothing is changed.

    \b
    phalanx defrag --nodes 2
    phalanx defrag --nodes 1 --selector pool=gpu --apply
    phalanx defrag --for podgroup/llm -n training --whole-gangs
    phalanx defrag --schedule

    Exit code 0: a plan exists (or nothing has to move), and with --apply it was executed. Exit code 1: no plan
    exists, or its execution failed.
    """
    from phalanx.cli.nodes.defrag_tables import document, table

    if arguments.schedule:
        from phalanx.cli.nodes.defrag_schedule import show_schedule

        arguments.refuse_with_schedule()
        show_schedule(invocation)
        return
    relocation, outcome, snapshot = invocation.run(_relocation(invocation, arguments))
    if invocation.prints_table:
        for line in table(relocation, outcome, snapshot.state):
            click.echo(line)
    else:
        invocation.print_document(document(relocation, outcome))
    if not relocation.reached or (outcome is not None and outcome.failure):
        raise click.exceptions.Exit(1)


Outcome = tuple["Relocation", "RelocationResult | None", "Snapshot"]
"""The plan, the result of its execution (None: not executed), and the cluster it was made for."""


def _relocation(
    invocation: Invocation, arguments: DefragArguments
) -> Callable[[KubeClient], Coroutine[Any, Any, Outcome]]:
    """Return a coroutine function that plans and, with --apply, executes the moves. Raises click.UsageError."""
    from phalanx.cli.explanation.why import parse_target

    arguments.refuse_contradictions()
    kind, name = parse_target((arguments.target,)) if arguments.target else ("", "")
    labels, seconds = _selector(arguments.selector), _seconds(arguments.timeout)
    read_policy = invocation.policy_reader()

    async def work(client: KubeClient) -> Outcome:
        from phalanx.cli.nodes.relocation import RelocationOptions, RelocationRunner
        from phalanx.reports.read_promises import read_promises
        from phalanx.scheduling.defragmentation.relocation import EmptyNodes, RelocationLimits
        from phalanx.scheduling.whatif.relocation_plan import plan
        from phalanx.scheduling.whatif.relocation_proof import ClusterFacts

        progress = DefragProgress()
        progress.show("reading the cluster")
        policy, names = await read_policy(client)
        snapshot = await _read(client, policy, names, invocation.lease_namespace, progress)
        goal: Goal
        if arguments.count is not None:
            goal = EmptyNodes(arguments.count, _eligible(snapshot, labels))
        else:
            goal = _preemptor(snapshot, arguments.namespace or client.namespace, kind, name)
        limits = RelocationLimits(arguments.max_evictions, arguments.max_per_gang, arguments.whole_gangs)
        promises = await read_promises(client, invocation.lease_namespace, names)
        for text in promises.warnings(time.time()):
            progress.warn(text)
        facts = ClusterFacts(snapshot.events, policy, time.time(), names, snapshot.usages, promises.promises)
        relocation = plan(facts, goal, limits, progress.show)
        progress.clear()
        if not (arguments.apply and relocation.reached and relocation.moves):
            return relocation, None, snapshot
        options = RelocationOptions(arguments.through, seconds, arguments.keep_closed, names[0])
        runner = RelocationRunner(client, relocation, options, progress.print_line)
        return relocation, await runner.run(), snapshot

    return work


async def _read(
    client: KubeClient, policy: Policy, names: tuple[str, ...], lease_namespace: str, progress: DefragProgress
) -> Snapshot:
    """Read the cluster; warn about unreadable objects and nodes that are still closed by an earlier run."""
    from phalanx.daemon.policy_file import dialect_options
    from phalanx.model.node import HOLD
    from phalanx.reports.snapshot import read_cluster
    from phalanx.reports.stored_usage import read_usage

    snapshot = await read_cluster(client, names, dialect_options(policy), lease_namespace)
    await read_usage(client, snapshot, policy, lease_namespace, names)
    for text in snapshot.missing:
        progress.warn(f"not read: {text}")
    for name in _closed_nodes(snapshot):
        progress.warn(
            f"node {name} is still closed by an earlier defrag; to open it: kubectl taint node {name} {HOLD.key}-"
        )
    return snapshot


class DefragProgress:
    """Progress of `phalanx defrag` on stderr: planning in one overwritten line (terminal only), execution in lines
    that remain."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        if self._is_terminal:
            click.echo("\r" + text.ljust(self._width), err=True, nl=False)
            self._width = len(text)

    def clear(self) -> None:
        if self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
            self._width = 0

    def print_line(self, text: str) -> None:
        self.clear()
        click.echo(text, err=True)

    def warn(self, text: str) -> None:
        self.print_line(f"warning: {text}")


def _selector(text: str) -> tuple[Requirement, ...]:
    from phalanx.model.label_selectors import parse_label_selector

    try:
        return parse_label_selector(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--selector") from error


def _seconds(timeout: str) -> float:
    from phalanx.model.text.duration import parse_duration

    try:
        seconds = parse_duration(timeout)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--timeout") from error
    if seconds <= 0:
        raise click.BadParameter(f"{quoted(timeout)} must be greater than 0", param_hint="--timeout")
    return float(seconds)


def _eligible(snapshot: Snapshot, labels: tuple[Requirement, ...]) -> frozenset[str] | None:
    """Return the names of nodes that match the selector; None for all nodes."""
    from phalanx.model.matching import all_hold

    if not labels:
        return None
    nodes = (node for node in snapshot.state.nodes.nodes if node is not None)
    return frozenset(node.name for node in nodes if all_hold(labels, dict(node.labels)))


def _closed_nodes(snapshot: Snapshot) -> list[str]:
    from phalanx.model.node import HOLD

    nodes = (node for node in snapshot.state.nodes.nodes if node is not None)
    return sorted(node.name for node in nodes if any(taint.key == HOLD.key for taint in node.taints))


def _preemptor(snapshot: Snapshot, namespace: str, kind: str, name: str) -> Goal:
    from phalanx.model.gang import GangKey
    from phalanx.scheduling.defragmentation.relocation import RoomFor
    from phalanx.views.gang_names import AmbiguousGangError, gangs_named

    gangs = snapshot.state.gangs
    if kind != "pod":
        try:
            keys = gangs_named(gangs, namespace, name, kind)
        except AmbiguousGangError as error:
            raise click.ClickException(str(error)) from error
        if not keys and kind:
            raise click.ClickException(f"no gang {quoted(name)} of kind {kind} in namespace {quoted(namespace)}")
        if keys:
            waiting = next((key for key in keys if gangs[key].pending), keys[0])
            return RoomFor(waiting, f"gang {gangs[waiting].title}")
    pods = (record.pod for record in snapshot.state.pods.values())
    pod = next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)
    if pod is None:
        target_kind = "pod" if kind else "gang, job or pod"
        raise click.ClickException(f"no {target_kind} {quoted(name)} in namespace {quoted(namespace)}")
    if pod.gang:
        key = GangKey(namespace, pod.gang)
        return RoomFor(key, f"gang {gangs[key].title if key in gangs else key}")
    return RoomFor(pod.uid, f"pod {pod.key}")
