"""Lists: formats, tables, their order, and hostile text in them."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.columns import columns, fields
from phalanx.cli.jobs.gang_columns import COLUMNS, nodes_or_reason
from phalanx.cli.listing.formats import OutputFormat, custom_cells, parse_output, print_documents
from phalanx.cli.listing.harmless import MOST, cells_of, harmless, harmless_json, harmless_lines
from phalanx.cli.listing.progress import Progress
from phalanx.cli.listing.sorting import sorted_entries
from phalanx.cli.listing.table import Table, colours_wanted
from phalanx.cli.main import cli
from phalanx.daemon.gang_entries import GangEntry
from phalanx.views.gang_state import GangState

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2066\r\nroot# \x7f\x00\ud800"


def parsed(text: str) -> OutputFormat:
    command = click.Command("x")
    return parse_output(click.Context(command), click.Option(["-o"]), text)


def gang(name: str, **what: Any) -> GangEntry:
    return GangEntry(**{"kind": "vcjob", "namespace": "default", "name": name, "state": GangState.PENDING, **what})


@given(st.text())
def test_any_cell_text_is_one_printable_line(text: str) -> None:
    shown = harmless(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert harmless(shown) == shown


def test_escapes_are_spelled_out_in_every_kind_of_table() -> None:
    table = Table(["NAME"], colours=False).lines([[HOSTILE]], [[None]], header=True)
    for lines in (table, columns(["NAME"], [[HOSTILE]]), fields([("Name", HOSTILE)])):
        shown = "\n".join(lines)
        assert "\\x1b]0;owned\\x07" in shown
        assert not {character for character in shown if not character.isprintable()} - {"\n"}
    assert "\\u202egnp" in table[1]


def test_a_giant_cell_is_cut() -> None:
    assert len(harmless("x" * 10**6)) == MOST
    assert len(harmless("\x1b" * 10**6)) < 5 * MOST


def test_a_name_of_any_length_widens_no_table() -> None:
    assert [len(cell) for cell in cells_of(["x" * 10**5, "", "y" * 500], "-")] == [253, 1, 500]


def test_json_is_equal_and_safe_to_print() -> None:
    text = harmless_json(json.dumps({"name": HOSTILE[:-1]}, ensure_ascii=False))
    assert json.loads(text) == {"name": HOSTILE[:-1]}
    assert text.isprintable()


def test_a_template_on_a_terminal_keeps_its_own_lines_and_tabs() -> None:
    assert harmless_lines("a\tb\x1b\nc") == "a\tb\\x1b\nc"


@pytest.mark.parametrize(
    ("text", "word"),
    [("wide", "wide"), ("=json", "json"), ("name", "name"), ("jsonpath={.items}", "jsonpath"), ("table", "table")],
)
def test_formats_are_kubectls(text: str, word: str) -> None:
    assert parsed(text).word == word


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yamll", "expected wide"),
        ("jsonpath", "needs a template"),
        ("jsonpath={.a", "unbalanced brace"),
        ("custom-columns=", "needs a specification"),
        ("custom-columns=A", "write HEADER:PATH"),
        ("custom-columns=A:.b[", "no JSONPath"),
        ("wide=1", "expected wide"),
    ],
)
def test_unknown_output_format_is_rejected_with_its_name(text: str, why: str) -> None:
    with pytest.raises(click.BadParameter, match=why):
        parsed(text)


def test_custom_columns_show_none_for_missing_fields() -> None:
    form = parsed("custom-columns=NAME:.name,X:.nodes[?(@=='a,b')],NODES:.nodes[*]")
    assert custom_cells(form.columns, {"name": "a", "nodes": ["n1", "n2"]}) == ["a", "<none>", "n1,n2"]


def test_documents_are_a_list_and_in_a_watch_one_each() -> None:
    documents = [{"name": "a"}, {"name": "b"}]
    names = ["job/a", "job/b"]

    def text(form: str, *, single: bool) -> str:
        return print_documents(documents, parsed(form), names.__getitem__, single=single)

    assert json.loads(text("json", single=False)) == {"kind": "List", "items": documents}
    assert [json.loads(line) for line in text("json", single=True).splitlines()] == documents
    assert text("yaml", single=True) == "---\nname: a\n---\nname: b\n"
    assert text("name", single=False) == "job/a\njob/b\n"
    assert text("jsonpath={.items[*].name}", single=False) == "a b"
    assert text("jsonpath={.name};", single=True) == "a;b;"


def test_a_table_keeps_its_widths_when_rows_come_later() -> None:
    table = Table(["NAME", "ST"], colours=False)
    assert table.lines([["train", "R"]], [[None, None]], header=True) == ["NAME    ST", "train   R"]
    assert table.lines([["a", ""]], [[None, None]], header=False) == ["a       -"]


def test_colours_do_not_shift_columns() -> None:
    table = Table(["ST", "N"], colours=True)
    line = table.lines([["R", "1"]], [["green", None]], header=True)[1]
    assert (click.unstyle(line), line != click.unstyle(line)) == ("R    1", True)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("", ["b10", "b2", "a", "c"]),
        ("gang", ["a", "b2", "b10", "c"]),
        ("-GPUS", ["a", "b10", "b2", "c"]),
        (".gpus", ["b2", "b10", "a", "c"]),
        ("-.total", ["c", "b10", "b2", "a"]),
    ],
)
def test_a_list_is_sorted_by_a_column_or_a_field(by: str, names: list[str]) -> None:
    gangs = [gang("b10", gpus=2), gang("b2", gpus=1), gang("a", gpus=10), gang("c", total=4)]
    found = [entry.name for entry in sorted_entries(gangs, by, COLUMNS, msgspec.to_builtins)]
    assert found == names


@pytest.mark.parametrize("by", ["nope", ".a["])
def test_an_order_that_is_none_is_refused(by: str) -> None:
    with pytest.raises(click.UsageError, match="--sort-by"):
        sorted_entries([gang("a")], by, COLUMNS, msgspec.to_builtins)


def test_the_last_column_has_nodes_or_the_reason_or_both() -> None:
    nodes = ("gpu-1", "gpu-2")
    assert nodes_or_reason(gang("a", nodes=nodes), full=False) == "gpu-[1-2]"
    waits = gang("a", reason="NotEnoughResources", message="2 of 4 fit")
    assert nodes_or_reason(waits, full=False) == "(NotEnoughResources)"
    assert nodes_or_reason(waits, full=True) == "(NotEnoughResources: 2 of 4 fit)"
    short = gang("a", state=GangState.PARTIAL, nodes=nodes[:1], reason="Evicted")
    assert nodes_or_reason(short, full=False) == "gpu-1 (Evicted)"


def test_colours_are_used_only_on_terminals_and_unless_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not colours_wanted()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert colours_wanted()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours_wanted()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not colours_wanted()


def test_progress_is_shown_only_on_a_terminal_and_erased_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with Progress(patience=0) as progress:
        progress.advanced("pods", 500, 99_500)
    assert written.getvalue() == ""
    monkeypatch.setattr(written, "isatty", lambda: True)
    with Progress(patience=0) as progress:
        progress.advanced("pods", 25_000, 75_000)
        told = written.getvalue()
    assert "25,000 of 100,000 objects" in told
    assert written.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize("interval", ["0.1", "x"])
def test_a_watch_that_looks_too_often_is_a_usage_error(interval: str) -> None:
    refused = CliRunner().invoke(cli, ["jobs", "-w", "--interval", interval])
    assert (refused.exit_code, "--interval" in refused.output) == (2, True)
