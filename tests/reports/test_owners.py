"""Gangs by the name of their job: owner references are followed, independent of the name of the PodGroup."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.explanation.why import parse_target
from phalanx.model.gang_names import AmbiguousGangError
from phalanx.reports.owners import OwnerTree


def owned(uid: str, *owners: tuple[str, str, str], controller: bool = True) -> dict[str, Any]:
    references = [
        {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": of, "controller": controller}
        for kind, name, of in owners
    ]
    return {"metadata": {"uid": uid, "ownerReferences": references}}


def tree(*documents: dict[str, Any]) -> OwnerTree:
    made = OwnerTree("ns")
    for document in documents:
        made.add(document)
    return made


RAY = tree(
    owned("group", ("RayJob", "rj", "u-job")),
    owned("head", ("RayCluster", "rj-abc", "u-cluster")),
    owned("u-cluster", ("RayJob", "rj", "u-job")),
    owned("submitter", ("Job", "rj", "u-submitter")),
    owned("u-submitter", ("RayJob", "rj", "u-job")),
)


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("rj", "", {"group", "head", "u-cluster", "submitter", "u-submitter"}),
        ("rj", "rayjob", {"group", "head", "u-cluster", "submitter", "u-submitter"}),
        ("rj-abc", "raycluster", {"head"}),
        ("rj-abc", "", {"head"}),
        ("rj", "raycluster", set()),
        ("rj", "job", {"submitter"}),
        ("nobody", "", set()),
    ],
)
def test_objects_of_a_job_are_found_by_its_name(name: str, kind: str, found: set[str]) -> None:
    assert RAY.below(name, kind) == found


def test_owners_that_cannot_be_read_are_known_by_the_references_to_them() -> None:
    there = tree(owned("pod", ("PyTorchJob", "a", "u-a")))
    assert there.below("a", "pytorchjob") == {"pod"}
    assert there.unread() == {("x/v1", "PyTorchJob")}


def test_jobs_of_two_kinds_and_one_name_are_distinguished_by_kind() -> None:
    there = tree(owned("p", ("PyTorchJob", "a", "u-a")), owned("q", ("MPIJob", "a", "u-b")))
    with pytest.raises(AmbiguousGangError, match="mpijob/a, pytorchjob/a"):
        there.below("a")
    assert there.below("a", "mpijob") == {"q"}


def test_plain_name_means_the_topmost_owner_and_cyclic_references_end() -> None:
    there = tree(owned("u-set", ("TrainJob", "t", "u-train")), owned("pod", ("JobSet", "t", "u-set")))
    assert there.below("t") == {"u-set", "pod"}
    assert there.below("t", "jobset") == {"pod"}
    circle = tree(owned("a", ("A", "x", "b")), owned("b", ("B", "x", "a")))
    assert circle.below("x", "a") <= {"a", "b"}


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("lws", "leaderworkerset"),
        ("rayjob", "rayjob"),
        ("trainjobs", "trainjob"),
        ("sparkapp", "sparkapplication"),
        ("MPIJob.kubeflow.org", "mpijob"),
    ],
)
def test_kinds_are_called_as_their_apis_call_them(word: str, kind: str) -> None:
    assert parse_target((f"{word}/a",)) == (kind, "a")
