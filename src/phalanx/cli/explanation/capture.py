"""Command `phalanx capture`: save a live cluster to a file, without secrets."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.kube.causes import cause_text

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.simulation.capture import Capture

# Number of objects between two progress lines.
_STEP = 1000


@dataclass(frozen=True, kw_only=True)
class CaptureArguments:
    """Arguments of `phalanx capture`; `output` is a file, or - for stdout."""

    output: str


@click.command(short_help="Save a live cluster to a file, without secrets.")
@connection_options
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    metavar="FILE",
    help="Output file; - for stdout. A name that ends with .gz is compressed.",
)
@pass_invocation(CaptureArguments, scheduler_options("are scheduled in the capture"))
def capture(invocation: Invocation, arguments: CaptureArguments) -> None:
    """Save a live cluster to a file, for `phalanx simulate --cluster` and `phalanx what-if --capture`.

    The file contains only fields that affect scheduling. Secrets are never read. Environments, commands, messages,
    parameters of devices and volumes, and unrelated annotations are omitted.

    \b
    phalanx capture -o cluster.json.gz
    """
    from phalanx.reports.capture.writing import capture_cluster, encode_capture

    output = arguments.output
    find_policy = invocation.policy_finder()
    start = time.monotonic()

    def show_progress(plural: str, count: int) -> None:
        if count % _STEP == 0:
            click.echo(f"{count} objects, reading {plural} ...", err=True)

    async def work(client: KubeClient) -> tuple[Capture, list[dict[str, object]]]:
        found = await find_policy(client)
        return await capture_cluster(
            client,
            found.scheduler_names,
            found.policy,
            time.time(),
            invocation.lease_namespace,
            own_namespace=client.namespace,
            policy_text=found.text,
            told=show_progress,
        )

    captured, documents = invocation.run(work)
    for text in captured.missing:
        click.echo(f"warning: cannot read {text}", err=True)
    content = encode_capture(captured, documents, output.endswith(".gz"))
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        Path(output).write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {cause_text(error)}") from error
    seconds = time.monotonic() - start
    click.echo(f"{len(documents)} objects, {len(content):,} bytes in {output}, {seconds:.1f} s", err=True)
