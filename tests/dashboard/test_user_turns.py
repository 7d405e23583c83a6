"""Each user of the page has one computing question at a time."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.dashboard.commands.turns import UserTurns


async def test_second_question_of_a_user_is_refused_and_other_users_are_answered() -> None:
    turns = UserTurns()
    async with turns.turn(Viewer("ada")):
        async with turns.turn(Viewer("grace")):
            pass
        with pytest.raises(ViewerAccessError) as refused:
            async with turns.turn(Viewer("ada", groups=("more",))):
                pass
    assert refused.value.status == 429
    async with turns.turn(Viewer("ada")):
        pass


async def test_waiting_questions_of_a_user_run_one_after_another_up_to_the_limit() -> None:
    turns, running, most = UserTurns(waiting=2), 0, 0
    answers: list[str] = []

    async def ask() -> None:
        nonlocal running, most
        try:
            async with turns.turn(Viewer("ada")):
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1
                answers.append("answered")
        except ViewerAccessError:
            answers.append("refused")

    await asyncio.gather(*(ask() for _ in range(5)))
    assert (sorted(answers), most) == (["answered"] * 3 + ["refused"] * 2, 1)


async def test_failed_question_frees_the_turn_of_its_user() -> None:
    turns = UserTurns()
    with pytest.raises(RuntimeError):
        async with turns.turn(Viewer("ada")):
            raise RuntimeError
    async with turns.turn(Viewer("ada")):
        pass
