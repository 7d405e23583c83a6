"""`phalanx policy`: look at a policy before a scheduler has to live with it."""

from __future__ import annotations

from dataclasses import dataclass

import click
import msgspec

from phalanx.cli.connection import output_option
from phalanx.cli.invocation import Invocation, pass_invocation


@click.group()
def policy() -> None:
    """Check a policy file and show the pipeline that it makes."""


@policy.command(short_help="Print which plugin speaks where, and what is not active.")
@click.option("--config", default="", metavar="POLICY", help="A policy file; without one, the built-in policy.")
@pass_invocation(None, output_option)
def show(invocation: Invocation) -> None:
    """Print which plugin speaks at which extension point, the features of the cycle that installed packages offer,
    and what is not active yet."""
    from phalanx.daemon.policy_file import read_policy
    from phalanx.scheduling.framework.errors import PolicyError
    from phalanx.scheduling.framework.eviction_options import describe
    from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
    from phalanx.scheduling.policy.registry import installed_features

    try:
        loaded = read_policy(invocation.config)
        features = installed_features()
    except PolicyError as error:
        raise click.ClickException(str(error)) from error
    points = PluginRuntime(loaded).describe()
    if not invocation.prints_table:
        document = {
            "actions": list(loaded.actions),
            "pipeline": dict(points),
            "features": msgspec.to_builtins(features),
            "inactive": list(loaded.inactive),
            "partialGang": loaded.partial_gang,
            "evictions": loaded.evictions,
            "eviction": msgspec.to_builtins(loaded.eviction),
        }
        invocation.print_document(document)
        return
    width = max(len(point) for point, _ in points)
    click.echo(f"{'actions':{width}} {', '.join(loaded.actions)}")
    for point, plugins in points:
        click.echo(f"{point:{width}} {', '.join(plugins) or '-'}")
    for feature in features:
        source = f" ({feature.distribution})" if feature.distribution else ""
        click.echo(f"{'feature':{width}} {feature.name}{source}: {', '.join(feature.points)}")
    for rule in describe(loaded.eviction, loaded.evictions):
        click.echo(f"{'evictions':{width}} {rule}")
    for sentence in loaded.inactive:
        click.echo(f"note: {sentence}")


@dataclass(frozen=True, kw_only=True)
class PolicyLintArguments:
    """Arguments of `phalanx policy lint`."""

    files: tuple[str, ...]
    strict: bool


@policy.command(short_help="List a policy's mistakes and doubts, with their lines.")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True)
)
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@pass_invocation(PolicyLintArguments, output_option)
def lint(invocation: Invocation, arguments: PolicyLintArguments) -> None:
    """List the mistakes and doubts of policy files, with line and what to write instead; Volcano's ConfigMap too.

    An error keeps a scheduler from starting with the file; a warning is about what has no effect, or another one
    than one might think. Exit codes: 0 nothing but warnings, 1 errors (with --strict also warnings), 2 usage.

    \b
    phalanx policy lint policy.yaml
    kubectl get configmap -n volcano-system volcano-scheduler-configmap -o yaml | phalanx policy lint -
    """
    from phalanx.daemon.policy_file import dialect_options
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.scheduling.policy.lint import ERROR, lint_policy

    def check(policy: Policy) -> None:
        dialect_options(policy)

    found = []
    for file in arguments.files:
        try:
            with click.open_file(file, encoding="utf-8") as opened:
                text = opened.read()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{file}: cannot be read: {error}") from error
        for mistake in lint_policy(text, check):
            severity = ERROR if arguments.strict else mistake.severity
            found.append({"file": file, "line": mistake.line, "severity": severity, "message": mistake.message})
    if invocation.prints_table:
        for each in found:
            click.echo(f"{each['file']}:{each['line']}: {each['severity']}: {each['message']}")
    else:
        invocation.print_document(found)
    if any(each["severity"] == ERROR for each in found):
        raise click.exceptions.Exit(1)
