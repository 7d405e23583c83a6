"""What `?` shows."""

from __future__ import annotations

from phalanx.cli.top.node_map import LEGEND
from phalanx.cli.top.pager import Line
from phalanx.cli.top.queues import BORROWED, FREE, RIGHT, USED

_KEYS = (
    (
        "Everywhere",
        (
            (":", "go to queues, gangs, nodes (or q, g, n); :gangs WORDS filters at once; :q ends"),
            ("/", "filter: words that must all be there; queue:research, state:waiting, !word without it"),
            ("j k, arrows", "down and up"),
            ("ctrl-f ctrl-b", "a page down and up; g and G to the first and the last line"),
            ("Enter", "open: a queue's gangs, a gang's story, a node"),
            ("y", "the answer as YAML, once more as JSON"),
            ("Esc", "back; clears the filter first"),
            ("?", "this help"),
            ("q", "end"),
        ),
    ),
    (
        "Gangs",
        (("S N A Q P", "sort by state, name, age, queue, priority"),),
    ),
    (
        "Queues",
        (("T N U W", "sort as a tree, by name, use, how many wait"),),
    ),
    (
        "Nodes",
        (("h l, arrows", "to the next block"), ("r", "the next resource")),
    ),
)
_WORDS = (
    "MEMBERS: those that run, that start together, and all.",
    "START: <= is a promise (no later than), ~ is planned and may change.",
    f"Queues: {USED} used by right, {BORROWED} borrowed, {FREE} the rest of the cluster, {RIGHT} its right.",
    f"Nodes: {LEGEND}",
)


def help_lines() -> list[Line]:
    lines: list[Line] = []
    for title, keys in _KEYS:
        lines.append(Line(title, "title"))
        lines += [Line(f"{key:<15}{what}", indent=2) for key, what in keys]
        lines.append(Line())
    lines.append(Line("Signs", "title"))
    return [*lines, *(Line(text, indent=2) for text in _WORDS)]
