"""Quota reservations of a group before its pods exist: granted whole, defended, released."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from phalanx.admission.quota_reservations import QuotaReservationCheck
from phalanx.controllers.groups.quota_reservations import QuotaReservationController
from phalanx.dialects.registry import BUILT_IN, Dialects
from phalanx.jobs.reservations import ReservationLedger, read_ledger
from phalanx.kube.errors import ApiError, ConnectionLost
from tests.controllers.api import Json, Killed, MemoryApi, context
from tests.controllers.quotas import Quotas

GROUPS, PODS = "scheduling.x-k8s.io/v1alpha1/podgroups", "v1/pods"
DESIGN_GROUPS = "incubator.scheduling.k8s.io/v1alpha1/podgroups"
LEDGER = "phalanx-quota-default"


class ReservationWorld:
    """Namespace `default` with a quota of 10 pods and cpus. Pods are created through the check."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.api = MemoryApi()
        self.quotas = Quotas(self.api)
        self.quotas.set("team", {"pods": "10", "requests.cpu": "10"})
        labels = {"phalanx.dev/quota-reservation": "enabled"} if enabled else {}
        self.api.apply("v1/namespaces", {"metadata": {"name": "default", "labels": labels}}, namespace="")
        self.deaths = 0
        self.reviews = 0
        self.dialects = Dialects(BUILT_IN)
        self.check = QuotaReservationCheck(
            self.api,  # type: ignore[arg-type]
            "kube-system",
            self.dialects.declarations,
            lambda: float(self.api.now),
        )
        self._start()

    def _start(self) -> None:
        self.controller = QuotaReservationController(context(self.api), self.dialects)
        self.api.list_into(self.controller)

    def group(self, name: str, pods: int, *, at: int = 0, **spec: Any) -> None:
        notes = {"phalanx.dev/total-resources": f'{{"pods": "{pods}", "cpu": {pods}}}'}
        metadata = {"name": name, "annotations": notes, "creationTimestamp": f"2026-01-01T00:00:{at:02}Z"}
        self.api.apply(GROUPS, {"metadata": metadata, "spec": {"minMember": pods, **spec}})

    async def pod(self, name: str, gang: str = "", cpu: int = 1) -> str:
        """Why it was refused, "" if it was created."""
        labels = {"scheduling.x-k8s.io/pod-group": gang} if gang else {}
        containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}}
        self.reviews += 1
        refusal = await self.check.refusal("default", f"review-{self.reviews}", body)
        if refusal:
            return refusal
        try:
            await self.api.create("/api/v1/namespaces/default/pods", body)
        except ApiError as error:
            return error.message
        return ""

    async def settle(self) -> None:
        for _ in range(100):
            before = self.deaths, len(self.api.writes), copy.deepcopy(self.api.objects)
            try:
                while self.api.deliver(self.controller):
                    pass
                with contextlib.suppress(ApiError):
                    await self.controller.reconcile("default")
            except Killed:
                self.deaths += 1
                self.api.dies_at = None
                self._start()
            self.quotas.recount()
            if before == (self.deaths, len(self.api.writes), self.api.objects):
                return
        raise AssertionError(f"never at rest: {self.api.writes[-8:]}")

    async def pass_time(self, seconds: int) -> None:
        self.api.now += seconds
        await self.settle()

    def reserved(self, name: str, collection: str = GROUPS) -> str:
        notes = self.api.get_object(collection, name)["metadata"].get("annotations", {})
        return str(notes.get("phalanx.dev/quota-reserved", ""))

    def ledger(self) -> ReservationLedger:
        return read_ledger(self.api.objects.get(("v1/configmaps", "kube-system", LEDGER)))


