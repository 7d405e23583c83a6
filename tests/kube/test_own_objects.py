"""Names of a scheduler's own objects."""

from __future__ import annotations

import re

import pytest

from phalanx.daemon.service import SchedulerOptions
from phalanx.kube.own_objects import default_lease, name_prefix

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def test_the_default_scheduler_keeps_the_names_that_it_has_always_had() -> None:
    assert SchedulerOptions().lease_name == "phalanx-scheduler"
    assert name_prefix(["phalanx", "another"]) == "phalanx"


def test_replicas_of_one_share_a_lease_and_schedulers_of_different_names_do_not() -> None:
    names = [("a",), ("b",), ("A",), ("a.b",), ("a-b",), ("a b",), ("-",), ("x" * 64,), ("x" * 65,)]
    leases = [SchedulerOptions(scheduler_names=each).lease_name for each in names]
    assert len(set(leases)) == len(names)
    assert leases == [SchedulerOptions(scheduler_names=each).lease_name for each in names]


def test_a_lease_that_is_named_is_that_one() -> None:
    assert (
        SchedulerOptions(scheduler_names=("a",), lease_name="phalanx-scheduler").lease_name == "phalanx-scheduler"
    )


@pytest.mark.parametrize("name", ["gpu", "GPU", "my_scheduler", "\u00fc" * 300, "-", "a.b", "\ud800", "x" * 1000])
def test_every_scheduler_name_gives_object_names_that_the_api_accepts(name: str) -> None:
    for made in (default_lease([name]), f"{name_prefix([name])}-reservations"):
        assert NAME.fullmatch(made)
        assert len(made) <= 100
