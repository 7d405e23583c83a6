"""Columns of `phalanx nodes`, named like those of sinfo."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.cli.listing.ages import age
from phalanx.cli.listing.node_names import compress
from phalanx.cli.listing.table import Column
from phalanx.model.resources import CPU, MEMORY
from phalanx.model.text.quantity import canonical_quantity, format_quantity
from phalanx.reports.nodes.entries import Amounts, NodeEntry, NodePoolEntry, NodeState, PoolSummary, ReasonGroup

_COLOURS = {
    NodeState.IDLE: "green",
    NodeState.MIXED: "cyan",
    NodeState.ALLOCATED: "blue",
    NodeState.DRAINING: "yellow",
    NodeState.DRAINED: "yellow",
    NodeState.DOWN: "red",
}


def _cpus(thousandths: int) -> str:
    """Format an amount of CPU, rounded down to whole CPUs from 1 upwards (127, not 127950m)."""
    return format_quantity(thousandths if thousandths < 1000 else thousandths // 1000 * 1000, CPU)


def _gpus(hundredths: int) -> str:
    return f"{hundredths / 100:g}"


def _free(amounts: Amounts) -> str:
    return f"{_cpus(amounts.cpu)},{format_quantity(amounts.memory, MEMORY)},{_gpus(amounts.gpu)}"


def _four(numbers: tuple[int, int, int, int], unit: int = 1) -> str:
    return "/".join(f"{number // unit}" for number in numbers)


GROUPS: tuple[Column[NodePoolEntry], ...] = (
    Column("POOL", lambda group, now: group.pool),
    Column("STATE", lambda group, now: str(group.state), colour=lambda group: _COLOURS[group.state]),
    Column("NODES", lambda group, now: str(group.count), order=lambda group: group.count),
    Column("FREE(CPU,MEM,GPU)", lambda group, now: _free(group.free), order=lambda group: group.free.cpu),
    Column(
        "BIGGEST-FREE",
        lambda group, now: _free(group.biggest),
        order=lambda group: (group.biggest.gpu << 40) + group.biggest.cpu,
    ),
    Column("NODELIST", lambda group, now: compress(group.nodes)),
)
NODES: tuple[Column[NodeEntry], ...] = (
    Column("NODE", lambda node, now: node.name),
    Column("POOL", lambda node, now: node.pool),
    Column("STATE", lambda node, now: str(node.state), colour=lambda node: _COLOURS[node.state]),
    Column(
        "CPU(FREE/ALL)",
        lambda node, now: f"{_cpus(node.free.cpu)}/{_cpus(node.offered.cpu)}",
        order=lambda node: node.free.cpu,
    ),
    Column(
        "MEM(FREE/ALL)",
        lambda node, now: (
            f"{format_quantity(node.free.memory, MEMORY)}/{format_quantity(node.offered.memory, MEMORY)}"
        ),
        order=lambda node: node.free.memory,
    ),
    Column(
        "GPU(FREE/ALL)",
        lambda node, now: f"{_gpus(node.free.gpu)}/{_gpus(node.offered.gpu)}",
        order=lambda node: node.free.gpu,
    ),
    Column("PODS", lambda node, now: str(node.pods), order=lambda node: node.pods),
    Column("REASON", lambda node, now: ", ".join(reason.reason for reason in node.reasons), narrow=True),
    Column("REASON", lambda node, now: "; ".join(map(str, node.reasons)), wide=True),
)
SUMMARIES: tuple[Column[PoolSummary], ...] = (
    Column("POOL", lambda pool, now: pool.pool),
    Column("NODES(A/I/O/T)", lambda pool, now: _four(pool.nodes), order=lambda pool: pool.nodes[3]),
    Column("CPUS(A/I/O/T)", lambda pool, now: _four(pool.cpus, 1000), order=lambda pool: pool.cpus[3]),
    Column("GPUS(A/I/O/T)", lambda pool, now: _four(pool.gpus, 100), order=lambda pool: pool.gpus[3]),
    Column("NODELIST", lambda pool, now: compress(pool.names)),
)
REASONS: tuple[Column[ReasonGroup], ...] = (
    Column("REASON", lambda group, now: f"{group.reason}: {group.message}" if group.message else group.reason),
    Column("STATE", lambda group, now: group.state),
    Column("SINCE", lambda group, now: age(group.since, now), order=lambda group: group.since),
    Column("NODES", lambda group, now: str(len(group.nodes)), order=lambda group: len(group.nodes)),
    Column("NODELIST", lambda group, now: compress(group.nodes)),
)


def document(entry: msgspec.Struct) -> Any:
    """Return a node or pool as a document with amounts as Kubernetes quantities."""

    def plain(value: object) -> Any:
        if isinstance(value, Amounts):
            return {
                "cpu": canonical_quantity(value.cpu, CPU),
                "memory": canonical_quantity(value.memory, MEMORY),
                "gpu": _gpus(value.gpu),
            }
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        if isinstance(value, msgspec.Struct):
            return msgspec.to_builtins(value)
        return str(value) if isinstance(value, NodeState) else value

    fields = {name: plain(getattr(entry, name)) for name in entry.__struct_fields__}
    if isinstance(entry, PoolSummary):
        fields["cpus"] = [count / 1000 for count in entry.cpus]
        fields["gpus"] = [count / 100 for count in entry.gpus]
    return fields
