"""Warning about submitted pods that name a scheduler which does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phalanx.cli.invocation import Invocation
    from phalanx.kube.client import KubeClient


async def warn_of_unserved_names(
    invocation: Invocation, client: KubeClient, documents: Sequence[dict[str, Any]]
) -> None:
    """Print one warning for each schedulerName that no known scheduler serves.

    It is no error: a scheduler of another project does not publish its names.
    """
    from phalanx.cli.server.list_settings import served_scheduler_names
    from phalanx.orders.known_names import known_names
    from phalanx.orders.submission.known_references import unserved_scheduler_names

    served = await served_scheduler_names(invocation, client)
    for name in unserved_scheduler_names(documents, served) if served else ():
        click.echo(
            f'warning: no Phalanx scheduler serves schedulerName "{name}"; {known_names(served or ())}. '
            "The pods wait until a scheduler of that name runs",
            err=True,
        )
