"""The best packing of a world by an integer program (HiGHS).

There is one column for every gang (started or not), one for the number of pods of each role on each node, and one
for the rack of each gang that needs one rack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import highspy
import numpy as np

from .worlds import PackingGang, PackingWorld

INFINITY = highspy.kHighsInf


class _Program:
    """Integer maximisation, built row by row; `maximise` can be called several times."""

    def __init__(self) -> None:
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0)):
            self._solver.setOptionValue(option, value)
        self._columns = 0

    def column(self, most: float) -> int:
        self._solver.addCol(0.0, 0.0, most, 0, np.array([], dtype=np.int32), np.array([], dtype=np.float64))
        self._solver.changeColIntegrality(self._columns, highspy.HighsVarType.kInteger)
        self._columns += 1
        return self._columns - 1

    def row(self, least: float, terms: Mapping[int, float], most: float) -> None:
        """Require least <= sum of the terms <= most."""
        columns = np.array(list(terms), dtype=np.int32)
        self._solver.addRow(least, most, len(terms), columns, np.array(list(terms.values()), dtype=np.float64))

    def maximise(self, terms: Mapping[int, float]) -> list[int]:
        for column in range(self._columns):
            self._solver.changeColCost(column, -terms.get(column, 0.0))
        self._solver.run()
        assert self._solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return [round(value) for value in self._solver.getSolution().col_value]


def best_in_order(world: PackingWorld) -> set[str]:
    """Return the gangs that start if each one, in the order of priority and creation, starts whenever it can."""
    order = sorted(world.gangs, key=lambda gang: -gang.priority)
    return _best(world, [[gang] for gang in order])


def best_by_priority(world: PackingWorld) -> set[str]:
    """Return the gangs that start if each priority gets the most pods, whatever the order of creation."""
    priorities = sorted({gang.priority for gang in world.gangs}, reverse=True)
    return _best(world, [[gang for gang in world.gangs if gang.priority == priority] for priority in priorities])


def _best(world: PackingWorld, groups: Sequence[Sequence[PackingGang]]) -> set[str]:
    program = _Program()
    starts = {gang.name: program.column(1) for gang in world.gangs}
    on_node: dict[str, dict[int, float]] = {f"{node.name}/cpu": {} for node in world.nodes}
    on_node |= {f"{node.name}/gpu": {} for node in world.nodes}
    for gang in world.gangs:
        _add_gang(program, world, gang, starts[gang.name], on_node)
    for node in world.nodes:
        program.row(0, on_node[f"{node.name}/cpu"], node.cpu)
        program.row(0, on_node[f"{node.name}/gpu"], node.gpu)
    for queue, limit in world.queues.items():
        used = {starts[gang.name]: float(gang.cpu) for gang in world.gangs if gang.queue == queue}
        program.row(0, used, limit)
    values: list[int] = []
    for group in groups:
        terms = {starts[gang.name]: float(gang.size) for gang in group}
        values = program.maximise(terms)
        program.row(sum(values[column] * size for column, size in terms.items()), terms, INFINITY)
    return {name for name, column in starts.items() if values[column]}


def _add_gang(
    program: _Program, world: PackingWorld, gang: PackingGang, start: int, on_node: dict[str, dict[int, float]]
) -> None:
    nodes = [node for node in world.nodes if gang.pool in ("", node.pool)]
    racks = {rack: program.column(1) for rack in sorted({node.rack for node in nodes})} if gang.one_rack else {}
    if racks:
        program.row(0, {**dict.fromkeys(racks.values(), 1.0), start: -1.0}, 0)
    together: dict[str, dict[int, float]] = {node.name: {} for node in nodes}
    for role in gang.roles:
        columns = {node.name: program.column(role.count) for node in nodes}
        program.row(0, {**dict.fromkeys(columns.values(), 1.0), start: -float(role.count)}, 0)
        for node in nodes:
            column = columns[node.name]
            on_node[f"{node.name}/cpu"][column] = role.cpu
            on_node[f"{node.name}/gpu"][column] = role.gpu
            together[node.name][column] = 1.0
            if racks:
                program.row(-INFINITY, {column: 1.0, racks[node.rack]: -float(role.count)}, 0)
    for terms in together.values():
        if gang.apart and terms:
            program.row(0, terms, 1)
