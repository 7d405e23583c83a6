"""Screen of `phalanx top`: one panel, a cluster line above it and a status line below it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher, Input

from phalanx.cli.listing.harmless import harmless_json, harmless_lines
from phalanx.cli.top.feed import Feed
from phalanx.cli.top.gangs import gang_list
from phalanx.cli.top.keys import help_lines
from phalanx.cli.top.line_view import LineView
from phalanx.cli.top.node_map import NodeMap, node_summary
from phalanx.cli.top.node_page import node_page
from phalanx.cli.top.pager import Line, Pager
from phalanx.cli.top.pieces import Piece
from phalanx.cli.top.queues import account, queue_list
from phalanx.cli.top.row_list import RowList
from phalanx.cli.top.status import Prompt, StatusLine, cluster_line
from phalanx.cli.top.story import story
from phalanx.dashboard.rehearsal.process import RehearsalEnded

LISTS = ("queues", "gangs", "nodes")
_PANEL_NAMES = {
    "queue": "queues",
    "q": "queues",
    "gang": "gangs",
    "g": "gangs",
    "jobs": "gangs",
    "node": "nodes",
    "n": "nodes",
}
_SORTS = {
    "queues": {"T": "tree", "N": "name", "U": "use", "W": "waiting"},
    "gangs": {"S": "state", "N": "name", "A": "age", "Q": "queue", "P": "priority"},
}
_HINTS = {
    "queues": "Enter gangs  / filter  : panel  y YAML",
    "gangs": "Enter details  / filter  : panel  y YAML",
    "nodes": "r resource  / filter  : panel",
    "keys": "Esc back",
}
# Interval of redrawing ages, and minimum interval of refreshing an open page.
_TICK = 1.0


@dataclass(frozen=True)
class ScreenPlace:
    """View that the screen shows: a panel and, for a page, the list (`about`) and the row that it describes."""

    panel: str
    about: str = ""
    row: str = ""


class Top(App[None]):
    """Application of `phalanx top`; it runs `feed` and ends with `return_code` 0 on user request."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { overflow: hidden; layout: vertical; }
    ContentSwitcher { height: 1fr; }
    Screen, ContentSwitcher, LineView, StatusLine { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False),
        # Priority bindings: text typed right after the sign reaches the prompt.
        Binding("colon", "prompt(':')", show=False, priority=True),
        Binding("slash", "prompt('/')", show=False, priority=True),
        Binding("question_mark", "help", show=False),
        Binding("escape", "back", show=False),
        Binding("y", "document", show=False),
        *(Binding(key, f"sort('{key}')", show=False) for key in "TNUWSAQP"),
    ]

    def __init__(
        self, feed: Feed, *, start: str = "gangs", words: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.feed = feed
        self.queues, self.gangs, self.nodes = queue_list(clock), gang_list(clock), NodeMap(id="nodes")
        self.page, self.document, self.keys = Pager(id="page"), Pager(id="document"), Pager(id="keys")
        self.above, self.below, self.prompt = StatusLine(id="above"), StatusLine(id="below"), Prompt()
        self.place = ScreenPlace(start)
        self._start, self._words, self._clock = start, words, clock
        self._before: list[ScreenPlace] = []
        self._answer: msgspec.Struct | None = None
        self._json = False
        self._notice = ""
        self._outdated = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield self.above
        with ContentSwitcher(initial=self._start):
            yield self.queues
            yield self.gangs
            yield self.nodes
            yield self.page
            yield self.document
            yield self.keys
        yield self.prompt
        yield self.below

    def on_mount(self) -> None:
        self.keys.show(help_lines())
        if self._words:
            self.lists[self._start].filter_by(self._words)
        self.queues.take_in(self.feed.queues.rows, None)
        self.gangs.take_in(self.feed.gangs.rows, None)
        self.nodes.take_in(self.feed.nodes.rows, None)
        self._show(self.place)
        self.run_worker(self.feed.run(self.apply_changes), exit_on_error=True)
        self.run_worker(self._refresh_pages(), exit_on_error=True)
        self.set_interval(_TICK, self.tick)

    @property
    def lists(self) -> dict[str, RowList[Any] | NodeMap]:
        return {"queues": self.queues, "gangs": self.gangs, "nodes": self.nodes}

    @property
    def panel(self) -> LineView:
        # (No query of the widget tree: a tick can occur while the screen is closed.)
        panels: tuple[LineView, ...] = (*self.lists.values(), self.page, self.document, self.keys)
        return next(panel for panel in panels if panel.id == self.place.panel)

    # incoming changes

    def apply_changes(self, table: str, changed: set[str]) -> None:
        match table:
            case "queues":
                self.queues.take_in(self.feed.queues.rows, changed)
            case "gangs":
                self.gangs.take_in(self.feed.gangs.rows, changed)
            case "nodes":
                self.nodes.take_in(self.feed.nodes.rows, changed)
        if table == self.place.about and (table != "gangs" or self.place.row in changed):
            self._outdated.set()
        self._status()

    def tick(self) -> None:
        """Redraw ages on the screen, and refresh an open page after a new dry run."""
        if self.place.panel in LISTS:
            self.panel.draw_changes()
        elif self.place.about == "gangs" and self.feed.watch.generation != self._page_generation:
            self._outdated.set()
        self._status()

    _page_generation = -1

    async def _refresh_pages(self) -> None:
        """Refresh the open page whenever it is outdated, at most once per tick."""
        while True:
            await self._outdated.wait()
            self._outdated.clear()
            place = self.place
            if place.about:
                await self._refresh_page(place)
                await asyncio.sleep(_TICK / 2)

    async def _refresh_page(self, place: ScreenPlace) -> None:
        """Read the open page (gang or node details) or its document again."""
        self._page_generation = self.feed.watch.generation
        answer: msgspec.Struct | None = None
        lines: list[Line] = []
        if place.about == "gangs":
            try:
                gang = await self.feed.story(place.row)
            except RehearsalEnded:
                return  # the feed fails too and ends the application
            answer, lines = gang, story(gang, self._clock()) if gang is not None else []
        elif place.about == "nodes" and (node := self.feed.nodes.rows.get(place.row)) is not None:
            answer, lines = node, node_page(node, self.feed.pods_on(node.id))
        elif place.about == "queues" and (queue := self.feed.queues.rows.get(place.row)) is not None:
            answer = account(queue)
        if place != self.place:
            return
        if answer is None:
            lines = [Line(f"{place.row} no longer exists", "muted")]
        is_new = self._answer is None
        self._answer = answer
        if place.panel == "page":
            self.page.show(lines, from_top=is_new)
        else:
            self.document.show(self._document_lines(), from_top=is_new)

    def _document_lines(self) -> list[Line]:
        if self._answer is None:
            return [Line("the object no longer exists", "muted")]
        content = msgspec.to_builtins(self._answer)
        if self._json:
            text = harmless_json(json.dumps(content, indent=2, ensure_ascii=False))
        else:
            import yaml

            text = harmless_lines(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        return [Line(line.lstrip(" "), indent=len(line) - len(line.lstrip(" "))) for line in text.splitlines()]

    # navigation

    def go(self, place: ScreenPlace) -> None:
        if place != self.place:
            self._before = [*self._before[-30:], self.place]
            self._show(place)

    def _show(self, place: ScreenPlace) -> None:
        self.place, self._answer, self._notice = place, None, ""
        self.query_one(ContentSwitcher).current = place.panel
        self.screen.set_focus(self.panel)
        if place.about:
            pager = self.page if place.panel == "page" else self.document
            pager.show([Line("...", "muted")])
            self._outdated.set()
        self._status()

    def on_line_view_opened(self, event: LineView.Opened) -> None:
        if event.view is self.queues:
            self.gangs.filter_by(f"queue:{account(self.feed.queues.rows[event.row]).name}")
            self.go(ScreenPlace("gangs"))
        elif self.place.panel in LISTS:
            self.go(ScreenPlace("page", self.place.panel, event.row))

    def on_line_view_moved(self) -> None:
        self._status()

    def _status(self) -> None:
        if not self.below.is_mounted:
            return
        self.above.show(cluster_line(self.feed, self.place.panel, self._clock()))
        panel, shown = self.place.panel, []
        if self._notice:
            shown.append(Piece(f" {self._notice} ", "bad"))
        if panel in LISTS:
            view = self.lists[panel]
            position = view.cursor + 1 if view.count() else 0
            shown.append(
                Piece(f" {panel} {position}/{view.count()}" if panel != "nodes" else f" nodes {view.matching}")
            )
            if view.filter.text:
                shown.append(Piece(f" /{view.filter.text}", "mark"))
            if isinstance(view, RowList):
                shown.append(Piece(f" by {view.order}", "muted"))
            elif (node := self.feed.nodes.rows.get(view.chosen())) is not None:
                shown.append(Piece(f"  {node_summary(node, view.resource)}"))
        else:
            shown.append(Piece(f" {self.place.row or panel}"))
        self.below.show(
            [*shown, Piece(f"  {_HINTS.get(panel, 'Esc back  y YAML, JSON')}  ? keys  q quit", "muted")]
        )

    # keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the prompt keys while the prompt is open, so that `:` and `/` can be typed."""
        return not (action == "prompt" and self.prompt.sign)

    def action_help(self) -> None:
        self.go(ScreenPlace("keys"))

    async def action_back(self) -> None:
        if self.place.panel in LISTS and self.lists[self.place.panel].filter.text:
            self.lists[self.place.panel].filter_by("")
            self._status()
        elif self._before:
            self._show(self._before.pop())

    def action_document(self) -> None:
        if self.place.panel == "document":
            self._json = not self._json
            self.document.show(self._document_lines(), from_top=False)
        elif self.place.panel in LISTS and self.panel.chosen():
            self.go(ScreenPlace("document", self.place.panel, self.panel.chosen()))
        elif self.place.about:
            self.go(ScreenPlace("document", self.place.about, self.place.row))

    def action_sort(self, key: str) -> None:
        order = _SORTS.get(self.place.panel, {}).get(key)
        panel = self.panel
        if order is not None and isinstance(panel, RowList):
            panel.sort_by(order)
            self._status()

    def action_prompt(self, sign: str) -> None:
        if sign == "/" and self.place.panel not in LISTS:
            return
        self._notice = ""
        self.prompt.ask(sign, self.lists[self.place.panel].filter.text if sign == "/" else "")

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.prompt.sign == "/" and self.place.panel in LISTS:
            self.lists[self.place.panel].filter_by(event.value)

    def on_prompt_answered(self, event: Prompt.Answered) -> None:
        self.screen.set_focus(self.panel)
        if event.sign == "/" and self.place.panel in LISTS:
            self.lists[self.place.panel].filter_by(event.text)
        elif event.sign == ":" and event.text.strip():
            self._command(event.text)
        self._status()

    def _command(self, text: str) -> None:
        word, _, words = text.strip().partition(" ")
        word = word.lower()
        target = _PANEL_NAMES.get(word, word)
        if target in ("quit", "exit", "q!", "qa"):
            self.exit()
        elif target == "help":
            self.action_help()
        elif target in LISTS:
            if words.strip():
                self.lists[target].filter_by(words.strip())
            self.go(ScreenPlace(target))
        else:
            self._notice = f"unknown panel {word}; expected queues, gangs or nodes"
