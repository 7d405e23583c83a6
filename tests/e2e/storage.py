"""The volume controllers of a cluster, played over the API: they bind reserved volumes and provision requested
ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import Object, World

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
SELECTED = "volume.kubernetes.io/selected-node"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
GB = "1Gi"


class Storage:
    """One test's storage. Objects without a namespace are named after the test: `store.name("slow")`.

    `rejects` are the nodes (as the test knows them) for which nothing can be provisioned, `provides` ends all
    provisioning while it is False.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rejects: set[str] = set()
        self.provides = True
        self.provisioned: list[str] = []
        self._task = asyncio.create_task(self._play())

    async def __aenter__(self) -> Storage:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for item in await self.world.list(CLAIMS):
            await self._unprotect(CLAIMS.path(self.world.namespace, item["metadata"]["name"]))
        for item in await self.world.list(VOLUMES):
            if item["metadata"]["name"].startswith(self.world.name):
                await self._unprotect(VOLUMES.path(name=item["metadata"]["name"]))

    def name(self, short: str) -> str:
        return f"{self.world.name}-{short}"

    # making

    async def storage_class(self, short: str, *, provisioner: str = "csi.example.com", **fields: Any) -> Object:
        return await self.world.make(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": self.name(short)},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
                **fields,
            }
        )

    async def claim(self, name: str, short: str, size: str = GB, **spec: Any) -> Object:
        return await self.world.make(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": {
                    "storageClassName": self.name(short),
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": size}},
                    **spec,
                },
            }
        )

    async def volume(
        self,
        name: str,
        short: str,
        *,
        nodes: Collection[str] = (),
        size: str = GB,
        labels: Mapping[str, str] | None = None,
        handle: str = "",
        **spec: Any,
    ) -> Object:
        """A volume that only these nodes reach (all, if none is named); it is available at once."""
        source: Object = {"hostPath": {"path": f"/tmp/{name}"}}
        if handle:
            source = {"csi": {"driver": "csi.example.com", "volumeHandle": handle}}
        if nodes:
            spec["nodeAffinity"] = {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
                            ]
                        }
                    ]
                }
            }
        made = await self.world.make(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": self.name(name), "labels": dict(labels or {})},
                "spec": {
                    "storageClassName": self.name(short),
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": size},
                    **source,
                    **spec,
                },
            }
        )
        await self._status(VOLUMES.path(name=made["metadata"]["name"]), {"phase": "Available"})
        return made

    async def join(self, claim: str, volume: str) -> None:
        """Binds a claim to a volume, as the volume controller does."""
        path = CLAIMS.path(self.world.namespace, claim)
        found = await self.world.client.get(path)
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": self.world.namespace,
            "name": claim,
            "uid": found["metadata"]["uid"],
        }
        await self._merge(VOLUMES.path(name=volume), {"spec": {"claimRef": reference}})
        await self._status(VOLUMES.path(name=volume), {"phase": "Bound"})
        await self._merge(path, {"metadata": {"annotations": BOUND}, "spec": {"volumeName": volume}})
        await self._status(path, {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": GB}})

    # asking

    async def claims(self) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in await self.world.list(CLAIMS)}

    async def selected(self) -> dict[str, str]:
        """claim -> the node for which it is to be provisioned, as the test knows it."""
        return {
            name: (item["metadata"].get("annotations") or {}).get(SELECTED, "").removeprefix(f"{self.world.name}-")
            for name, item in (await self.claims()).items()
        }

    # playing

    async def _play(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                await self._once()
            await asyncio.sleep(0.02)

    async def _once(self) -> None:
        claims = [item for item in (await self.claims()).values() if not item["spec"].get("volumeName")]
        if not claims:
            return
        reserved = {
            item["spec"]["claimRef"]["uid"]: item["metadata"]["name"]
            for item in await self.world.list(VOLUMES)
            if (item["spec"].get("claimRef") or {}).get("uid")
        }
        for item in claims:
            metadata = item["metadata"]
            node = (metadata.get("annotations") or {}).get(SELECTED, "")
            if metadata["uid"] in reserved:
                await self.join(metadata["name"], reserved[metadata["uid"]])
            elif node.removeprefix(f"{self.world.name}-") in self.rejects:
                path = CLAIMS.path(self.world.namespace, metadata["name"])
                await self._merge(path, {"metadata": {"annotations": {SELECTED: None}}})
            elif node and self.provides:
                await self._provision(item, node.removeprefix(f"{self.world.name}-"))

    async def _provision(self, claim: Object, node: str) -> None:
        name = claim["metadata"]["name"]
        short = claim["spec"]["storageClassName"].removeprefix(f"{self.world.name}-")
        made = await self.volume(f"pvc-{name}", short, nodes=[node], handle=f"handle-{name}")
        self.provisioned.append(name)
        await self.join(name, made["metadata"]["name"])

    async def _merge(self, path: str, patch: Object) -> None:
        await self.world.client.patch(path, patch, PatchType.MERGE)

    async def _status(self, path: str, status: Object) -> None:
        await self.world.client.patch(f"{path}/status", {"status": status}, PatchType.MERGE)

    async def _unprotect(self, path: str) -> None:
        """Remove the protection finalizers: no controller here checks whether the volume is in use."""
        with contextlib.suppress(ApiError):
            await self._merge(path, {"metadata": {"finalizers": None}})


def uses(*claims: str) -> list[Object]:
    """The volumes of a pod that uses these claims."""
    return [
        {"name": f"data-{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)
    ]
