"""`phalanx history`, `report` and `accounting`, as people and programs use them."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner, Result

from phalanx.accounting.database import Database
from phalanx.accounting.facts import PodOutcome, plain
from phalanx.accounting.sums import DAY
from phalanx.cli.explanation.moments import month_of, parse_age, parse_moment, span
from phalanx.cli.main import cli
from tests.accounting.world import T0, a_pod, tell

#: T0 is 2023-11-15T00:00:00Z.
GPU = (("cpu", 4000), ("memory", 2**34), ("nvidia.com/gpu", 2))


@pytest.fixture
def ask(database: Database, location: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two gangs of ada's and one of bea's, all of which have ended, one evicted in between."""
    monkeypatch.setenv("PHALANX_ACCOUNTING_DATABASE", location)
    ada: dict[str, Any] = {"gang": "train", "user": "ada", "queue": "research", "amounts": GPU}
    out: dict[str, Any] = {"outcome": PodOutcome.EVICTED, "evicted": T0 + 3600, "reason": "PreemptionByScheduler"}
    again = a_pod(
        "a2", **{**ada, "created": T0 + 3700}, bound=T0 + 3900, ended=T0 + 7500, outcome=PodOutcome.SUCCEEDED
    )
    tell(database, DAY, a_pod("a1", **ada, bound=T0 + 60, ended=T0 + 3660, **out), again)
    bea: dict[str, Any] = {"gang": "=cmd|' /C calc'!A0", "user": "bea", "queue": "research"}
    tell(database, DAY, a_pod("b", **bea, bound=T0 + 10, ended=T0 + 1810, outcome=PodOutcome.FAILED))
    tell(
        database,
        DAY,
        a_pod("c", gang="", namespace="web", placed=True, outcome=PodOutcome.SUCCEEDED),
        watched=False,
    )

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments], standalone_mode=True)

    return run


SINCE = ("-S", "2023-11-15", "-E", "2023-11-17")


class TestHistory:
    def test_has_sacct_s_columns(self, ask: Any) -> None:
        lines = ask("history", "-n", "ml", *SINCE).output.splitlines()
        assert lines[0].split() == ["GANG", "QUEUE", "USER", "STATE", "SUBMIT", "WAIT", "RUN", "EVICTIONS", "HOURS"]
        (train,) = [line.split() for line in lines if line.startswith("train")]
        assert train == [
            *("train", "research", "ada", "COMPLETED", "2023-11-15T00:00:00Z", "1:00", "2:00:00", "1"),
            "cpu=8.00,memory=32.00,gpu=4.00",
        ]

    def test_a_moment_that_is_an_estimate_says_so(self, ask: Any) -> None:
        (line,) = ask("history", "-n", "web", *SINCE).output.splitlines()[1:]
        assert "~0s" in line

    @pytest.mark.parametrize(
        ("asked", "names"),
        [
            ((), {"train", "=cmd|' /C calc'!A0", "c"}),
            (("-A", "-q", "research"), {"train", "=cmd|' /C calc'!A0"}),
            (("-u", "ada", "-u", "nobody"), {"train"}),
            (("-s", "F,cd"), {"train", "=cmd|' /C calc'!A0", "c"}),
            (("-s", "failed"), {"=cmd|' /C calc'!A0"}),
            (("train",), {"train"}),
            (("-S", "2023-11-15T02:00"), {"train", "c"}),
            (("-E", "2023-11-14"), set()),
        ],
    )
    def test_history_lists_runs_that_match_the_filters(
        self, ask: Any, asked: tuple[str, ...], names: set[str]
    ) -> None:
        done = ask("history", *SINCE, *asked, "-o", "json")
        assert {each["name"] for each in json.loads(done.output)} == names

    def test_json_has_exact_sums_and_all_moments(self, ask: Any) -> None:
        (train,) = json.loads(ask("history", *SINCE, "train", "-o", "json").output)
        assert train["used"] == {"cpu": 4000 * 7200, "memory": 2**34 * 7200, "nvidia.com/gpu": 2 * 7200}
        assert train["evicted"]["cpu"] == 4000 * 3600
        assert (train["started"], train["ended"]) == ("2023-11-15T00:01:00Z", "2023-11-15T02:05:00Z")
        assert (train["waitSeconds"], train["runSeconds"], train["estimated"]) == (60, 7200, False)
        assert yaml.safe_load(ask("history", *SINCE, "train", "-o", "yaml").output) == [train]

    def test_csv_holds_no_formulas(self, ask: Any) -> None:
        found = list(csv.DictReader(io.StringIO(ask("history", *SINCE, "-o", "csv").output)))
        assert {each["gang"] for each in found} == {"train", "'=cmd|' /C calc'!A0", "c"}

    def test_parquet_equals_json(self, ask: Any, tmp_path: Path) -> None:
        file = tmp_path / "runs.parquet"
        assert ask("history", *SINCE, "-o", "parquet", "-f", str(file)).exit_code == 0
        table = pyarrow.parquet.read_table(file).to_pylist()
        (train,) = [each for each in table if each["gang"] == "train"]
        assert int(train["memory_seconds"]) == 2**34 * 7200
        assert train["evictions"] == 1

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (("-s", "SLEEPING"), "expected one of PD (PENDING)"),
            (("-S", "tomorrowish"), "invalid time"),
            (("-o", "parquet"), "--file FILE"),
            (("-f", "x.csv"), "-o csv"),
            (("-n", "ml", "-A"), "exclude each other"),
        ],
    )
    def test_invalid_report_option_is_named(self, ask: Any, wrong: tuple[str, ...], words: str) -> None:
        done = ask("history", *wrong)
        assert done.exit_code == 2
        assert words in done.output


