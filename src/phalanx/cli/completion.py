"""Shell completion for `kubectl phalanx`: the program kubectl_complete-phalanx, which kubectl calls with the typed
words.

It answers like kubectl plugins: one candidate a line (with a tab and its description), then `:` and a
directive. For `phalanx` itself, click generates the completion of bash, zsh and fish
(`_PHALANX_COMPLETE=bash_source phalanx`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete

# Directives of kubectl (cobra): 0 also completes file names, 4 does not.
_WITH_FILES, _NO_FILES = 0, 4
# Completion runs while the user types, so a slow cluster yields no candidates after this time.
_TIMEOUT_SECONDS = 3.0
_MAX_CANDIDATES = 500

Lister = Callable[[Any, str], Awaitable[list[str]]]
"""Function that returns candidates from a client and the typed namespace."""


class _Words(ShellComplete):
    """Source of completion candidates only; `main` formats them for kubectl."""

    name = "kubectl"


def main() -> None:
    """Print completion candidates for the last typed word. The exit code is always 0; errors yield no
    candidates."""
    from phalanx.cli.listing.harmless import harmless
    from phalanx.cli.main import cli

    *words, incomplete = sys.argv[1:] or [""]
    items = candidates(cli, words, incomplete)
    directive = _NO_FILES
    for item in items:
        if item.type in ("file", "dir"):
            directive = _WITH_FILES
        elif item.value:
            description = f"\t{harmless(str(item.help))}" if item.help else ""
            sys.stdout.write(f"{harmless(str(item.value))}{description}\n")
    sys.stdout.write(f":{directive}\n")


def candidates(command: click.Command, words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """Return completion candidates for the unfinished word `incomplete` after `words`; none after an unknown
    command."""
    if isinstance(command, click.Group) and words and words[0] not in command.list_commands(click.Context(command)):
        return []
    try:
        return _Words(command, {}, "kubectl phalanx", "").get_completions(list(words), incomplete)
    except click.ClickException:
        return []


def names_from(lister: Lister) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a `shell_complete` callback that lists names from the cluster, with the connection options typed so
    far.

    An error yields no candidates.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from phalanx.cli.connection import run_connected

        async def work(client: Any) -> list[str]:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await lister(client, ctx.params.get("namespace") or client.namespace)

        try:
            with ctx.scope(cleanup=False):
                names = run_connected(work, ctx.params.get("kubeconfig"))
        except (click.ClickException, OSError, TimeoutError, ValueError):
            return []
        typed = ctx.params.get("names") or ()
        matches = [name for name in names if name.startswith(incomplete) and name not in typed]
        return [CompletionItem(name) for name in matches[:_MAX_CANDIDATES]]

    return complete


async def namespaces(client: Any, namespace: str) -> list[str]:
    from phalanx.kube.core_resources import NAMESPACES

    return await _names(client, NAMESPACES.path())


async def queues(client: Any, namespace: str) -> list[str]:
    from phalanx.reports.jobs.kinds import QUEUES

    return await _names(client, QUEUES.path())


async def gangs(client: Any, namespace: str) -> list[str]:
    """Return the displayed names of a namespace's unfinished gangs."""
    import time

    from phalanx.reports.jobs.job_report import JobReader

    entries = [job.entry for job in await JobReader(client).jobs(namespace, time.time())]
    return [entry.shown for entry in entries if not entry.over]


async def _names(client: Any, path: str) -> list[str]:
    listed = await client.get(path, {"limit": _MAX_CANDIDATES})
    return [str(item["metadata"]["name"]) for item in listed.get("items") or ()]
