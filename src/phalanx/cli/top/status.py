"""Cluster line, status line and prompt on the screen of `phalanx top`."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input

from phalanx.cli.listing.ages import age
from phalanx.cli.top.feed import Feed
from phalanx.cli.top.pieces import Piece, Pieces, strip
from phalanx.dashboard.rows.entries import ClusterSummary
from phalanx.model.resources import CPU
from phalanx.views.gang_state import GangState


class StatusLine(Widget):
    """One line that is redrawn only when it changes."""

    DEFAULT_CSS = "StatusLine { height: 1; width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.pieces: Pieces = []

    def show(self, pieces: Pieces) -> None:
        if pieces != self.pieces:
            self.pieces = pieces
            self.refresh()

    def render_line(self, y: int) -> Strip:
        return strip(self.pieces, self.size.width)


def cluster_line(feed: Feed, panel: str, now: float) -> Pieces:
    """Return the top line of the screen: the state of the cluster in numbers, with the age of the verdicts."""
    pieces = [Piece(" phalanx top ", "title")]
    summary = feed.summary
    if summary is None or not feed.watch.ready.is_set():
        return [*pieces, Piece(" reading the cluster ...", "warn")]
    if not summary.current:
        pieces.append(Piece(" CLUSTER NOT REACHABLE ", "bad"))
    states = summary.states
    running = states.get(GangState.RUNNING, 0) + states.get(GangState.STARTING, 0)
    waiting = sum(states.get(state, 0) for state in GangState if state.waits)
    pieces.append(Piece(f" {summary.nodes} nodes"))
    if summary.closed_nodes:
        pieces.append(Piece(f" ({summary.closed_nodes} closed)", "warn"))
    pieces += [
        Piece(f"  {running} running", "good"),
        Piece("  "),
        Piece(f"{waiting} waiting", "warn" if waiting else ""),
    ]
    pieces += [Piece(f"  {name} {100 * used:.0f}%") for name, used in _uses(summary)]
    freshness = f"verdicts {age(summary.rehearsed, now)} old" if summary.rehearsed else "no verdicts yet"
    pieces.append(Piece(f"  {freshness}", "muted"))
    if summary.warnings:
        pieces.append(Piece(f"  {summary.warnings[0]}", "warn"))
    return pieces


def _uses(summary: ClusterSummary) -> list[tuple[str, float]]:
    """Return the used part of up to two devices and CPU (scarce resources first)."""
    names = [name for name in sorted(summary.offered) if "/" in name and not name.startswith("hugepages")][:2]
    return [
        (name, summary.used.get(name, 0) / summary.offered[name])
        for name in [*names, CPU]
        if summary.offered.get(name)
    ]


class Prompt(Input):
    """Input line of the screen; `sign` is the key that opened it (`:` or `/`), "" while hidden."""

    DEFAULT_CSS = """
    Prompt, Prompt:focus { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False, priority=True)]

    class Answered(Message):
        """Event: the user submitted the prompt's text, or cancelled it (then `text` is the previous text)."""

        def __init__(self, sign: str, text: str) -> None:
            super().__init__()
            self.sign, self.text = sign, text

    def __init__(self) -> None:
        super().__init__(
            id="prompt", compact=True, suggester=SuggestFromList(["queues", "gangs", "nodes"]), max_length=500
        )
        self.sign = ""
        self._previous = ""
        self.display = False

    def ask(self, sign: str, text: str) -> None:
        self.sign, self._previous = sign, text
        self.placeholder = "words, queue:NAME, state:NAME, !word" if sign == "/" else "queues, gangs, nodes"
        self.value = text
        self.cursor_position = len(text)
        self.display = True
        self.screen.set_focus(self)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end(self.value)

    def action_give_up(self) -> None:
        self._end(self._previous)

    def _end(self, text: str) -> None:
        sign, self.sign = self.sign, ""
        self.display = False
        self.post_message(self.Answered(sign, text))
