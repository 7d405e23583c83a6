"""Command `phalanx migrate`: which objects and fields of another scheduler Phalanx honours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import complete_namespaces, connection_options, output_option
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.reports.migration.findings import ObjectFinding
    from phalanx.reports.migration.read import Source
    from phalanx.reports.migration.steps import Steps


@dataclass(frozen=True, kw_only=True)
class MigrateArguments:
    """Arguments of `phalanx migrate`; `sources` are files and directories (empty: read the cluster)."""

    namespace: str | None
    sources: tuple[Path, ...]
    target: Path | None
    scheduler_name: str
    all_fields: bool


@click.command()
@connection_options
@click.option(
    "-n",
    "--namespace",
    help="Check this namespace and cluster-scoped objects. Default: all namespaces.",
    shell_complete=complete_namespaces,
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="DIR|FILE",
    type=click.Path(exists=True, path_type=Path),
    help="Read manifests instead of the cluster; repeatable.",
)
@click.option(
    "--write",
    "target",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write policy.yaml, objects/ and patches/ to this directory. The cluster is never changed.",
)
@click.option("--scheduler-name", default="phalanx", show_default=True, help="Name of the target scheduler.")
@click.option("--all-fields", is_flag=True, help="Also list fields that work as they are (tables only).")
@pass_invocation(MigrateArguments, output_option)
def migrate(invocation: Invocation, arguments: MigrateArguments) -> None:
    """Check which objects of Volcano, scheduler-plugins, Koordinator, KAI and Kueue work with Phalanx.

    Each object and field is reported as: works as it is, works after a change, or not honoured. The migration steps
    follow. The check uses the same decoders as the scheduler. It reads the cluster (or files), changes nothing, and
    lists the kinds that it is not allowed to read.

    Exit codes: 0 everything works as it is or after a change, 1 something is not honoured, or objects or the
    cluster could not be read (see the last line), 2 usage error.

    \b
    phalanx migrate
    phalanx migrate --from manifests/ --write moved/
    """
    from phalanx.reports.migration.examine import Examiner
    from phalanx.reports.migration.findings import MigrationVerdict
    from phalanx.reports.migration.read import Source, read_cluster_objects, read_files
    from phalanx.reports.migration.steps import summary

    source = Source(Examiner(arguments.scheduler_name))
    if arguments.sources:
        read_files(list(arguments.sources), source)
    else:

        async def work(client: KubeClient) -> None:
            await read_cluster_objects(client, source, arguments.namespace)

        invocation.run(work)
    findings = source.examiner.found
    steps = summary(findings, source.webhooks, str(arguments.target or ""))
    if arguments.target is not None:
        for path in write_manifests(findings, source.examiner.policies, arguments.target):
            click.echo(f"written: {path}", err=True)
    if invocation.prints_table:
        _print(findings, steps, source, arguments.all_fields)
    else:
        invocation.print_document(_document(findings, steps, source))
    if source.missing or any(finding.verdict is MigrationVerdict.NOT_HONOURED for finding in findings):
        raise click.exceptions.Exit(1)


def _print(findings: list[ObjectFinding], steps: Steps, source: Source, all_fields: bool) -> None:
    import yaml

    for finding in findings:
        similar = f" and {finding.alike} similar" if finding.alike else ""
        click.echo(f"{finding.title}{similar}: {finding.verdict}")
        for field in finding.fields:
            if all_fields or field.verdict.value != "works as it is":
                message = f": {field.message}" if field.message else ""
                click.echo(f"  {field.verdict:20} {field.field or '-'}{message}")
        for action, change in (("apply instead", finding.manifests), ("patch", (finding.patch,))):
            for document in filter(None, change):
                click.echo(f"  {action}:\n" + indent(yaml.safe_dump(document, sort_keys=False).rstrip(), "    "))
    for missing in source.missing:
        click.echo(f"not read: {missing}")
    if not findings:
        click.echo("no objects of Volcano, scheduler-plugins, Koordinator, KAI or Kueue found")
    for system, counts in steps.counts.items():
        click.echo(f"{system}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    for number, step in enumerate(steps.steps, 1):
        click.echo(f"{number}. {step}")


def _document(findings: list[ObjectFinding], steps: Steps, source: Source) -> dict[str, Any]:
    import msgspec

    objects = [{**msgspec.to_builtins(finding), "verdict": finding.verdict.value} for finding in findings]
    return {
        "objects": objects,
        "missing": source.missing,
        "summary": dict(steps.counts),
        "steps": list(steps.steps),
    }


def write_manifests(findings: list[ObjectFinding], policies: dict[str, str], target: Path) -> list[Path]:
    """Write the manifests of the migration and return their paths; existing files are replaced. Raises
    click.ClickException."""
    from phalanx.reports.migration.replacements import manifest_files

    files = manifest_files(findings, policies)
    try:
        for path, text in files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or target}: {error.strerror}") from error
    return [target / path for path in files]
