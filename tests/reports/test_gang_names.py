"""Names of gangs: what people are shown, and what they may type."""

from __future__ import annotations

import pytest

from phalanx.model.gang import GangKey, owned_name, owner_of_name, shown_name
from phalanx.reports.gang_names import AmbiguousGangError, gangs_called

TRAIN = owned_name("Job", "train", "u-1")
WORKERS, DRIVER = (f"{owned_name('JobSet', 'js', 'u-2')}/{part}/0" for part in ("workers", "driver"))


def keys(*names: str) -> list[GangKey]:
    return [GangKey("ns", name) for name in names]


@pytest.mark.parametrize(
    ("name", "shown", "owner"),
    [
        ("train", "train", ("", "")),
        (TRAIN, "train", ("job", "train")),
        (WORKERS, "js/workers/0", ("jobset", "js")),
        ("lws:serve/leader/0.abc.4", "serve/leader/0.abc.4", ("lws", "serve")),
        ("workload/group/0", "workload/group/0", ("", "")),
        ("Some thing: else", "Some thing: else", ("", "")),
    ],
)
def test_of_a_name_people_see_the_owner_and_the_part(name: str, shown: str, owner: tuple[str, str]) -> None:
    assert (shown_name(name), owner_of_name(name)) == (shown, owner)
    assert str(GangKey("ns", name)) == f"ns/{shown}"
    assert GangKey("ns", name).path == f"ns/{name}"


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("train", "", [TRAIN]),
        (TRAIN, "", [TRAIN]),
        ("train", "job", [TRAIN]),
        ("train", "jobset", []),
        ("js", "", [DRIVER, WORKERS]),
        ("js/workers/0", "", [WORKERS]),
        ("js", "jobset", [DRIVER, WORKERS]),
        ("nobody", "", []),
    ],
)
def test_a_gang_is_found_by_what_it_or_its_owner_is_called(name: str, kind: str, found: list[str]) -> None:
    there = [*keys(TRAIN, WORKERS, DRIVER), GangKey("other", owned_name("Job", "train", "u-9"))]
    assert gangs_called(there, "ns", name, kind) == keys(*found)


def test_an_object_goes_before_an_owner_of_its_name() -> None:
    assert gangs_called(keys("train", TRAIN), "ns", "train") == keys("train")
    assert gangs_called(keys("train", TRAIN), "ns", "train", "job") == keys(TRAIN)


def test_owners_of_two_kinds_and_one_name_are_told_apart_by_their_kind() -> None:
    there = keys(TRAIN, owned_name("PyTorchJob", "train", "u-3"))
    with pytest.raises(AmbiguousGangError, match="job/train, pytorchjob/train"):
        gangs_called(there, "ns", "train")
    assert gangs_called(there, "ns", "train", "pytorchjob") == there[1:]