async def test_reserved_quota_is_refused_to_foreign_pods_and_granted_to_members() -> None:
    world = ReservationWorld()
    world.group("g", 8)
    await world.settle()
    assert world.reserved("g") == "False: the quota is being reserved"
    await world.pass_time(2)
    assert world.reserved("g") == "True"
    assert await world.pod("o-0") == ""
    assert await world.pod("o-1") == ""
    said = await world.pod("o-2")
    assert said == (
        "exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=10, "
        "of which pods=8 is reserved for the pods of g"
    )
    for index in range(8):
        assert await world.pod(f"g-{index}", "g") == ""
        await world.settle()
    assert world.ledger().groups != {}
    assert await world.pod("g-8", "g") == (
        "exceeded quota: team, requested: pods=1, used: pods=?, limited: pods=10"
    ), "beyond its total a member is one of many"


async def test_quota_that_is_reserved_within_seconds_is_no_warning() -> None:
    world = ReservationWorld()
    world.group("g", 8)
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("g") == "True"
    await world.pass_time(60)
    assert [reason for _, reason, _ in world.api.events] == ["QuotaReserved"]


async def test_quota_that_stays_unreserved_is_one_warning_after_some_seconds() -> None:
    world = ReservationWorld()
    world.group("g", 80)
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("g").startswith("False: ")
    assert world.api.events == []
    for _ in range(3):
        await world.pass_time(6)
    assert [(name, reason) for name, reason, _ in world.api.events] == [("g", "QuotaNotReserved")]


