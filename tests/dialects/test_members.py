"""Members of a gang against a search through all of them, in small gangs and in gangs with an index."""

from __future__ import annotations

import random

import pytest

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration
from phalanx.dialects.gangs.declaration import Declaration
from phalanx.dialects.gangs.members import Members
from phalanx.dialects.workloads.rule import WORKLOAD
from phalanx.model.gang import GangOwner

DECLARATIONS = [
    MemberDeclaration(Declaration(WORKLOAD, "train", "label group"), priority, scheduler=f"scheduler-{priority}")
    for priority in range(3)
]
JOBS = [None, GangOwner("job", "train", "1"), GangOwner("job", "train", "2")]


def oldest_by_search(members: dict[str, Member]) -> list[Member]:
    oldest: dict[MemberDeclaration, Member] = {}
    for member in sorted(members.values(), key=lambda member: (member.created, member.name, member.uid)):
        oldest.setdefault(member.declared, member)
    return list(oldest.values())


def job_by_search(members: dict[str, Member]) -> GangOwner | None:
    jobs = {member.job for member in members.values()}
    return jobs.pop() if len(jobs) == 1 else None


@pytest.mark.parametrize("most", [4, 12, 60])
def test_members_equal_a_search_after_random_changes(most: int) -> None:
    choice = random.Random(most)
    members, known = Members(), dict[str, Member]()
    for number in range(600):
        before = oldest_by_search(known), job_by_search(known)
        step = choice.random()
        if known and (len(known) >= most or step < 0.3):
            uid = choice.choice(sorted(known))
            del known[uid]
            resolve = members.remove(uid)
        elif known and step < 0.5:
            uid, declared = choice.choice(sorted(known)), choice.choice(DECLARATIONS)
            last, age = known[uid], choice.randrange(5)
            known[uid] = Member(age, last.name, uid, declared, last.job)
            resolve = members.change(age, last.name, uid, declared)
        else:
            # A pod can leave the gang and enter it again, also with another job.
            age, name = choice.randrange(5), choice.randrange(number + 1)
            uid = f"uid-{age}-{name}"
            if uid in known:
                continue
            job = choice.choice(JOBS[:2] if number % 200 < 150 else JOBS)
            known[uid] = Member(age, f"pod-{name}", uid, choice.choice(DECLARATIONS), job)
            resolve = members.add(known[uid])
        assert members.oldest_first() == oldest_by_search(known)
        assert members.job == job_by_search(known)
        assert len(members) == len(known)
        assert set(members.uids()) == set(known)
        assert members.schedulers() == {member.declared.scheduler for member in known.values()}
        if known:
            assert members.oldest() == oldest_by_search(known)[0].uid
        changed = (oldest_by_search(known), job_by_search(known)) != before
        assert resolve or not changed
