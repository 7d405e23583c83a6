"""Printing of a list on the command line, once or after each change."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click
import msgspec

from phalanx.cli.invocation import Invocation
from phalanx.cli.listing.change_watch import ChangeWatch
from phalanx.cli.listing.formats import custom_cells, print_documents
from phalanx.cli.listing.harmless import harmless, harmless_lines
from phalanx.cli.listing.options import ListArguments
from phalanx.cli.listing.outages import survived_outage
from phalanx.cli.listing.sorting import sorted_entries
from phalanx.cli.listing.table import Column, Table, colours_wanted

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient
    from phalanx.kube.paths import Resource

E = TypeVar("E", bound=msgspec.Struct)


def all_fields(entry: msgspec.Struct) -> dict[str, Any]:
    """Return all fields of a list entry, including empty ones, so that scripts find every key."""
    return {name: msgspec.to_builtins(getattr(entry, name)) for name in entry.__struct_fields__}


@dataclass(frozen=True)
class Found(Generic[E]):
    """Entries that were read for a list, with warnings about unreadable objects."""

    entries: Sequence[E]
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Listing(Generic[E]):
    """Description of a list on the command line.

    `key` identifies an entry across refreshes. `name` is the output of `-o name`. `gone` returns the entry that
    `-w` prints for a removed entry (None: nothing). `namespace` is the namespace of an entry, if entries have
    one.
    """

    columns: Sequence[Column[E]]
    key: Callable[[E], Hashable]
    name: Callable[[E], str]
    gone: Callable[[E], E | None] | None = None
    namespace: Callable[[E], str] | None = None
    document: Callable[[E], Any] = field(default=all_fields)


Watched = Callable[["KubeClient"], Awaitable["Sequence[Resource]"]]
"""Function that returns the kinds whose changes refresh the list."""


def show(
    invocation: Invocation,
    listing: Listing[E],
    read: Callable[[KubeClient], Awaitable[Found[E]]],
    options: ListArguments,
    watched: Watched | None = None,
) -> None:
    """Print the entries of `read(client)`; with `-w` then print changed entries.

    The list is read again when an object of the kinds `watched(client)` changes, else every `interval` seconds.
    """

    async def first(client: KubeClient) -> Found[E]:
        found = await read(client)
        if not found.entries:
            from phalanx.cli.listing.known_names import refuse_unknown_scope

            await refuse_unknown_scope(client, options.scope, options.selected_queues)
        return found

    async def work(client: KubeClient) -> None:
        printer = _Printer(listing, options, client.namespace)
        if not options.watch:
            printer.first(await first(client))
            return
        kinds = await watched(client) if watched is not None else ()
        namespace = None if options.scope is None else options.scope or client.namespace
        async with ChangeWatch.running(client, kinds, namespace, printer.complain) as changes:
            await print_changes(client, printer, changes)

    async def print_changes(client: KubeClient, printer: _Printer[E], changes: ChangeWatch) -> None:
        printer.first(await first(client))
        while True:
            await (changes.changes(options.interval) if watched is not None else asyncio.sleep(options.interval))
            with survived_outage(printer.complain):
                printer.changes(await read(client))

    invocation.show(work, watch=options.watch)


class _Printer(Generic[E]):
    def __init__(self, listing: Listing[E], options: ListArguments, namespace: str) -> None:
        self._listing = listing
        self._options = options
        self._namespace = options.scope if options.scope is None else options.scope or namespace
        wide = options.output.word == "wide"
        self._columns = [column for column in listing.columns if not (column.narrow if wide else column.wide)]
        if listing.namespace is not None and options.scope is None:
            self._columns.insert(0, Column("NAMESPACE", lambda entry, now: listing.namespace(entry)))  # type: ignore[misc]
        custom = options.output.columns
        titles = [header for header, _ in custom] if custom else [column.title for column in self._columns]
        self._table = Table(titles, colours=colours_wanted())
        self._known: dict[Hashable, E] = {}
        self._last_warnings: tuple[str, ...] = ()

    def first(self, answer: Found[E]) -> None:
        entries = self._sorted(answer.entries)
        self._known = {self._listing.key(entry): entry for entry in entries}
        if entries or not self._options.output.tabular:
            self._print(entries, header=not self._options.no_headers, single=False)
        elif self._listing.namespace is None or self._namespace is None:
            click.echo("No resources found", err=True)
        else:
            click.echo(f"No resources found in {self._namespace} namespace.", err=True)
        self._warn(answer.warnings)

    def changes(self, answer: Found[E]) -> None:
        entries = self._sorted(answer.entries)
        previous, self._known = self._known, {self._listing.key(entry): entry for entry in entries}
        changed = [entry for key, entry in self._known.items() if previous.get(key) != entry]
        if self._listing.gone is not None:
            removed = [self._listing.gone(entry) for key, entry in previous.items() if key not in self._known]
            changed += [entry for entry in removed if entry is not None]
        if changed:
            header = not previous and not self._options.no_headers
            self._print(changed, header=header, single=True)
        self._warn(answer.warnings)

    def complain(self, text: str) -> None:
        click.echo(f"warning: {harmless(text)}", err=True)

    def _warn(self, warnings: Sequence[str]) -> None:
        """Print the warnings of a list if they differ from the previous ones."""
        if tuple(warnings) != self._last_warnings:
            for warning in warnings:
                self.complain(warning)
        self._last_warnings = tuple(warnings)

    def _sorted(self, entries: Sequence[E]) -> list[E]:
        return sorted_entries(entries, self._options.sort_by, self._listing.columns, self._listing.document)

    def _print(self, entries: Sequence[E], *, header: bool, single: bool) -> None:
        form = self._options.output
        if form.columns:
            rows = [custom_cells(form.columns, self._listing.document(entry)) for entry in entries]
            text = (
                "\n".join(self._table.lines(rows, [[None] * len(form.columns)] * len(rows), header=header)) + "\n"
            )
        elif form.tabular:
            now = time.time()
            rows = [[column.text(entry, now) for column in self._columns] for entry in entries]
            paint = [
                [column.colour(entry) if column.colour is not None else None for column in self._columns]
                for entry in entries
            ]
            text = "\n".join(self._table.lines(rows, paint, header=header)) + "\n"
        else:
            documents = [self._listing.document(entry) for entry in entries]
            text = print_documents(documents, form, lambda index: self._listing.name(entries[index]), single=single)
            if form.template is not None and sys.stdout.isatty():
                text = harmless_lines(text)
        click.echo(text, nl=False, color=colours_wanted())
        sys.stdout.flush()
