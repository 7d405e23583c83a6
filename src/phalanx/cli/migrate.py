"""`phalanx migrate`: what a cluster that another scheduler runs would be here."""

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
    """Arguments of `phalanx migrate`; `sources` are files and folders, without which the cluster is read."""

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
    help="Only this one, and what belongs to none. By default the whole cluster.",
    shell_complete=complete_namespaces,
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="DIR|FILE",
    type=click.Path(exists=True, path_type=Path),
    help="Read manifests and no cluster; may be repeated.",
)
@click.option(
    "--write",
    "target",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write policy.yaml, objects/ and patches/ there. The cluster is never written to.",
)
@click.option(
    "--scheduler-name", default="phalanx", show_default=True, help="The name of the scheduler to move to."
)
@click.option("--all-fields", is_flag=True, help="In tables also the fields that work as they are.")
@pass_invocation(MigrateArguments, output_option)
def migrate(invocation: Invocation, arguments: MigrateArguments) -> None:
    """Say what of Volcano's, scheduler-plugins', Koordinator's, KAI's and Kueue's objects works here as it is.

    Object by object and field by field: works as it is, works after a change, not honoured; then the steps to move
    in. Whether a field is honoured is asked of the decoders that the scheduler itself uses. Reads the cluster (or
    files) and changes nothing; kinds that may not be read are named.

    Exit codes: 0 everything works as it is or after a change, 1 something is not honoured or could not be read (or
    the cluster could not be reached, which is said on the last line), 2 usage.

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
    found = source.examiner.found
    told = summary(found, source.webhooks, str(arguments.target or ""))
    if arguments.target is not None:
        for path in write_manifests(found, source.examiner.policies, arguments.target):
            click.echo(f"written: {path}", err=True)
    if invocation.prints_table:
        _print(found, told, source, arguments.all_fields)
    else:
        invocation.print_document(_document(found, told, source))
    if source.missing or any(each.verdict is MigrationVerdict.NOT_HONOURED for each in found):
        raise click.exceptions.Exit(1)


def _print(found: list[ObjectFinding], told: Steps, source: Source, all_fields: bool) -> None:
    import yaml

    for each in found:
        alike = f" and {each.alike} alike" if each.alike else ""
        click.echo(f"{each.title}{alike}: {each.verdict}")
        for field in each.fields:
            if all_fields or field.verdict.value != "works as it is":
                message = f": {field.message}" if field.message else ""
                click.echo(f"  {field.verdict:20} {field.field or '-'}{message}")
        for words, change in (("apply in its place", each.manifests), ("patch", (each.patch,))):
            for document in filter(None, change):
                click.echo(f"  {words}:\n" + indent(yaml.safe_dump(document, sort_keys=False).rstrip(), "    "))
    for missing in source.missing:
        click.echo(f"not read: {missing}")
    if not found:
        click.echo("nothing of Volcano, scheduler-plugins, Koordinator, KAI or Kueue was found")
    for system, counts in told.counts.items():
        click.echo(f"{system}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    for number, step in enumerate(told.steps, 1):
        click.echo(f"{number}. {step}")


def _document(found: list[ObjectFinding], told: Steps, source: Source) -> dict[str, Any]:
    import msgspec

    objects = [{**msgspec.to_builtins(each), "verdict": each.verdict.value} for each in found]
    return {"objects": objects, "missing": source.missing, "summary": dict(told.counts), "steps": list(told.steps)}


def write_manifests(found: list[ObjectFinding], policies: dict[str, str], target: Path) -> list[Path]:
    """Ready manifests; what is there already under these names is replaced. Raises click.ClickException."""
    from phalanx.reports.migration.replacements import manifest_files

    files = manifest_files(found, policies)
    try:
        for path, text in files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or target}: {error.strerror}") from error
    return [target / path for path in files]
