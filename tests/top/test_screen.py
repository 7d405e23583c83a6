"""Drawing: only visible and changed parts, no terminal control characters, and no colour on request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from rich.color import ColorType

from phalanx.cli.top.filters import Filter
from phalanx.cli.top.gangs import COLUMNS, FIELDS
from phalanx.cli.top.line_view import LineView
from phalanx.cli.top.node_map import natural
from phalanx.cli.top.pieces import fitted, wrapped
from phalanx.cli.top.row_list import layout
from phalanx.views.gang_state import GangState
from tests.top.rows import HandFeed, gang, node, queue
from tests.top.screen import Screen, opened

HOSTILE = (
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "[bold red]markup[/] [@click=app.bell]x[/]",
    "\x9b31m\x90",
    "line\nbreak\rback\ttab",
    "\u202eturned\u2066round\u200bzero",
    "\\[escaped] ${x} %s {0}",
    "wide 界界界 \U0001f469\u200d\U0001f4bb",
    "a" * 5000,
)
#: Characters that must not reach a terminal: control characters, and marks that reverse or join text.
FORBIDDEN = {chr(code) for code in (*range(32), *range(127, 160), 0x200B, 0x200D, 0x202E, 0x2066)}


def assert_harmless(screen: Screen) -> None:
    for strip in screen.strips():
        for segment in strip:
            assert not FORBIDDEN & set(segment.text), repr(segment.text)
            assert segment.style is None or not segment.style.meta, "markup was acted upon"
            assert segment.style is None or segment.style.link is None
        assert strip.cell_length == screen.app.size.width


async def test_hostile_names_are_only_printed_in_lists() -> None:
    feed = HandFeed()
    feed.put("gangs", [gang(0, name, state=GangState.PENDING, message=name) for name in HOSTILE])
    feed.put("nodes", [node(0, name, rack=name) for name in HOSTILE])
    feed.put("queues", [queue(place, name) for place, name in enumerate(HOSTILE)])
    async with opened(feed) as screen:
        await screen.shows(f"gangs 1/{len(HOSTILE)}")
        assert screen.line("[bold red]")
        assert screen.line("\\x1b[2J")
        assert_harmless(screen)
        for word in ("queues", "nodes"):
            await screen.press("colon", word[0], "enter")
            await screen.shows(f" {word} ")
            assert_harmless(screen)


@pytest.mark.parametrize("name", ["".join(HOSTILE[:-1]), HOSTILE[-1]], ids=["controls", "long"])
async def test_hostile_names_are_only_printed_on_their_pages(name: str) -> None:
    feed = HandFeed()
    feed.put("gangs", [gang(0, name, state=GangState.PENDING, message=name)])
    feed.put("nodes", [node(0, name, rack=name)])
    feed.put("queues", [queue(0, name)])
    async with opened(feed, size=(100, 100)) as screen:
        await screen.shows("gangs 1/1")
        for keys in (
            ("enter",), ("y",), ("y", "escape", "escape", "colon", "q", "enter"), ("y",),
            ("escape", "colon", "n", "enter", "enter"), ("y",),
        ):  # fmt: skip
            await screen.press(*keys)
            await screen.until(lambda: not screen.app.place.about or screen.app._answer, "an answer")
            await screen.settle()
            assert_harmless(screen)


async def counted(screen: Screen, view: LineView, act: Callable[[], Awaitable[None]]) -> tuple[int, int]:
    """Count the lines of a panel that were drawn, and those rendered for comparison, during an action."""
    drawn, made = [0], [0]
    render, make = view.render_line, view.line

    def counting_render(y: int) -> object:
        drawn[0] += 1
        return render(y)

    def counting_make(number: int, width: int) -> object:
        made[0] += 1
        return make(number, width)

    view.render_line, view.line = counting_render, counting_make  # type: ignore[method-assign,assignment]
    try:
        await act()
        await screen.settle()
    finally:
        del view.render_line, view.line
    return drawn[0], made[0]


@pytest.mark.slow
async def test_only_visible_and_changed_rows_of_fifty_thousand_gangs_are_drawn() -> None:
    feed = HandFeed()
    feed.put("gangs", (gang(number) for number in range(50_000)))
    async with opened(feed, size=(120, 30)) as screen:
        await screen.shows("gangs 1/50000")
        screen.app.tick = lambda: None  # type: ignore[method-assign]
        gangs = screen.app.gangs
        await screen.press("N")

        async def change_one_that_is_seen() -> None:
            feed.put("gangs", [gang(3, state=GangState.GATED)])
            await screen.shows("gang-00003", "Gated")

        drawn, made = await counted(screen, gangs, change_one_that_is_seen)
        assert drawn == 1
        assert made < 10 * 30

        async def change_one_that_is_not_seen() -> None:
            feed.put("gangs", [gang(40_000, state=GangState.GATED)])
            await screen.until(lambda: feed.gangs.rows["ns/gang-40000"].state == "Gated", "the change")

        drawn, _ = await counted(screen, gangs, change_one_that_is_not_seen)
        assert drawn == 0

        async def go_to_the_end() -> None:
            await screen.press("G")
            await screen.shows("gangs 50000/50000")

        drawn, made = await counted(screen, gangs, go_to_the_end)
        assert drawn <= 2 * 30
        assert screen.line("gang-49999")
        feed.drop("gangs", "ns/gang-49999")
        await screen.shows("gangs 49999/49999")
        assert not screen.line("gang-49999")
        await screen.press("slash")
        await screen.type("00017")
        await screen.shows("gangs 1/1")


async def test_ten_thousand_nodes_are_blocks_and_one_that_changes_is_one_line() -> None:
    feed = HandFeed()
    feed.put("nodes", (node(number) for number in range(10_000)))
    async with opened(feed, start="nodes", size=(160, 30)) as screen:
        await screen.shows("nodes 10000", "node-0:")
        assert screen.line("rack-1 ", "40", "100%", "██ ██ ██")
        screen.app.tick = lambda: None  # type: ignore[method-assign]

        async def free_one() -> None:
            feed.put("nodes", [node(41, free=8000)])
            await screen.shows("rack-1 ", "98%", "██ ·· ██")

        drawn, _ = await counted(screen, screen.app.nodes, free_one)
        assert drawn == 1
        await screen.press("G")
        await screen.shows("rack-249")


async def test_no_color_removes_colours_and_words_carry_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    feed = HandFeed()
    feed.put("gangs", [gang(0, state=GangState.PARTIAL)])
    async with opened(feed) as screen:
        await screen.shows("gang-00000", "Partial")
        assert not colours(screen)


async def test_colours_are_the_terminals_own_and_so_is_the_background() -> None:
    feed = HandFeed()
    feed.put("gangs", [gang(0, state=GangState.PARTIAL)])
    async with opened(feed) as screen:
        await screen.shows("gang-00000", "Partial")
        assert colours(screen) == {"red", "yellow"}


def colours(screen: Screen) -> set[str]:
    """Names of the colours on the screen; true colours would be chosen for one background only."""
    found = set()
    for strip in screen.strips():
        for segment in strip:
            for colour in (segment.style.color, segment.style.bgcolor) if segment.style is not None else ():
                if colour is not None and colour.type is not ColorType.DEFAULT:
                    assert colour.type is ColorType.STANDARD, colour
                    found.add(colour.name)
    return found


async def test_no_message_makes_a_line_of_its_own() -> None:
    feed = HandFeed()
    feed.put("gangs", [gang(0, "x\nFORGED")])
    async with opened(feed) as screen:
        await screen.shows("gangs 1/1")
        await screen.press("enter")
        await screen.shows("FIX")
        assert not [line for line in screen.lines if line.strip().startswith("FORGED")]


def test_a_text_has_exactly_its_room() -> None:
    assert fitted("abc", 5) == "abc  "
    assert fitted("abc", 5, right=True) == "  abc"
    assert fitted("abcdef", 4) == "abc…"
    assert fitted("界界界", 4) == "界 …"
    assert fitted("a\x1bb", 8) == "a\\x1bb  "
    assert fitted("abc", 0) == ""


def test_long_lines_are_wrapped_deeper() -> None:
    assert wrapped("one two three", 10, 2) == ["  one two", "    three"]
    assert wrapped("", 10) == [""]


def test_least_important_columns_are_hidden_first() -> None:
    assert [column.title for column, _ in layout(COLUMNS, 200)] == [column.title for column in COLUMNS]
    assert [column.title for column, _ in layout(COLUMNS, 30)] == ["GANG", "STATE"]
    for width in range(20, 250):
        assert sum(size + 1 for _, size in layout(COLUMNS, width)) <= max(width, 15)


def test_filters_match_words_fields_and_their_opposites() -> None:
    row = gang(7, state=GangState.PENDING)
    for text, holds in (
        ("", True), ("GANG-00007", True), ("gang pend", True), ("gang run", False), ("!run", True),
        ("state:pending", True), ("state:pend", False), ("!state:pending", False), ("queue:default ns:ns", True),
        ("other:thing", False), ("!", False),
    ):  # fmt: skip
        assert Filter(text, FIELDS)(row) is holds, text


def test_numbers_in_names_count_by_their_value() -> None:
    assert sorted(["n-10", "n-9", "a", "n-9-b", "9", "10", ""], key=natural) == [
        "", "9", "10", "a", "n-9", "n-9-b", "n-10"
    ]  # fmt: skip
