"""The run of all benchmarks: its list, and the figures that benchmarks record for its table."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import __main__ as run
from benchmarks.figures import FIGURES, record, recorded, table
from benchmarks.report import Row, show

FOLDER = Path(run.__file__).parent


def test_every_benchmark_is_part_of_the_run() -> None:
    files = {path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py")}
    assert {benchmark.name for benchmark in run.ALL} == files


def test_recorded_figure_is_shown_with_its_ratio_to_the_bare_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FIGURES, str(tmp_path / "figures"))
    record("benchmarks.bench_jobs", "jobs of 10 pods", 80.0, "jobs/s", bare=100.0)
    record("/somewhere/benchmarks/bench_hub.py", "gangs", 42.0, "gangs/s", promised=100.0)
    show([Row("plan", 1.5, 2.0)])
    figures = recorded(tmp_path / "figures")
    assert [(figure.benchmark, figure.what, figure.ratio) for figure in figures[:2]] == [
        ("jobs", "jobs of 10 pods", 0.8),
        ("hub", "gangs", None),
    ]
    assert (figures[2].what, figures[2].value, figures[2].promised) == ("plan", 1.5, 2.0)
    _, jobs, hub, _ = table(figures)
    assert jobs.split()[-3:] == ["jobs/s", "100.0", "0.80"]
    assert hub.split()[-3:] == ["42.000", "gangs/s", "100.000"]


def test_benchmark_that_runs_alone_records_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FIGURES, raising=False)
    record("benchmarks.bench_jobs", "jobs", 1.0, "jobs/s")
