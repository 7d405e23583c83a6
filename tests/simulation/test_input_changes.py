"""Lines of workload files that are skipped or changed are counted and listed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.workloads.reading import read_workloads
from phalanx.simulation.workloads.swf import read_swf, swf_changes, swf_jobs

POLICY = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]\n'


def row(number: int, submit: int, run: object = 50, width: int = 1, allocated: int = 1, status: int = 1) -> str:
    return f"{number} {submit} -1 {run} {allocated} -1 -1 {width} 100 -1 {status} 1 1 -1 -1 -1 -1 -1\n"


def test_skipped_and_changed_lines_of_a_log_have_their_reason() -> None:
    log = read_swf(
        "; MaxProcs: 4\n"
        + row(1, 0)
        + row(2, 1, run=0)
        + row(3, 2, run=-1)
        + row(4, 3, width=-1, allocated=-1)
        + row(5, 4, width=-1, allocated=2)
        + row(6, 5, width=9)
        + row(7, 6, run=10.5)
        + row(8, 7, status=2)
        + row(8, 8, status=1),
        "x.swf",
    )
    assert [job.name for job in swf_jobs(log, pooled=True, processors=4)] == [
        "job-1",
        "job-5",
        "job-6",
        "job-7",
        "job-8",
    ]
    changes = swf_changes(log, 4)
    assert [(entry.line, entry.skipped, entry.reason, entry.before, entry.after) for entry in changes] == [
        (3, True, "no run time", "", ""),
        (4, True, "no run time", "", ""),
        (5, True, "no width", "", ""),
        (6, False, "no requested width: allocated width used", "-1", "2"),
        (7, False, "wider than the machine: reduced to its size", "9", "4"),
        (8, False, "fraction of field 4 cut off", "10.5", "10"),
        (9, True, "partial record of a job (status 2 to 4)", "", ""),
    ]  # fmt: skip


def test_partial_records_without_a_whole_one_are_simulated() -> None:
    log = read_swf("; MaxProcs: 4\n" + row(1, 0, status=3), "x.swf")
    assert len(swf_jobs(log, pooled=True, processors=4)) == 1


def test_tables_list_their_skipped_and_changed_rows() -> None:
    acme = (
        "job_id,user,node_num,gpu_num,cpu_num,submit_time,duration\n1,u,2,15,4,0,60\n2,u,1,1,1,5,0\n3,u,,1,1,9,5\n"
    )
    (workload,) = read_workloads(acme, "a.csv", lambda name: "")
    assert [(entry.line, entry.skipped, entry.reason) for entry in workload.changes(SimulatedCluster("c"))] == [
        (2, False, "GPUs not divisible by the number of pods: rounded up"),
        (3, True, "no run time"),
        (4, False, "no number of nodes: one pod"),
    ]
    openb = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
    (workload,) = read_workloads(openb + "a,1,1,0,0,,5,5,\nb,1,1,0,0,,5,9,2\n", "b.csv", lambda name: "")
    assert [entry.reason for entry in workload.changes(SimulatedCluster("c"))] == [
        "no run time: one second",
        "scheduled_time outside the pod's life: nearest time used",
    ]


def test_report_counts_and_lists_the_lines(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n" + row(1, 0) + row(2, 1, run=0) + row(3, 2, width=9))
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ["simulate", "--processors", "4", "--workload", f"{tmp_path}/log.swf", "--report", f"{tmp_path}/out"]
    result = CliRunner().invoke(cli, [*words, "--policy", f"{tmp_path}/policy.yaml"])
    assert result.exit_code == 0, result.output
    assert "log.swf: 1 line skipped: no run time" in result.output
    assert "log.swf: 1 line changed: wider than the machine: reduced to its size" in result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [(entry["reason"], entry["lines"]) for entry in summary["input_changes"]] == [
        ("no run time", 1),
        ("wider than the machine: reduced to its size", 1),
    ]
    rows = list(csv.DictReader((tmp_path / "out" / "input-changes.csv").read_text().splitlines()))
    assert [(entry["line"], entry["job"], entry["action"]) for entry in rows] == [
        ("3", "job-2", "skipped"),
        ("4", "job-3", "changed"),
    ]
    # The next run in this folder changes nothing.
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n" + row(1, 0))
    assert CliRunner().invoke(cli, [*words, "--policy", f"{tmp_path}/policy.yaml"]).exit_code == 0
    assert not (tmp_path / "out" / "input-changes.csv").exists()


def test_jobs_of_equal_names_in_two_files_all_run(tmp_path: Path) -> None:
    for name in ("a.swf", "b.swf"):
        (tmp_path / name).write_text("; MaxProcs: 4\n" + row(1, 0) + row(2, 10))
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ["simulate", "--processors", "4", "--workload", f"{tmp_path}/a.swf", f"{tmp_path}/b.swf"]
    words += ["--policy", f"{tmp_path}/policy.yaml", "--report", f"{tmp_path}/out"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    (run,) = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    assert (run["metrics"]["jobs"], run["metrics"]["jobs_done"]) == (4, 4)


def test_log_in_epoch_seconds_begins_at_its_first_job(tmp_path: Path) -> None:
    first = 1_700_000_000
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n" + row(1, first) + row(2, first + 86_400))
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ["simulate", "--processors", "4", "--workload", f"{tmp_path}/log.swf", "--report", f"{tmp_path}/out"]
    words += ["--policy", f"{tmp_path}/policy.yaml"]
    assert CliRunner().invoke(cli, [*words, "--until", "3d"]).exit_code == 0
    (run,) = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    assert (run["start"], run["metrics"]["jobs_done"]) == (first, 2)


def test_epoch_seconds_of_a_log_with_a_header_count_from_its_header() -> None:
    log = read_swf("; MaxProcs: 4\n; UnixStartTime: 1700000000\n" + row(1, 1_700_000_100), "x.swf")
    (job,) = swf_jobs(log, pooled=True, processors=4)
    assert (log.start, job.submit) == (1_700_000_000, 100)


def test_table_in_epoch_seconds_begins_at_its_first_pod() -> None:
    openb = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
    rows = "a,1,1,0,0,,1700000000,1700000060,\nb,1,1,0,0,,1700000005,1700000060,\n"
    (workload,) = read_workloads(openb + rows, "b.csv", lambda name: "")
    assert (workload.start, [job.submit for job in workload.jobs(1, SimulatedCluster("c"))]) == (
        1_700_000_000,
        [0, 5],
    )


def test_end_before_the_first_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n" + row(1, 30 * 86_400))
    words = ["simulate", "--processors", "4", "--workload", f"{tmp_path}/log.swf", "--report", f"{tmp_path}/out"]
    result = CliRunner().invoke(cli, [*words, "--until", "3d"])
    assert result.exit_code == 1
    assert "--until: the simulation would end before the first job arrives, after 30 d" in result.output
