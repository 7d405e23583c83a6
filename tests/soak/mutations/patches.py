"""Ten bugs, each a replacement of a few lines of the scheduler."""

from __future__ import annotations

import msgspec


class Mutation(msgspec.Struct, frozen=True):
    """A bug: `right` in the file at `path` (within src/phalanx) becomes `wrong`."""

    name: str
    path: str
    right: str
    wrong: str
    #: Further replacements of the same bug: (path, right, wrong).
    also: tuple[tuple[str, str, str], ...] = ()

    @property
    def replacements(self) -> tuple[tuple[str, str, str], ...]:
        return ((self.path, self.right, self.wrong), *self.also)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "gang starts with one member less than its minimum",
        "scheduling/gangs/quorum.py",
        "total = max(0, gang.min_member - done)",
        "total = max(0, gang.min_member - 1 - done)",
    ),
    Mutation(
        "pods of any priority are preempted in their queue",
        "scheduling/preemption/rules/queue_rules.py",
        "ReclaimRule(EvictionReason.PREEMPTED, True, distance=depth, drf=levels)",
        "ReclaimRule(EvictionReason.PREEMPTED, False, distance=depth, drf=levels)",
    ),
    Mutation(
        "pod that leaves its node wakes no unit",
        "cluster/pods/occupancy.py",
        "        self._charge(record, row, -1)\n        self._changes.freed += 1\n",
        "        self._charge(record, row, -1)\n",
        # Without this the smaller usage of its queue would wake units too.
        (
            (
                "cluster/ledger.py",
                "        if not same or successor is ChargeState.PENDING:\n",
                "        if not same and charge_state is ChargeState.PENDING:\n",
            ),
        ),
    ),
    Mutation(
        "next process does not wait for victims of the former one",
        "scheduling/gang_placement/nominated_placement.py",
        "    if not victims:\n        return None\n    until",
        "    if victims:\n        return None\n    until",
    ),
    Mutation(
        "stored start loses the time of its promise",
        "scheduling/reservations/stored.py",
        "        made=reservation.made,\n",
        "        made=window.start,\n",
    ),
    Mutation(
        "maintenance windows begin ten minutes late",
        "scheduling/features/maintenance_evictions.py",
        "        if self._table.advance(now):\n",
        "        if self._table.advance(now - 600):\n",
    ),
    Mutation(
        "node in back-off gets pods",
        "scheduling/plugins/nodes/node_backoff.py",
        "            closed[row] = True\n",
        "            closed[row] = False\n",
    ),
    Mutation(
        "ended members with all minResources leave pods announced",
        "cluster/inqueue.py",
        "if share.unplaced or share.uncreated else None",
        "if share.unplaced else None",
    ),
    Mutation(
        "rollback does not restore the quota of nominations",
        "cluster/transaction.py",
        "        if record.charge_path is not None:\n"
        "            record.charge_path.move_nominated(record.footprint, -1)\n\n"
        "    def _unreserve",
        "\n    def _unreserve",
    ),
    Mutation(
        "pods beyond the run time of their queue run on",
        "scheduling/features/run_time_limits.py",
        "        if self._rule == KILL:\n",
        "        if self._rule == REPORT:\n",
    ),
)
