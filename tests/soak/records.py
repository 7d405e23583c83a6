"""Records that a scheduler process stores, and that the next one loads."""

from __future__ import annotations

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.collection_records import decode_collections, encode_collections
from phalanx.model.events import NodeBackoffsRestored
from phalanx.model.node_rejection import NodeBackoffEntry
from phalanx.model.promise_records import StoredStarts, decode, decode_grants, decode_losses, encode
from phalanx.model.reclaim_records import ReclaimedGang
from phalanx.scheduling.collecting.plugin import Collecting, load_collections
from phalanx.scheduling.collecting.run_times import LearnedRunTime
from phalanx.scheduling.features.borrowed_room import BorrowedRoom, load_reclaims
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.session.eviction_log import NotedEvictions

from ..scheduling.features import starts


class StoredRecords(msgspec.Struct, frozen=True):
    """Promised starts with their losses and grants (`promises`, as stored), observed starts, the back-offs of
    nodes and of reclaimed gangs, collections (as stored), learned run times, and evictions that count against
    rates."""

    promises: str
    observed: StoredStarts
    node_backoffs: tuple[NodeBackoffEntry, ...]
    reclaimed: list[ReclaimedGang]
    collections: str
    run_times: list[LearnedRunTime]
    evictions: list[NotedEvictions]

    @classmethod
    def of(cls, scheduler: Scheduler, state: ClusterState) -> StoredRecords:
        feature, borrowed = starts(scheduler), scheduler.features.get(BorrowedRoom)
        collecting = scheduler.features.get(Collecting)
        _, promised, grants, losses = feature.promised()
        return cls(
            encode(promised, grants, losses),
            feature.observed_starts(),
            state.nodes.backoff.entries(),
            borrowed.backoff.export() if borrowed is not None else [],
            encode_collections(collecting.export() if collecting is not None else []),
            collecting.run_times.export() if collecting is not None else [],
            scheduler.cycle_history.evictions.export(),
        )

    def load(self, scheduler: Scheduler, state: ClusterState) -> None:
        """Load the records into a process that has observed the API objects."""
        state.apply(NodeBackoffsRestored(self.node_backoffs))
        promised, faults = decode(self.promises)
        grants, faults_of_grants = decode_grants(self.promises)
        losses, faults_of_losses = decode_losses(self.promises)
        assert not faults + faults_of_grants + faults_of_losses
        starts(scheduler).load(promised, self.observed, grants, losses)
        load_reclaims(scheduler.features, self.reclaimed)
        collections, fault = decode_collections(self.collections)
        assert not fault
        load_collections(scheduler.features, collections)
        if (collecting := scheduler.features.get(Collecting)) is not None:
            collecting.run_times.restore(self.run_times)
        scheduler.cycle_history.evictions.restore(self.evictions)
