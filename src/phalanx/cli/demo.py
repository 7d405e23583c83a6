"""Command `phalanx demo`: scenarios that run on an embedded cluster."""

from __future__ import annotations

from dataclasses import dataclass

import click

from phalanx.cli.connection import output_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.model.text.decoding import quoted


@dataclass(frozen=True, kw_only=True)
class DemoArguments:
    """Arguments of `phalanx demo`."""

    name: str | None
    list_only: bool
    policy: str


@click.command()
@click.argument("name", required=False)
@click.option("--list", "list_only", is_flag=True, help="List the scenarios.")
@output_option
@click.option("--policy", default="", metavar="POLICY", help="Policy file of the scheduler.")
@pass_invocation(DemoArguments)
def demo(invocation: Invocation, arguments: DemoArguments) -> None:
    """Run a demo scenario on an embedded cluster and print each step.

    NAME is a scenario of --list. The default is a TensorFlow gang whose pods wait and start together. The exit
    code is 0 only if every step has its expected result.

    \b
    phalanx demo
    phalanx demo --list
    phalanx demo reclaim
    """
    from phalanx.demo.scenarios import SCENARIOS

    known = {scenario.name: scenario for scenario in SCENARIOS}
    if not arguments.list_only and not invocation.prints_table:
        raise click.UsageError(f"-o {invocation.output} works with --list only")
    if not invocation.prints_table:
        invocation.print_document([{"name": entry.name, "summary": entry.summary} for entry in SCENARIOS])
        return
    if arguments.list_only:
        width = max(map(len, known)) + 2
        for scenario in SCENARIOS:
            click.echo(f"{scenario.name:{width}}{scenario.summary}")
        return
    chosen = known.get(arguments.name) if arguments.name else SCENARIOS[0]
    if chosen is None:
        raise click.UsageError(f"unknown scenario {quoted(arguments.name)}; expected one of {', '.join(known)}")
    _play(chosen, arguments.policy)


def _play(chosen: type, policy: str) -> None:
    import asyncio
    import tempfile
    import time
    from pathlib import Path

    from phalanx.demo.localcluster import LocalCluster, LocalOptions, StartError
    from phalanx.demo.stage import ScenarioError, ScenarioRun, write_nodes, write_policy

    scenario = chosen()

    async def play(directory: Path) -> None:
        options = LocalOptions(
            directory=directory,
            nodes_file=directory / "nodes.yaml",
            kubeconfig=directory / "kubeconfig",
            policy=policy or write_policy(directory, scenario),
            run_processes=scenario.executes,
        )
        cluster = LocalCluster(options)
        write_nodes(cluster, scenario.nodes)
        start = time.monotonic()
        click.echo("starting an embedded cluster: API server, kubelets, scheduler ...")
        async with cluster.running():
            click.echo(f"ready after {time.monotonic() - start:.1f} s at {cluster.client.config.server}")
            await scenario.play(ScenarioRun(cluster, scenario, click.echo))

    try:
        with tempfile.TemporaryDirectory(prefix="phalanx-demo-") as directory:
            asyncio.run(play(Path(directory)))
    except StartError as error:
        raise click.ClickException(str(error)) from None
    except ScenarioError as error:
        raise click.ClickException(f"the demo failed: {error}") from None
    click.echo(f"\ndemo {scenario.name}: all steps succeeded")
