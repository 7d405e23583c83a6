"""`phalanx bench live`, `phalanx bench backlog`."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from phalanx.cli.arguments import Dress
from phalanx.cli.connection import kubeconfig_option, output_option
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from phalanx.cli.bench.rounds import Figures, Measurement
    from phalanx.kube.client import KubeClient

_GROUPS = ("labels", "scheduler-plugins", "volcano", "native", "none")
#: The exit code of who was told to end by SIGTERM.
_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, kw_only=True)
class BenchArguments:
    """Arguments of a measurement."""

    nodes: int
    pods: int
    gang: int
    groups: str
    scheduler_name: str
    concurrency: int


@dataclass(frozen=True, kw_only=True)
class BenchPostArguments:
    """Arguments of `phalanx bench post`."""

    namespace: str
    nodes: int
    pods: int
    concurrency: int
    live: bool


@click.group()
def bench() -> None:
    """Measure how fast a scheduler binds pods, beside what the API server lets anybody bind.

    Makes nodes without kubelets and pods that only fit there, in a namespace of their own, and deletes them at
    the end, also after Ctrl-C and SIGTERM. The scheduler in question must run already. Meant for clusters without
    a node controller, such as `phalanx apiserver` and test control planes: others take such nodes for dead.
    """


_OPTIONS: tuple[Dress, ...] = (
    output_option,
    kubeconfig_option,
    click.option("--concurrency", default=64, show_default=True, type=click.IntRange(1), help="Requests at once."),
    click.option("--scheduler-name", default="phalanx", show_default=True, help="The scheduler that is measured."),
    click.option(
        "--groups",
        type=click.Choice(_GROUPS),
        default="labels",
        show_default=True,
        help="How gangs are declared: by pod-group.scheduling.sigs.k8s.io labels, by PodGroups of "
        "scheduler-plugins, Volcano or scheduling.k8s.io, or not at all.",
    ),
    click.option("--gang", default=4, show_default=True, type=click.IntRange(1), help="Pods of a gang."),
    click.option("--pods", default=4000, show_default=True, type=click.IntRange(1), help="How many pods."),
    click.option("--nodes", default=100, show_default=True, type=click.IntRange(1), help="How many nodes."),
)


@bench.command()
@pass_invocation(BenchArguments, *_OPTIONS)
def backlog(invocation: Invocation, arguments: BenchArguments) -> None:
    """All pods wait already when the nodes come."""
    _measure("backlog", invocation, arguments)


@bench.command()
@pass_invocation(BenchArguments, *_OPTIONS)
def live(invocation: Invocation, arguments: BenchArguments) -> None:
    """Pods come as fast as they can be created: also how long each waits."""
    _measure("live", invocation, arguments)


@bench.command(hidden=True)
@click.option("--namespace", required=True)
@click.option("--nodes", type=int, required=True)
@click.option("--pods", type=int, required=True)
@click.option("--concurrency", type=int, required=True)
@click.option("--live", is_flag=True)
@pass_invocation(BenchPostArguments, kubeconfig_option)
def post(invocation: Invocation, arguments: BenchPostArguments) -> None:
    """Bind the pods of a namespace by hand."""
    from phalanx.cli.bench.rounds import post as post_all

    asked = arguments
    invocation.run(
        lambda client: post_all(client, asked.namespace, asked.nodes, asked.pods, asked.concurrency, asked.live)
    )


def _measure(mode: str, invocation: Invocation, arguments: BenchArguments) -> None:
    from phalanx.cli.bench.objects import PODS_PER_NODE

    nodes, pods, gang = arguments.nodes, arguments.pods, arguments.gang
    gangs = pods // gang
    if not gangs:
        raise click.UsageError(f"--pods {pods} is less than one gang of {gang}")
    if gangs * gang > nodes * PODS_PER_NODE:
        raise click.UsageError(
            f"{gangs * gang} pods do not fit on {nodes} nodes of {PODS_PER_NODE}: "
            f"take at least --nodes {-(-gangs * gang // PODS_PER_NODE)}"
        )

    terminated = False

    async def run(client: KubeClient) -> Measurement:
        measuring = asyncio.current_task()

        def terminate() -> None:
            # Once: what is cancelled cleans up, and that must not be cancelled.
            nonlocal terminated
            if not terminated and measuring is not None:
                terminated = True
                measuring.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await _rounds(client, mode, arguments, invocation.client.kubeconfig)

    try:
        answer = invocation.run(run)
    except asyncio.CancelledError:
        raise click.exceptions.Exit(_TERMINATED if terminated else 130) from None
    except TimeoutError as error:
        raise click.ClickException(f"{error}. Does a scheduler named {arguments.scheduler_name!r} run?") from error
    if invocation.prints_table:
        _print(answer)
    else:
        import msgspec

        invocation.print_document(msgspec.to_builtins(answer))


async def _rounds(client: KubeClient, mode: str, arguments: BenchArguments, kubeconfig: str | None) -> Measurement:
    from phalanx.cli.bench import rounds
    from phalanx.cli.bench.objects import (
        BenchWorkload,
        Groups,
        clear,
        make_namespace,
        make_nodes,
        native_version,
        remove_all,
    )

    nodes, size, concurrency = arguments.nodes, arguments.gang, arguments.concurrency
    kind = Groups(arguments.groups)
    version = await native_version(client) if kind is Groups.NATIVE else ""
    if kind is Groups.NATIVE and not version:
        raise click.ClickException("the API server has no PodGroups of scheduling.k8s.io")
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    workload = BenchWorkload(namespace, arguments.pods // size, size, arguments.scheduler_name, kind, version)
    try:
        await make_namespace(client, namespace)
        if mode == "backlog":
            measured = await _told(
                "pods wait, nodes come", lambda told: rounds.backlog(client, workload, nodes, concurrency, told)
            )
        else:
            await make_nodes(client, namespace, nodes, concurrency)
            measured = await _told("pods come", lambda told: rounds.live(client, workload, concurrency, told))
        await clear(client, workload)
        bare = rounds.bare_backlog if mode == "backlog" else rounds.bare_live
        ceiling = await _told(
            "the same bindings by hand",
            lambda told: bare(client, workload, nodes, concurrency, kubeconfig, told),
        )
    finally:
        await remove_all(client, namespace)
    ratio = measured.bindings_per_second / max(ceiling.bindings_per_second, 1e-9)
    return rounds.Measurement(mode, nodes, size, arguments.groups, measured, ceiling, ratio)


async def _told(what: str, work: Callable[[Callable[[int], None]], Awaitable[Figures]]) -> Figures:
    """Runs a round and shows on a terminal how far it is."""
    last = -1

    def told(bound: int) -> None:
        nonlocal last
        if bound // 100 != last:
            last = bound // 100
            click.echo(f"\r{what}: {bound} bound", err=True, nl=False)

    if not sys.stderr.isatty():
        return await work(lambda bound: None)
    try:
        return await work(told)
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def _print(answer: Measurement) -> None:
    scheduler, bare = answer.scheduler, answer.bare
    click.echo(
        f"{answer.mode}: {scheduler.pods} pods in gangs of {answer.gang} ({answer.groups}) on {answer.nodes} nodes"
    )
    click.echo(f"  scheduler   {scheduler.bindings_per_second:8.0f} bindings/s, {scheduler.seconds:.2f} s")
    if answer.mode == "live":
        waited = {
            "P50": scheduler.p50_milliseconds,
            "P90": scheduler.p90_milliseconds,
            "P99": scheduler.p99_milliseconds,
            "max": scheduler.max_milliseconds,
        }
        click.echo(
            f"  pods came at {scheduler.created_per_second:.0f}/s, beside the bare client at "
            f"{bare.created_per_second:.0f}/s"
        )
        click.echo(
            "  from creation to binding (ms): "
            + ", ".join(f"{name} {value:.0f}" for name, value in waited.items() if value is not None)
        )
    click.echo(f"  bare client {bare.bindings_per_second:8.0f} bindings/s, {bare.seconds:.2f} s")
    click.echo(f"  ratio       {answer.ratio:8.2f}")
