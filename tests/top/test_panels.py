"""Every panel and every key of `phalanx top`, over a live cluster."""

from __future__ import annotations

import pytest

from phalanx.cli.top.feed import Feed, following
from phalanx.dashboard.watch import WatchOptions
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.reflector import ReflectorState
from phalanx.reports import scheduler_policy
from tests.dashboard.cluster import Site
from tests.top.screen import opened

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]


async def test_gangs_are_listed_with_state_members_and_why(feed: Feed) -> None:
    async with opened(feed) as screen:
        await screen.shows("ours", "impossible", "our-queue", "Pending", "0/2/2", "NotEnoughResources")
        await screen.shows("hidden-ns", "covert-train", "covert-queue", "Starting", "0/4/4")
        await screen.shows("ours", "pod/alone", "Pending")
        assert screen.line("NAMESPACE", "GANG", "STATE", "MEMBERS", "AGE", "START").endswith("WHY")
        assert "2 nodes" in screen.lines[0]
        assert "nvidia.com/gpu 100%" in screen.lines[0]
        # Waiting gangs are first.
        assert screen.lines.index(screen.line("impossible")) < screen.lines.index(screen.line("covert-train"))


async def test_a_filter_holds_while_it_is_typed_and_escape_clears_it(feed: Feed) -> None:
    async with opened(feed) as screen:
        await screen.shows("covert-train")
        await screen.press("slash")
        await screen.type("train !covert")
        await screen.until(lambda: screen.line("ours", "train") and not screen.line("covert-train"), "the filter")
        # Keys of the list are letters like any other while something is typed.
        await screen.type(" queue")
        await screen.shows("train !covert queue")
        await screen.shows("gangs 1/1")
        await screen.press("escape")
        await screen.shows("covert-train")
        await screen.press("slash")
        await screen.type("state:starting")
        await screen.press("enter")
        await screen.shows("gangs 1/1", "/state:starting")
        assert screen.line("covert-train")
        assert not screen.line("impossible")
        await screen.press("escape")
        await screen.shows("impossible")


async def test_list_is_sorted_by_the_selected_column(feed: Feed) -> None:
    async with opened(feed) as screen:
        await screen.shows("covert-train")
        await screen.press("N")
        await screen.shows("by name")
        names = [line.split()[1] for line in screen.lines[2:6]]
        assert names == ["covert-train", "pod/quiet-pod", "impossible", "pod/alone"]
        for key, order in (("A", "age"), ("Q", "queue"), ("P", "priority"), ("S", "state")):
            await screen.press(key)
            await screen.shows(f"by {order}")


async def test_cursor_moves_up_and_down_and_stays_with_its_row(site: Site, feed: Feed) -> None:
    async with opened(feed) as screen:
        await screen.shows("gangs 1/5")
        await screen.press("N", "j", "down", "j")
        await screen.shows("gangs 4/5")
        assert screen.app.gangs.chosen() == "ours/pod/alone"
        await screen.press("k")
        assert screen.app.gangs.chosen() == "ours/impossible"
        await site.pod("hidden-ns", "early", requests={"cpu": "900"})
        await screen.shows("pod/early")
        await screen.shows("gangs 4/6")
        assert screen.app.gangs.chosen() == "ours/impossible"
        await site.client.delete("/api/v1/namespaces/hidden-ns/pods/early", grace_seconds=0)
        await screen.shows("gangs 3/5")
        assert not screen.line("pod/early")
        assert screen.app.gangs.chosen() == "ours/impossible"
        await screen.press("G")
        await screen.shows("gangs 5/5")
        await screen.press("g")
        await screen.shows("gangs 1/5")
        await screen.press("ctrl+f")
        await screen.shows("gangs 5/5")
        await screen.press("ctrl+b")
        await screen.shows("gangs 1/5")


