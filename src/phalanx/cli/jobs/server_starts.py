"""Promised starts of a user's own list, from the server, for users who cannot read the scheduler's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phalanx.cli.invocation import Invocation
    from phalanx.daemon.gang_entries import GangEntry
    from phalanx.kube.client import KubeClient


async def with_server_starts(
    invocation: Invocation, client: KubeClient, namespace: str, entries: Sequence[GangEntry]
) -> list[GangEntry] | None:
    """Return the entries with the starts that the published server knows; None if no server answers.

    No server is asked if no entry waits. A gang has the same kind and name in both lists.
    """
    from phalanx.cli.server.choice import find_server
    from phalanx.cli.server.requests import ServerUnavailable
    from phalanx.daemon.gang_entries import ListedGangs

    if not any(entry.state.waits for entry in entries):
        return list(entries)
    try:
        server = await find_server(client, invocation.client)
        if server is None:
            return None
        question = {"namespace": namespace, "own": client.namespace}
        answer = await server.get("commands/jobs", ListedGangs, question)
    except (ServerUnavailable, click.ClickException):
        return None
    known = {(entry.kind, entry.namespace, entry.name): entry for entry in answer.items if entry.promise}
    return [_with_start(entry, known.get((entry.kind, entry.namespace, entry.name))) for entry in entries]


def _with_start(entry: GangEntry, promised: GangEntry | None) -> GangEntry:
    if promised is None or not entry.state.waits:
        return entry
    return msgspec.structs.replace(
        entry, start=promised.start, expected=promised.expected, promise=promised.promise
    )
