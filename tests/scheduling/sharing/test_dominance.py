"""Dominant shares."""

from __future__ import annotations

from fractions import Fraction

from phalanx.scheduling.quota.dominant_share import dominant_resource, dominant_share

CLUSTER = {"cpu": 9, "memory": 18}


def test_dominant_share_is_the_largest_share_of_any_resource() -> None:
    assert dominant_share({"cpu": 3, "memory": 1}.items(), CLUSTER) == Fraction(1, 3)
    assert dominant_resource({"cpu": 3, "memory": 1}.items(), CLUSTER) == "cpu"
    assert dominant_share({"cpu": 1, "memory": 4}.items(), CLUSTER) == Fraction(2, 9)
    assert dominant_resource({"cpu": 1, "memory": 4}.items(), CLUSTER) == "memory"


def test_dominant_shares_match_the_example_of_the_drf_paper() -> None:
    """9 CPUs and 18 GB; tasks of A request 1 and 4, tasks of B 3 and 1: A gets three tasks, B two."""
    demands = {"A": {"cpu": 1, "memory": 4}, "B": {"cpu": 3, "memory": 1}}
    idle = dict(CLUSTER)
    tasks = {"A": 0, "B": 0}
    waiting = set(demands)

    def share(name: str) -> Fraction:
        return dominant_share([(r, n * tasks[name]) for r, n in demands[name].items()], CLUSTER)

    while waiting:
        name = min(waiting, key=lambda name: (share(name), name))
        if any(idle[r] < n for r, n in demands[name].items()):
            waiting.discard(name)
            continue
        tasks[name] += 1
        for r, n in demands[name].items():
            idle[r] -= n
    assert tasks == {"A": 3, "B": 2}
    assert share("A") == share("B") == Fraction(2, 3)


def test_dominant_share_is_divided_by_the_weight() -> None:
    assert dominant_share([("cpu", 3)], CLUSTER, weight=2) == Fraction(1, 6)


def test_account_without_usage_has_no_dominant_share() -> None:
    assert dominant_share([], CLUSTER) == 0
    assert dominant_resource([], CLUSTER) == ""


def test_resource_with_a_total_of_zero_counts_only_if_requested() -> None:
    held = [("cpu", 3), ("example.com/gone", 1)]
    assert dominant_share(held, CLUSTER) == Fraction(1, 3)
    assert dominant_share(held, CLUSTER, unfounded=True) == 1


def test_shares_too_close_for_floats_still_differ() -> None:
    total = {"memory": 3 * 2**53}
    assert dominant_share([("memory", 2**53)], total) < dominant_share([("memory", 2**53 + 1)], total)
    assert dominant_share([("memory", 2**53)], total) == dominant_share([("cpu", 3)], CLUSTER)
