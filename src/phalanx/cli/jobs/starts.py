"""`phalanx jobs --start`: when those that wait start, and how people read it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from phalanx.cli.columns import columns

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.kube.client import KubeClient
    from phalanx.reports.promised_starts import PromisedStart
    from phalanx.reports.start_times import StartEntry


class StartQuestion:
    """Starts of what waits in a namespace (None: all) and a queue ("": all), under the scheduler's policy."""

    def __init__(self, invocation: Invocation, namespace: str | None, queue: str) -> None:
        self._namespace = namespace
        self._queue = queue
        self._lease_namespace = invocation.lease_namespace
        self._read_policy = invocation.policy_reader()

    async def answer(self, client: KubeClient, output: str) -> tuple[Any, list[str]]:
        """(what is printed, what could not be read)."""
        from phalanx.cli.connection import time_limit
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.reports.promised_starts import read_plan
        from phalanx.reports.snapshot import read_cluster
        from phalanx.reports.start_times import start_entries
        from phalanx.reports.stored_usage import read_usage

        (policy, names), lease = await self._read_policy(client), self._lease_namespace
        snapshot = await read_cluster(client, names, dialect_options(policy), lease)
        await read_usage(client, snapshot, policy, lease, names)
        stored = await read_plan(client, lease, names)
        found = start_entries(snapshot, policy, stored, time.time(), time_limit())
        entries = [
            each for each in found if self._namespace in (None, each.namespace) and self._queue in ("", each.queue)
        ]
        warnings = [f"not read: {text}" for text in snapshot.missing] + [stored.warning] * bool(stored.warning)
        if output == "name":
            return [each.target for each in entries], warnings
        if output in ("json", "yaml"):
            return {"starts": entries}, warnings
        where = "any namespace" if self._namespace is None else f"namespace {self._namespace}"
        table = start_table(entries, namespaces=self._namespace is None)
        return table if entries else [f"nothing waits in {where}"], warnings


def start_table(entries: Iterable[StartEntry], *, namespaces: bool) -> list[str]:
    header = [
        "NAME", "KIND", "QUEUE", "PODS", "PRIORITY", "STATE", "NO-LATER-THAN", "EXPECTED", "80%-UNTIL", "REASON",
    ]  # fmt: skip
    rows = []
    for entry in entries:
        start = entry.start
        row = [
            entry.name,
            entry.kind,
            entry.queue,
            str(entry.pods),
            str(entry.priority),
            entry.state,
            start.no_later_than,
            start.expected,
            start.expected_until,
            _reason(entry),
        ]
        rows.append([cell or "-" for cell in ([entry.namespace, *row] if namespaces else row)])
    return columns(["NAMESPACE", *header] if namespaces else header, rows)


def _reason(entry: StartEntry) -> str:
    """What the start rests on, or why there is none."""
    start = entry.start
    if entry.forecast:
        return "nothing is in its way"
    if start.no_later_than or start.expected:
        return start.basis + (f"; {start.postponements[-1]}" if start.postponements else "")
    if start.planned:
        return f"planned for {start.planned}, {start.basis}; {start.message}"
    return start.message


def start_lines(start: PromisedStart, age: str) -> list[str]:
    """The same for `phalanx why`; `age` is that of the plan."""
    lines = []
    if start.no_later_than:
        first = "" if start.promised == start.no_later_than else f"; at first it was told {start.promised}"
        lines.append(f"Starts: no later than {start.no_later_than} (told at {start.told_at}{first})")
    elif start.planned:
        lines.append(f"Starts: planned for {start.planned}, and no start is kept for it")
    else:
        lines.append(f"Starts: {start.message}")
    if start.expected:
        lines.append(f"  expected {start.expected}, in 80 of 100 cases until {start.expected_until}")
    elif start.planned and start.message:
        lines.append(f"  {start.message}")
    if start.basis:
        lines.append(f"  {start.basis}; the plan is {age or '0s'} old")
    lines.extend(f"  {move}" for move in start.postponements)
    return lines
