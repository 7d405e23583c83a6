"""`phalanx simulate`: what a policy would do with a workload, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from phalanx.cli.arguments import pass_arguments

# Options that take as many values as stand behind them.
_SEVERAL = ("--workload", "--policy", "--seed")


class _Several(click.Command):
    """`--policy a b` is the same as `--policy a --policy b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        expanded: list[str] = []
        current, fed = "", False
        for word in args:
            if word.startswith("-"):
                name = word.partition("=")[0]
                current = name if name in _SEVERAL else ""
                fed = "=" in word
                expanded.append(word)
                continue
            if current and fed:
                expanded.append(current)
            fed = True
            expanded.append(word)
            if not current:
                current, fed = "", False
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
    quiet: bool


@click.command(cls=_Several, short_help="Run workloads through the scheduler in virtual time.")
@click.option(
    "--cluster",
    "cluster_file",
    metavar="FILE",
    help="The nodes, queues and quotas: YAML objects, a capture, a table of nodes (.csv), or a log (.swf).",
)
@click.option(
    "--processors",
    type=click.IntRange(min=1),
    metavar="N",
    help="Instead of --cluster: a machine whose N processors are one pool.",
)
@click.option(
    "--workload", "workload_files", multiple=True, metavar="FILE...", help="Jobs: YAML, .swf or .csv; all together."
)
@click.option(
    "--policy",
    "policy_files",
    multiple=True,
    metavar="FILE...",
    help="Policies to compare; by default the built-in.",
)
@click.option(
    "--seed", "seeds", multiple=True, type=click.IntRange(min=0), metavar="N...", help="Draws to repeat it with; 1."
)
@click.option("--until", metavar="T", help="When to stop, after the beginning: 3600, 90m, 12h, 30d.")
@click.option(
    "--hour", metavar="T", help="Which hour the report shows node by node; by default that of the longest queue."
)
@click.option("--report", "report_dir", required=True, metavar="DIR", help="Where the report goes.")
@click.option("--processes", type=click.IntRange(min=1), metavar="N", help="At most so many at once.")
@click.option("--dask", metavar="ADDRESS", help="Spread the runs over a Dask cluster (pip install distributed).")
@click.option("--quiet", is_flag=True, help="No progress, no table.")
@pass_arguments(SimulateArguments)
def simulate(arguments: SimulateArguments) -> None:
    """Run workloads through the scheduler in virtual time, and report what came of it.

    DIR gets summary.json, jobs.csv and report.html. The same inputs give the same files.
    """
    from phalanx.scheduling.framework.errors import PolicyError
    from phalanx.simulation.errors import InputError

    try:
        _simulate(arguments)
    except (InputError, PolicyError) as error:
        raise click.ClickException(str(error)) from error


def _simulate(arguments: SimulateArguments) -> None:
    from phalanx.simulation.inputs import read_inputs
    from phalanx.simulation.report.files import write_report
    from phalanx.simulation.sweep import sweep

    if (arguments.cluster_file is None) == (arguments.processors is None):
        raise click.UsageError("give --cluster FILE, or --processors N for a machine that is one pool")
    if not arguments.workload_files and arguments.cluster_file is None:
        raise click.UsageError("give at least one --workload FILE")
    inputs = read_inputs(
        arguments.cluster_file,
        arguments.processors or 0,
        arguments.workload_files,
        arguments.policy_files,
        arguments.seeds or (1,),
        arguments.until,
        arguments.hour,
    )
    results = sweep(inputs, processes=arguments.processes, dask=arguments.dask, progress=not arguments.quiet)
    written = write_report(inputs, results, Path(arguments.report_dir))
    if not arguments.quiet:
        for line in written:
            click.echo(line)
