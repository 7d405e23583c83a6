"""Help page of `phalanx top`, opened by the key `?`."""

from __future__ import annotations

from phalanx.cli.top.node_map import LEGEND
from phalanx.cli.top.pager import Line
from phalanx.cli.top.queues import BORROWED, FREE, RIGHT, USED

_KEYS = (
    (
        "Everywhere",
        (
            (":", "open queues, gangs or nodes (q, g, n); :gangs WORDS also filters; :q quits"),
            ("/", "filter: all words must match; queue:research, state:pending, !word excludes"),
            ("j k, arrows", "down and up"),
            ("ctrl-f ctrl-b", "a page down and up; g and G to the first and the last line"),
            ("Enter", "open the gangs of a queue, the details of a gang or node"),
            ("y", "show as YAML; again: JSON"),
            ("Esc", "back; first clears the filter"),
            ("?", "this help"),
            ("q", "quit"),
        ),
    ),
    (
        "Gangs",
        (("S N A Q P", "sort by state, name, age, queue or priority"),),
    ),
    (
        "Queues",
        (("T N U W", "sort as tree, by name, usage or waiting gangs"),),
    ),
    (
        "Nodes",
        (("h l, arrows", "next or previous block"), ("r", "next resource")),
    ),
)
_WORDS = (
    "MEMBERS: running / started together (minimum) / all.",
    "START: <= promised (no later than), overdue (promised, and passed), ~ planned (can change).",
    f"Queues: {USED} used of its own share, {BORROWED} borrowed, {FREE} rest of the cluster, {RIGHT} own share.",
    f"Nodes: {LEGEND}",
)


def help_lines() -> list[Line]:
    lines: list[Line] = []
    for title, keys in _KEYS:
        lines.append(Line(title, "title"))
        lines += [Line(f"{key:<15}{description}", indent=2) for key, description in keys]
        lines.append(Line())
    lines.append(Line("Signs", "title"))
    return [*lines, *(Line(text, indent=2) for text in _WORDS)]
