"""Output of `phalanx jobs --start`: starts of waiting gangs and pods, as table and as lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from phalanx.cli.columns import columns
from phalanx.cli.listing.ages import OVERDUE, promised_moment, relative
from phalanx.cli.server.rights import by_rights

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.cli.server.requests import Server
    from phalanx.kube.client import KubeClient
    from phalanx.reports.start_entries import StartEntry, StartsAnswer
    from phalanx.views.promises import PromisedStart


class StartQuestion:
    """Query for the starts of waiting gangs and pods in a namespace (None: all) and a queue ("": all)."""

    def __init__(self, invocation: Invocation, namespace: str | None, queue: str) -> None:
        self._namespace = namespace
        self._queue = queue
        self._lease_namespace = invocation.lease_namespace
        self._read_policy = invocation.read_policy
        self._invocation = invocation

    async def answer(self, client: KubeClient, output: str) -> tuple[Any, list[str]]:
        """Return the expected starts (lines or a document) and warnings about unreadable objects."""
        own = client.namespace

        async def ask(server: Server) -> StartsAnswer:
            from phalanx.reports.start_entries import StartsAnswer

            question = {"namespace": self._namespace or "", "own": own}
            return await server.get("commands/starts", StartsAnswer, question)

        found = await by_rights(self._invocation, self._dry_run, ask)(client)
        entries = [
            entry
            for entry in found.starts
            if self._namespace in (None, entry.namespace) and self._queue in ("", entry.queue)
        ]
        if not entries:
            from phalanx.cli.listing.known_names import refuse_unknown_scope

            await refuse_unknown_scope(client, self._namespace, (self._queue,) if self._queue else ())
        if output == "name":
            return [entry.target for entry in entries], found.warnings
        if output in ("json", "yaml"):
            return {"starts": entries}, found.warnings
        scope = "any namespace" if self._namespace is None else f"namespace {self._namespace}"
        table = start_table(entries, time.time(), namespaces=self._namespace is None)
        return table if entries else [f"no waiting gangs or pods in {scope}"], found.warnings

    async def _dry_run(self, client: KubeClient) -> StartsAnswer:
        """Return the expected starts by a dry run with the user's own rights."""
        from phalanx.cli.connection import time_limit
        from phalanx.daemon.policy_file import dialect_options
        from phalanx.reports.read_promises import read_promises
        from phalanx.reports.snapshot import read_cluster
        from phalanx.reports.start_entries import StartsAnswer
        from phalanx.reports.start_times import start_entries
        from phalanx.reports.stored_usage import read_usage

        (policy, names), lease = await self._read_policy(client), self._lease_namespace
        snapshot = await read_cluster(client, names, dialect_options(policy), lease)
        await read_usage(client, snapshot, policy, lease, names)
        promises, now = await read_promises(client, lease, names), time.time()
        warnings = [f"cannot read {text}" for text in snapshot.missing] + promises.warnings(now)
        return StartsAnswer(starts=start_entries(snapshot, policy, promises, now, time_limit()), warnings=warnings)


def start_table(entries: Iterable[StartEntry], now: float, *, namespaces: bool) -> list[str]:
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
            promised_moment(start.no_later_than, now),
            relative(start.expected, now),
            relative(start.expected_until, now),
            _reason(entry, now),
        ]
        rows.append([cell or "-" for cell in ([entry.namespace, *row] if namespaces else row)])
    return columns(["NAMESPACE", *header] if namespaces else header, rows)


def _reason(entry: StartEntry, now: float) -> str:
    """Return the basis of a gang's forecast start, or the reason why there is none."""
    start = entry.start
    if entry.forecast:
        return "starts in the next cycle"
    if start.no_later_than or start.expected:
        parts = [start.basis, *start.postponements[-1:], *_move(start, now)]
        return "; ".join(parts)
    if start.planned:
        return f"planned {relative(start.planned, now)}, {start.basis}; {start.message}"
    return start.message


def start_lines(start: PromisedStart, now: float) -> list[str]:
    """Return the start of one gang or pod as output lines of `phalanx why` and `phalanx queue describe`."""
    lines = []
    if start.no_later_than:
        since = f"; promised {relative(start.told_at, now)}" if start.told_at else ""
        first = (
            f", first promised for {relative(start.promised, now)}" if start.promised != start.no_later_than else ""
        )
        promised = promised_moment(start.no_later_than, now)
        words = promised if promised.startswith(OVERDUE) else f"no later than {promised}"
        lines.append(f"Starts: {words}{since}{first}")
    elif start.planned:
        lines.append(f"Starts: planned {relative(start.planned, now)}; not promised")
    else:
        lines.append(f"Starts: {start.message}")
    if start.expected:
        until = relative(start.expected_until, now)
        lines.append(f"  expected {relative(start.expected, now)}, with 80 % probability until {until}")
    elif start.planned and start.message:
        lines.append(f"  {start.message}")
    if start.basis:
        lines.append(f"  {start.basis}; {_source(start, now)}")
    lines.extend(f"  {move}" for move in (*start.postponements, *_move(start, now)))
    return lines


def _source(start: PromisedStart, now: float) -> str:
    """Return the source of a start (the scheduler's plan, its record, or a dry run) and its age."""
    from phalanx.views.promises import PromiseSource

    origin = start.origin
    if origin is None:
        return f"by a dry run {relative(start.planned_at, now)}"
    source = "plan of the scheduler" if origin.source is PromiseSource.LIVE else "record of the scheduler"
    return f"{source}, version {origin.version or '-'}, written {relative(origin.time, now) or '-'}"


def _move(start: PromisedStart, now: float) -> list[str]:
    """Return a line about the time to which a dry run moves a promised start; none if it does not move."""
    cause = f": {start.moves_because}" if start.moves_because else ""
    if start.moves_to:
        former, later = relative(start.no_later_than, now), relative(start.moves_to, now)
        return [f"a dry run moves it from {former} to {later}{cause}"]
    return [f"a dry run drops it{cause}"] if start.moves_because else []