async def test_only_one_of_two_simultaneous_pods_gets_the_last_room() -> None:
    world = ReservationWorld()
    world.group("g", 9)
    await world.pass_time(0)
    await world.pass_time(2)
    pod = {"metadata": {"name": "o"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
    first = await world.check.refusal("default", "one", pod)
    second = await world.check.refusal("default", "two", pod)
    assert first == ""
    assert "is reserved for the pods of g" in second
    world.api.now += 5
    assert await world.check.refusal("default", "three", pod) == "", "the first one never came"


async def test_all_or_nothing_and_the_older_group_first() -> None:
    world = ReservationWorld()
    for index in range(4):
        await world.pod(f"o-{index}")
    world.group("giant", 11, at=1)
    world.group("older", 7, at=2)
    world.group("younger", 2, at=3)
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("giant") == "False: quota team lacks 5 pods: all members request 11, 6 left (limit 10)"
    assert world.reserved("older") == "False: quota team lacks 1 pods: all members request 7, 6 left (limit 10)"
    assert world.reserved("younger") == "False: older is older and waits for the same quota"
    assert await world.pod("o-4") == "", "nothing is held of what is not granted"
    world.api.erase(PODS, "o-0")
    world.api.erase(PODS, "o-1")
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("older") == "True"


async def test_reservation_is_released_when_the_group_ends_is_deleted_or_gets_no_pods() -> None:
    for end in ("deleted", "finished", "expired"):
        world = ReservationWorld()
        world.group("g", 10)
        await world.settle()
        await world.pass_time(2)
        assert await world.pod("o") != ""
        if end == "deleted":
            world.api.erase(GROUPS, "g")
            await world.settle()
        elif end == "finished":
            world.api.update(GROUPS, "g", lambda group: group.update(status={"phase": "Finished"}))
            await world.settle()
        else:
            await world.pass_time(597)
            assert await world.pod("o") != ""
            await world.pass_time(3)
            assert world.reserved("g") == "False: no member within 10 minutes"
        assert await world.pod("o") == "", end
        before = len(world.api.writes)
        await world.pass_time(1000)
        assert len(world.api.writes) == before


async def test_group_with_existing_members_reserves_only_the_difference() -> None:
    world = ReservationWorld()
    for index in range(3):
        await world.pod(f"g-{index}", "g")
    world.group("g", 8)
    await world.settle()
    await world.pass_time(2)
    assert next(iter(world.ledger().groups.values())).outstanding == {"team": {"pods": "5", "requests.cpu": "5"}}


async def test_kube_batch_states_it_in_its_own_field() -> None:
    world = ReservationWorld()
    spec = {"minMembers": 4, "totalResources": {"cpu": "4", "pods": "4"}}
    world.api.apply(DESIGN_GROUPS, {"metadata": {"name": "k"}, "spec": spec})
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("k", DESIGN_GROUPS) == "True"


async def test_claim_overtaken_by_a_pod_is_not_reported_as_reserved() -> None:
    """A pod that was admitted before the claim was written shows in the quota only after it."""
    world = ReservationWorld()
    world.group("g", 10)
    await world.settle()
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    world.api.apply(
        PODS, {"metadata": {"name": "fast"}, "spec": {"containers": containers}, "status": {"phase": "Pending"}}
    )
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("g").startswith("False: quota team lacks 1 pods")
    assert world.ledger().groups == {}


async def test_a_total_that_cannot_be_read_is_named() -> None:
    world = ReservationWorld()
    world.group("g", 2)
    notes = {"phalanx.dev/total-resources": '{"cpu": "many"}'}
    world.api.update(GROUPS, "g", lambda group: group["metadata"].update(annotations=notes))
    await world.settle()
    assert world.reserved("g") == (
        "False: annotation phalanx.dev/total-resources cannot be read; "
        'write amounts such as {"pods": "4", "cpu": "8"}'
    )


async def test_namespaces_that_do_not_opt_in_have_no_ledger_and_one_that_leaves_loses_it() -> None:
    world = ReservationWorld(enabled=False)
    world.group("g", 10)
    await world.settle()
    assert world.reserved("g") == ""
    assert await world.pod("o") == ""
    world = ReservationWorld()
    world.group("g", 10)
    await world.settle()
    world.api.apply("v1/namespaces", {"metadata": {"name": "default"}}, namespace="")
    await world.settle()
    assert ("v1/configmaps", "kube-system", LEDGER) not in world.api.objects
    assert await world.pod("o") == ""


async def test_pod_is_admitted_when_the_reservations_cannot_be_read() -> None:
    world = ReservationWorld()
    world.group("g", 10)
    await world.settle()

    async def fail(path: str) -> Json:
        raise ConnectionLost("no answer")

    world.api.get = fail  # type: ignore[method-assign]
    assert await world.check.refusal("default", "r", {"metadata": {"name": "o"}, "spec": {}}) == ""


async def test_corrupt_ledger_is_rebuilt() -> None:
    world = ReservationWorld()
    world.group("g", 10)
    await world.settle()
    world.api.update("v1/configmaps", LEDGER, lambda it: it.update(data={"ledger": "{"}), namespace="kube-system")
    assert await world.pod("early") == "", "fails open"
    world.api.erase(PODS, "early")
    await world.settle()
    await world.pass_time(2)
    assert world.reserved("g") == "True"


Story = Callable[[ReservationWorld], Awaitable[None]]


async def granted(world: ReservationWorld) -> None:
    world.group("g", 6, at=1)
    world.group("h", 6, at=2)
    await world.settle()
    await world.pass_time(2)
    await world.pass_time(2)


async def used_up(world: ReservationWorld) -> None:
    await granted(world)
    for index in range(2):
        with contextlib.suppress(Killed):
            await world.pod(f"g-{index}", "g")
        await world.settle()
    world.api.erase(GROUPS, "g")
    await world.settle()
    await world.pass_time(2)
    await world.pass_time(2)


@pytest.mark.parametrize("story", [granted, used_up])
async def test_no_death_changes_the_end(story: Story) -> None:
    undisturbed = ReservationWorld()
    await story(undisturbed)
    expected = {
        group["metadata"]["name"]: undisturbed.reserved(group["metadata"]["name"])
        for group in undisturbed.api.all(GROUPS)
    }
    assert "True" in expected.values()
    for number in range(1, len(undisturbed.api.writes) + 1):
        for applied in (False, True):
            world = ReservationWorld()
            world.api.dies_at = (number, applied)
            await story(world)
            where = f"dead {'after' if applied else 'before'} write {number}"
            if world.deaths:
                assert {name: world.reserved(name) for name in expected} == expected, where
                assert {each.name for each in world.ledger().groups.values()} == {
                    each.name for each in undisturbed.ledger().groups.values()
                }, where


def test_ledger_is_equal_after_encoding_and_decoding() -> None:
    assert (
        msgspec.json.decode(msgspec.json.encode(ReservationLedger()), type=ReservationLedger) == ReservationLedger()
    )
