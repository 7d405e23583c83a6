"""Service of Karmada's scheduler: watches bindings and clusters until it is stopped."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec

from phalanx.controllers.store import ObjectStore
from phalanx.hub.jobs.kinds import at
from phalanx.hub.karmada.bindings import BINDINGS, CLUSTERS, is_ours
from phalanx.hub.karmada.rounds import BindingRounds
from phalanx.hub.objects import StoredObject, printable, read_object
from phalanx.hub.process import HubProcess, HubProcessOptions
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient
from phalanx.kube.events import ObjectReference
from phalanx.kube.http.connections import Transports
from phalanx.kube.reflector import Reflector
from phalanx.scheduling.framework.policy import Policy


class KarmadaOptions(HubProcessOptions, frozen=True, kw_only=True):
    """Options of Karmada's scheduler; `again` is the pause in seconds before a failed binding is retried."""

    lease_name: str = "phalanx-karmada"
    again: float = 15.0


class _Member(msgspec.Struct, frozen=True):
    """Member cluster of Karmada with its connection; `uid` is that of its Cluster object."""

    name: str
    client: KubeClient
    uid: str


class KarmadaService(HubProcess):
    """Scheduler of Karmada's bindings as a process; `ready` is set when all bindings are listed.

    Clusters are reached through Karmada's own API server (its aggregated API `clusters/proxy`), which forwards the
    user: rights are checked there, and no credentials of clusters are read here.
    """

    def __init__(
        self, client: KubeClient, options: KarmadaOptions, policy: Policy, transports: Transports | None = None
    ) -> None:
        super().__init__(client, options, policy, transports)
        self._bindings = ObjectStore(_own_binding, changed=self._binding_changed)
        self._clusters = ObjectStore(read_object, changed=self._cluster_changed)
        self._members: dict[str, _Member] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._rounds = BindingRounds(
            self._client,
            self._bindings,
            self._clusters,
            self._estimates,
            self._member,
            self._publish,
            options.again,
        )

    async def close(self) -> None:
        await super().close()
        for name in list(self._members):
            self._disconnect(name)
        await asyncio.gather(*self._closing)

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_running("event recorder", self._recorder.run))
            # Bindings start after clusters: an unlisted cluster must not count as one that has left.
            for resource, store in ((CLUSTERS, self._clusters), (BINDINGS, self._bindings)):
                reflector = Reflector(self._client, resource, bytes, store.sink, failures=self._failures)
                tasks.create_task(reflector.run())
                await reflector.synced.wait()
            self.ready.set()
            tasks.create_task(self._failures.keep_running("the choice of clusters", self._rounds.run))

    def _binding_changed(self, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        self._rounds.changed(key, old, new)

    def _cluster_changed(self, key: Key, old: StoredObject | None, new: StoredObject | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._disconnect(old.name)
        if new is None or old is None or _scheduling(old) != _scheduling(new):
            self._rounds.clusters_changed()

    def _member(self, name: str) -> _Member:
        known = self._members.get(name)
        if known is not None:
            return known
        cluster = self._clusters.get(("", name))
        config = self._client.config
        server = f"{config.server}{CLUSTERS.path(None, name, 'proxy')}"
        client = self._member_client(dataclasses.replace(config, server=server), 4)
        new_member = self._members[name] = _Member(name, client, cluster.uid if cluster is not None else "")
        return new_member

    def _disconnect(self, name: str) -> None:
        """Drop the connection to a cluster that was replaced or removed."""
        self._estimates.forget(name)
        member = self._members.pop(name, None)
        if member is not None:
            task = asyncio.ensure_future(member.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _publish(self, binding: StoredObject, reason: str, note: str, kind: str) -> None:
        """Record an event about a binding on its template, where users look."""
        resource = at(binding.document, ("spec", "resource"))
        version, template, name, uid = (
            str(at(resource, (key,)) or "") for key in ("apiVersion", "kind", "name", "uid")
        )
        about = ObjectReference(template, name, binding.namespace, uid, version)
        self._recorder.record(about, reason=reason, action="Schedule", note=printable(note, 1000), type=kind)


def _own_binding(raw: bytes) -> StoredObject | None:
    """Decode a binding of this scheduler; return None for bindings of other schedulers, which are not stored."""
    binding = read_object(raw)
    return binding if binding is not None and is_ours(binding.document) else None


def _scheduling(cluster: StoredObject) -> object:
    """Return the fields of a Cluster that affect a choice; its status changes every few seconds."""
    document = cluster.document
    return (
        at(document, ("metadata", "labels")),
        at(document, ("metadata", "deletionTimestamp")),
        *(at(document, ("spec", key)) for key in ("provider", "region", "zones", "taints")),
        at(document, ("status", "apiEnablements")),
    )
