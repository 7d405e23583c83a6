"""The page for the owner of a cluster: three sentences, five charts, tables with better and worse marked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.simulation.gantt import GanttHour
from phalanx.simulation.report.axes import log_marks, log_time_marks, round_marks, time_marks
from phalanx.simulation.report.charts import lines
from phalanx.simulation.report.comparison import compare
from phalanx.simulation.report.effects import Effect, effect
from phalanx.simulation.report.group_comparison import by_width
from phalanx.simulation.report.metric_words import METRICS, MetricUnit, shown_difference, shown_value, words_of
from phalanx.simulation.report.never_started import never_started_of
from phalanx.simulation.report.owner_summary import owner_sentences
from phalanx.simulation.report.tables import group_table
from phalanx.simulation.runs import RunResult, Speed

CLUSTER = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: NodePool
metadata: {name: a}
spec: {count: 2, allocatable: {cpu: 5}}
"""
STREAM = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: stream}
spec:
  jobs:
  - {name: small, count: 400, interval: 45, runTime: 5m, requests: {cpu: 1}, limit: 5m}
  - {name: large, count: 3, at: 10m, interval: 10m, runTime: 10m, pods: 8, requests: {cpu: 1}, limit: 10m}
"""
GREEDY = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]\n'
RESERVING = GREEDY.replace("allocate", "allocate, reserve, backfill")


def entry(mean: float, low: float | None = None, high: float | None = None, **more: object) -> dict[str, object]:
    return {"mean": mean, "low": low, "high": high, **more}


def comparison(before: dict[str, object], after: dict[str, object], censored: tuple[int, int]) -> dict[str, Any]:
    waits = {"a": entry(censored[0]), "b": entry(censored[1])}
    return {"mean_wait_seconds": {"a": before, "b": after}, "censored_waits": waits}


@pytest.mark.parametrize(
    ("before", "after", "censored", "expected"),
    [
        (entry(100), entry(50), (0, 0), Effect.BETTER),
        (entry(100), entry(150), (0, 0), Effect.WORSE),
        (entry(100), entry(100.2), (0, 0), Effect.EQUAL),
        (entry(100), entry(50, difference=entry(-50, -120, 20)), (0, 0), Effect.UNCLEAR),
        (entry(100), entry(50, difference=entry(-50, -70, -30)), (0, 0), Effect.BETTER),
        # The shorter wait only counts the waits so far of more jobs.
        (entry(100), entry(50, lower_bound=True), (0, 20), Effect.UNCLEAR),
        (entry(100, lower_bound=True), entry(50, lower_bound=True), (30, 20), Effect.BETTER),
        (entry(50, lower_bound=True), entry(100), (20, 0), Effect.UNCLEAR),
    ],
)
def test_effect_of_a_policy(
    before: dict[str, object], after: dict[str, object], censored: tuple[int, int], expected: Effect
) -> None:
    assert effect(words_of("mean_wait_seconds"), comparison(before, after, censored), "a", "b") is expected


def test_metric_without_a_direction_has_no_effect() -> None:
    assert effect(words_of("cycles"), {"cycles": {"a": entry(1), "b": entry(2)}}, "a", "b") is None


def test_axes_have_round_marks() -> None:
    assert round_marks(87) == [0, 20, 40, 60, 80, 100]
    assert round_marks(3, whole=True) == [0, 1, 2, 3]
    assert round_marks(0.7) == [0, 0.2, 0.4, 0.6, 0.8]
    assert time_marks(16 * 3600) == [hour * 3600 for hour in range(0, 17, 2)]
    assert time_marks(95) == [0, 30, 60, 90]
    assert log_time_marks(700) == [1, 10, 60, 600, 3600]
    assert log_marks(30) == [1, 2, 5, 10, 20, 50]


def test_values_have_their_units() -> None:
    assert shown_value(12_000, MetricUnit.SECONDS) == "3 h 20 min"
    assert shown_value(-12_000, MetricUnit.SECONDS, signed=True) == "−3 h 20 min"
    assert shown_value(0.643, MetricUnit.PART) == "64.3 %"
    assert shown_value(12_345, MetricUnit.COUNT) == "12,345"


def report(folder: Path, *policies: str) -> tuple[str, dict[str, Any]]:
    """Return the text of the page without markup, and summary.json."""
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "stream.yaml").write_text(STREAM)
    words = ["simulate", "--cluster", f"{folder}/cluster.yaml", "--workload", f"{folder}/stream.yaml", "--policy"]
    for number, policy in enumerate(policies):
        (folder / f"policy-{number}.yaml").write_text(policy)
        words.append(str(folder / f"policy-{number}.yaml"))
    words += ["--until", "2h", "--processes", "1", "--report", str(folder / "out")]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    return (folder / "out" / "report.html").read_text(), json.loads((folder / "out" / "summary.json").read_text())


@pytest.mark.feature("start-reservations")
def test_page_opens_with_three_sentences_and_five_charts_before_tables(tmp_path: Path) -> None:
    page, _ = report(tmp_path, GREEDY, RESERVING)
    opening = re.search(r"<div class='owner'>(.*?)</div>", page)
    assert opening is not None
    first, improves, worsens = re.findall(r"<p>(.*?)</p>", opening[1])
    assert first.startswith("Use policy-1 for this workload: 0 of ")
    assert "(policy-0: 3)" in first
    assert "the number of jobs that never start (3 → 0)" in improves
    assert worsens.startswith("It makes worse the ")
    assert "of width 1 " in worsens
    before_tables = page[: page.index("<table")]
    assert before_tables.count("<svg") == 5
    assert before_tables.count("class='axis'") == 10
    assert "<b class='better'>better</b>" in page
    assert "<b class='worse'>worse</b>" in page


def test_page_names_metrics_in_words(tmp_path: Path) -> None:
    page, summary = report(tmp_path, GREEDY)
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert not re.findall(r"\b[a-z]+_[a-z_]+\b", text)
    assert "3 of 3 of width 5-8" in text
    for key, value in summary["runs"][0]["metrics"].items():
        # These are shown as the name of a resource, a warning, or marks.
        if key not in ("utilisation_resource", "saturated", "censored_waits", "pinball_loss"):
            assert isinstance(value, int | float | None), key
            assert any(metric.key == key for metric in METRICS) or key in (
                "p90_bounded_slowdown",
                "max_bounded_slowdown",
            )


def test_policy_without_a_clear_difference_is_called_so(tmp_path: Path) -> None:
    page, _ = report(tmp_path, GREEDY, GREEDY)
    assert "policy-0 and policy-1 do not differ clearly for this workload." in page
    # A policy without promised starts has kept none and broken none.
    assert "Starts not later than first promised" not in page


def one_run(policy: str, seed: int, wait: int, never: int = 0) -> RunResult:
    """Return the result of a run whose jobs all have one width and one wait."""
    group: dict[str, float | int] = {
        "jobs": 10, "never_started": never, "censored_waits": never, "mean_wait_seconds": wait,
        "p90_wait_seconds": wait, "max_wait_seconds": wait, "mean_bounded_slowdown": 1 + wait / 600,
    }  # fmt: skip
    return RunResult(
        policy, seed, 0, 1000, dict(group), {"1": group}, {}, {"default": group}, [], [], GanttHour(0, [], 0),
        Speed(0, 0, 0),
    )  # fmt: skip


def sentences_of(waits: Mapping[str, tuple[int, ...]], never: Mapping[str, int]) -> tuple[str, str, str]:
    runs = [
        one_run(policy, seed, wait, never.get(policy, 0))
        for policy, by_seed in waits.items()
        for seed, wait in enumerate(by_seed)
    ]
    summary = {
        "policies": list(waits),
        "seeds": [*range(len(waits["today"]))],
        "never_started": never_started_of(runs, list(waits)),
        "comparison": compare(runs, "today"),
    }
    return owner_sentences(summary, runs)


def test_present_policy_stays_if_the_shorter_mean_wait_is_within_the_variation_of_the_seeds() -> None:
    unclear = sentences_of({"today": (600, 700, 800), "tomorrow": (100, 900, 200)}, {})
    assert unclear[0] == "today and tomorrow do not differ clearly for this workload."
    # A width that differs, in the mean of the seeds only, is no improvement.
    assert unclear[1] == "Compared with tomorrow, today improves no measured value clearly."
    clear = sentences_of({"today": (600, 700, 800), "tomorrow": (100, 200, 310)}, {})
    assert clear[0].startswith("Use tomorrow for this workload: 0 of 30 jobs in 3 runs never start (today: 0)")
    assert "the mean wait of jobs of width 1 (12 min → 3 min)" in clear[1]


def test_policy_under_which_fewer_jobs_never_start_is_recommended_whatever_the_waits() -> None:
    first, _, _ = sentences_of({"today": (100, 110), "tomorrow": (400, 500)}, {"today": 2})
    assert first.startswith("Use tomorrow for this workload: 0 of 20 jobs in 2 runs never start (today: 4)")


def test_best_of_three_policies_is_compared_with_the_first() -> None:
    waits = {"today": (600, 610), "second": (300, 310), "third": (100, 111)}
    first, improves, _ = sentences_of(waits, {})
    assert first.startswith("Use third for this workload")
    assert improves.startswith("Compared with today, third improves the mean wait")


def test_table_by_width_marks_differences_within_the_interval_as_unclear() -> None:
    runs = [one_run("a", seed, wait) for seed, wait in enumerate((600, 700, 800))]
    runs += [one_run("b", seed, wait) for seed, wait in enumerate((100, 900, 200))]
    table = group_table(["a", "b"], by_width(runs), "Width")
    assert table.count("<b class='unclear'>") == 4
    assert "<b class='worse'>" not in table
    assert "<b class='better'>" not in table


def test_difference_of_two_percentages_is_shown_in_points() -> None:
    words = words_of("mean_share_gap")
    assert shown_difference(words, entry(-0.101)) == "−10.1 points"
    assert shown_difference(words, entry(-0.101, -0.237, 0.035)) == "−10.1 points ± 13.6 points"
    assert shown_difference(words_of("evictions"), entry(3)) == "+3"


def test_chart_of_zeros_has_an_axis_in_whole_percent() -> None:
    chart = lines("Idle", [("a", [(0, 0.0), (10, 0.0)])], "time", "part", unit=" %")
    assert re.findall(r">([^<]* %)</text>", chart) == ["0 %", "1 %"]
