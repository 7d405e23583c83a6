"""The line about the cluster, the line below, and the one in which something is typed."""

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
    """One line; drawn again only when it is another one."""

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
    """How the cluster is, in numbers, and whether that is current."""
    found = [Piece(" phalanx top ", "title")]
    summary = feed.summary
    if summary is None or not feed.watch.ready.is_set():
        return [*found, Piece(" reading the cluster ...", "warn")]
    if not summary.current:
        found.append(Piece(" CLUSTER NOT REACHABLE ", "bad"))
    states = summary.states
    running = states.get(GangState.RUNNING, 0) + states.get(GangState.STARTING, 0)
    waiting = sum(states.get(state, 0) for state in GangState if state.waits)
    found.append(Piece(f" {summary.nodes} nodes"))
    if summary.closed_nodes:
        found.append(Piece(f" ({summary.closed_nodes} closed)", "warn"))
    found += [Piece(f"  {running} run", "good"), Piece("  "), Piece(f"{waiting} wait", "warn" if waiting else "")]
    found += [Piece(f"  {name} {100 * used:.0f}%") for name, used in _uses(summary)]
    told = f"verdicts {age(summary.rehearsed, now)} old" if summary.rehearsed else "no verdicts yet"
    found.append(Piece(f"  {told}", "muted"))
    if summary.warnings:
        found.append(Piece(f"  {summary.warnings[0]}", "warn"))
    return found


def _uses(summary: ClusterSummary) -> list[tuple[str, float]]:
    """Devices first, then CPU: what is scarce."""
    names = [name for name in sorted(summary.offered) if "/" in name and not name.startswith("hugepages")][:2]
    return [
        (name, summary.used.get(name, 0) / summary.offered[name])
        for name in [*names, CPU]
        if summary.offered.get(name)
    ]


class Prompt(Input):
    """Hidden until it is asked for; `sign` is what it was asked with, "" while it is hidden."""

    DEFAULT_CSS = """
    Prompt, Prompt:focus { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False, priority=True)]

    class Answered(Message):
        """It was typed to its end, or given up (then `text` is what there was before)."""

        def __init__(self, sign: str, text: str) -> None:
            super().__init__()
            self.sign, self.text = sign, text

    def __init__(self) -> None:
        super().__init__(
            id="prompt", compact=True, suggester=SuggestFromList(["queues", "gangs", "nodes"]), max_length=500
        )
        self.sign = ""
        self._former = ""
        self.display = False

    def ask(self, sign: str, text: str) -> None:
        self.sign, self._former = sign, text
        self.placeholder = "words, queue:NAME, state:NAME, !word" if sign == "/" else "queues, gangs, nodes"
        self.value = text
        self.cursor_position = len(text)
        self.display = True
        self.screen.set_focus(self)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._end(self.value)

    def action_give_up(self) -> None:
        self._end(self._former)

    def _end(self, text: str) -> None:
        sign, self.sign = self.sign, ""
        self.display = False
        self.post_message(self.Answered(sign, text))
