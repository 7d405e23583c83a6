"""Member clusters: their connections, credentials and published status."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub.members.capacity import written
from phalanx.hub.members.connection import ClusterConnection
from phalanx.hub.members.credential_expiry import CredentialLife, credential_life
from phalanx.hub.members.kubeconfig_secret import KEY, cluster_config
from phalanx.hub.names import MEMBER_CLUSTERS
from phalanx.hub.objects import Json, StoredObject, printable
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import SECRETS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost

log = logging.getLogger(__name__)

_SEEN_PERIOD = 60


class _Connected(msgspec.Struct):
    connection: ClusterConnection
    task: asyncio.Task[None]
    #: Digest of the Secret of the connection.
    digest: str
    life: CredentialLife


class MemberClusters:
    """Connections to all MemberClusters.

    `connect` creates a connection from a name and a configuration; `listed` returns the MemberClusters. Secrets are
    read every `period` seconds, and a changed one replaces the connection. `used` returns the amounts that the pods
    of a cluster used at the last forecast, in the scheduler's units.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        listed: Callable[[], Iterable[StoredObject]],
        connect: Callable[[str, ClusterConfig], ClusterConnection],
        changed: Callable[[str], None],
        period: float = 5.0,
        used: Callable[[str], Mapping[str, int] | None] = lambda name: None,
    ) -> None:
        self.connections: dict[str, ClusterConnection] = {}
        self.specs: dict[str, Json] = {}
        self._client = client
        self._namespace = namespace
        self._listed = listed
        self._connect = connect
        self._changed = changed
        self._period = period
        self._used = used
        self._connected: dict[str, _Connected] = {}
        # Reason and message by cluster without a connection.
        self._problems: dict[str, tuple[str, str]] = {}
        self._wake = asyncio.Event()

    def look(self) -> None:
        """Request an update of connections and statuses after a change."""
        self._wake.set()

    async def run(self) -> None:
        """Update connections and statuses until cancelled."""
        try:
            while True:
                self._wake.clear()
                clusters = {listed.name: listed for listed in self._listed()}
                for name in [name for name in self._connected if name not in clusters]:
                    await self._disconnect(name)
                for name, cluster in sorted(clusters.items()):
                    self.specs[name] = cluster.document.get("spec") or {}
                    await self._update(cluster)
                for cluster in clusters.values():
                    await self._publish(cluster)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._period):
                        await self._wake.wait()
        finally:
            for name in list(self._connected):
                await self._disconnect(name)

    async def _update(self, cluster: StoredObject) -> None:
        """Connect a member cluster, again after a change of its Secret.

        An unreadable Secret does not end a working connection.
        """
        secret = str(self.specs[cluster.name].get("kubeconfigSecret") or "")
        where = f"Secret {self._namespace}/{secret}"
        try:
            secret_object = await self._client.get(SECRETS.path(self._namespace, secret))
            digest = hashlib.sha256(str((secret_object.get("data") or {}).get(KEY)).encode()).hexdigest()
            known = self._connected.get(cluster.name)
            if known is not None and known.digest == digest:
                self._problems.pop(cluster.name, None)
                return
            config = cluster_config(secret_object, where)
            # The TLS files are normally read at the first use; reading them here reports a problem at once.
            config.tls.context()
        except (ConfigError, ValueError) as error:
            self._problems[cluster.name] = ("InvalidKubeconfig", printable(error))
            return
        except (ApiError, ConnectionLost) as error:
            reason = "NoSecret" if isinstance(error, ApiError) and error.status == 404 else "Unread"
            self._problems[cluster.name] = (reason, f"{where}: {printable(error)}")
            return
        self._problems.pop(cluster.name, None)
        await self._disconnect(cluster.name)
        connection = self._connect(cluster.name, config)
        self.connections[cluster.name] = connection
        self._connected[cluster.name] = _Connected(
            connection, asyncio.create_task(connection.run()), digest, credential_life(secret_object, where)
        )

    async def _disconnect(self, name: str) -> None:
        known = self._connected.pop(name, None)
        if known is None:
            return
        self.connections.pop(name, None)
        known.task.cancel()
        await asyncio.gather(known.task, return_exceptions=True)
        await known.connection.close()
        self._changed("")

    async def _publish(self, cluster: StoredObject) -> None:
        """Write the status of a MemberCluster after a change, and once a minute with the time of the last answer
        and the capacity."""
        connection = self.connections.get(cluster.name)
        problem = self._problems.get(cluster.name)
        if connection is not None and (connection.ready or problem is None):
            status, reason, message = connection.condition()
        else:
            reason, message = problem or ("Connecting", "")
            status = "False"
        old = cluster.document.get("status") or {}
        now = int(time.time())
        wanted = [{"type": "Active", "status": status, "reason": reason, "message": message[:500]}]
        known = self._connected.get(cluster.name)
        life = known.life if known is not None else CredentialLife()
        if life.ends:
            wanted.append(_expiry(life, now))
        last_conditions = {
            condition.get("type"): condition
            for condition in old.get("conditions") or ()
            if isinstance(condition, dict)
        }
        is_current = all(
            {key: last_conditions.get(condition["type"], {}).get(key) for key in condition} == condition
            for condition in wanted
        )
        seen = connection.last_seen if connection is not None else 0
        capacity = connection.capacity if connection is not None else None
        capacity_missing = capacity is not None and not old.get("nodes")
        if (
            is_current
            and not capacity_missing
            and (not seen or format_time(seen - seen % _SEEN_PERIOD) == old.get("lastSeen"))
        ):
            return
        conditions = []
        for condition in wanted:
            last: Json = last_conditions.get(condition["type"], {})
            since = last.get("lastTransitionTime") if last.get("status") == condition["status"] else None
            conditions.append({**condition, "lastTransitionTime": since or format_time(now)})
        body: dict[str, Any] = {"conditions": conditions}
        if seen:
            body["lastSeen"] = format_time(seen - seen % _SEEN_PERIOD)
        body["credentialExpires"] = format_time(life.ends) if life.ends else None
        if capacity is not None:
            body["version"] = capacity.version or None
            body["nodes"] = {"total": capacity.nodes, "ready": capacity.ready}
            body["allocatable"] = _replacing(old.get("allocatable"), written(capacity.allocatable))
            forecast = self._used(cluster.name)
            used = forecast if forecast is not None else capacity.used
            if used is not None:
                offered = {name: used.get(name, 0) for name in capacity.allocatable}
                body["used"] = _replacing(old.get("used"), written(offered))
        patch = {"metadata": {"uid": cluster.uid}, "status": body}
        try:
            await self._client.patch(MEMBER_CLUSTERS.path(None, cluster.name, "status"), patch, PatchType.MERGE)
        except (ApiError, ConnectionLost) as error:
            log.warning("the status of MemberCluster %s was not written: %s", cluster.name, error)


def _expiry(life: CredentialLife, now: int) -> dict[str, str]:
    """Return the condition CredentialExpires of a MemberCluster. Its message has no remaining time, which always
    changes."""
    soon, when = life.ends_soon(now), format_time(life.ends)
    message = f"put a kubeconfig with a new credential into its Secret before {when}" if soon else ""
    status, reason = ("True", "Soon") if soon else ("False", "InTime")
    return {"type": "CredentialExpires", "status": status, "reason": reason, "message": message}


def _replacing(before: object, now: dict[str, str]) -> dict[str, str | None]:
    """Return the merge patch that replaces the map `before` by the map `now`."""
    removed = [key for key in before if key not in now] if isinstance(before, dict) else []
    return {**dict.fromkeys(removed), **now}
