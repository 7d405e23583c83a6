"""Service of MultiKueue's external dispatcher: watches Workloads, requests forecasts from clusters, nominates
clusters."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.hub.choice.assignment import Candidate
from phalanx.hub.choice.estimates import AskedGang
from phalanx.hub.jobs.kinds import at
from phalanx.hub.members.kubeconfig_secret import KEY, cluster_config
from phalanx.hub.multikueue import nominations
from phalanx.hub.objects import StoredObject, printable, read_object
from phalanx.hub.process import HubProcess, HubProcessOptions
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.events import ObjectReference
from phalanx.kube.reflector import Reflector
from phalanx.scheduling.framework.policy import Policy

log = logging.getLogger(__name__)

_ASK_AGAIN = 60.0
_WORKERS = 8


class MultiKueueOptions(HubProcessOptions, frozen=True, kw_only=True):
    """Options of the dispatcher; `kueue_namespace` contains the kubeconfig Secrets of MultiKueueClusters."""

    kueue_namespace: str = "kueue-system"
    lease_name: str = "phalanx-multikueue"


class _Member(msgspec.Struct, frozen=True):
    """Member cluster of MultiKueue with its connection and the digest of its Secret."""

    name: str
    client: KubeClient
    digest: str


class MultiKueueService(HubProcess):
    """Dispatcher of MultiKueue's Workloads; `ready` is set when all Workloads are listed."""

    def __init__(self, client: KubeClient, options: MultiKueueOptions, policy: Policy) -> None:
        super().__init__(client, options, policy)
        self._options = options
        self._queue: WorkQueue[Key] = WorkQueue()
        self._workloads = ObjectStore(read_object, changed=lambda key, old, new: self._queue.add(key))
        self._checks, self._configs, self._clusters = (ObjectStore(read_object) for _ in range(3))
        self._members: dict[str, _Member] = {}
        #: Last written nomination and begin of the next round (monotonic), by the Workload's uid.
        self._rounds: dict[str, tuple[tuple[str, ...], float]] = {}

    async def close(self) -> None:
        await super().close()
        for member in self._members.values():
            await member.client.close()

    async def serve(self) -> None:
        watched = (
            (nominations.ADMISSION_CHECKS, self._checks),
            (nominations.CONFIGS, self._configs),
            (nominations.CLUSTERS, self._clusters),
            (nominations.WORKLOADS, self._workloads),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_running("event recorder", self._recorder.run))
            for resource, store in watched:
                reflector = Reflector(self._client, resource, bytes, store.sink, failures=self._failures)
                tasks.create_task(reflector.run())
                await reflector.synced.wait()
            self.ready.set()
            await self._queue.run(self._look, _WORKERS)

    async def _look(self, key: Key) -> float | None:
        """Nominate clusters for a Workload; return the seconds until the next call.

        Raises ApiError, ConnectionLost.
        """
        workload = self._workloads.get(key)
        if workload is None:
            return None
        name = nominations.open_check(
            workload.document, {item.name: item.document for item in self._checks.values()}
        )
        check = self._checks.get(("", name))
        if check is None:
            self._rounds.pop(workload.uid, None)
            return None
        before = nominations.nominated(workload.document)
        written, due = self._rounds.get(workload.uid, (before, 0.0))
        if before and not set(before) <= set(written):
            log.warning(
                "%s/%s: another client nominates clusters; check that Kueue's configuration names this dispatcher",
                *key,
            )
            return _ASK_AGAIN
        if before and workload.uid not in self._rounds:
            # The nomination is from an earlier process: its round starts again.
            self._rounds[workload.uid] = (before, time.monotonic() + nominations.ROUND_SECONDS)
            return float(nominations.ROUND_SECONDS)
        if before and time.monotonic() < due:
            return max(0.1, due - time.monotonic())
        configs = {item.name: item.document for item in self._configs.values()}
        allowed = nominations.clusters_of(check.document, configs)
        untried = [item for item in allowed if item not in before]
        pods = nominations.question(workload.document)
        gang = AskedGang(workload.uid, f"{key[0]}/{key[1]}", tuple(pods), declared=True)
        answers = await asyncio.gather(*(self._ask(item, gang) for item in untried))
        next_nomination = nominations.next_round(before, answers, int(time.time()))
        if next_nomination.names == before:
            self._publish(workload, "NotNominated", next_nomination.message, "Warning")
            return _ASK_AGAIN
        await self._nominate(workload, next_nomination)
        return next_nomination.wait

    async def _nominate(self, workload: StoredObject, found: nominations.NominationRounds) -> None:
        """Write the nomination of clusters to a Workload, based on the version that was read."""
        document, applied = nominations.nomination(workload.document, found.names)
        path = nominations.WORKLOADS.path(workload.namespace, workload.name, "status")
        try:
            if applied:
                answer = await self._client.patch(
                    path, document, PatchType.APPLY, field_manager=nominations.MANAGER, force=True
                )
            else:
                answer = await self._client.patch(
                    path, document, PatchType.MERGE, field_manager=nominations.MANAGER
                )
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return
        self._rounds[workload.uid] = (found.names, time.monotonic() + found.wait)
        self._workloads.put((workload.namespace, workload.name), msgspec.json.encode(answer))
        self._publish(workload, "Nominated", f"nominated by forecast start: {', '.join(found.names)}", "Normal")

    def _publish(self, workload: StoredObject, reason: str, note: str, kind: str) -> None:
        about = ObjectReference(
            "Workload", workload.name, workload.namespace, workload.uid, nominations.WORKLOADS.api_version
        )
        self._recorder.record(about, reason=reason, action="Nominate", note=note, type=kind)

    # -- clusters ------------------------------------------------------------------------------------------

    async def _ask(self, name: str, gang: AskedGang) -> Candidate:
        if not gang.copies:
            return Candidate(name, message="its pods cannot be read from the Workload")
        try:
            member = await self._member(name)
        except (ConfigError, ValueError) as error:
            return Candidate(name, message=printable(error))
        except (ApiError, ConnectionLost) as error:
            return Candidate(name, message=printable(f"its kubeconfig cannot be read: {error}"))
        return (await self._estimates.ask(member, [gang]))[gang.uid]

    async def _member(self, name: str) -> _Member:
        """Return the connection to a member cluster by its current Secret. Raises ConfigError, ApiError,
        ConnectionLost."""
        cluster = self._clusters.get(("", name))
        where = at(cluster.document, ("spec", "clusterSource", "kubeConfig")) if cluster is not None else None
        if not isinstance(where, dict) or where.get("locationType") not in (None, "Secret"):
            raise ConfigError(f"MultiKueueCluster {name} has no kubeconfig in a Secret")
        secret = await self._client.get(SECRETS.path(self._options.kueue_namespace, str(where.get("location"))))
        digest = hashlib.sha256(str((secret.get("data") or {}).get(KEY)).encode()).hexdigest()
        known = self._members.get(name)
        if known is not None and known.digest == digest:
            return known
        config = cluster_config(secret, f"Secret {self._options.kueue_namespace}/{where.get('location')}")
        new_member = _Member(name, self._member_client(config, 4), digest)
        self._members[name] = new_member
        self._estimates.forget(name)
        if known is not None:
            await known.client.close()
        return new_member
