"""A node admits pods that fit, rejects other ones in the kubelet's words, and never counts a pod twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.model.resources import requests_of
from phalanx.model.selectors import HostPort
from phalanx_local.nodeagent.addresses import AddressPool
from phalanx_local.nodeagent.capacity import NodeInfo, PodCharge, read_amounts
from phalanx_local.nodeagent.requests import charge_of
from tests.extent import examples

from .pods import container, pod

GPU = "nvidia.com/gpu"


def ask(**amounts: int) -> PodCharge:
    return PodCharge(requests_of({name.replace("gpu", GPU): amount for name, amount in amounts.items()}))


def node(cpu: int = 4000, memory: int = 1000, pods: int = 10, gpu: int = 2) -> NodeInfo:
    return NodeInfo({"cpu": cpu, "memory": memory, "pods": pods, GPU: gpu})


def test_a_node_fills_up_to_the_last_unit() -> None:
    info = node()
    assert info.admit("a", ask(cpu=3000, gpu=2)) is None
    assert info.admit("b", ask(cpu=1000)) is None
    rejection = info.admit("c", ask(cpu=1))
    assert rejection is not None
    assert rejection.reason == "OutOfcpu"
    assert "requested: 1, used: 4000, capacity: 4000" in rejection.message
    assert "c" not in info


@pytest.mark.parametrize(
    ("charge", "reason"),
    [
        (ask(cpu=4001), "OutOfcpu"),
        (ask(memory=1001), "OutOfmemory"),
        (ask(gpu=3), "OutOfnvidia.com/gpu"),
        (ask(cpu=4001, gpu=3), "OutOfcpu"),
        (PodCharge(requests_of({"example.com/unknown": 1})), "OutOfexample.com/unknown"),
    ],
)
def test_the_reason_names_the_first_resource_that_is_short(charge: PodCharge, reason: str) -> None:
    rejection = node().check("a", charge)
    assert rejection is not None
    assert rejection.reason == reason


def test_every_pod_costs_a_pod_slot() -> None:
    info = node(pods=2)
    assert [info.admit(uid, PodCharge()) for uid in "ab"] == [None, None]
    rejection = info.admit("c", PodCharge())
    assert rejection is not None
    assert rejection.reason == "OutOfpods"
    info.release("a")
    assert info.admit("c", PodCharge()) is None


def test_shrunk_node_preserves_its_pods_and_admits_only_pods_without_its_requests() -> None:
    info = node()
    info.admit("a", ask(gpu=2))
    info.resize({"cpu": 4000, "pods": 10, GPU: 0})
    assert "a" in info
    assert info.check("b", ask(gpu=1)) is not None
    assert info.check("b", ask(cpu=1000)) is None


def test_pod_charged_again_does_not_conflict_with_itself() -> None:
    info = node(pods=1)
    assert info.admit("a", ask(cpu=3000)) is None
    assert info.admit("a", ask(cpu=4000)) is None
    assert info.used("cpu") == 4000


def test_pod_that_ran_before_is_charged_also_where_it_does_not_fit() -> None:
    info = node()
    info.occupy("a", ask(cpu=9000))
    assert info.check("b", ask(cpu=1)) is not None
    assert info.check("b", ask(memory=1)) is None


def test_host_ports_are_given_once_per_address() -> None:
    info = node()
    assert info.admit("a", PodCharge(ports=(HostPort(80, "TCP", "127.0.0.1"),))) is None
    assert info.admit("b", PodCharge(ports=(HostPort(80, "TCP", "127.0.0.2"),))) is None
    assert info.admit("c", PodCharge(ports=(HostPort(80, "UDP"),))) is None
    rejection = info.admit("d", PodCharge(ports=(HostPort(80),)))
    assert rejection is not None
    assert rejection.reason == "NodePorts"


def test_a_pod_is_charged_its_requests_and_its_node_ports() -> None:
    busy = container(
        resources={"requests": {"cpu": "1500m", GPU: "1"}}, ports=[{"containerPort": 1, "hostPort": 10}]
    )
    setup = container("init", resources={"requests": {"cpu": "2"}})
    charge = charge_of(pod(containers=[busy], inits=[setup]))
    assert charge == PodCharge(requests_of({"cpu": 2000, GPU: 1}), (HostPort(10),))


def test_pod_with_unreadable_requests_is_rejected() -> None:
    broken = container(resources={"requests": {"cpu": "much"}})
    rejection = node().check("a", charge_of(pod(containers=[broken])))
    assert rejection is not None
    assert rejection.reason == "OutOfcpu"


def test_a_quantity_that_cannot_be_read_harms_itself_only() -> None:
    amounts, problems = read_amounts({"cpu": "2", "memory": "lots", GPU: 4}, "node n0: status.allocatable")
    assert amounts == {"cpu": 2000, GPU: 4}
    assert len(problems) == 1
    assert problems[0].startswith("node n0: status.allocatable.memory: 'lots'")


amount = st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(0, 5))


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), amount)))
def test_usage_is_the_sum_of_the_pods_and_at_most_the_capacity(
    moves: list[tuple[str, bool, dict[str, int]]],
) -> None:
    offer = {"cpu": 6, "memory": 6, GPU: 6, "pods": 3}
    info, inside = NodeInfo(offer), dict[str, dict[str, int]]()
    for uid, comes, amounts in moves:
        if comes and info.admit(uid, PodCharge(requests_of(amounts))) is None:
            inside[uid] = amounts
        elif not comes:
            info.release(uid)
            inside.pop(uid, None)
        for resource in ("cpu", "memory", GPU):
            assert info.used(resource) == sum(a.get(resource, 0) for a in inside.values()) <= 6
        assert set(info.holders) == set(inside)
        assert len(inside) <= 3


# Addresses


def test_each_pod_has_an_address_of_its_own_until_none_is_left() -> None:
    pool = AddressPool("127.1.0.0/29")
    given_out = {pool.allocate(f"uid-{i}") for i in range(6)}
    assert given_out == {f"127.1.0.{i}" for i in range(1, 7)}
    with pytest.raises(LookupError, match="6 pod addresses"):
        pool.allocate("uid-7")


def test_an_address_is_free_again_when_its_owner_gives_it_back() -> None:
    pool = AddressPool("127.1.0.0/30")
    first = pool.allocate("a")
    pool.release("somebody else", first)
    second = pool.allocate("b")
    assert second != first
    pool.release("a", first)
    assert pool.allocate("c") == first


def test_addresses_that_an_earlier_agent_gave_are_not_given_again() -> None:
    pool = AddressPool("127.1.0.0/30")
    pool.claim("old", "127.1.0.1")
    assert pool.allocate("new") == "127.1.0.2"


def test_a_network_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no address"):
        AddressPool("127.0.0.1/32")
