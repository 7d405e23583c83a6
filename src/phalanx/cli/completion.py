"""Completion for `kubectl phalanx`: the program kubectl_complete-phalanx, which kubectl calls with the words.

It answers as kubectl's plugins do: a candidate a line (with a tab and its description), then `:` and a directive.
bash, zsh and fish complete `phalanx` itself by click (`_PHALANX_COMPLETE=bash_source phalanx`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete

# Of kubectl (cobra): nothing special, so files are candidates too; and no files.
_WITH_FILES, _NO_FILES = 0, 4
# Nobody waits longer for candidates.
_PATIENCE = 3.0
_MOST = 500

Lister = Callable[[Any, str], Awaitable[list[str]]]
"""The candidates, from a client and the namespace that was typed."""


class _Words(ShellComplete):
    """Only the candidates; how they are written is kubectl's affair."""

    name = "kubectl"


def main() -> None:
    """The entry point; the last word is the one to complete. Exit code 0, whatever happens: no candidates."""
    from phalanx.cli.listing.harmless import harmless
    from phalanx.cli.main import cli

    *words, incomplete = sys.argv[1:] or [""]
    items = candidates(cli, words, incomplete)
    directive = _NO_FILES
    for item in items:
        if item.type in ("file", "dir"):
            directive = _WITH_FILES
        elif item.value:
            told = f"\t{harmless(str(item.help))}" if item.help else ""
            sys.stdout.write(f"{harmless(str(item.value))}{told}\n")
    sys.stdout.write(f":{directive}\n")


def candidates(command: click.Command, words: Sequence[str], incomplete: str) -> list[CompletionItem]:
    """For the last, unfinished word behind complete ones; nothing where they make no sense."""
    if isinstance(command, click.Group) and words and words[0] not in command.list_commands(click.Context(command)):
        return []
    try:
        return _Words(command, {}, "kubectl phalanx", "").get_completions(list(words), incomplete)
    except click.ClickException:
        return []


def names_from(lister: Lister) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """For `shell_complete`: names that the cluster has, looked up by the connection that was typed so far. Whatever
    goes wrong is no candidate."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from phalanx.cli.connection import run_connected

        async def work(client: Any) -> list[str]:
            async with asyncio.timeout(_PATIENCE):
                return await lister(client, ctx.params.get("namespace") or client.namespace)

        try:
            with ctx.scope(cleanup=False):
                found = run_connected(work, ctx.params.get("kubeconfig"))
        except (click.ClickException, OSError, TimeoutError, ValueError):
            return []
        known = ctx.params.get("names") or ()
        fitting = [name for name in found if name.startswith(incomplete) and name not in known]
        return [CompletionItem(name) for name in fitting[:_MOST]]

    return complete


async def namespaces(client: Any, namespace: str) -> list[str]:
    from phalanx.kube.core_resources import NAMESPACES

    return await _names(client, NAMESPACES.path())


async def queues(client: Any, namespace: str) -> list[str]:
    from phalanx.reports.jobs.kinds import QUEUES

    return await _names(client, QUEUES.path())


async def gangs(client: Any, namespace: str) -> list[str]:
    """Return the shown names of gangs that have not ended."""
    import time

    from phalanx.reports.jobs.job_report import JobReader

    found = [each.entry for each in await JobReader(client).jobs(namespace, time.time())]
    return [entry.shown for entry in found if not entry.over]


async def _names(client: Any, path: str) -> list[str]:
    listed = await client.get(path, {"limit": _MOST})
    return [str(each["metadata"]["name"]) for each in listed.get("items") or ()]
