"""Page of one node in `phalanx top`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.cli.top.node_map import use
from phalanx.cli.top.pager import Line
from phalanx.dashboard.rows.entries import NodeRow
from phalanx.model.text.quantity import format_quantity

_MOST_PODS = 500
_BAR = 20


def node_page(row: NodeRow, pods: Sequence[str]) -> list[Line]:
    return [*_lines(row, pods)]


def _lines(row: NodeRow, pods: Sequence[str]) -> Iterator[Line]:
    yield Line(f"node {row.id}", "title")
    yield Line(f"rack {row.rack or '-'}, zone {row.zone or '-'}, {row.pods} pods", indent=2)
    if row.closed:
        yield Line(f"accepts no new pods: {row.closed}", "warn", 2)
    if row.taint:
        yield Line(f"only for pods that tolerate {row.taint}", "warn", 2)
    yield Line()
    yield Line("FREE", "title")
    for name in sorted(row.offered):
        used = use(row, name) or 0.0
        full = round(used * _BAR)
        free, offered = (format_quantity(amounts.get(name, 0), name) for amounts in (row.free, row.offered))
        yield Line(
            f"[{'#' * full}{'.' * (_BAR - full)}] {100 * used:3.0f}% used  {name}: {free} of {offered} free",
            indent=2,
        )
    yield Line()
    yield Line(f"PODS ({len(pods)})", "title")
    for pod in pods[:_MOST_PODS]:
        yield Line(pod, indent=2)
    if len(pods) > _MOST_PODS:
        yield Line(f"and {len(pods) - _MOST_PODS} more", "muted", 2)
