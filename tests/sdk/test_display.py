"""EntryList as frames, and HTML in notebooks: texts of the cluster are escaped."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from phalanx.model.verdict import NodeCount
from phalanx.reports.jobs.entries import JobEntry
from phalanx.reports.why_answer import WhyAnswer
from phalanx.sdk import AsyncJob, as_completed, html
from phalanx.sdk.arrays import AsyncJobArray
from phalanx.sdk.entry_list import EntryList
from phalanx.sdk.errors import PhalanxError
from phalanx.sdk.explanation import Explanation
from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromisedStart


class Entry(msgspec.Struct, omit_defaults=True):
    name: str
    reason: str = ""


def test_rows_have_every_column_in_each_row() -> None:
    assert EntryList([Entry("a"), Entry("b", "x")]).to_dicts() == [
        {"name": "a", "reason": ""},
        {"name": "b", "reason": "x"},
    ]


def test_list_prints_as_a_table_of_its_columns() -> None:
    assert repr(EntryList([Entry("a", "x"), Entry("long")], ("name", "reason"))) == "NAME  REASON\na     x\nlong"
    assert repr(EntryList([])) == "[]"


def test_table_escapes_texts_and_counts_hidden_rows() -> None:
    shown = EntryList([Entry("<script>")] * 60, ("name",))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "and 10 more rows" in shown


@pytest.mark.parametrize(("method", "package"), [("to_pandas", "pandas"), ("to_polars", "polars")])
def test_frame_without_its_package_is_an_error_that_names_it(
    method: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PhalanxError, match=f"pip install {package}"):
        getattr(EntryList([Entry("a")]), method)()


def test_job_shows_state_bar_reason_and_start_escaped() -> None:
    entry = JobEntry(
        kind="vcjob", namespace="ml", name="a<b", state=GangState.PENDING, total=4, running=1, reason="NoRoom",
        message="<b>",
    )  # fmt: skip
    shown = html.job(entry, "starts no later than 10:00")
    assert "a&lt;b" in shown
    assert "width:25%" in shown
    assert "NoRoom: &lt;b&gt;" in shown
    assert "no later than 10:00" in shown


def test_explanation_has_state_reason_fix_and_start() -> None:
    start = PromisedStart(no_later_than="2026-12-01T10:00:00Z", basis="run time limits")
    answer = WhyAnswer("Gang", "ml/a", GangState.PENDING, "no room", reason="NotEnoughResources", start=start)
    answer.nodes, answer.change = [NodeCount("Insufficient cpu", 3)], "add 1 cpu"
    explanation = Explanation(answer)
    assert explanation.fix == "add 1 cpu"
    assert explanation.nodes == {"Insufficient cpu": 3}
    assert str(explanation.start) == "starts no later than 2026-12-01T10:00:00Z (run time limits)"
    assert "Fix:</b> add 1 cpu" in explanation._repr_html_()


async def test_array_shows_its_jobs_by_state_and_yields_them_with_the_function_of_the_package() -> None:
    cluster: Any = None
    array = AsyncJobArray(cluster, ["echo"], "abc", "letters", 2, None, {})
    assert repr(array) == "<AsyncJobArray letters of 3 jobs: 3 not submitted>"
    entry = JobEntry(kind="vcjob", namespace="ml", name="letters-0", state=GangState.RUNNING)
    array.jobs.append(AsyncJob(cluster, entry))
    assert repr(array) == "<AsyncJobArray letters of 3 jobs: 1 Running, 2 not submitted>"
    assert hasattr(as_completed(array), "__aiter__")
    assert hasattr(as_completed(array.jobs), "__aiter__")
