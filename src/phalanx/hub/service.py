"""Service of the hub: watches submitted gangs and dispatches them until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from phalanx.controllers.work_queue import WorkQueue
from phalanx.hub.choice.ledger import queues_of
from phalanx.hub.choice.rounds import Rounds
from phalanx.hub.choice.spill_over import SpillOver
from phalanx.hub.dispatch import Dispatch, DispatchStatus, Phase
from phalanx.hub.dispatch_events import DispatchEvents
from phalanx.hub.dispatcher import Dispatcher
from phalanx.hub.gangs import HubObjects, records_by_uid
from phalanx.hub.members.connection import ClusterConnection, ConnectionPace
from phalanx.hub.members.member_clusters import MemberClusters
from phalanx.hub.names import DISPATCHES
from phalanx.hub.process import HubProcess, HubProcessOptions
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NAMESPACES
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.http.connections import Transports
from phalanx.model.account import Account as Queue
from phalanx.scheduling.framework.policy import Policy

log = logging.getLogger(__name__)

_RESYNC = 60.0
_BUSY = 0.2


class HubOptions(HubProcessOptions, frozen=True, kw_only=True):
    """Options of the hub's process.

    `namespace` also contains the kubeconfig Secrets. `patience` is the number of seconds without an answer after
    which a cluster loses the gangs that are not granted. `workers` is the number of workers per cluster.
    """

    lease_name: str = "phalanx-hub-leader"
    workers: int = 16
    patience: int = 30
    secret_period: float = 5.0
    spill_period: float = 30.0
    pace: ConnectionPace = ConnectionPace()


class HubService(HubProcess):
    """Hub process that dispatches gangs; `ready` is set once all gangs are listed."""

    def __init__(
        self, client: KubeClient, options: HubOptions, policy: Policy, transports: Transports | None = None
    ) -> None:
        super().__init__(client, options, policy, transports)
        self.options = options
        self._origin = ""
        self._queues: dict[str, WorkQueue[str]] = {}
        self._new_queue = asyncio.Event()
        self._refusals: WorkQueue[Key] = WorkQueue()
        self._dispatch_events = DispatchEvents(self._recorder)
        self.objects = HubObjects(
            self._changed, lambda: self.clusters.look(), self._refusals.add, self._dispatch_events.job_seen
        )
        self.clusters = MemberClusters(
            self._client,
            options.namespace,
            lambda: list(self.objects.clusters.values()),
            self._connect,
            self._cluster_changed,
            options.secret_period,
            self._used,
        )
        self._policy = policy
        self._rounds: Rounds | None = None
        self._read_queues: tuple[object, dict[str, Queue]] = ((), {})

    async def serve(self) -> None:
        self._origin = (await self._client.get(NAMESPACES.path(None, "kube-system")))["metadata"]["uid"]
        dispatcher = Dispatcher(
            self._client,
            self.objects,
            self.clusters.connections,
            self.clusters.specs,
            self._origin,
            lambda gang_uid: rounds.add(gang_uid),
            self._estimates.left,
            lambda record: spilling.recall(record),
            self.options.patience,
            self._moved,
        )
        rounds = Rounds(
            self.objects,
            self.clusters.connections,
            self.clusters.specs,
            self._estimates,
            self._policy,
            self.options.scheduler_names,
            dispatcher.copies,
            dispatcher.write,
            self._queues_here,
            self.options.patience,
        )
        self._rounds = rounds
        spilling = SpillOver(
            self.objects,
            self.clusters.connections,
            self.clusters.specs,
            self._estimates,
            rounds,
            self._changed,
            self.options.spill_period,
        )

        looking: set[str] = set()

        async def process_gang(gang_uid: str) -> float | None:
            # The queue of the gang's former cluster is possibly still processing it.
            if gang_uid in looking:
                return _BUSY
            looking.add(gang_uid)
            try:
                return await dispatcher.look(gang_uid)
            except (ApiError, ConnectionLost, ConfigError) as error:
                log.info("gang %s: %s", gang_uid, error)
                raise
            except Exception as error:
                self._failures.record_failure("gang", gang_uid, error)
                raise
            finally:
                looking.discard(gang_uid)

        async with asyncio.TaskGroup() as tasks:
            reflectors = self.objects.reflectors(self._client, self._failures)
            for reflector in reflectors:
                tasks.create_task(reflector.run())
            for reflector in reflectors:
                await reflector.synced.wait()
            tasks.create_task(self._failures.keep_running("member clusters", self.clusters.run))
            tasks.create_task(self._failures.keep_running("the choice of clusters", rounds.run))
            tasks.create_task(self._failures.keep_running("spill-over", spilling.run))
            tasks.create_task(self._resync())
            tasks.create_task(self._failures.keep_running("event recorder", self._recorder.run))
            tasks.create_task(self._refusals.run(dispatcher.refuse, 2))
            self.ready.set()
            running: set[str] = set()
            while True:
                # Each cluster has its own queue and workers: a slow cluster delays no gang of another cluster.
                for name in self._queues.keys() - running:
                    tasks.create_task(self._queues[name].run(process_gang, self.options.workers))
                    running.add(name)
                self._new_queue.clear()
                await self._new_queue.wait()

    async def _resync(self) -> None:
        while True:
            self._cluster_changed("")
            await asyncio.sleep(_RESYNC)

    # -- work queues ---------------------------------------------------------------------------------------

    def _changed(self, gang_uid: str) -> None:
        record = self.objects.record(gang_uid)
        name = record.status.cluster if record is not None else ""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = WorkQueue()
            self._new_queue.set()
        queue.add(gang_uid)

    def _moved(self, record: Dispatch, status: DispatchStatus) -> None:
        self._dispatch_events.moved(record, status)
        if status.phase == Phase.ENDED.value:
            self._estimates.ended(status.cluster, record.uid)

    def _copies_changed(self, dispatch_uid: str) -> None:
        if not dispatch_uid:
            self._cluster_changed("")
            return
        gang_uid = self.objects.gang_of(dispatch_uid)
        if gang_uid:
            self._changed(gang_uid)

    def _cluster_changed(self, name: str) -> None:
        self.clusters.look()
        if self._rounds is not None:
            self._rounds.look_again()
        for gang_uid in set(self.objects.gangs()):
            self._changed(gang_uid)

    # -- clusters ------------------------------------------------------------------------------------------

    def _connect(self, name: str, config: ClusterConfig) -> ClusterConnection:
        fenced = self._member_client(config, 16).fenced(self.leadership.holds)
        return ClusterConnection(name, fenced, self._origin, self._records, self._copies_changed, self.options.pace)

    def _used(self, cluster: str) -> Mapping[str, int] | None:
        account = self._estimates.account(cluster)
        return account.used() if account is not None else None

    def _queues_here(self) -> dict[str, Queue]:
        """Return the queues in the hub's own API, decoded again after a change."""
        version = tuple(sorted((queue.uid, queue.resource_version) for queue in self.objects.queues.values()))
        if self._read_queues[0] != version:
            documents = [queue.document for queue in self.objects.queues.values()]
            self._read_queues = (version, queues_of(documents, self._policy))
        return self._read_queues[1]

    async def _records(self) -> Mapping[str, Dispatch]:
        return records_by_uid((await self._client.list_all(DISPATCHES.path()))["items"])
