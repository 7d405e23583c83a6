"""`phalanx policy`: look at a policy before a scheduler has to live with it."""

from __future__ import annotations

import click
import msgspec

from phalanx.cli.connection import output_option


@click.group()
def policy() -> None:
    """Check a policy file and show the pipeline that it makes."""


@policy.command(short_help="Print which plugin speaks where, and what is not active.")
@click.option("--config", default="", metavar="POLICY", help="A policy file; without one, the built-in policy.")
@output_option
def show(config: str, output: str) -> None:
    """Print which plugin speaks at which extension point, and what is not active yet."""
    from phalanx.cli.connection import print_structured
    from phalanx.daemon.policy_file import read_policy
    from phalanx.scheduling.framework.errors import PolicyError
    from phalanx.scheduling.framework.eviction_options import describe
    from phalanx.scheduling.framework.pipeline import Pipeline

    try:
        loaded = read_policy(config)
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    points = Pipeline(loaded).describe()
    if output != "table":
        document = {
            "actions": list(loaded.actions),
            "pipeline": dict(points),
            "inactive": list(loaded.inactive),
            "partialGang": loaded.partial_gang,
            "evictions": loaded.evictions,
            "eviction": msgspec.to_builtins(loaded.eviction),
        }
        print_structured(document, output)
        return
    width = max(len(point) for point, _ in points)
    click.echo(f"{'actions':{width}} {', '.join(loaded.actions)}")
    for point, plugins in points:
        click.echo(f"{point:{width}} {', '.join(plugins) or '-'}")
    for rule in describe(loaded.eviction, loaded.evictions):
        click.echo(f"{'evictions':{width}} {rule}")
    for sentence in loaded.inactive:
        click.echo(f"note: {sentence}")
