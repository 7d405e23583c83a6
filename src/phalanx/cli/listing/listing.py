"""Shows a list once, or goes on with what changes."""

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
    """With those that are empty, so that scripts find them."""
    return {name: msgspec.to_builtins(getattr(entry, name)) for name in entry.__struct_fields__}


@dataclass(frozen=True)
class Found(Generic[E]):
    """`warnings` say what could not be read."""

    entries: Sequence[E]
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Listing(Generic[E]):
    """What a list is made of. `key` tells entries apart from look to look, `name` is what `-o name` prints, `gone`
    how an entry is shown by `-w` that is not there any more (None: not at all). `namespace` is that of an entry,
    where entries have one."""

    columns: Sequence[Column[E]]
    key: Callable[[E], Hashable]
    name: Callable[[E], str]
    gone: Callable[[E], E | None] | None = None
    namespace: Callable[[E], str] | None = None
    document: Callable[[E], Any] = field(default=all_fields)


Watched = Callable[["KubeClient"], Awaitable["Sequence[Resource]"]]
"""The kinds whose objects a list is made of."""


def show(
    invocation: Invocation,
    listing: Listing[E],
    read: Callable[[KubeClient], Awaitable[Found[E]]],
    options: ListArguments,
    watched: Watched | None = None,
) -> None:
    """Reads by `read(client)` and prints it, again and again with `-w`, where only what has changed is printed:
    when an object of the kinds `watched(client)` has changed, else every `interval` seconds."""

    async def work(client: KubeClient) -> None:
        printer = _Printer(listing, options, client.namespace)
        if not options.watch:
            printer.first(await read(client))
            return
        kinds = await watched(client) if watched is not None else ()
        where = None if options.scope is None else options.scope or client.namespace
        async with ChangeWatch.running(client, kinds, where, printer.complain) as changes:
            await go_on(client, printer, changes)

    async def go_on(client: KubeClient, printer: _Printer[E], changes: ChangeWatch) -> None:
        printer.first(await read(client))
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
        self._columns = [each for each in listing.columns if not (each.narrow if wide else each.wide)]
        if listing.namespace is not None and options.scope is None:
            self._columns.insert(0, Column("NAMESPACE", lambda entry, now: listing.namespace(entry)))  # type: ignore[misc]
        custom = options.output.columns
        titles = [header for header, _ in custom] if custom else [column.title for column in self._columns]
        self._table = Table(titles, colours=colours_wanted())
        self._known: dict[Hashable, E] = {}
        self._told: tuple[str, ...] = ()

    def first(self, found: Found[E]) -> None:
        entries = self._sorted(found.entries)
        self._known = {self._listing.key(entry): entry for entry in entries}
        if entries or not self._options.output.tabular:
            self._print(entries, header=not self._options.no_headers, single=False)
        elif self._listing.namespace is None or self._namespace is None:
            click.echo("No resources found", err=True)
        else:
            click.echo(f"No resources found in {self._namespace} namespace.", err=True)
        self._warn(found.warnings)

    def changes(self, found: Found[E]) -> None:
        entries = self._sorted(found.entries)
        last, self._known = self._known, {self._listing.key(entry): entry for entry in entries}
        news = [entry for key, entry in self._known.items() if last.get(key) != entry]
        if self._listing.gone is not None:
            left = [self._listing.gone(entry) for key, entry in last.items() if key not in self._known]
            news += [entry for entry in left if entry is not None]
        if news:
            header = not last and not self._options.no_headers
            self._print(news, header=header, single=True)
        self._warn(found.warnings)

    def complain(self, text: str) -> None:
        click.echo(f"warning: {harmless(text)}", err=True)

    def _warn(self, warnings: Sequence[str]) -> None:
        """Once, until they are others."""
        if tuple(warnings) != self._told:
            for warning in warnings:
                self.complain(warning)
        self._told = tuple(warnings)

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
            text = print_documents(documents, form, lambda at: self._listing.name(entries[at]), single=single)
            if form.template is not None and sys.stdout.isatty():
                text = harmless_lines(text)
        click.echo(text, nl=False, color=colours_wanted())
        sys.stdout.flush()
