"""Command `phalanx policy`: show and check a policy file before a scheduler uses it."""

from __future__ import annotations

from dataclasses import dataclass

import click
import msgspec

from phalanx.cli.connection import output_option
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.kube.causes import cause_text


@click.group()
def policy() -> None:
    """Check a policy file and show its plugin pipeline.

    \b
    phalanx policy show
    phalanx policy lint policy.yaml
    """


@policy.command(short_help="Print the plugins of each extension point.")
@click.option("--config", default="", metavar="POLICY", help="Policy file. Default: the built-in policy.")
@pass_invocation(None, output_option)
def show(invocation: Invocation) -> None:
    """Print the plugins of each extension point, the features of installed packages, and inactive settings.

    \b
    phalanx policy show
    phalanx policy show --config policy.yaml -o yaml
    """
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
            "autoscaler": loaded.autoscaler,
            "evictions": loaded.evictions,
            "eviction": msgspec.to_builtins(loaded.eviction),
            "queues": {name: queue.stated() for name, queue in loaded.queues.items()},
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
    if loaded.requests_nodes:
        click.echo(f"{'autoscaler':{width}} {loaded.autoscaler}: one waiting gang per queue requests nodes")
    for name, queue in loaded.queues.items():
        settings = ", ".join(f"{field} {str(value).lower()}" for field, value in queue.stated().items())
        click.echo(f"{'queue':{width}} {name}: {settings}")
    for sentence in loaded.inactive:
        click.echo(f"note: {sentence}")


@dataclass(frozen=True, kw_only=True)
class PolicyLintArguments:
    """Arguments of `phalanx policy lint`."""

    files: tuple[str, ...]
    strict: bool


@policy.command(short_help="List errors and warnings of policy files.")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True)
)
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@pass_invocation(PolicyLintArguments, output_option)
def lint(invocation: Invocation, arguments: PolicyLintArguments) -> None:
    """List errors and warnings of policy files with line and correction. Also reads Volcano's ConfigMap.

    The scheduler does not start with a file that has an error. A warning marks a setting without effect or with an
    unexpected effect. Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 usage error.

    \b
    phalanx policy lint policy.yaml
    kubectl get configmap -n volcano-system volcano-scheduler-configmap -o yaml | phalanx policy lint -
    """
    from phalanx.daemon.policy_file import dialect_options
    from phalanx.scheduling.framework.policy import Policy
    from phalanx.scheduling.policy.lint import ERROR, lint_policy

    def check(policy: Policy) -> None:
        dialect_options(policy)

    findings = []
    for file in arguments.files:
        try:
            with click.open_file(file, encoding="utf-8") as opened:
                text = opened.read()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"cannot read {file}: {cause_text(error)}") from error
        for mistake in lint_policy(text, check):
            severity = ERROR if arguments.strict else mistake.severity
            findings.append({"file": file, "line": mistake.line, "severity": severity, "message": mistake.message})
    if invocation.prints_table:
        for finding in findings:
            click.echo(f"{finding['file']}:{finding['line']}: {finding['severity']}: {finding['message']}")
    else:
        invocation.print_document(findings)
    if any(finding["severity"] == ERROR for finding in findings):
        raise click.exceptions.Exit(1)
