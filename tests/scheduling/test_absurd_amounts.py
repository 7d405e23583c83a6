"""Messages about requests larger than the cluster, or with many digits."""

from __future__ import annotations

import re

import pytest

from .scenario import Scenario


@pytest.mark.parametrize("cpu", ["1000000000000000000", "9" * 60])
def test_huge_request_is_printed_without_a_row_of_digits(cpu: str) -> None:
    world = Scenario().node("n", cpu=4).queue("small", capability={"cpu": 5})
    world.job("wide", 3, cpu=cpu).job("held", 2, queue="small", cpu=cpu).settle()
    wide, held = world.why("wide"), world.why("held")
    assert "add nodes that offer 9e12+ cpu to each of 3 pods" in wide.change
    assert held.message.endswith("queue small: 0 cpu in use, capability 5; 1.8e13+ more would exceed it")
    for words in (wide.message, wide.change, held.message, held.change):
        assert not re.search(r"\d{10}", words), words
