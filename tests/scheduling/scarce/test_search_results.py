"""Results of the search: found, proved that no placement exists, or given up after a counted number of tries."""

from __future__ import annotations

import pytest

from phalanx.scheduling.gang_placement import search_placement
from phalanx.scheduling.gang_placement.limited_search import Agenda, LimitedSearch

from .test_claimed_devices import BIG, DeviceWorld, Want

TWO_SMALL: Want = ((2, ("small",)),)


def short_of_one_small_device(*further: str) -> DeviceWorld:
    """Return a world whose gang has enough devices for each member alone; a third node has the `further` ones."""
    world = DeviceWorld([["big", "small"], ["small", "small"], [*further]])
    world.gang("g", 3)
    world.member("m0", TWO_SMALL).member("m1", BIG).member("m2", ((2, ("small", "big")),))
    return world


def test_message_says_that_a_gang_does_not_fit_once_the_search_has_proved_it() -> None:
    world = short_of_one_small_device().run()
    assert world.placed() == []
    assert world.why("g").message.startswith("only 2 of the 3 required pods of gang ns/g fit; ")


def test_message_has_the_number_of_tries_of_a_search_without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_placement, "MOST_TRIES", 2)
    world = short_of_one_small_device().run()
    assert world.placed() == []
    verdict = world.why("g")
    assert verdict.code == "NoEligibleNode"
    assert verdict.message.startswith("not found in 2 tries: only 2 of the 3 required pods of gang ns/g fit; ")


def test_failed_search_is_repeated_only_after_room_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0
    run = LimitedSearch.run

    def counted(search: LimitedSearch, agenda: Agenda) -> bool:
        nonlocal searches
        searches += 1
        return run(search, agenda)

    monkeypatch.setattr(LimitedSearch, "run", counted)
    world = short_of_one_small_device("tiny")
    world.member("other", ((1, ("tiny",)),), gang="").run()
    before = searches
    assert before
    world.pod("small", cpu=1).run()
    assert searches == before
    world.gone("other").run()
    assert searches > before
