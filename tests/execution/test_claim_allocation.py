"""Claims before pods: writes, their order, and their rollback."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from phalanx.execution.claim_allocation import FINALIZER, ClaimAllocation
from phalanx.execution.preparation import PreparationError
from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.decisions import Bind
from phalanx.model.devices.claims import AllocateClaim

Wire = dict[str, Any]

PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
RESULT = {"request": "gpu", "driver": "d.example.com", "pool": "n", "device": "gpu-0"}
ALLOCATION: Wire = {"devices": {"results": [RESULT]}}
BIND = Bind("uid-p", "default", "p", "n")


def wanted(pod: str = "p", **more: Any) -> AllocateClaim:
    fields: Wire = {"allocation": json.dumps(ALLOCATION), **more}
    return AllocateClaim("default", "c", "uid-c", pod, f"uid-{pod}", **fields)


def consumer(pod: str = "p") -> Wire:
    return {"resource": "pods", "name": pod, "uid": f"uid-{pod}"}


class Api:
    """One claim; `interfere` runs before each write, `failures` are raised one by one."""

    def __init__(self, **status: Any) -> None:
        self.claim: Wire | None = {
            "metadata": {"name": "c", "uid": "uid-c", "resourceVersion": "1"},
            "status": status,
        }
        self.log: list[str] = []
        self.failures: list[Exception] = []
        self.interfere: Callable[[], None] = lambda: None
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None
        self.conflicts = 0

    @property
    def handler(self) -> ClaimAllocation:
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            self.on_pause()

        return ClaimAllocation(self, pause=pause, now=lambda: 1_900_000_000.0)

    @property
    def status(self) -> Wire:
        assert self.claim is not None
        found: Wire = self.claim["status"]
        return found

    def touch(self, **status: Any) -> None:
        """Write as another client."""
        assert self.claim is not None
        self.claim["status"] |= status
        self.claim["metadata"]["resourceVersion"] = str(int(self.claim["metadata"]["resourceVersion"]) + 1)

    async def get(self, path: str) -> Any:
        assert path == PATH
        self._fail()
        if self.claim is None:
            raise ApiError(404, "NotFound", "no such claim")
        return copy.deepcopy(self.claim)

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any:
        assert patch_type is PatchType.MERGE
        interfere, self.interfere = self.interfere, lambda: None
        interfere()
        self._fail()
        await asyncio.sleep(0)
        assert self.claim is not None
        if patch["metadata"]["resourceVersion"] != self.claim["metadata"]["resourceVersion"]:
            self.conflicts += 1
            raise ApiError(409, "Conflict", "changed meanwhile")
        self.touch()
        if path == PATH:
            self.log.append("finalizers")
            self.claim["metadata"]["finalizers"] = patch["metadata"]["finalizers"]
        else:
            assert path == f"{PATH}/status"
            self.log.append("+".join(sorted(patch["status"])))
            for key, value in patch["status"].items():
                self.claim["status"][key] = value
                if value is None:
                    del self.claim["status"][key]
        return copy.deepcopy(self.claim)

    async def create(self, path: str, obj: Any) -> Any:
        raise AssertionError(f"nobody creates {path}")

    async def delete(self, path: str, *, uid: str | None = None) -> Any:
        raise AssertionError(f"nobody deletes {path}")

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


class Making(Api):
    """Server without a claim until one is created; `told` is the claim status of the pod."""

    def __init__(self) -> None:
        super().__init__()
        self.claim = None
        self.told: Wire = {}

    async def create(self, path: str, obj: Any) -> Any:
        assert path == PATH.rpartition("/")[0]
        self.log.append("create")
        self.claim = copy.deepcopy(obj)
        self.claim["metadata"] |= {"name": "c", "uid": "uid-c", "resourceVersion": "1"}
        self.claim["status"] = {}
        return copy.deepcopy(self.claim)

    async def patch(self, path: str, patch: Any, patch_type: PatchType) -> Any:
        if path != "/api/v1/namespaces/default/pods/p/status":
            return await super().patch(path, patch, patch_type)
        assert patch_type is PatchType.STRATEGIC
        assert patch["metadata"] == {"uid": "uid-p"}
        self.log.append("told")
        self.told = patch["status"]["extendedResourceClaimStatus"]
        return {}

    async def delete(self, path: str, *, uid: str | None = None) -> Any:
        assert (path, uid) == (PATH, "uid-c")
        self.log.append("delete")
        self.claim = None


MAPPING = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}


def special() -> AllocateClaim:
    return AllocateClaim(
        "default",
        "for extended resources of pod p",
        "",
        "p",
        "uid-p",
        allocation=json.dumps(ALLOCATION),
        create=json.dumps({"devices": {"requests": []}}),
        mappings=json.dumps([MAPPING]),
    )


async def test_claim_for_extended_resources_is_created_for_its_pod_and_written_to_its_status() -> None:
    api = Making()
    await api.handler.prepare(BIND, special())
    assert api.log == ["create", "finalizers", "allocation+reservedFor", "told"]
    assert api.claim is not None
    metadata = api.claim["metadata"]
    assert metadata["generateName"] == "p-extended-resources-"
    assert metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert [(owner["uid"], owner["controller"]) for owner in metadata["ownerReferences"]] == [("uid-p", True)]
    assert api.status["reservedFor"] == [consumer()]
    assert api.told == {"requestMappings": [MAPPING], "resourceClaimName": "c"}


async def test_claim_that_was_created_in_vain_is_deleted() -> None:
    api = Making()
    handler = api.handler
    await handler.prepare(BIND, special())
    api.log.clear()
    await handler.undo(BIND, special())
    assert api.log == ["finalizers", "delete"]
    await handler.undo(BIND, special())
    assert api.log == ["finalizers", "delete"]


async def test_claim_gets_its_finalizer_before_it_is_allocated() -> None:
    api = Api()
    await api.handler.prepare(BIND, wanted())
    assert api.log == ["finalizers", "allocation+reservedFor"]
    assert api.claim is not None
    assert api.claim["metadata"]["finalizers"] == [FINALIZER]
    assert api.status["allocation"]["devices"] == ALLOCATION["devices"]
    assert api.status["allocation"]["allocationTimestamp"] == "2030-03-17T17:46:40Z"
    assert api.status["reservedFor"] == [consumer()]


async def test_repeated_allocation_writes_nothing() -> None:
    api = Api()
    await api.handler.prepare(BIND, wanted())
    api.log.clear()
    await api.handler.prepare(BIND, wanted())
    assert api.log == []


async def test_claim_with_a_concurrent_write_is_read_again() -> None:
    api = Api()
    api.interfere = lambda: api.touch(allocation=ALLOCATION, reservedFor=[consumer("other")])
    await api.handler.prepare(BIND, wanted())
    assert api.status["reservedFor"] == [consumer("other"), consumer()]


async def test_claim_with_other_devices_rejects_the_pod() -> None:
    other = {"devices": {"results": [{**RESULT, "device": "gpu-7"}]}}
    api = Api()
    api.interfere = lambda: api.touch(allocation=other, reservedFor=[consumer("other")])
    with pytest.raises(PreparationError, match="resource claim c has other devices now"):
        await api.handler.prepare(BIND, wanted())
    assert api.status["reservedFor"] == [consumer("other")]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"uid": "uid-new"}, "replaced by another"),
        ({"deletionTimestamp": "2030-01-01T00:00:00Z"}, "is being deleted"),
    ],
)
async def test_replaced_claim_rejects_the_pod(change: Wire, complaint: str) -> None:
    api = Api()
    assert api.claim is not None
    api.claim["metadata"] |= change
    with pytest.raises(PreparationError, match=complaint):
        await api.handler.prepare(BIND, wanted())


async def test_deleted_claim_rejects_the_pod() -> None:
    api = Api()
    api.claim = None
    with pytest.raises(PreparationError, match="resource claim c does not exist any more"):
        await api.handler.prepare(BIND, wanted())
    await api.handler.undo(BIND, wanted())


async def test_claim_that_lost_its_devices_rejects_the_pod() -> None:
    with pytest.raises(PreparationError, match="has lost its devices"):
        await Api().handler.prepare(BIND, wanted(allocation=""))


async def test_257th_consumer_of_a_claim_is_rejected() -> None:
    api = Api(allocation=ALLOCATION, reservedFor=[consumer(f"o{number}") for number in range(256)])
    with pytest.raises(PreparationError, match="the maximum number of consumers"):
        await api.handler.prepare(BIND, wanted(allocation=""))


async def test_busy_server_is_retried() -> None:
    api = Api()
    api.failures = [ConnectionLost("no answer"), ApiError(503, "ServiceUnavailable", "starting")]
    await api.handler.prepare(BIND, wanted())
    assert len(api.pauses) == 2
    assert api.status["reservedFor"] == [consumer()]


async def test_rejection_quotes_the_server() -> None:
    api = Api()
    api.failures = [ApiError(403, "Forbidden", "not allowed to bind")]
    with pytest.raises(PreparationError, match="not allowed to bind"):
        await api.handler.prepare(BIND, wanted())


async def test_our_allocation_is_rolled_back() -> None:
    api = Api()
    handler = api.handler
    await handler.prepare(BIND, wanted())
    await handler.undo(BIND, wanted())
    assert api.status == {}


async def test_allocation_with_other_consumers_is_not_rolled_back() -> None:
    api = Api()
    handler = api.handler
    await handler.prepare(BIND, wanted())
    await handler.prepare(BIND, wanted("q"))
    await handler.undo(BIND, wanted())
    assert api.status["reservedFor"] == [consumer("q")]
    assert api.status["allocation"]["devices"] == ALLOCATION["devices"]
    await handler.undo(BIND, wanted("q"))
    assert api.status == {}


async def test_allocation_by_another_client_is_not_rolled_back() -> None:
    api = Api(allocation=ALLOCATION)
    handler = api.handler
    await handler.prepare(BIND, wanted(allocation=""))
    await handler.undo(BIND, wanted(allocation=""))
    assert api.status == {"allocation": ALLOCATION}


async def test_group_is_one_consumer_until_its_last_member_is_rolled_back() -> None:
    api = Api()
    handler = api.handler
    members = [wanted(name, group="g", group_uid="uid-g") for name in ("p", "q")]
    for member in members:
        await handler.prepare(BIND, member)
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
    assert api.status["reservedFor"] == [group]
    await handler.undo(BIND, members[0])
    assert api.status["reservedFor"] == [group]
    await handler.undo(BIND, members[1])
    assert api.status == {}


async def test_new_process_does_not_roll_back_an_allocation_that_a_group_can_use() -> None:
    api = Api()
    member = wanted(group="g", group_uid="uid-g")
    await api.handler.prepare(BIND, member)
    await api.handler.undo(BIND, member)
    assert "allocation" in api.status


def ready(kind: str, status: str = "True") -> list[Wire]:
    device = {key: RESULT[key] for key in ("driver", "pool", "device")}
    return [{**device, "conditions": [{"type": kind, "status": status, "message": "no link"}]}]


async def test_devices_in_preparation_are_waited_for() -> None:
    api = Api()
    slow = {**RESULT, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    api.on_pause = lambda: api.touch(devices=ready("Attached", "True" if len(api.pauses) > 2 else "False"))
    allocation = json.dumps({"devices": {"results": [slow]}})
    await api.handler.prepare(BIND, wanted(allocation=allocation, conditions=True))
    assert api.pauses == [0.1, 0.2, 0.5]


async def test_devices_whose_preparation_failed_reject_the_pod() -> None:
    api = Api()
    slow = {**RESULT, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    api.on_pause = lambda: api.touch(devices=ready("Broken"))
    with pytest.raises(PreparationError, match="device gpu-0: Broken: no link"):
        await api.handler.prepare(
            BIND, wanted(allocation=json.dumps({"devices": {"results": [slow]}}), conditions=True)
        )


async def test_pods_that_share_a_claim_are_allocated_concurrently() -> None:
    api = Api(allocation=ALLOCATION)
    handler = api.handler
    pods = [f"p{number}" for number in range(50)]
    await asyncio.gather(*(handler.prepare(BIND, wanted(pod, allocation="")) for pod in pods))
    assert api.status["reservedFor"] == [consumer(pod) for pod in pods]
    assert api.log == ["finalizers"] + ["reservedFor"] * 50
    assert api.conflicts == 0
