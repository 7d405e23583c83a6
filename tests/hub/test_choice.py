"""The earliest start wins; then cost, spread and name."""

from __future__ import annotations

from phalanx.hub.choice.assignment import Candidate, best

NOW = 1_000_000


def chosen(*candidates: Candidate) -> str:
    found = best(candidates, NOW)
    return found.name if found is not None else ""


def test_earliest_start_wins_at_any_cost() -> None:
    assert chosen(Candidate("west", NOW + 600), Candidate("east", NOW, cost=99)) == "east"


def test_cheaper_cluster_wins_among_starts_within_a_minute() -> None:
    assert chosen(Candidate("west", NOW + 59), Candidate("east", NOW, cost=1)) == "west"
    assert chosen(Candidate("west", NOW + 60), Candidate("east", NOW, cost=1)) == "east"


def test_a_start_that_is_over_is_one_now() -> None:
    assert chosen(Candidate("west", NOW - 3600, cost=1), Candidate("east", NOW)) == "east"


def test_equal_costs_are_decided_by_spread_and_then_by_name() -> None:
    assert chosen(Candidate("a", NOW, dispatches=2), Candidate("b", NOW, dispatches=1)) == "b"
    assert chosen(Candidate("b", NOW), Candidate("a", NOW)) == "a"


def test_cluster_without_a_forecast_is_chosen_only_where_no_cluster_has_one() -> None:
    assert chosen(Candidate("silent"), Candidate("late", NOW + 86400)) == "late"
    assert chosen(Candidate("silent"), Candidate("never", never=True)) == "silent"


def test_a_gang_that_would_start_nowhere_waits_at_the_hub() -> None:
    assert chosen(Candidate("never", never=True)) == ""
    assert chosen() == ""
