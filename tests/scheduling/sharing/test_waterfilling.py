"""Weighted max-min sharing: the limit of Volcano's iteration, in whole units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.scheduling.quota.water_filling import ShareClaimant, ShareRequest, deserved, fill, real_capability

UNLIMITED = 10**12
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


def volcano(total: Mapping[str, int], claims: Sequence[ShareRequest]) -> dict[str, dict[str, float]] | None:
    """Run the iteration of Volcano's proportion plugin as written. Return None where its shares exceed the
    total.
    """
    guaranteed = {r: sum(claim.guarantee.get(r, 0) for claim in claims) for r in total}
    limits = {
        claim.name: {
            r: min(total[r] - guaranteed[r] + claim.guarantee.get(r, 0), claim.capability.get(r, UNLIMITED))
            for r in total
        }
        for claim in claims
    }
    remaining: dict[str, float] = dict(total)
    shares: dict[str, dict[str, float]] = {claim.name: dict.fromkeys(total, 0.0) for claim in claims}
    met: set[str] = set()
    for _ in range(10_000):
        weight = sum(claim.weight for claim in claims if claim.name not in met)
        if not weight:
            break
        before = dict(remaining)
        for claim in claims:
            if claim.name in met:
                continue
            old = shares[claim.name]
            new = {r: old[r] + before[r] * claim.weight / weight for r in total}
            new = {r: min(new[r], limits[claim.name][r], claim.request.get(r, 0)) for r in total}
            if all(claim.request.get(r, 0) <= new[r] for r in total) or new == old:
                met.add(claim.name)
            shares[claim.name] = {r: max(new[r], claim.guarantee.get(r, 0)) for r in total}
            remaining = {r: remaining[r] - shares[claim.name][r] + old[r] for r in total}
        if any(amount < -1e-6 for amount in remaining.values()):
            return None
        if all(amount < 1e-9 for amount in remaining.values()) or remaining == before:
            break
    return shares


def by_name(total: int, *claimants: ShareClaimant) -> list[int]:
    amounts = fill(total, claimants)
    return [amounts[claimant.name] for claimant in claimants]


def test_equal_requests_are_shared_by_weight() -> None:
    assert by_name(100, ShareClaimant("a", 1, UNLIMITED), ShareClaimant("b", 3, UNLIMITED)) == [25, 75]


def test_unrequested_share_is_divided_among_the_remaining_queues_by_weight() -> None:
    claimants = [ShareClaimant("a", 1, UNLIMITED), ShareClaimant("b", 3, 30), ShareClaimant("c", 1, UNLIMITED)]
    assert by_name(100, *claimants) == [35, 30, 35]


def test_no_queue_gets_more_than_its_request() -> None:
    assert by_name(100, ShareClaimant("a", 1, 20), ShareClaimant("b", 1, 30)) == [20, 30]


def test_guarantee_is_served_and_the_remaining_queues_share_by_weight() -> None:
    claimants = [
        ShareClaimant("a", 1, UNLIMITED, 60),
        ShareClaimant("b", 1, UNLIMITED),
        ShareClaimant("c", 1, UNLIMITED),
    ]
    assert by_name(100, *claimants) == [60, 20, 20]


def test_guarantee_below_the_weighted_share_changes_nothing() -> None:
    assert by_name(100, ShareClaimant("a", 1, UNLIMITED, 40), ShareClaimant("b", 1, UNLIMITED)) == [50, 50]


def test_guarantee_counts_although_the_request_is_smaller() -> None:
    assert by_name(100, ShareClaimant("a", 1, 10, 40), ShareClaimant("b", 1, UNLIMITED)) == [40, 60]


def test_remainder_of_the_first_round_is_added_to_a_guarantee() -> None:
    # Round one: 30 (raised from 10), 10 (request), 50; the remaining 10 are split 1:5 among unmet requests.
    claimants = [ShareClaimant("a", 1, UNLIMITED, 30), ShareClaimant("b", 4, 10), ShareClaimant("c", 5, UNLIMITED)]
    assert by_name(100, *claimants) == [32, 10, 58]


def test_guarantees_alone_may_exceed_the_total() -> None:
    assert by_name(100, ShareClaimant("a", 1, UNLIMITED, 70), ShareClaimant("b", 1, UNLIMITED, 60)) == [70, 60]


def test_indivisible_units_belong_to_the_largest_remainder_and_ties_use_the_name() -> None:
    assert by_name(10, *[ShareClaimant(name, 1, UNLIMITED) for name in "abc"]) == [4, 3, 3]
    assert by_name(11, *[ShareClaimant(name, 1, UNLIMITED) for name in "cab"]) == [3, 4, 4]
    # 10 by 4 : 3 : 1 is 5, 3.75 and 1.25
    assert by_name(10, ShareClaimant("a", 4, 99), ShareClaimant("b", 3, 99), ShareClaimant("c", 1, 99)) == [5, 4, 1]


def test_queue_without_weight_gets_its_guarantee_only() -> None:
    assert by_name(100, ShareClaimant("a", 0, UNLIMITED, 5), ShareClaimant("b", 1, 50)) == [5, 50]
    assert by_name(100, ShareClaimant("a", 0, UNLIMITED, 5)) == [5]


def test_no_queues_give_an_empty_result() -> None:
    assert fill(100, []) == {}


def test_real_capability_excludes_the_guarantees_of_other_queues() -> None:
    assert real_capability(100, 60, 20, None) == 60
    assert real_capability(100, 60, 20, 50) == 50
    assert real_capability(100, 120, 20, None) == 20


def test_each_resource_is_shared_on_its_own() -> None:
    claims = [
        ShareRequest("a", 1, {"cpu": 8000, "memory": 4}),
        ShareRequest("b", 1, {"cpu": 8000, "memory": 100}, capability={"cpu": 2000}),
    ]
    assert deserved({"cpu": 10000, "memory": 60}, claims) == {
        "a": {"cpu": 8000, "memory": 4},
        "b": {"cpu": 2000, "memory": 56},
    }


def test_a_weight_may_differ_per_resource() -> None:
    claims = [
        ShareRequest("a", 1, {"cpu": 100, "gpu": 100}, weights={"gpu": 3}),
        ShareRequest("b", 1, {"cpu": 100, "gpu": 100}),
    ]
    assert deserved({"cpu": 100, "gpu": 100}, claims) == {
        "a": {"cpu": 50, "gpu": 75},
        "b": {"cpu": 50, "gpu": 25},
    }


amount = st.integers(0, 1000)
claimants = st.lists(
    st.tuples(st.integers(1, 70000), amount, st.just(0) | amount),
    max_size=8,
).map(lambda rows: [ShareClaimant(f"q{index}", *row) for index, row in enumerate(rows)])


@given(st.integers(0, 3000), claimants)
def test_every_queue_is_within_its_bounds_and_the_total_is_used(total: int, claimants: list[ShareClaimant]) -> None:
    amounts = fill(total, claimants)
    caps = {c.name: max(c.cap, c.floor) for c in claimants}
    assert all(c.floor <= amounts[c.name] <= caps[c.name] for c in claimants)
    floors = sum(c.floor for c in claimants)
    assert sum(amounts.values()) == max(floors, min(total, sum(caps.values())))


@given(st.integers(0, 3000), claimants)
def test_queue_below_its_cap_has_no_smaller_weighted_share_than_another(
    total: int, claimants: list[ShareClaimant]
) -> None:
    amounts = fill(total, claimants)
    hungry = [c for c in claimants if amounts[c.name] < c.cap]
    risen = [c for c in claimants if not c.floor]
    for poor in hungry:
        for rich in risen:
            assert (amounts[rich.name] - 1) * poor.weight <= (amounts[poor.name] + 1) * rich.weight


claims = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 500), min_size=1),
        st.just({}) | st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 60)),
        st.just({}) | st.dictionaries(st.sampled_from(RESOURCES), st.integers(60, 300)),
    ),
    min_size=1,
    max_size=6,
).map(lambda rows: [ShareRequest(f"q{index}", *row) for index, row in enumerate(rows)])


@given(st.lists(st.integers(360, 1500), min_size=3, max_size=3), claims)
def test_result_is_the_limit_of_volcanos_iteration(totals: list[int], claims: list[ShareRequest]) -> None:
    total = dict(zip(RESOURCES, totals, strict=True))
    expected = volcano(total, claims)
    found = deserved(total, claims)
    for resource in RESOURCES:
        assert sum(found[claim.name][resource] for claim in claims) <= total[resource]
        for claim in claims if expected is not None else ():
            assert expected is not None
            assert found[claim.name][resource] == pytest.approx(expected[claim.name][resource], abs=1.001)


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_many_queues_are_shared_with_the_same_result_as_few(count: int) -> None:
    amounts = fill(count * 10, [ShareClaimant(f"{number:04}", 2, 9 + 2 * (number % 2)) for number in range(count)])
    spread = {9: count - count // 2, 11: count // 2}
    assert sum(amounts.values()) == min(count * 10, 9 * spread[9] + 11 * spread[11])
    assert all(amounts[name] == 9 for name in amounts if int(name) % 2 == 0)
