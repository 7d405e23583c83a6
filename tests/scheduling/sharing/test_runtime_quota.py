"""Koordinator's runtime quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.scheduling.quota.runtime_quota import QuotaNode, RuntimeQuota, runtime_quotas, runtime_tree


def runtimes(total: int, *quotas: RuntimeQuota, scaling: bool = True) -> list[int]:
    amounts = runtime_quotas(total, quotas, scaling=scaling)
    return [amounts[quota.name] for quota in quotas]


# one level


def test_runtime_quota_matches_the_worked_example() -> None:
    quotas = [
        RuntimeQuota("a", 40, 10, 5),
        RuntimeQuota("b", 60, 15, 20),
        RuntimeQuota("c", 50, 20, 40),
        RuntimeQuota("d", 80, 15, 70),
    ]
    assert runtimes(100, *quotas) == [5, 20, 35, 40]


@pytest.mark.parametrize(("asked", "expected"), [(0, [0, 90]), (30, [30, 70]), (60, [60, 50])])
def test_runtime_quota_matches_koordinator_when_the_lender_returns(asked: int, expected: list[int]) -> None:
    """Total 100; the lender has a min of 60, the borrower a min of 50 and a request of 90; minima do not scale."""
    quotas = [RuntimeQuota("lender", 1, 60, asked), RuntimeQuota("borrower", 1, 50, 90)]
    assert runtimes(100, *quotas, scaling=False) == expected


def test_runtime_quota_matches_koordinator_for_two_requests_above_the_total() -> None:
    assert runtimes(120, RuntimeQuota("a", 1, 50, 80)) == [80]
    assert runtimes(120, RuntimeQuota("a", 1, 50, 80), RuntimeQuota("b", 1, 50, 100)) == [60, 60]


def test_unused_min_is_lent() -> None:
    assert runtimes(100, RuntimeQuota("a", 1, 50, 0), RuntimeQuota("b", 1, 10, 100)) == [0, 100]


def test_quota_that_does_not_lend_keeps_its_min() -> None:
    assert runtimes(100, RuntimeQuota("a", 1, 50, 0, lends=False), RuntimeQuota("b", 1, 10, 100)) == [50, 50]


def test_minima_that_exceed_the_total_shrink_in_proportion() -> None:
    quotas = [RuntimeQuota("a", 1, 90, 90), RuntimeQuota("b", 1, 60, 60)]
    assert runtimes(100, *quotas) == [60, 40]


def test_without_scaling_minima_stay_although_they_exceed_the_total() -> None:
    quotas = [RuntimeQuota("a", 1, 90, 90), RuntimeQuota("b", 1, 60, 60)]
    assert runtimes(100, *quotas, scaling=False) == [90, 60]


def test_min_that_does_not_scale_shrinks_the_minima_that_do() -> None:
    quotas = [
        RuntimeQuota("a", 1, 60, 60, scales=False),
        RuntimeQuota("b", 1, 60, 60),
        RuntimeQuota("c", 1, 30, 30),
    ]
    # 40 remain for minima of 90: 26 and 13; the last unit belongs to the first name.
    assert runtimes(100, *quotas) == [60, 27, 13]


def test_minima_that_do_not_scale_can_use_up_the_total() -> None:
    quotas = [RuntimeQuota("a", 1, 120, 120, scales=False), RuntimeQuota("b", 1, 60, 60)]
    assert runtimes(100, *quotas) == [120, 0]


def test_a_guarantee_does_not_shrink() -> None:
    quotas = [RuntimeQuota("a", 1, 90, 90, guarantee=80), RuntimeQuota("b", 1, 60, 60)]
    assert runtimes(100, *quotas) == [80, 40]  # more than the total: shares never evict running pods


def test_largest_remainder_gets_the_indivisible_unit_and_ties_use_the_name() -> None:
    assert runtimes(10, *[RuntimeQuota(name, 1, 0, 99) for name in "bca"]) == [3, 3, 4]
    assert runtimes(10, RuntimeQuota("a", 4, 0, 99), RuntimeQuota("b", 3, 0, 99), RuntimeQuota("c", 1, 0, 99)) == [
        5,
        4,
        1,
    ]


def test_without_weights_nothing_is_lent() -> None:
    assert runtimes(100, RuntimeQuota("a", 0, 10, 50), RuntimeQuota("b", 0, 20, 50)) == [10, 20]


quotas = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.integers(0, 100),
        st.integers(0, 300),
        st.just(0),
        st.booleans(),
        st.booleans(),
    ),
    max_size=8,
).map(lambda rows: [RuntimeQuota(f"q{index}", *row) for index, row in enumerate(rows)])


@given(st.integers(0, 500), quotas)
def test_runtime_quotas_add_up_to_the_total(total: int, quotas: list[RuntimeQuota]) -> None:
    scaling = [quota._replace(scales=True) for quota in quotas]
    amounts = runtime_quotas(total, scaling)
    assert sum(amounts.values()) <= total
    hungry = [quota for quota in scaling if quota.weight and amounts[quota.name] < quota.limited]
    assert not hungry or sum(amounts.values()) == total


@given(st.integers(0, 500), quotas)
def test_every_quota_gets_its_min_up_to_its_request(total: int, quotas: list[RuntimeQuota]) -> None:
    amounts = runtime_quotas(total, quotas)
    exceeded = sum(quota.minimum for quota in quotas) > total
    fixed = sum(quota.minimum for quota in quotas if not quota.scales)
    scalable = sum(quota.minimum for quota in quotas if quota.scales)
    for quota in quotas:
        minimum = quota.minimum
        if exceeded and quota.scales and scalable:
            minimum = max(0, total - fixed) * quota.minimum // scalable
        assert amounts[quota.name] >= (min(minimum, quota.limited) if quota.lends else minimum)
        assert amounts[quota.name] <= max(quota.limited, minimum)


# trees


def leaf(name: str, minimum: int, maximum: int, request: int, **fields: object) -> QuotaNode:
    return QuotaNode(
        name,
        {"cpu": minimum},
        {"cpu": maximum},
        {"cpu": request},
        **fields,  # type: ignore[arg-type]
    )


def parent(name: str, minimum: int, maximum: int, *children: QuotaNode, **fields: object) -> QuotaNode:
    return QuotaNode(
        name,
        {"cpu": minimum},
        {"cpu": maximum},
        children=list(children),
        **fields,  # type: ignore[arg-type]
    )


def cpu(total: int, *roots: QuotaNode, **switches: bool) -> dict[str, int]:
    return {name: amounts["cpu"] for name, amounts in runtime_tree({"cpu": total}, roots, **switches).items()}


def test_children_share_the_runtime_of_their_parent() -> None:
    tree = [
        parent("eng", 40, 100, leaf("dev", 30, 80, 80), leaf("prod", 10, 80, 20)),
        leaf("sci", 60, 60, 60),
    ]
    assert cpu(100, *tree) == {"eng": 40, "sci": 60, "dev": 30, "prod": 10}


def test_parent_requests_the_sum_of_its_children_within_their_max() -> None:
    tree = [
        parent("eng", 0, 100, leaf("dev", 0, 10, 80), leaf("prod", 0, 80, 20)),
        leaf("sci", 0, 100, 100),
    ]
    assert cpu(100, *tree) == {"eng": 30, "sci": 70, "dev": 10, "prod": 20}


def test_a_parent_that_does_not_lend_keeps_its_minimum_for_its_children() -> None:
    tree = [parent("eng", 40, 100, leaf("dev", 0, 80, 5), lends=False), leaf("sci", 0, 100, 100)]
    assert cpu(100, *tree) == {"eng": 40, "sci": 60, "dev": 5}


def test_weights_share_the_amount_above_the_minima() -> None:
    tree = [leaf("a", 10, 100, 100, weights={"cpu": 3}), leaf("b", 10, 100, 100, weights={"cpu": 1})]
    assert cpu(100, *tree) == {"a": 70, "b": 30}


def test_without_shared_weights_the_maxima_are_the_weights() -> None:
    assert cpu(100, leaf("a", 0, 300, 100), leaf("b", 0, 100, 100)) == {"a": 75, "b": 25}


def test_running_usage_stays_in_the_quota_where_usage_is_guaranteed() -> None:
    tree = [leaf("a", 10, 100, 90, used={"cpu": 80}), leaf("b", 50, 100, 60)]
    assert cpu(100, *tree) == {"a": 40, "b": 60}
    assert cpu(100, *tree, guarantee_usage=True) == {"a": 80, "b": 50}


def test_parent_is_guaranteed_the_sum_of_its_children() -> None:
    tree = [
        parent("eng", 10, 100, leaf("dev", 20, 100, 90, used={"cpu": 70}), leaf("prod", 10, 100, 0)),
        leaf("sci", 20, 100, 60),
    ]
    # eng: max(10, max(20, 70) + max(10, 0)) = 80; prod lends its 10 to dev.
    assert cpu(100, *tree, guarantee_usage=True) == {"eng": 80, "sci": 20, "dev": 80, "prod": 0}


def test_resource_outside_of_max_has_no_runtime() -> None:
    tree = [QuotaNode("a", {}, {"cpu": 10}, {"cpu": 5, "memory": 7}), QuotaNode("b", {}, {}, {"cpu": 5})]
    assert runtime_tree({"cpu": 10, "memory": 10}, tree) == {"a": {"cpu": 5}, "b": {}}


def test_parent_passes_on_resources_outside_of_its_max() -> None:
    tree = [QuotaNode("eng", children=[leaf("dev", 10, 80, 100), leaf("prod", 10, 80, 100)])]
    assert runtime_tree({"cpu": 100}, tree) == {"eng": {}, "dev": {"cpu": 50}, "prod": {"cpu": 50}}


@pytest.mark.parametrize("depth", [1, 5, 200])
def test_chain_of_quotas_passes_on_its_whole_runtime(depth: int) -> None:
    node = leaf("leaf", 1, 50, 60)
    for level in range(depth):
        node = parent(f"level-{level}", 1, 40 + level, node)
    assert cpu(100, node)["leaf"] == 40
