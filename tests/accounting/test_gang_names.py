"""Runs in the accounts have the names by which views show their gangs."""

from __future__ import annotations

from phalanx.accounting.facts import gang_fact
from phalanx.model.gang import Gang, GangKey, GangOwner, owned_name


def test_run_of_a_generated_podgroup_has_the_name_of_its_job() -> None:
    gang = Gang(GangKey("ns", "train-7d1c"), uid="u", owner=GangOwner("vcjob", "train", "7d1c"), shown="train")
    fact = gang_fact(gang)
    assert (fact.shown, fact.name) == ("train", "train-7d1c")


def test_run_of_an_indexed_job_has_the_name_of_the_job() -> None:
    assert gang_fact(Gang(GangKey("ns", owned_name("Job", "train", "u-1")))).shown == "train"


def test_uid_of_a_run_stays_when_another_gang_takes_its_name() -> None:
    gang = Gang(GangKey("ns", "train-7d1c"), uid="u", shown="train")
    renamed = Gang(GangKey("ns", "train-7d1c"), uid="u", shown="vcjob/train")
    assert gang_fact(gang).run_uid == gang_fact(renamed).run_uid