class TestReport:
    def test_sums_a_month(self, ask: Any) -> None:
        lines = [
            line.split() for line in ask("report", "--by", "queue,user", "--month", "2023-11").output.splitlines()
        ]
        assert lines[0] == [
            *("QUEUE", "USER", "STARTED", "ENDED", "WAIT-P50", "WAIT-P90"),
            *("CPU-HOURS", "MEMORY-GIB-HOURS", "GPU-HOURS", "EVICTED", "FAILED"),
        ]
        assert lines[2][:9] == ["research", "ada", "1", "1", "1:00", "1:00", "8.00", "32.00", "4.00"]
        assert lines[2][9] == "cpu=4.00,memory=16.00,gpu=2.00"
        assert lines[3][-1] == "cpu=0.50,memory=0.50"

    def test_a_part_of_a_day_is_exact(self, ask: Any) -> None:
        window = ("--from", "2023-11-15T00:30", "--to", "2023-11-15T01:00:01")
        done = json.loads(ask("report", "--json", "--by", "user", *window).output)
        cpu = {line["user"]: line["resources"]["cpu"]["seconds"] for line in done["lines"] if line["resources"]}
        assert cpu == {"ada": 4000 * 1801, "bea": 1000 * 10}
        assert (done["from"], done["by"]) == ("2023-11-15T00:30:00Z", ["user"])

    def test_running_job_is_charged_until_now(self, ask: Any, database: Database) -> None:
        tell(database, DAY, a_pod("r", gang="r", queue="live", bound=T0 + DAY - 100))
        window = ("--from", "2023-11-15", "--to", "2023-11-16T00:00:20")
        done = json.loads(ask("report", "--json", *window).output)
        (live,) = [line for line in done["lines"] if line["queue"] == "live"]
        assert live["resources"]["cpu"]["seconds"] == 1000 * 120
        assert live["states"] == {}

    def test_csv_and_parquet_have_exact_sums(self, ask: Any, tmp_path: Path) -> None:
        file = tmp_path / "report.parquet"
        asked = ("report", "--month", "2023-11", "-q", "research")
        (line,) = csv.DictReader(io.StringIO(ask(*asked, "-o", "csv").output))
        assert int(line["memory_seconds"]) == 2**34 * 7200 + 2**30 * 1800
        assert ask(*asked, "-o", "parquet", "-f", str(file)).exit_code == 0
        (same,) = pyarrow.parquet.read_table(file).to_pylist()
        assert int(same["memory_seconds"]) == int(line["memory_seconds"])
        assert int(same["cpu_evicted_seconds"]) == 4000 * 3600

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (("--by", "moon"), "queue, user, namespace"),
            (("--month", "11/2023"), "2026-11"),
            (("--month", "2023-11", "--from", "today"), "--month excludes --from and --to"),
            (("--from", "2023-11-02", "--to", "2023-11-01"), "must be later"),
        ],
    )
    def test_invalid_report_option_is_named(self, ask: Any, wrong: tuple[str, ...], words: str) -> None:
        done = ask("report", *wrong)
        assert done.exit_code == 2
        assert words in done.output


