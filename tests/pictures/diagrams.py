"""Diagrams as SVG: boxes and arrows on a grid, in colours that suit dark and light."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

_STYLE = """\
text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1c2333 }
.small { font-size: 12px; fill: #525c73 }
.title { font-weight: 600 }
.box { fill: #ffffff; stroke: #8791ab; stroke-width: 1.2 }
.outside { fill: #e9edf8; stroke: #8791ab; stroke-dasharray: 5 4 }
.strong { fill: #dfe6ff; stroke: #3450c8; stroke-width: 1.6 }
.room { fill: #f5f6fa; stroke: #c9cede }
.arrow { stroke: #525c73; stroke-width: 1.5; fill: none; marker-end: url(#head) }
#head path { fill: #525c73 }
.ground { fill: #fcfcfe }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9f2 } .small { fill: #a9b1c6 }
  .box { fill: #1b2030; stroke: #66708c } .outside { fill: #20263a; stroke: #66708c }
  .strong { fill: #26336a; stroke: #8ea3ff } .room { fill: #151926; stroke: #343c55 }
  .arrow { stroke: #a9b1c6 } #head path { fill: #a9b1c6 } .ground { fill: #10131d }
}
"""


@dataclass
class Diagram:
    """Collects shapes; `svg` draws them in the order in which they came. Lengths are in pixels."""

    width: int
    height: int
    title: str
    shapes: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, title: str, *lines: str, look: str = "box") -> None:
        """A box with a title and small lines below it, centred; the title of a `room` stands at its top right."""
        self.shapes.append(f'<rect class="{look}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        if look == "room":
            self.text(x + width - 12, y + 24, title, "title", "end")
            return
        first = y + height / 2 + 5 - 9 * len(lines)
        self.text(x + width / 2, first, title, "title")
        for number, line in enumerate(lines, 1):
            self.text(x + width / 2, first + 18 * number, line, "small")

    def text(self, x: float, y: float, words: str, look: str = "small", anchor: str = "middle") -> None:
        self.shapes.append(
            f'<text class="{look}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def arrow(self, *points: tuple[int, int]) -> None:
        path = " L".join(f"{x} {y}" for x, y in points)
        self.shapes.append(f'<path class="arrow" d="M{path}"/>')

    def svg(self) -> str:
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z"/></marker>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">\n<title>{escape(self.title)}</title>\n'
            f"<style>{_STYLE}</style>\n<defs>{head}</defs>\n"
            f'<rect class="ground" width="{self.width}" height="{self.height}" rx="10"/>\n'
            + "\n".join(self.shapes)
            + "\n</svg>\n"
        )


def plugin_runtime() -> Diagram:
    """Draw the path of a gang from its pods to its bindings."""
    drawn = Diagram(960, 400, "How a gang goes through the scheduler")
    drawn.box(20, 30, 150, 80, "pods, PodGroup", "the API's watch", look="outside")
    drawn.box(220, 30, 150, 80, "dialects", "say which pods", "are one gang")
    drawn.box(420, 30, 150, 80, "queue", "wakes it when what it", "lacks may be there")
    drawn.box(620, 30, 150, 80, "order", "queues, priorities,", "fair shares")
    for x in (170, 370, 570):
        drawn.arrow((x, 70), (x + 50, 70))
    drawn.box(220, 160, 550, 120, "one transaction", look="room")
    drawn.box(235, 200, 160, 64, "enough members?", "quota for all?")
    drawn.box(420, 200, 150, 64, "place each", "all filters, best score", look="strong")
    drawn.box(600, 200, 150, 64, "minimum placed?", "roles, groups, racks")
    drawn.arrow((395, 232), (420, 232))
    drawn.arrow((570, 232), (600, 232))
    drawn.arrow((695, 110), (695, 136), (315, 136), (315, 198))
    drawn.box(800, 200, 140, 64, "bindings", "all of them, signed", look="strong")
    drawn.arrow((770, 232), (800, 232))
    drawn.text(785, 190, "yes")
    drawn.arrow((870, 200), (870, 14), (95, 14), (95, 28))
    drawn.text(880, 120, "come back", anchor="start")
    drawn.text(880, 136, "as events", anchor="start")
    drawn.arrow((345, 280), (345, 320))
    drawn.text(355, 306, "no: everything is rolled back", anchor="start")
    drawn.box(220, 322, 250, 60, "would evictions help?", "only if the whole gang fits then")
    drawn.box(520, 322, 250, 60, "it waits, and is told why", "counts, what would help, when it starts")
    drawn.arrow((470, 352), (520, 352))
    drawn.text(495, 344, "no")
    drawn.box(20, 322, 150, 60, "evict", "then place it there", look="strong")
    drawn.arrow((220, 352), (170, 352))
    drawn.text(195, 344, "yes")
    return drawn


def house() -> Diagram:
    """Draw the processes and their connections."""
    drawn = Diagram(960, 400, "The processes of Phalanx and the Kubernetes API")
    drawn.box(110, 36, 230, 60, "kubectl, phalanx submit", "jobs, groups, queues", look="outside")
    drawn.box(370, 36, 230, 60, "phalanx why, jobs, top", "why, when, who is next", look="outside")
    drawn.box(630, 36, 230, 60, "a browser", "the page", look="outside")
    drawn.box(20, 160, 908, 60, "Kubernetes API", "the only place where anything is kept", look="strong")
    drawn.arrow((225, 96), (225, 158))
    drawn.arrow((485, 96), (485, 158))
    for x, name, first, second in (
        (20, "phalanx scheduler", "plans whole gangs,", "binds, evicts, tells why"),
        (204, "phalanx controllers", "jobs become pods,", "restarts, life cycles"),
        (388, "phalanx webhook", "checks and fills in", "what is written"),
        (572, "phalanx dashboard", "watches, rehearses a", "cycle; writes nothing"),
        (756, "phalanx hub", "sends gangs to the", "cluster that is first"),
    ):
        drawn.box(x, 270, 172, 84, name, first, second)
        ends = [(x + 86, 270), (x + 86, 222)]
        # The API server calls the webhook; all other processes call the API server.
        drawn.arrow(*(reversed(ends) if "webhook" in name else ends))
    drawn.arrow((745, 96), (745, 136), (950, 136), (950, 382), (658, 382), (658, 356))
    return drawn


DIAGRAMS = {"pipeline.svg": plugin_runtime, "processes.svg": house}


def draw(directory: Path) -> list[Path]:
    """Writes the diagrams; gives their files."""
    made = []
    for name, diagram in DIAGRAMS.items():
        (directory / name).write_text(diagram().svg(), "utf-8")
        made.append(directory / name)
    return made