async def test_gang_story_shows_reason_fix_victims_and_events(feed: Feed) -> None:
    async with opened(feed, words="train !covert", size=(150, 60)) as screen:
        await screen.shows("gangs 1/1")
        await screen.press("enter")
        await screen.shows("WOULD EVICT")
        for title in ("WHY", "FIX", "MEMBERS (2)", "TIMELINE"):
            assert screen.line(title), screen.text
        leaving = screen.lines[screen.lines.index("WOULD EVICT") :]
        assert any("covert-train-" in line for line in leaving[:8]), screen.text
        assert screen.line("train-0: Pending")
        assert screen.line("created")
        await screen.press("escape")
        await screen.shows("gangs 1/1")


async def test_the_answer_is_shown_as_yaml_and_as_json(feed: Feed) -> None:
    async with opened(feed, words="impossible", size=(150, 90)) as screen:
        await screen.shows("gangs 1/1")
        await screen.press("y")
        await screen.shows("reason: NotEnoughResources")
        assert screen.line("id: ours/impossible")
        await screen.press("y")
        await screen.shows('"reason": "NotEnoughResources"')
        await screen.press("escape", "enter")
        await screen.shows("FIX")
        await screen.press("y")
        await screen.shows('"id": "ours/impossible"')
        await screen.press("y", "escape")
        await screen.shows("FIX")


async def test_queues_have_bars_and_open_their_gangs(feed: Feed) -> None:
    async with opened(feed, start="queues") as screen:
        await screen.shows("covert-queue", "100%", "62%", "█", "▒", "│")
        assert screen.line("QUEUE", "USED", "OWN", "BORROWED")
        # A queue stands below its parent.
        assert screen.line("root").startswith("root")
        assert screen.line("our-queue").startswith("  our-queue")
        await screen.press("j")
        await screen.shows("queues 2/4")
        await screen.press("y")
        await screen.shows("name: covert-queue")
        await screen.press("escape")
        await screen.shows("queues 2/4")
        await screen.press("enter")
        await screen.shows("gangs 1/1", "/queue:covert-queue")
        assert screen.line("covert-train")
        await screen.press("escape", "escape")
        await screen.shows("queues 2/4")
        for key, order in (("N", "name"), ("U", "use"), ("W", "waiting"), ("T", "tree")):
            await screen.press(key)
            await screen.shows(f"by {order}")


async def test_nodes_are_blocks_by_rack_and_open_with_their_pods(feed: Feed) -> None:
    async with opened(feed, start="nodes") as screen:
        await screen.shows("r1", "1", "100%", "[]")
        assert screen.line("r2").endswith("██")
        await screen.shows("nodes 2", "node-1: 0 of 4 nvidia.com/gpu")
        await screen.press("l")
        await screen.shows("nodes 2", "shy-node:")
        await screen.press("h")
        await screen.shows("nodes 2", "node-1:")
        await screen.press("r")
        await screen.shows("RACK", "cpu")
        assert screen.line("r2", "25%").endswith("░░")
        await screen.press("j", "enter")
        await screen.shows("node shy-node")
        await screen.shows("PODS (2)")
        assert screen.line("100% used", "nvidia.com/gpu: 0 of 4 free")
        assert screen.line("hidden-ns/covert-train-2")
        await screen.press("y")
        await screen.shows("rack: r2")
        await screen.press("escape", "escape", "slash")
        await screen.type("rack:r1")
        await screen.press("enter")
        await screen.shows("nodes 1", "/rack:r1")
        assert not screen.line("r2")


async def test_colon_opens_a_list_and_reports_unknown_names(feed: Feed) -> None:
    async with opened(feed) as screen:
        for typed, shown in (("nodes", "nodes 2"), ("queues", "queues 1/4"), ("gangs impossible", "gangs 1/1")):
            await screen.press("colon")
            await screen.type(typed)
            await screen.press("enter")
            await screen.shows(shown)
        await screen.press("colon")
        await screen.type("pods")
        await screen.press("enter")
        await screen.shows("unknown panel pods")
        await screen.press("colon", "n", "escape")
        await screen.shows("gangs 1/1")


