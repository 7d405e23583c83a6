"""Database of `phalanx up`: its path at each start, and the commands that find it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from phalanx.accounting.location import default_location, with_history
from phalanx.demo.local_history import history_file, missing_extra

NOW = 1_795_000_000.0
DAY = 86_400


def test_each_start_without_data_has_a_new_database(tmp_path: Path) -> None:
    first = history_file(tmp_path, None, NOW)
    first.touch()
    second = history_file(tmp_path, None, NOW)
    assert first != second
    assert first.parent == second.parent == tmp_path


def test_database_is_beside_the_data_of_a_cluster_and_used_again(tmp_path: Path) -> None:
    data = tmp_path / "objects"
    data.touch()
    file = history_file(tmp_path / "other", data, NOW)
    assert file == tmp_path / "objects-history.db"
    file.write_text("kept")
    assert history_file(tmp_path / "other", data, NOW + DAY).read_text() == "kept"


def test_database_without_its_data_is_renamed_because_the_cluster_is_another(tmp_path: Path) -> None:
    data = tmp_path / "objects"
    for name in ("objects-history.db", "objects-history.db-wal"):
        (tmp_path / name).write_text(name)
    assert not history_file(tmp_path, data, NOW).exists()
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == [
        "objects-history.db",
        "objects-history.db-wal",
    ]


def test_database_of_a_start_ninety_days_ago_is_removed(tmp_path: Path) -> None:
    ages = {"history-20260101-000000.db": 91, "history-20260601-000000.db": 89, "history-mine.db": 400}
    for name, days in ages.items():
        file = tmp_path / name
        file.touch()
        os.utime(file, (NOW - days * DAY, NOW - days * DAY))
    history_file(tmp_path, None, NOW)
    assert {path.name for path in tmp_path.iterdir()} == {"history-20260601-000000.db", "history-mine.db"}


def test_missing_libraries_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_extra() == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'phalanx-scheduler[history]'" in missing_extra()
    assert "\n" not in missing_extra()


def kubeconfig(path: Path, history: str | None) -> Path:
    config = {
        "current-context": "local",
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "me"}}],
        "clusters": [{"name": "local", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {}}],
    }
    path.write_text(json.dumps(config if history is None else with_history(config, Path(history))), "utf-8")
    return path


def test_commands_find_the_database_of_the_cluster_of_the_kubeconfig(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "local", "/data/history.db")
    assert default_location({"KUBECONFIG": str(file)}) == "/data/history.db"


@pytest.mark.parametrize("content", ["", "no: [yaml"])
def test_other_kubeconfigs_lead_to_the_users_own_database(tmp_path: Path, content: str) -> None:
    plain = kubeconfig(tmp_path / "plain", None)
    broken = tmp_path / "broken"
    broken.write_text(content, "utf-8")
    for file in (plain, broken, tmp_path / "missing"):
        environ = {"KUBECONFIG": str(file), "XDG_STATE_HOME": "/state"}
        assert default_location(environ) == "/state/phalanx/accounting.db"
