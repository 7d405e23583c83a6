"""`resourcequota`: a group is admitted only if the API server would let it create its pods."""

from __future__ import annotations

import pytest

from phalanx.dialects.pods.requests import limit_list, resource_list
from phalanx.model.account import ResourceQuota, limits_of
from phalanx.model.events import ResourceQuotaRemoved, ResourceQuotaUpdated
from phalanx.model.resources import parse_amount

from .scenario import NAMESPACE, Scenario, amounts

POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: resourcequota}, {name: predicates}, {name: nodeorder}]}]
"""


def limits(stated: dict[str, object]) -> tuple[tuple[str, int], ...]:
    """Amounts as the quota names them, in the resources' own units."""
    return limits_of({name: parse_amount(name.split(".", 1)[-1], value) for name, value in stated.items()})


class World(Scenario):
    def __init__(self) -> None:
        super().__init__(POLICY)
        self.node("n1")

    def quota(self, name: str = "quota", *, scoped: bool = False, **both: dict[str, object]) -> World:
        hard, used = limits(both.get("hard", {})), limits(both.get("used", {}))
        quota = ResourceQuota(NAMESPACE, name, hard, used, scoped)
        return self.observe(f"quota {name}", ResourceQuotaUpdated(quota))

    def queued(self, name: str, minimum: int = 1, created: int = 1, **size: object) -> World:
        fields = {"admission": True, "admitted": False, "created": created}
        return self.gang(name, minimum, min_resources=amounts(**size) or None, **fields)

    def admitted(self) -> list[str]:
        self.run()
        return self.admissions


@pytest.mark.parametrize("key", ["cpu", "requests.cpu"])
@pytest.mark.parametrize(("asked", "admitted"), [("2500m", True), ("2501m", False)])
def test_group_is_admitted_up_to_the_hard_limit_of_the_quota(key: str, asked: str, admitted: bool) -> None:
    world = World().quota(hard={key: 4}, used={key: "1500m"}).queued("job", cpu=asked)
    assert (world.admitted() == ["job"]) == admitted


@pytest.mark.parametrize("key", ["pods", "count/pods"])
def test_members_of_a_group_count_as_pods(key: str) -> None:
    world = World().quota(hard={key: 5}, used={key: 1})
    assert world.queued("five", 5, created=1, cpu=1).queued("four", 4, created=2, cpu=1).admitted() == ["four"]


def test_devices_are_compared_by_their_own_resource_name() -> None:
    world = World().quota(hard={"requests.nvidia.com/gpu": 2})
    assert world.queued("three", gpu=3).queued("two", gpu=2).admitted() == ["two"]


def test_every_quota_of_the_namespace_must_allow_the_group() -> None:
    world = World().quota("wide", hard={"cpu": 9}).quota("narrow", hard={"cpu": 1})
    assert world.queued("job", cpu=2).admitted() == []


def test_limits_are_compared_where_the_group_states_them() -> None:
    """Volcano's controller writes the limits of the required members beside their requests."""
    world = World().quota(hard={"limits.cpu": 10}, used={"limits.cpu": 3})
    for created, (name, cpu) in enumerate({"eight": "8", "seven": "7"}.items()):
        stated, faults = limit_list({"cpu": "1", "limits.cpu": cpu}, "spec.minResources")
        assert (stated, faults) == ((("limits.cpu", int(cpu) * 1000),), ())
        world.gang(
            name,
            2,
            min_resources=amounts(cpu=1),
            min_limits=stated,
            admission=True,
            admitted=False,
            created=created,
        )
    assert world.admitted() == ["seven"]
    assert "it requests 8 limits.cpu; ResourceQuota ns/quota has 0 left" in world.why("eight").message
    # Half of the pods exist and count in the quota; the other half is still to be created.
    world.pods("seven", 1, gang="seven", cpu=1).quota(hard={"limits.cpu": 10}, used={"limits.cpu": "6500m"})
    world.gang(
        "one",
        1,
        min_resources=amounts(cpu=1),
        min_limits=(("limits.cpu", 1),),
        admission=True,
        admitted=False,
        created=9,
    )
    assert world.admitted() == ["seven"]
    world.pods("seven-late", 1, gang="seven", cpu=1).quota(hard={"limits.cpu": 11}, used={"limits.cpu": 10})
    assert world.admitted() == ["seven", "one"]


def test_other_resources_and_scoped_quotas_are_not_compared() -> None:
    world = World().quota("limits", hard={"limits.cpu": 0, "count/jobs.batch": 0, "services": 0})
    world.quota("scoped", hard={"cpu": 0}, scoped=True)
    assert world.queued("job", cpu=2).admitted() == ["job"]


def test_group_without_min_resources_is_not_compared() -> None:
    assert World().quota(hard={"cpu": 0, "pods": 0}).queued("job").admitted() == ["job"]


def test_amounts_of_groups_of_one_cycle_add_up() -> None:
    world = World().quota(hard={"cpu": 10})
    for created, name in enumerate("abc", start=1):
        world.queued(name, created=created, cpu=4)
    assert world.admitted() == ["a", "b"]


def test_amounts_of_an_admitted_group_count_until_its_pods_exist() -> None:
    """The quota's own usage includes a pod from its creation on."""
    world = World().quota(hard={"cpu": 10, "pods": 100}).queued("a", 2, cpu=8)
    assert world.admitted() == ["a"]
    assert world.queued("b", cpu=4).admitted() == ["a"]
    world.pods("a", 2, gang="a", cpu=3).quota(hard={"cpu": 10, "pods": 100}, used={"cpu": 6, "pods": 2})
    assert world.admitted() == ["a"]
    world.queued("c", cpu=2)
    assert world.admitted() == ["a", "c"]


def test_raised_or_deleted_quota_admits_waiting_groups() -> None:
    world = World().quota(hard={"cpu": 1}).queued("small", created=1, cpu=2).queued("large", created=2, cpu=9)
    assert world.admitted() == []
    assert world.quota(hard={"cpu": 3}).admitted() == ["small"]
    world.observe("quota quota", ResourceQuotaRemoved(NAMESPACE, "quota"))
    assert world.admitted() == ["small", "large"]


def test_quota_of_another_namespace_does_not_apply() -> None:
    elsewhere = ResourceQuota("elsewhere", "quota", limits({"cpu": 0}))
    world = World().observe("quota elsewhere", ResourceQuotaUpdated(elsewhere))
    assert world.queued("job", cpu=2).admitted() == ["job"]


@pytest.mark.parametrize("announced", ["pods", "count/pods"])
def test_pods_that_a_group_announces_beyond_its_members_count_too(announced: str) -> None:
    read, _ = resource_list({announced: "5"}, "spec.minResources")
    world = World().quota(hard={"count/pods": 3})
    world.gang("five", 1, min_resources=read, admission=True, admitted=False, created=1)
    assert world.admitted() == []