async def test_help_lists_the_keys(feed: Feed) -> None:
    async with opened(feed) as screen:
        await screen.press("question_mark")
        await screen.shows("no later than")
        assert screen.line("Esc", "back")
        await screen.press("escape")
        await screen.shows("gangs 1/5")


@pytest.mark.parametrize("keys", [("q",), ("ctrl+c",), ("colon", "q", "exclamation_mark", "enter")])
async def test_top_ends_on_its_key(feed: Feed, keys: tuple[str, ...]) -> None:
    async with opened(feed) as screen:
        await screen.press(*keys)
        await screen.until(lambda: screen.app._exit, "its end")
        assert screen.app.return_code == 0


async def test_narrow_terminal_hides_the_least_important_columns(feed: Feed) -> None:
    async with opened(feed) as screen:
        await screen.shows("covert-train", "covert-queue")
        await screen.pilot.resize_terminal(60, 10)
        await screen.until(lambda: max(map(len, screen.lines)) <= 60 and len(screen.lines) == 10, "the size")
        await screen.shows("impossible", "Pending", "NotEnoughRe")
        assert not screen.line("covert-queue")
        await screen.pilot.resize_terminal(180, 40)
        await screen.shows("covert-train", "covert-queue")


async def test_a_story_is_brought_up_to_date(site: Site, feed: Feed) -> None:
    async with opened(feed, words="pod/brief", size=(120, 50)) as screen:
        await site.pod("ours", "brief", requests={"cpu": "900"})
        await screen.shows("gangs 1/1")
        await screen.press("enter")
        await screen.shows("brief: Pending")
        await site.client.delete("/api/v1/namespaces/ours/pods/brief", grace_seconds=0)
        await screen.shows("no longer exists")
        await screen.press("escape")
        await screen.shows("gangs 0/0")


async def test_unreachable_cluster_is_reported(site: Site, feed: Feed) -> None:
    """Nothing changes then, so nothing else would tell."""
    observer = feed.watch._observer
    assert observer is not None
    async with opened(feed) as screen:
        observer.nodes.state = ReflectorState.WAITING
        await screen.shows("CLUSTER NOT REACHABLE")
        observer.nodes.state = ReflectorState.WATCHING
        await screen.until(lambda: not screen.line("CLUSTER NOT REACHABLE"), "the cluster again")


async def test_top_follows_a_changed_policy_of_the_scheduler(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is unchanged: the filter, and the selected row."""
    monkeypatch.setattr(scheduler_policy, "LOOK_PERIOD", 0.2)
    place, name = "policy-of-top", "phalanx-policy-in-force"
    await site.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}])
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await site.client.create(CONFIG_MAPS.path(place), {**document, "data": {"policy.yaml": "actions: allocate\n"}})
    async with following(site.client, WatchOptions((), lease_namespace=place)) as (feed, watching):
        first = feed.watch
        async with opened(feed, start="queues") as screen:
            await screen.shows("covert-queue")
            assert not any(row.queue and row.queue.own_share for row in feed.queues.rows.values())
            await screen.press("slash", *"covert", "enter")
            await screen.shows("queues 1/1")
            news = {"data": {"policy.yaml": "actions: allocate\ntiers:\n- plugins:\n  - name: proportion\n"}}
            news["data"]["scheduler-names"] = '["phalanx", "volcano"]'
            await site.client.patch(CONFIG_MAPS.path(place, name), news, PatchType.MERGE)
            await screen.until(
                lambda: any(row.queue and row.queue.own_share for row in feed.queues.rows.values()),
                "shares by right",
            )
            assert feed.watch is not first
            await screen.shows("queues 1/1", "/covert")
            await site.pod("ours", "seen-by-the-second", requests={"cpu": "900"}, scheduler="volcano")
            await screen.until(lambda: "ours/pod/seen-by-the-second" in feed.gangs.rows, "a pod that came later")
        assert not watching.done()
