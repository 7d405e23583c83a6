"""Every panel and every key of `phalanx top`, over a live cluster."""

from __future__ import annotations

import pytest

from tests.dashboard.cluster import Site
from tests.top.screen import opened

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


async def test_gangs_are_listed_with_state_members_and_why(site: Site) -> None:
    async with opened(site) as screen:
        await screen.shows("ours", "impossible", "our-queue", "Waiting", "0/2/2", "NotEnoughResources")
        await screen.shows("hidden-ns", "covert-train", "covert-queue", "Bound", "0/4/4")
        await screen.shows("ours", "pod/alone", "Waiting")
        print(screen.text)
        await screen.press("question_mark")
        print(screen.text)
        await screen.press("escape", "colon", "q", "enter")
        await screen.shows("covert-queue", "100%")
        print(screen.text)
        await screen.press("colon", "n", "enter")
        await screen.shows("shy-node")
        print(screen.text)
        await screen.press("enter")
        await screen.shows("PODS (2)")
        print(screen.text)
        await screen.press("y")
        print(screen.text)
        await screen.press("colon", "g", "enter", "slash", *"train", "enter", "enter")
        await screen.shows("WHY")
        print(screen.text)
        assert 0