class TestTakingOut:
    def test_prune(self, ask: Any) -> None:
        assert ask("accounting", "prune", "--older-than", "1d").output.startswith("Removed: 3 runs with 4 pods")
        assert ask("history", *SINCE).output == "No runs in this period.\n"

    def test_erase_asks_first(self, ask: Any) -> None:
        assert "Aborted" in ask("accounting", "erase", "ada").output
        assert "1 runs and 2 pods now belong to erased-" in ask("accounting", "erase", "ada", "--yes").output
        users = {each["user"] for each in json.loads(ask("history", *SINCE, "-o", "json").output)}
        assert "ada" not in users

    def test_an_age_is_needed(self, ask: Any) -> None:
        assert ask("accounting", "prune").exit_code == 2
        assert "invalid age" in ask("accounting", "prune", "--older-than", "soon").output


def test_without_accounts_it_says_where_they_were_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    for command in (("history",), ("report",), ("accounting", "prune", "--older-than", "1d")):
        done = CliRunner().invoke(cli, [*command, "--database", str(file)])
        assert done.exit_code == 1
        assert done.output == (
            f"Error: no accounts at {file}: start `phalanx accounting run` with this database, or name "
            "the database of your cluster with --database or PHALANX_ACCOUNTING_DATABASE\n"
        )
        assert not file.exists()


@pytest.mark.parametrize("command", ["history", "report", "accounting"])
def test_command_without_the_extra_names_the_package_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    done = CliRunner().invoke(cli, [command])
    assert done.exit_code == 1
    assert done.output == f"Error: `phalanx {command}` needs a database: pip install 'phalanx-scheduler[history]'\n"


class TestMoments:
    NOW = datetime(2026, 11, 23, 18, 30, 15, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("now", "2026-11-23T18:30:15+00:00"),
            ("today", "2026-11-23T00:00:00+00:00"),
            ("yesterday", "2026-11-22T00:00:00+00:00"),
            ("now-7days", "2026-11-16T18:30:15+00:00"),
            ("now-90m", "2026-11-23T17:00:15+00:00"),
            ("9:05", "2026-11-23T09:05:00+00:00"),
            ("2026-11-01", "2026-11-01T00:00:00+00:00"),
            ("2026-11-01T10:30", "2026-11-01T10:30:00+00:00"),
            ("2026-11-01T10:30:00+02:00", "2026-11-01T08:30:00+00:00"),
        ],
    )
    def test_are_read(self, text: str, meant: str) -> None:
        assert parse_moment(text, self.NOW) == int(datetime.fromisoformat(meant).timestamp())

    @pytest.mark.parametrize(
        "text", ["", "now-", "now-3", "now-3months", "25:00", "soon", "2026-13-01", "0" * 5000]
    )
    def test_or_refused(self, text: str) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says, the option says it again
            parse_moment(text, self.NOW)

    def test_months_ages_and_spans(self) -> None:
        assert month_of("2023-12")[1] - month_of("2023-12")[0] == 31 * DAY
        assert month_of("2024-02")[1] - month_of("2024-02")[0] == 29 * DAY
        assert (parse_age("2w"), parse_age("36 h"), parse_age("7days")) == (14 * DAY, 36 * 3600, 7 * DAY)
        assert [span(each) for each in (0, 59, 60, 3599, 3600, 90_061)] == [
            "0s",
            "59s",
            "1:00",
            "59:59",
            "1:00:00",
            "1-01:01:01",
        ]


def test_text_that_tenants_choose_is_clean() -> None:
    assert plain("a\x1b[31mb\n\x00c") == "a\ufffd[31mb\ufffd\ufffdc"
    assert len(plain("x" * 10**6)) == 253
    assert plain("Zoë-日本") == "Zoë-日本"
