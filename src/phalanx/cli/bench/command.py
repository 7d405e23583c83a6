"""Commands `phalanx bench live` and `phalanx bench backlog`."""

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
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.cli.bench.rounds import Figures, Measurement
    from phalanx.kube.client import KubeClient

_GROUPS = ("labels", "scheduler-plugins", "volcano", "native", "none")
#: Exit code after SIGTERM.
_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, kw_only=True)
class BenchArguments:
    """Arguments of `phalanx bench backlog` and `phalanx bench live`."""

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
    """Measure how many pods per second a scheduler binds, compared with the limit of the API server.

    The benchmark creates nodes without kubelets and pods that fit only there, in a new namespace. It deletes
    them at the end, also after Ctrl-C and SIGTERM. The scheduler must already run. Use a cluster without node
    controller, such as `phalanx apiserver` or a test control plane: a node controller marks these nodes as
    lost.

    \b
    phalanx bench backlog --pods 10000 --nodes 500
    phalanx bench live --groups native
    """


_OPTIONS: tuple[Dress, ...] = (
    output_option,
    kubeconfig_option,
    click.option(
        "--concurrency",
        default=64,
        show_default=True,
        type=click.IntRange(1),
        help="Maximum number of parallel requests.",
    ),
    click.option("--scheduler-name", default="phalanx", show_default=True, help="Name of the measured scheduler."),
    click.option(
        "--groups",
        type=click.Choice(_GROUPS),
        default="labels",
        show_default=True,
        help="Declaration of gangs: labels pod-group.scheduling.sigs.k8s.io, PodGroups of scheduler-plugins, "
        "Volcano or scheduling.k8s.io (native), or none.",
    ),
    click.option("--gang", default=4, show_default=True, type=click.IntRange(1), help="Pods per gang."),
    click.option("--pods", default=4000, show_default=True, type=click.IntRange(1), help="Number of pods."),
    click.option("--nodes", default=100, show_default=True, type=click.IntRange(1), help="Number of nodes."),
)


@bench.command()
@pass_invocation(BenchArguments, *_OPTIONS)
def backlog(invocation: Invocation, arguments: BenchArguments) -> None:
    """Measure bindings per second with all pods waiting before the nodes are created.

    \b
    phalanx bench backlog --pods 10000 --nodes 500
    """
    _measure("backlog", invocation, arguments)


@bench.command()
@pass_invocation(BenchArguments, *_OPTIONS)
def live(invocation: Invocation, arguments: BenchArguments) -> None:
    """Measure bindings per second with pods created as fast as possible, and report their waiting times.

    \b
    phalanx bench live --groups native --gang 8
    """
    _measure("live", invocation, arguments)


@bench.command(hidden=True)
@click.option("--namespace", required=True)
@click.option("--nodes", type=int, required=True)
@click.option("--pods", type=int, required=True)
@click.option("--concurrency", type=int, required=True)
@click.option("--live", is_flag=True)
@pass_invocation(BenchPostArguments, kubeconfig_option)
def post(invocation: Invocation, arguments: BenchPostArguments) -> None:
    """Bind the pods of a namespace directly (child process of a benchmark).

    \b
    phalanx bench post --namespace bench --nodes 10 --pods 100 --concurrency 64
    """
    from phalanx.cli.bench.rounds import post as post_all

    options = arguments
    invocation.run(
        lambda client: post_all(
            client, options.namespace, options.nodes, options.pods, options.concurrency, options.live
        )
    )


def _measure(mode: str, invocation: Invocation, arguments: BenchArguments) -> None:
    from phalanx.cli.bench.objects import PODS_PER_NODE

    nodes, pods, gang = arguments.nodes, arguments.pods, arguments.gang
    gangs = pods // gang
    if not gangs:
        raise click.UsageError(f"--pods {pods} must be at least one gang ({gang} pods)")
    if gangs * gang > nodes * PODS_PER_NODE:
        raise click.UsageError(
            f"{gangs * gang} pods do not fit on {nodes} nodes of {PODS_PER_NODE} pods each: "
            f"set at least --nodes {-(-gangs * gang // PODS_PER_NODE)}"
        )

    terminated = False

    async def run(client: KubeClient) -> Measurement:
        measuring = asyncio.current_task()

        def terminate() -> None:
            # Cancel only once: a second cancellation would interrupt the cleanup.
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
        raise click.ClickException(
            f"{error}. Check that scheduler {quoted(arguments.scheduler_name)} runs."
        ) from error
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
        raise click.ClickException("the API server does not serve PodGroups of scheduling.k8s.io")
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    workload = BenchWorkload(namespace, arguments.pods // size, size, arguments.scheduler_name, kind, version)
    try:
        await make_namespace(client, namespace)
        if mode == "backlog":
            measured = await _with_progress(
                "backlog", lambda progress: rounds.backlog(client, workload, nodes, concurrency, progress)
            )
        else:
            await make_nodes(client, namespace, nodes, concurrency)
            measured = await _with_progress(
                "live", lambda progress: rounds.live(client, workload, concurrency, progress)
            )
        await clear(client, workload)
        bare = rounds.bare_backlog if mode == "backlog" else rounds.bare_live
        ceiling = await _with_progress(
            "client without scheduler",
            lambda progress: bare(client, workload, nodes, concurrency, kubeconfig, progress),
        )
    finally:
        await remove_all(client, namespace)
    ratio = measured.bindings_per_second / max(ceiling.bindings_per_second, 1e-9)
    return rounds.Measurement(mode, nodes, size, arguments.groups, measured, ceiling, ratio)


async def _with_progress(title: str, work: Callable[[Callable[[int], None]], Awaitable[Figures]]) -> Figures:
    """Run a round of the benchmark; on a terminal print the number of bound pods."""
    last = -1

    def show_progress(bound: int) -> None:
        nonlocal last
        if bound // 100 != last:
            last = bound // 100
            click.echo(f"\r{title}: {bound} bound", err=True, nl=False)

    if not sys.stderr.isatty():
        return await work(lambda bound: None)
    try:
        return await work(show_progress)
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def _print(answer: Measurement) -> None:
    scheduler, bare = answer.scheduler, answer.bare
    click.echo(
        f"{answer.mode}: {scheduler.pods} pods in gangs of {answer.gang} ({answer.groups}) on {answer.nodes} nodes"
    )
    click.echo(f"  scheduler         {scheduler.bindings_per_second:8.0f} bindings/s, {scheduler.seconds:.2f} s")
    if answer.mode == "live":
        waiting_times = {
            "P50": scheduler.p50_milliseconds,
            "P90": scheduler.p90_milliseconds,
            "P99": scheduler.p99_milliseconds,
            "max": scheduler.max_milliseconds,
        }
        click.echo(
            f"  pods created at {scheduler.created_per_second:.0f}/s "
            f"(without scheduler: {bare.created_per_second:.0f}/s)"
        )
        click.echo(
            "  from creation to binding (ms): "
            + ", ".join(f"{name} {value:.0f}" for name, value in waiting_times.items() if value is not None)
        )
    click.echo(
        f"  without scheduler {bare.bindings_per_second:8.0f} bindings/s, {bare.seconds:.2f} s "
        "(a client that only posts bindings)"
    )
    click.echo(f"  ratio             {answer.ratio:8.2f}")
