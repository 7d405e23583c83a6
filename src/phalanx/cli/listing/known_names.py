"""Checks of names on the command line that an empty list would hide; each error lists the known names.

A list checks names only if it has no entries, so that an answer costs no further request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient


async def refuse_unknown_scope(client: KubeClient, namespace: str | None, queues: Iterable[str] = ()) -> None:
    """Raise click.ClickException if `namespace` ("" or None: not stated) or one of `queues` does not exist."""
    from phalanx.cli.jobs.order_errors import shown_errors
    from phalanx.orders.known_names import refuse_unknown_namespace, refuse_unknown_queues

    with shown_errors():
        await refuse_unknown_namespace(client, namespace or "")
        await refuse_unknown_queues(client, queues)


def refuse_unknown_words(option: str, words: Iterable[str], known: Mapping[str, str]) -> None:
    """Raise click.UsageError if one of the values `words` of an option is no key of `known`.

    The values of `known` are the spellings that the error lists.
    """
    for word in words:
        if word not in known:
            raise click.UsageError(f'unknown {option} "{word}"; expected one of {", ".join(known.values())}')
