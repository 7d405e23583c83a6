"""`phalanx simulate`: files in, a folder out."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from phalanx.cli.main import cli

CLUSTER = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: NodePool
metadata: {name: a}
spec: {count: 4, allocatable: {cpu: 16, memory: 64Gi}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: team}
spec: {capability: {cpu: 16}}
"""
WORKLOAD = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: mixed}
spec:
  jobs:
  - {name: small, count: 30, interval: {tailMean: 30}, runTime: {minimum: 60, tailMean: 300}, requests: {cpu: 4}}
  - {name: gang, count: 10, interval: {tailMean: 60}, runTime: 5m, pods: 4, requests: {cpu: 4}, queue: team,
     limit: 10m}
  events:
  - {at: 5m, nodeLost: a-1, duration: 2m}
  - at: 10m
    apply: {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: team},
            spec: {capability: {cpu: 64}}}
  nodeFailures: {interval: {tailMean: 2h}, repair: 5m, until: 1h}
"""
PACKED = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}, {name: binpack}]}]\n'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    (tmp_path / "packed.yaml").write_text(PACKED)
    (tmp_path / "spread.yaml").write_text(PACKED.replace("binpack", "nodeorder"))
    return tmp_path


def simulate(folder: Path, report: str, *more: str) -> Result:
    words = ["simulate", "--cluster", f"{folder}/cluster.yaml", "--workload", f"{folder}/workload.yaml"]
    return CliRunner().invoke(cli, [*words, "--report", str(folder / report), *more])


def summary_of(folder: Path, report: str) -> dict[str, list[dict[str, dict[str, float]]]]:
    found: dict[str, list[dict[str, dict[str, float]]]] = json.loads((folder / report / "summary.json").read_text())
    return found


def test_a_report_is_three_files(files: Path) -> None:
    result = simulate(files, "out")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (files / "out").iterdir()) == ["jobs.csv", "report.html", "summary.json"]
    (run,) = summary_of(files, "out")["runs"]
    metrics = run["metrics"]
    assert (metrics["jobs"], metrics["jobs_done"]) == (40, 40)
    assert 0 < metrics["utilisation"] < 1
    assert metrics["mean_bounded_slowdown"] >= 1
    rows = list(csv.DictReader((files / "out" / "jobs.csv").read_text().splitlines()))
    assert len(rows) == 40
    waits = [int(row["wait_seconds"]) for row in rows]
    assert metrics["mean_wait_seconds"] == pytest.approx(sum(waits) / 40)
    assert "Bounded slowdown, mean" in result.output
    assert result.output.startswith("NEVER STARTED")


@pytest.mark.slow
def test_equal_inputs_give_identical_files_across_processes(files: Path) -> None:
    options = ("--policy", f"{files}/packed.yaml", f"{files}/spread.yaml", "--seed", "1", "2", "--quiet")
    assert simulate(files, "one", *options, "--processes", "1").exit_code == 0
    assert simulate(files, "two", *options, "--processes", "2").exit_code == 0
    for name in ("summary.json", "jobs.csv", "report.html"):
        assert (files / "one" / name).read_bytes() == (files / "two" / name).read_bytes()


def test_policies_are_compared_side_by_side_with_paired_differences(files: Path) -> None:
    options = ("--policy", f"{files}/packed.yaml", "--policy", f"{files}/spread.yaml", "--seed", "1", "--seed", "2")
    result = simulate(files, "out", *options, "--seed", "3", "--processes", "1")
    assert result.exit_code == 0, result.output
    summary = json.loads((files / "out" / "summary.json").read_text())
    assert [(run["policy"], run["seed"]) for run in summary["runs"]] == [
        (policy, seed) for policy in ("packed", "spread") for seed in (1, 2, 3)
    ]
    waits = {(run["policy"], run["seed"]): run["metrics"]["mean_wait_seconds"] for run in summary["runs"]}
    told = summary["comparison"]["mean_wait_seconds"]["spread"]["difference"]
    paired = [waits["spread", seed] - waits["packed", seed] for seed in (1, 2, 3)]
    assert told["mean"] == pytest.approx(sum(paired) / 3)
    assert told["low"] <= told["mean"] <= told["high"]


def test_the_page_needs_nothing_from_elsewhere_and_shows_names_as_text(files: Path) -> None:
    hostile = WORKLOAD.replace("name: small", "name: <script>alert(1)</script>")
    (files / "workload.yaml").write_text(hostile)
    assert simulate(files, "out").exit_code == 0
    page = (files / "out" / "report.html").read_text()
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<svg") >= 5
    assert "Promises" not in page


def test_page_shows_each_policy_and_their_differences(files: Path) -> None:
    options = ("--policy", f"{files}/packed.yaml", f"{files}/spread.yaml", "--processes", "1", "--hour", "5m")
    assert simulate(files, "out", *options).exit_code == 0
    page = (files / "out" / "report.html").read_text()
    for told in (
        "One hour, node by node",
        "packed: the hour from 0.1 h on",
        "Waits by limit and width",
        "up to 15 min",
    ):
        assert told in page
    assert "-tiers: [{plugins: [{name: gang}, {name: predicates}, {name: binpack}]}]" in page
    assert "+tiers: [{plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]}]" in page
    summary = json.loads((files / "out" / "summary.json").read_text())
    assert set(summary["versions"]) >= {"python", "numpy"}
    assert summary["runs"][0]["by_limit"].keys() == {"15m", "none"}


@pytest.mark.feature("start-reservations")
def test_promised_starts_are_shown_with_their_outcome(files: Path) -> None:
    keeping = PACKED.replace("allocate", "allocate, reserve, backfill")
    (files / "packed.yaml").write_text(keeping + "configurations: [{name: reserve, arguments: {depth: 2}}]\n")
    workload = WORKLOAD.replace("requests: {cpu: 4}}", "requests: {cpu: 4}, limit: {factor: 1.5}}")
    (files / "workload.yaml").write_text(workload.replace("tailMean: 30}", "tailMean: 10}"))
    assert simulate(files, "out", "--policy", f"{files}/packed.yaml").exit_code == 0
    (run,) = summary_of(files, "out")["runs"]
    metrics = run["metrics"]
    assert metrics["promises"] > 0
    assert metrics["broken_promises"] == 0
    assert metrics["mean_earliness_seconds"] > 0
    assert metrics["reserved_idle_cpu_hours"] > 0
    page = (files / "out" / "report.html").read_text()
    assert "Starts relative to the first promised start" in page
    rows = list(csv.DictReader((files / "out" / "jobs.csv").read_text().splitlines()))
    # Some are promised another start after a node has failed; the first one is shown.
    assert 0 < sum(bool(row["promised"]) for row in rows) <= metrics["promises"]


@pytest.mark.feature("start-reservations")
def test_a_log_with_other_limits(tmp_path: Path) -> None:
    row = "{} {} -1 {} {} -1 -1 {} 1000 -1 1 1 1 -1 -1 -1 -1 -1\n"
    rows = [row.format(1, 0, 100, 3, 3), row.format(2, 1, 50, 4, 4), row.format(3, 2, 90, 1, 1)]
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n" + "".join(rows))
    (tmp_path / "trace.yaml").write_text(
        "apiVersion: simulation.phalanx.dev/v1alpha1\nkind: Trace\nmetadata: {name: t}\n"
        "spec: {file: log.swf, limit: {factor: 1}}\n"
    )
    keeping = 'actions: "allocate, reserve, backfill"\ntiers: [{plugins: [{name: predicates}]}]\n'
    keeping += "configurations: [{name: reserve, arguments: {startDelaySeconds: 0}}]\n"
    (tmp_path / "easy.yaml").write_text(keeping)
    starts = {}
    for workload in ("log.swf", "trace.yaml"):
        words = ["simulate", "--processors", "4", "--workload", f"{tmp_path}/{workload}"]
        words += ["--policy", f"{tmp_path}/easy.yaml", "--report", f"{tmp_path}/out"]
        assert CliRunner().invoke(cli, words).exit_code == 0
        table = csv.DictReader((tmp_path / "out" / "jobs.csv").read_text().splitlines())
        first, *others = [int(row["start"]) for row in table]
        starts[workload] = [start - first for start in others]
    # A job known to end in time is backfilled before the promised start.
    assert starts == {"log.swf": [100, 150], "trace.yaml": [100, 2]}


def test_until_drops_later_arrivals(files: Path) -> None:
    assert simulate(files, "out", "--until", "5m").exit_code == 0
    (run,) = summary_of(files, "out")["runs"]
    assert run["metrics"]["jobs"] < 40
    assert int(run["end"]) - int(run["start"]) == 300  # type: ignore[call-overload]


def test_a_machine_of_processors_needs_no_cluster_file(tmp_path: Path) -> None:
    row = "{} {} -1 {} 4 -1 -1 4 100 -1 1 1 1 -1 -1 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n" + row.format(1, 0, 100) + row.format(2, 10, 50))
    words = ["simulate", "--processors", "4", "--workload", f"{tmp_path}/log.swf", "--report", f"{tmp_path}/out"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    (run,) = summary_of(tmp_path, "out")["runs"]
    assert run["metrics"]["mean_wait_seconds"] == 45
    assert run["metrics"]["mean_bounded_slowdown"] == pytest.approx((1 + 140 / 50) / 2)
    assert run["metrics"]["utilisation"] == 1


@pytest.mark.parametrize(
    ("more", "told", "code"),
    [
        (("--until", "soon"), "--until is 'soon'; write seconds", 1),
        (("--policy", "{}/none.yaml"), "none.yaml: cannot read the file", 1),
        (("--policy", "{}/workload.yaml"), "workload.yaml: ", 1),
        (("--workload", "{}/none.swf"), "none.swf: cannot read the file", 1),
        (("--hour", "noon"), "--hour is 'noon'; write seconds", 1),
        (("--seed", "1", "1"), "--seed: a seed is named twice", 1),
        (("--processors", "5"), "set either --cluster FILE or --processors N", 2),
        # Dask tries to connect for ten seconds.
        pytest.param(("--dask", "tcp://127.0.0.1:1"), "--dask", 1, marks=pytest.mark.slow),
        (("--workers", "2", "--processes", "2"), "--processes, --dask and --workers exclude each other", 2),
        (("--workers", "2", "--kubeconfig", "{}/none"), "--workers: kubeconfig", 1),
    ],
)
def test_mistake_is_printed_in_one_line(files: Path, more: tuple[str, ...], told: str, code: int) -> None:
    result = simulate(files, "out", *(word.format(files) for word in more))
    assert result.exit_code == code
    assert told in result.output
    assert "Traceback" not in result.output


def test_impossible_event_is_refused(files: Path) -> None:
    (files / "workload.yaml").write_text(WORKLOAD.replace("nodeLost: a-1", "nodeLost: z"))
    result = simulate(files, "out")
    assert result.exit_code == 1
    assert "spec.events[0].nodeLost is 'z'; no such node in the cluster" in result.output
