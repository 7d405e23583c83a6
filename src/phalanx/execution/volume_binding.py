"""Volume binding before pod binding: PersistentVolumeClaims get existing or provisioned volumes.

As in kube-scheduler 1.36 (volumebinding/binder.go): a selected volume gets a `claimRef`, a claim to be provisioned
gets the annotation `volume.kubernetes.io/selected-node`; the volume controllers do the rest. A provisioner that
removes the annotation has rejected the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from phalanx.dialects.storage.storage_objects import (
    SELECTED_NODE,
    StoredVolume,
    VolumeClaimObject,
    read_claim,
    read_volume,
)
from phalanx.execution.persistence import persist
from phalanx.execution.preparation import PreparationError
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import NODES
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.decisions import Bind
from phalanx.model.matching import reaches
from phalanx.model.preparations import Preparation
from phalanx.model.text.decoding import parse_whole
from phalanx.model.volumes import BindClaim

log = logging.getLogger(__name__)

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"

# Intervals between reads of claims; the last one repeats (seconds).
_LOOKS = (0.1, 0.2, 0.4, 0.8, 1.0)
_NOT_FOUND, _CONFLICT = 404, 409
# Status codes of an overloaded or starting server.
_PASSING = (429, 500, 502, 503, 504)

T = TypeVar("T")


class VolumeClient(Protocol):
    async def get(self, path: str) -> Any: ...

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any: ...


class VolumeBinding:
    """Executor of the preparation `BindClaim`. All its state is in the API, so a restart continues from there.

    Claims of one namespace are read together. `rejected(storage class, node, bytes)` is called when a provisioner
    rejects a node. `pause` waits for some seconds.
    """

    def __init__(
        self,
        client: VolumeClient,
        rejected: Callable[[str, str, str, int], None] = lambda namespace, storage_class, node, size: None,
        *,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._rejected = rejected
        self._pause = pause
        self._waiting: dict[str, dict[str, asyncio.Future[Mapping[str, Any] | None]]] = {}
        self._lookers: dict[str, asyncio.Task[None]] = {}

    async def prepare(self, bind: Bind, preparation: Preparation) -> None:
        assert isinstance(preparation, BindClaim)
        document = await self._document(CLAIMS.path(preparation.namespace, preparation.name))
        claim = _usable(preparation, document)
        if not claim.bound:
            written = await (
                self._reserve(preparation, claim, document)
                if preparation.volume
                else self._select(preparation, claim, document)
            )
            claim = await self._bound(preparation, claim.uid, written)
        await self._check_reach(preparation, claim)

    async def undo(self, bind: Bind, preparation: Preparation) -> None:
        """Remove the selected node of a PersistentVolumeClaim that is not provisioned yet, so that its pod can use
        another node. A reserved volume stays reserved: the volume controller may have bound it already."""
        assert isinstance(preparation, BindClaim)
        if preparation.volume:
            return
        document = await self._document(CLAIMS.path(preparation.namespace, preparation.name))
        if document is None:
            return
        claim = read_claim(document)
        if not claim.volume and claim.node == preparation.node:
            await self._annotate(preparation, document, None)

    async def awaited(self, preparation: Preparation) -> str:
        """Return the claim, and the provisioner or controller that has to complete it."""
        assert isinstance(preparation, BindClaim)
        name = preparation.name
        if preparation.volume:
            return f"claim {name}, which the volume controller has to bind to volume {preparation.volume}"
        document = await self._document(CLAIMS.path(preparation.namespace, name))
        if document is None:
            return ""
        claim = read_claim(document)
        if claim.bound:
            return ""
        found = await self._document(_CLASSES.path(name=claim.storage_class)) if claim.storage_class else None
        provisioner = (found or {}).get("provisioner") or "a provisioner"
        return f"claim {name}, which {provisioner} has to provision"

    # writes

    async def _reserve(self, wanted: BindClaim, claim: VolumeClaimObject, document: Mapping[str, Any]) -> int:
        """Write the PersistentVolumeClaim into the claimRef of the selected volume. Return 0, because the claim is
        not written."""
        path = VOLUMES.path(name=wanted.volume)
        while True:
            found = await self._document(path)
            volume = _free(wanted, claim, found)
            assert found is not None
            if volume.claim_uid == claim.uid:
                return 0
            metadata = document["metadata"]
            patch: dict[str, Any] = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": claim.namespace,
                        "name": claim.name,
                        "uid": claim.uid,
                        "resourceVersion": metadata.get("resourceVersion", ""),
                    }
                },
            }
            if not volume.claim:
                patch["metadata"]["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
            if await self._patch(path, patch) is not None:
                return 0

    async def _select(self, wanted: BindClaim, claim: VolumeClaimObject, document: Mapping[str, Any]) -> int:
        """Write the selected node to the PersistentVolumeClaim. Return the revision of the written claim."""
        while claim.node != wanted.node:
            if claim.node:
                raise PreparationError(
                    f'persistentvolumeclaim "{claim.name}" is being provisioned for node {claim.node}'
                )
            written = await self._annotate(wanted, document, wanted.node)
            if written is not None:
                return _revision(written)
            found = await self._document(CLAIMS.path(wanted.namespace, wanted.name))
            claim = _usable(wanted, found, claim.uid)
            assert found is not None
            document = found
        return _revision(document)

    async def _annotate(self, wanted: BindClaim, document: Mapping[str, Any], node: str | None) -> Any:
        metadata = {
            "resourceVersion": document["metadata"]["resourceVersion"],
            "annotations": {SELECTED_NODE: node},
        }
        return await self._patch(CLAIMS.path(wanted.namespace, wanted.name), {"metadata": metadata})

    async def _patch(self, path: str, patch: Mapping[str, Any]) -> Any:
        """Patch an object and return it; None after a conflict with another writer."""
        try:
            return await persist(lambda: self._client.patch(path, patch, PatchType.MERGE), self._pause)
        except ApiError as error:
            if error.status == _CONFLICT:
                return None
            raise PreparationError(f"{path}: {error}") from error

    # reads

    async def _document(self, path: str) -> Any:
        """Return an object of the API; None if it does not exist."""
        try:
            return await persist(lambda: self._client.get(path), self._pause)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise PreparationError(f"{path}: {error}") from error

    async def _bound(self, wanted: BindClaim, uid: str, since: int) -> VolumeClaimObject:
        """Wait until the PersistentVolumeClaim is bound and return it. Reads older than revision `since` are
        ignored."""
        while True:
            document = await self._next_look(wanted)
            if document is not None and _revision(document) < since:
                continue
            claim = _usable(wanted, document, uid)
            if not wanted.volume and not claim.volume and claim.node != wanted.node:
                if not claim.node:
                    self._rejected(wanted.namespace, claim.storage_class, wanted.node, claim.size)
                raise PreparationError(f'provisioning failed for PVC "{claim.name}"')
            if claim.bound:
                return claim
            if wanted.volume:
                found = await self._document(VOLUMES.path(name=wanted.volume))
                if _free(wanted, claim, found).claim_uid != uid:
                    raise PreparationError(f'ClaimRef got reset for pv "{wanted.volume}"')

    async def _check_reach(self, wanted: BindClaim, claim: VolumeClaimObject) -> None:
        """Raise PreparationError if the node cannot reach the volume that was provisioned for the claim."""
        found = await self._document(VOLUMES.path(name=claim.volume))
        if found is None:
            raise PreparationError(f'pv "{claim.volume}" of persistentvolumeclaim "{claim.name}" does not exist')
        affinity = read_volume(found).spec.affinity
        if affinity is None:
            return
        node = await self._document(NODES.path(name=wanted.node))
        if node is None:
            raise PreparationError(f"node {wanted.node} does not exist")
        if not reaches(affinity, node["metadata"].get("labels") or {}):
            raise PreparationError(f'pv "{claim.volume}" node affinity doesn\'t match node "{wanted.node}"')

    def _next_look(self, wanted: BindClaim) -> asyncio.Future[Mapping[str, Any] | None]:
        """Return the PersistentVolumeClaim as of the next read of its namespace."""
        here = self._waiting.setdefault(wanted.namespace, {})
        answer = here.get(wanted.name)
        if answer is None or answer.done():
            answer = here[wanted.name] = asyncio.get_running_loop().create_future()
        if wanted.namespace not in self._lookers:
            self._lookers[wanted.namespace] = asyncio.create_task(self._look(wanted.namespace))
        return answer

    async def _look(self, namespace: str) -> None:
        """Read the PersistentVolumeClaims of a namespace repeatedly while a preparation waits for one of them."""
        here, looks = self._waiting[namespace], 0
        try:
            while here:
                await self._pause(_LOOKS[min(looks, len(_LOOKS) - 1)])
                looks += 1
                waiting = dict(here)
                here.clear()
                try:
                    if len(waiting) == 1:
                        (name,) = waiting
                        found = {name: await self._document(CLAIMS.path(namespace, name))}
                    else:
                        listed = await self._document(f"{CLAIMS.path(namespace)}?resourceVersion=0")
                        found = {item["metadata"]["name"]: item for item in (listed or {}).get("items") or ()}
                except PreparationError as error:
                    for answer in waiting.values():
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                for name, answer in waiting.items():
                    if not answer.done():
                        answer.set_result(found.get(name))
                await asyncio.sleep(0)  # unfinished preparations register again
        finally:
            del self._lookers[namespace]


def _usable(wanted: BindClaim, document: Mapping[str, Any] | None, uid: str = "") -> VolumeClaimObject:
    """Return the PersistentVolumeClaim if it can be bound for its pod, otherwise raise PreparationError. `uid` is
    the prepared claim's."""
    if document is None:
        raise PreparationError(f'persistentvolumeclaim "{wanted.name}" not found')
    claim = read_claim(document)
    if uid and claim.uid != uid:
        raise PreparationError(f'persistentvolumeclaim "{wanted.name}" was replaced by another of its name')
    if claim.lost:
        raise PreparationError(
            f'persistentvolumeclaim "{wanted.name}" bound to non-existent persistentvolume "{claim.volume}"'
        )
    if claim.deleting:
        raise PreparationError(f'persistentvolumeclaim "{wanted.name}" is being deleted')
    return claim


def _free(wanted: BindClaim, claim: VolumeClaimObject, document: Mapping[str, Any] | None) -> StoredVolume:
    """Return the selected volume if it is free or reserved for the claim, otherwise raise PreparationError."""
    if document is None:
        raise PreparationError(f'persistentvolume "{wanted.volume}" not found')
    volume = read_volume(document)
    if volume.deleting:
        raise PreparationError(f'persistentvolume "{wanted.volume}" is being deleted')
    if volume.claim and (volume.claim != claim.key or volume.claim_uid not in ("", claim.uid)):
        raise PreparationError(f'persistentvolume "{wanted.volume}" belongs to claim {volume.claim} now')
    return volume


def _revision(document: Mapping[str, Any]) -> int:
    return parse_whole(str(document["metadata"].get("resourceVersion") or ""), 0) or 0
