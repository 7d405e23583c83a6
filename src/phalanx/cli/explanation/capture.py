"""`phalanx capture`: a live cluster as a file, without secrets."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.connection import connection_options, scheduler_options
from phalanx.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.simulation.capture import Capture

# Objects between two words about how far it is.
_STEP = 1000


@dataclass(frozen=True, kw_only=True)
class CaptureArguments:
    """Arguments of `phalanx capture`; `output` is a file, or - for stdout."""

    output: str


@click.command(short_help="Write down a live cluster, without secrets.")
@connection_options
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    metavar="FILE",
    help="Where it goes; - for the terminal. A name that ends with .gz is compressed.",
)
@pass_invocation(CaptureArguments, scheduler_options("are its own"))
def capture(invocation: Invocation, arguments: CaptureArguments) -> None:
    """Write down what the scheduler reads of a live cluster, for `phalanx simulate --cluster` and
    `phalanx what-if --capture`.

    Only fields that decide about scheduling leave the cluster. Secrets are never read; environments, commands,
    messages, parameters of devices and volumes and annotations that nobody asks for are left out.

    \b
    phalanx capture -o cluster.json.gz
    """
    from phalanx.reports.capture.writing import capture_cluster, encode_capture

    output = arguments.output
    read_policy = invocation.policy_reader()
    began = time.monotonic()

    def told(plural: str, count: int) -> None:
        if count % _STEP == 0:
            click.echo(f"{count} objects, reading {plural} ...", err=True)

    async def work(client: KubeClient) -> tuple[Capture, list[dict[str, object]]]:
        policy, names = await read_policy(client)
        return await capture_cluster(
            client,
            names,
            policy,
            time.time(),
            invocation.lease_namespace,
            own_namespace=client.namespace,
            told=told,
        )

    found, documents = invocation.run(work)
    for text in found.missing:
        click.echo(f"warning: not read: {text}", err=True)
    content = encode_capture(found, documents, output.endswith(".gz"))
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        Path(output).write_bytes(content)
    except OSError as error:
        raise click.ClickException(f"{output}: cannot be written: {error}") from error
    took = time.monotonic() - began
    click.echo(f"{len(documents)} objects, {len(content):,} bytes in {output}, {took:.1f} s", err=True)
