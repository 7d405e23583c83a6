"""Command `phalanx simulate`: the effect of a policy on a workload, in virtual time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from phalanx.cli.connection import kubeconfig_option, namespace_option
from phalanx.cli.invocation import Invocation, pass_invocation

# Options that accept several values after one flag.
_MULTI_VALUE_OPTIONS = ("--workload", "--policy", "--seed")


class _MultiValueCommand(click.Command):
    """Click command that accepts `--policy a b` for `--policy a --policy b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        expanded: list[str] = []
        current, has_value = "", False
        for word in args:
            if word.startswith("-"):
                name = word.partition("=")[0]
                current = name if name in _MULTI_VALUE_OPTIONS else ""
                has_value = "=" in word
                expanded.append(word)
                continue
            if current and has_value:
                expanded.append(current)
            has_value = True
            expanded.append(word)
            if not current:
                current, has_value = "", False
        return super().parse_args(ctx, expanded)


@dataclass(frozen=True, kw_only=True)
class SimulateArguments:
    """Arguments of `phalanx simulate`."""

    cluster_file: str | None
    processors: int | None
    workload_files: tuple[str, ...]
    policy_files: tuple[str, ...]
    seeds: tuple[int, ...]
    until: str | None
    hour: str | None
    report_dir: str
    processes: int | None
    dask: str | None
    workers: int | None
    image: str
    queue: str
    namespace: str | None
    quiet: bool


@click.command(cls=_MultiValueCommand, short_help="Run workloads through the scheduler in virtual time.")
@click.option(
    "--cluster",
    "cluster_file",
    metavar="FILE",
    help="Nodes, queues and quotas: YAML objects, a capture, a node table (.csv) or a workload log (.swf).",
)
@click.option(
    "--processors",
    type=click.IntRange(min=1),
    metavar="N",
    help="Simulate one pool of N processors (instead of --cluster).",
)
@click.option(
    "--workload",
    "workload_files",
    multiple=True,
    metavar="FILE...",
    help="Job files: YAML, .swf or .csv. All files are combined.",
)
@click.option(
    "--policy",
    "policy_files",
    multiple=True,
    metavar="FILE...",
    help="Policy files to compare. Default: the policy of the capture, else the built-in policy.",
)
@click.option(
    "--seed",
    "seeds",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N...",
    help="Random seeds, one run each. Default: 1.",
)
@click.option("--until", metavar="T", help="Simulated time until the run stops: 3600, 90m, 12h, 30d.")
@click.option(
    "--hour", metavar="T", help="Hour that the report shows node by node. Default: the hour with the longest queue."
)
@click.option("--report", "report_dir", required=True, metavar="DIR", help="Output directory of the report.")
@click.option("--processes", type=click.IntRange(min=1), metavar="N", help="Maximum number of parallel runs.")
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Address of a Dask scheduler that executes the runs (extra dask).",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Execute the runs in the cluster of the kubeconfig, by N Dask workers in one gang (extra dask).",
)
@click.option(
    "--image",
    default="",
    envvar="PHALANX_IMAGE",
    metavar="IMAGE",
    help="Image of the --workers, with the extra dask.  [default: $PHALANX_IMAGE]",
)
@click.option("--queue", default="", metavar="NAME", help="Queue of the --workers.")
@namespace_option
@click.option("--quiet", is_flag=True, help="Print no progress and no table.")
@pass_invocation(SimulateArguments, kubeconfig_option)
def simulate(invocation: Invocation, arguments: SimulateArguments) -> None:
    """Run workloads through the scheduler in virtual time, and write a report.

    The report directory gets summary.json, jobs.csv and report.html. The same inputs produce the same files.

    \b
    phalanx simulate --cluster cluster.yaml --workload jobs.swf --report out
    phalanx simulate --cluster capture.json.gz --workload jobs.csv --policy a.yaml b.yaml --seed 1 2 --report out
    """
    from phalanx.scheduling.framework.errors import PolicyError
    from phalanx.simulation.errors import InputError

    try:
        _simulate(invocation, arguments)
    except (InputError, PolicyError) as error:
        raise click.ClickException(str(error)) from error


def _simulate(invocation: Invocation, arguments: SimulateArguments) -> None:
    from phalanx.simulation.inputs import read_inputs
    from phalanx.simulation.report.files import write_report
    from phalanx.simulation.sweep import sweep

    if (arguments.cluster_file is None) == (arguments.processors is None):
        raise click.UsageError("set either --cluster FILE or --processors N (one pool of N processors)")
    if sum(option is not None for option in (arguments.processes, arguments.dask, arguments.workers)) > 1:
        raise click.UsageError("--processes, --dask and --workers exclude each other")
    if not arguments.workload_files and arguments.cluster_file is None:
        raise click.UsageError("no workload; set at least one --workload FILE")
    inputs = read_inputs(
        arguments.cluster_file,
        arguments.processors or 0,
        arguments.workload_files,
        arguments.policy_files,
        arguments.seeds or (1,),
        arguments.until,
        arguments.hour,
    )
    with _workers(invocation, arguments, len(inputs.policies) * len(inputs.seeds)) as client:
        results = sweep(
            inputs,
            processes=arguments.processes,
            dask=arguments.dask,
            client=client,
            progress=not arguments.quiet,
        )
    written = write_report(inputs, results, Path(arguments.report_dir))
    if not arguments.quiet:
        for line in written:
            click.echo(line)


@contextlib.contextmanager
def _workers(invocation: Invocation, arguments: SimulateArguments, runs: int) -> Iterator[Any]:
    """Yield a client of a Dask gang with the workers of --workers, at most one per run; None without --workers.

    Raises click.ClickException if the gang cannot start.
    """
    if arguments.workers is None:
        yield None
        return
    from phalanx.simulation.errors import InputError

    try:
        from distributed import Client

        from phalanx.dask import PhalanxCluster
    except ImportError as error:
        raise InputError("--workers needs the extra dask: pip install 'phalanx-scheduler[dask]'") from error
    from phalanx.sdk.errors import PhalanxError

    connection = invocation.client
    try:
        with (
            PhalanxCluster(
                min(arguments.workers, runs),
                1,
                kubeconfig=connection.kubeconfig,
                context=connection.context,
                namespace=arguments.namespace,
                image=arguments.image,
                queue=arguments.queue,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
    except PhalanxError as error:
        raise click.ClickException(f"--workers: {error.message}") from error
