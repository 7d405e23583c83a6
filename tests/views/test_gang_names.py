"""Names of gangs: the one that every view shows, and those that a user may type."""

from __future__ import annotations

import pytest

from phalanx.model.gang import Gang, GangKey, GangOwner, owned_name, owner_of_name, shown_name
from phalanx.model.gang_names import (
    AmbiguousGangError,
    facts_of,
    find_gangs,
    kind_word,
    shown_names,
    suffix_of_group,
)

TRAIN = owned_name("Job", "train", "u-1")
WORKERS, DRIVER = (f"{owned_name('JobSet', 'js', 'u-2')}/{part}/0" for part in ("workers", "driver"))
VOLCANO = "train-7d1c"

Owners = dict[str, GangOwner | None]


def key(name: str, namespace: str = "ns") -> GangKey:
    return GangKey(namespace, name)


def gangs(*names: str, **owned: GangOwner) -> dict[GangKey, Gang]:
    """Gangs by key; of `owned` ones the name of the PodGroup is the keyword with - for _."""
    found = {key(name): Gang(key(name)) for name in names}
    for name, owner in owned.items():
        found[key(name.replace("_", "-"))] = Gang(key(name.replace("_", "-")), owner=owner)
    return found


def names(found: dict[GangKey, Gang]) -> dict[str, str]:
    shown = shown_names({each: facts_of(each, gang) for each, gang in found.items()})
    return {each.name: text for each, text in shown.items()}


def find(found: dict[GangKey, Gang], typed: str, kind: str = "") -> list[str]:
    facts = {each: facts_of(each, gang) for each, gang in found.items()}
    return [each.name for each in find_gangs(facts, "ns", typed, kind)]


VCJOB = GangOwner("vcjob", "train", "7d1c")


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
def test_key_without_facts_shows_the_owner_and_the_part(name: str, shown: str, owner: tuple[str, str]) -> None:
    assert (shown_name(name), owner_of_name(name)) == (shown, owner)
    assert str(key(name)) == f"ns/{shown}"
    assert key(name).path == f"ns/{name}"
    assert names(gangs(name)) == {name: shown}


@pytest.mark.parametrize(
    ("group", "owner", "uid", "suffix"),
    [
        ("train-7d1c", "train", "7d1c", ""),
        ("train", "train", "7d1c", ""),
        ("serve-0-6f", "serve", "7d1c", "0-6f"),
        ("ray-demo-pg", "demo", "7d1c", "ray-demo-pg"),
        ("podgroup-7d1c", "web-5b", "7d1c", "podgroup"),
    ],
)
def test_suffix_of_a_generated_podgroup_leaves_out_owner_and_uid(
    group: str, owner: str, uid: str, suffix: str
) -> None:
    assert suffix_of_group(group, owner, uid) == suffix


def test_generated_podgroup_has_the_name_of_its_job() -> None:
    assert names(gangs("plain", train_7d1c=VCJOB)) == {"plain": "plain", VOLCANO: "train"}


def test_job_of_several_podgroups_has_a_part_in_the_name_of_each() -> None:
    serve = GangOwner("lws", "serve", "9")
    assert names(gangs(serve_0=serve, serve_1=serve)) == {"serve-0": "serve/0", "serve-1": "serve/1"}
    assert names(gangs(serve_0=serve)) == {"serve-0": "serve"}


def test_gangs_of_equal_names_have_their_kinds_in_front() -> None:
    found = names(gangs("train", TRAIN, train_7d1c=VCJOB))
    assert found == {"train": "podgroup/train", TRAIN: "job/train", VOLCANO: "vcjob/train"}


def test_gangs_of_equal_names_in_two_namespaces_keep_the_short_name() -> None:
    found = {key("train"): Gang(key("train")), key(TRAIN, "other"): Gang(key(TRAIN, "other"))}
    assert set(names(found).values()) == {"train"}


def test_recreated_job_shares_its_name_with_the_gang_of_the_former_one() -> None:
    again = owned_name("Job", "train", "u-2")
    assert set(names(gangs(TRAIN, again)).values()) == {"train"}


@pytest.mark.parametrize(
    ("typed", "kind", "found"),
    [
        ("train", "", [TRAIN]),
        (TRAIN, "", [TRAIN]),
        ("train", "job", [TRAIN]),
        ("job/train", "", [TRAIN]),
        ("podgroup/train", "", [TRAIN]),
        ("train", "jobset", []),
        ("js", "", [DRIVER, WORKERS]),
        ("js/workers/0", "", [WORKERS]),
        ("jobset/js/workers/0", "", [WORKERS]),
        ("js", "jobset", [DRIVER, WORKERS]),
        ("jobsets.jobset.x-k8s.io/js", "", [DRIVER, WORKERS]),
        ("nobody", "", []),
    ],
)
def test_gang_is_found_by_its_name_its_kind_and_its_part(typed: str, kind: str, found: list[str]) -> None:
    there = gangs(TRAIN, WORKERS, DRIVER)
    there[key(TRAIN, "other")] = Gang(key(TRAIN, "other"))
    assert find(there, typed, kind) == found


@pytest.mark.parametrize("typed", ["train", "vcjob/train", "vj/train", "jobs.batch.volcano.sh/train", VOLCANO])
def test_gang_of_a_volcano_job_is_found_by_job_and_podgroup(typed: str) -> None:
    assert find(gangs("plain", train_7d1c=VCJOB), typed) == [VOLCANO]
    assert find(gangs("plain", train_7d1c=VCJOB), VOLCANO, "podgroup") == [VOLCANO]


def test_name_of_gangs_of_several_kinds_is_refused_with_the_candidates() -> None:
    there = gangs("train", TRAIN, train_7d1c=VCJOB)
    with pytest.raises(AmbiguousGangError, match=r"write job/train, podgroup/train, vcjob/train$"):
        find(there, "train")
    assert find(there, "podgroup/train") == ["train"]
    assert find(there, "job/train") == [TRAIN]
    assert find(there, "vcjob/train") == [VOLCANO]


def test_every_shown_name_finds_the_gang_that_shows_it() -> None:
    serve = GangOwner("lws", "serve", "9")
    there = gangs("train", TRAIN, WORKERS, DRIVER, train_7d1c=VCJOB, serve_0=serve, serve_1=serve)
    for name, text in names(there).items():
        assert find(there, text) == [name], text


def test_word_of_a_kind_is_the_one_of_the_command_line() -> None:
    assert kind_word("batch.volcano.sh", "Job") == "vcjob"
    assert kind_word("batch", "Job") == "job"
    assert kind_word("leaderworkerset.x-k8s.io", "LeaderWorkerSet") == "lws"
