"""Code path of a gang: bounds on the modules that its turn runs through and on transitions between them.

A transition is a call of a function in another module than the last one. Where a number falls, lower its bound.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import phalanx
from phalanx.scheduling.actions import allocate

from .scenario import Scenario

SOURCE = str(Path(phalanx.__file__).parent)


class Way:
    """Return the modules of the scheduler on the path, and the number of transitions."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.moves = 0
        self._last = ""

    @contextmanager
    def followed(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        module = frame.f_code.co_filename
        if event == "call" and module.startswith(SOURCE):
            self.modules.add(module)
            self.moves += module != self._last
            self._last = module


def way_of_a_turn(world: Scenario, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Return the code path of the one gang of a cluster."""
    way, place_unit = Way(), allocate.place_unit

    def followed(*arguments: object) -> bool:
        with way.followed():
            return place_unit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(allocate, "place_unit", followed)
    world.cycle()
    return way


def test_turn_of_a_fitting_gang_has_a_short_code_path(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Scenario().nodes(4, cpu=4).job("gang", 4, cpu=1)
    way = way_of_a_turn(world, monkeypatch)
    assert len(world.placed("gang")) == 4
    assert len(way.modules) <= 54
    assert way.moves <= 200


def test_turn_of_a_gang_that_does_not_fit_has_a_short_code_path(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Scenario().nodes(4, cpu=4).job("gang", 8, cpu=3)
    way = way_of_a_turn(world, monkeypatch)
    assert len(world.waiting("gang")) == 8
    assert len(way.modules) <= 60
    assert way.moves <= 261
