"""Volumes before pods: each claim is written once, in the end, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from phalanx.execution.preparation import PreparationError
from phalanx.execution.volume_binding import BOUND_BY_CONTROLLER, VolumeBinding
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.decisions import Bind
from phalanx.model.volumes import BindClaim

Object = dict[str, Any]

CLAIM = "/api/v1/namespaces/ns/persistentvolumeclaims/data"
VOLUME = "/api/v1/persistentvolumes/v"
NODE = "/api/v1/nodes/n1"
SELECTED = "volume.kubernetes.io/selected-node"
BIND = Bind("uid-p", "ns", "p", "n1")
STATIC = BindClaim("ns", "data", "n1", "v")
DYNAMIC = BindClaim("ns", "data", "n1")


class Api:
    """A few objects with revisions. The first of `before` is called before a patch, the first of `on_pause` at a
    pause.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.patches: list[tuple[str, Object]] = []
        self.before: list[Callable[[], None]] = []
        self.on_pause: list[Callable[[], None]] = []
        self.revision = 10
        self.put(NODE, {"metadata": {"name": "n1", "labels": {"zone": "a"}}})
        self.put(
            CLAIM,
            {
                "metadata": {"name": "data", "namespace": "ns", "uid": "u1"},
                "spec": {"storageClassName": "late", "resources": {"requests": {"storage": "1Gi"}}},
            },
        )
        self.put(VOLUME, {"metadata": {"name": "v"}, "spec": {"storageClassName": "late"}})

    def put(self, path: str, document: Object) -> None:
        self.revision += 1
        document["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[path] = document

    def change(self, path: str, patch: Object) -> None:
        found = json.loads(json.dumps(self.objects[path]))
        _merge(found, patch)
        self.put(path, found)

    def bind(self, volume: str = "v") -> None:
        """Bind the claim, as the volume controller does."""
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        self.change(CLAIM, {"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}})

    async def get(self, path: str) -> Any:
        found = self.objects.get(path.partition("?")[0])
        if found is None:
            raise ApiError(404, "NotFound", f"{path} not found", from_api_server=True)
        return json.loads(json.dumps(found))

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any:
        assert patch_type is PatchType.MERGE
        if self.before:
            self.before.pop(0)()
        current = self.objects[path]["metadata"]["resourceVersion"]
        if patch["metadata"].get("resourceVersion", current) != current:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.patches.append((path, patch))
        self.change(path, patch)
        return await self.get(path)

    async def pause(self, seconds: float) -> None:
        if self.on_pause:
            self.on_pause.pop(0)()
        await asyncio.sleep(0)


def _merge(target: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


@pytest.fixture
def api() -> Api:
    return Api()


async def prepare(api: Api, what: BindClaim, rejected: Callable[[str, str, str, int], None] | None = None) -> None:
    handler = VolumeBinding(api, rejected or (lambda namespace, storage_class, node, size: None), pause=api.pause)
    async with asyncio.timeout(5):
        await handler.prepare(BIND, what)


async def refusal(api: Api, what: BindClaim) -> str:
    with pytest.raises(PreparationError) as caught:
        await prepare(api, what)
    return str(caught.value)


async def test_chosen_volume_is_reserved_and_waited_for(api: Api) -> None:
    api.on_pause = [lambda: None, api.bind]
    await prepare(api, STATIC)
    ((path, patch),) = api.patches
    assert path == VOLUME
    assert patch["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "ns",
        "name": "data",
        "uid": "u1",
        "resourceVersion": "12",
    }
    assert patch["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}


async def test_claim_to_be_provisioned_gets_the_node_annotation_only(api: Api) -> None:
    api.on_pause = [lambda: None, api.bind]
    await prepare(api, DYNAMIC)
    ((path, patch),) = api.patches
    assert path == CLAIM
    del patch["metadata"]["resourceVersion"]
    assert patch == {"metadata": {"annotations": {SELECTED: "n1"}}}


@pytest.mark.parametrize("what", [STATIC, DYNAMIC])
async def test_writes_of_a_former_process_are_not_repeated(api: Api, what: BindClaim) -> None:
    api.on_pause = [api.bind]
    await prepare(api, what)
    api.patches.clear()
    await prepare(api, what)
    assert api.patches == []
    # Interrupted between the write and the binding.
    api.change(
        CLAIM,
        {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": None}}, "spec": {"volumeName": None}},
    )
    api.on_pause = [api.bind]
    await prepare(api, what)
    assert api.patches == []


@pytest.mark.parametrize(("what", "path"), [(STATIC, VOLUME), (DYNAMIC, CLAIM)])
async def test_concurrent_write_of_another_client_is_read_first(api: Api, what: BindClaim, path: str) -> None:
    api.before = [lambda: api.change(path, {"metadata": {"labels": {"x": "y"}}})]
    api.on_pause = [api.bind]
    await prepare(api, what)
    assert len(api.patches) == 1


async def test_volume_that_another_client_got_first_is_rejected(api: Api) -> None:
    theirs = {"namespace": "ns", "name": "other", "uid": "u2"}
    api.before = [lambda: api.change(VOLUME, {"spec": {"claimRef": theirs}})]
    assert await refusal(api, STATIC) == 'persistentvolume "v" belongs to claim ns/other now'


async def test_withdrawn_reservation_ends_the_wait(api: Api) -> None:
    api.on_pause = [lambda: api.change(VOLUME, {"spec": {"claimRef": None}})]
    assert await refusal(api, STATIC) == 'ClaimRef got reset for pv "v"'


async def test_removed_annotation_is_a_rejection_by_the_provisioner(api: Api) -> None:
    told = []
    api.on_pause = [lambda: None, lambda: api.change(CLAIM, {"metadata": {"annotations": {SELECTED: None}}})]
    with pytest.raises(PreparationError, match='provisioning failed for PVC "data"'):
        await prepare(api, DYNAMIC, lambda *what: told.append(what))
    assert told == [("ns", "late", "n1", 2**30)]


async def test_state_older_than_our_write_is_ignored(api: Api) -> None:
    """A cache behind the API can show the claim as before the annotation."""
    stale = json.loads(json.dumps(api.objects[CLAIM]))
    fresh: list[Object] = []

    def behind() -> None:
        fresh.append(api.objects[CLAIM])
        api.objects[CLAIM] = stale

    def up_to_date() -> None:
        api.objects[CLAIM] = fresh[0]
        api.bind()

    api.on_pause = [behind, lambda: None, up_to_date]
    await prepare(api, DYNAMIC)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "is being deleted"),
        ({"status": {"phase": "Lost"}, "spec": {"volumeName": "v"}}, "bound to non-existent persistentvolume"),
        ({"metadata": {"uid": "u2"}}, "was replaced by another of its name"),
    ],
)
async def test_changed_claim_ends_the_wait(api: Api, patch: Object, words: str) -> None:
    api.on_pause = [lambda: api.change(CLAIM, patch)]
    assert words in await refusal(api, DYNAMIC)


async def test_deleted_claim_ends_the_wait(api: Api) -> None:
    api.on_pause = [lambda: api.objects.__delitem__(CLAIM)]
    assert await refusal(api, DYNAMIC) == 'persistentvolumeclaim "data" not found'


async def test_volume_that_the_node_cannot_reach_is_rejected(api: Api) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    api.change(VOLUME, {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
    api.on_pause = [api.bind]
    assert await refusal(api, DYNAMIC) == 'pv "v" node affinity doesn\'t match node "n1"'
    term["matchExpressions"][0]["values"] = ["a"]
    api.change(VOLUME, {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
    await prepare(api, DYNAMIC)


async def test_unreachable_server_is_waited_for_by_volume_binding(api: Api) -> None:
    calls = 0
    inner = api.patch

    async def flaky(path: str, patch: Any, patch_type: PatchType) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionLost("cut off")
        if calls == 2:
            await inner(path, patch, patch_type)
            raise ApiError(500, "InternalError", "the answer was lost")
        return await inner(path, patch, patch_type)

    api.patch = flaky  # type: ignore[method-assign]
    api.on_pause = [lambda: None, lambda: None, lambda: None, api.bind]
    await prepare(api, DYNAMIC)
    assert len(api.patches) == 1


async def test_rejected_write_is_reported_as_answered(api: Api) -> None:
    async def forbidden(path: str, patch: Any, patch_type: PatchType) -> Any:
        raise ApiError(403, "Forbidden", "no patch for you")

    api.patch = forbidden  # type: ignore[method-assign]
    assert "no patch for you" in await refusal(api, DYNAMIC)


async def test_undo_resets_only_a_claim_that_still_waits_for_its_node(api: Api) -> None:
    handler = VolumeBinding(api, pause=api.pause)
    api.change(CLAIM, {"metadata": {"annotations": {SELECTED: "n1"}}})
    await handler.undo(BIND, STATIC)
    await handler.undo(BIND, BindClaim("ns", "data", "n2"))
    assert api.patches == []
    await handler.undo(BIND, DYNAMIC)
    assert api.objects[CLAIM]["metadata"]["annotations"] == {}
    api.change(CLAIM, {"metadata": {"annotations": {SELECTED: "n1"}}, "spec": {"volumeName": "v"}})
    await handler.undo(BIND, DYNAMIC)
    assert len(api.patches) == 1


async def test_claims_of_one_namespace_are_read_together(api: Api) -> None:
    listed = 0
    names = [f"data-{at}" for at in range(5)]
    root = CLAIM.removesuffix("/data")
    for name in names:
        api.put(
            f"{root}/{name}",
            {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"storageClassName": "late"}},
        )

    inner = api.get

    async def get(path: str) -> Any:
        nonlocal listed
        if path == f"{root}?resourceVersion=0":
            listed += 1
            return {"items": [await inner(f"{root}/{name}") for name in names]}
        return await inner(path)

    def all_bound() -> None:
        annotations = {"pv.kubernetes.io/bind-completed": "yes"}
        for name in names:
            api.change(f"{root}/{name}", {"metadata": {"annotations": annotations}, "spec": {"volumeName": "v"}})

    api.get = get  # type: ignore[method-assign]
    api.on_pause = [lambda: None, lambda: None, all_bound]
    handler = VolumeBinding(api, pause=api.pause)
    async with asyncio.timeout(5):
        await asyncio.gather(*(handler.prepare(BIND, BindClaim("ns", name, "n1")) for name in names))
    assert 1 <= listed <= 4


async def test_delayed_claim_is_described_with_its_provisioner(api: Api) -> None:
    handler = VolumeBinding(api)
    assert await handler.awaited(DYNAMIC) == "claim data, which a provisioner has to provision"
    api.put(
        "/apis/storage.k8s.io/v1/storageclasses/late",
        {"metadata": {"name": "late"}, "provisioner": "example.com/x"},
    )
    assert await handler.awaited(DYNAMIC) == "claim data, which example.com/x has to provision"
    assert await handler.awaited(STATIC) == "claim data, which the volume controller has to bind to volume v"
    api.bind()
    assert await handler.awaited(DYNAMIC) == ""
    del api.objects[CLAIM]
    assert await handler.awaited(DYNAMIC) == ""
