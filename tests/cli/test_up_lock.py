"""A directory of `phalanx up` belongs to one process at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import click
import click.testing
import pytest

from phalanx.cli.main import cli
from phalanx.cli.up import _locked

HOLDER = """
import sys, time
from pathlib import Path
from phalanx.cli.up import _locked
data = Path(sys.argv[2]) if len(sys.argv) > 2 else None
with _locked(Path(sys.argv[1]), data):
    print("locked", flush=True)
    time.sleep(60)
"""


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, arguments)


def holder(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_up_in_a_directory_fails_with_the_pid_and_directory_of_the_first(tmp_path: Path) -> None:
    first = holder(str(tmp_path))
    try:
        refused = run("up", "--directory", str(tmp_path))
        assert refused.exit_code == 1
        assert f"runs already in {tmp_path} (pid {first.pid})" in refused.output
    finally:
        first.kill()
        first.communicate()


def test_the_pid_of_a_killed_up_does_not_lock_its_directory(tmp_path: Path) -> None:
    killed = holder(str(tmp_path))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (tmp_path / "up.pid").read_text() == f"{killed.pid}\n"
    with _locked(tmp_path, None):
        assert (tmp_path / "up.pid").read_text() != f"{killed.pid}\n"


def test_two_directories_cannot_share_a_data_file(tmp_path: Path) -> None:
    data = tmp_path / "objects"
    with _locked(tmp_path / "a", data):
        with pytest.raises(click.ClickException, match=f"with {data} .*--data"), _locked(tmp_path / "b", data):
            raise AssertionError("not reached")
        with _locked(tmp_path / "c", tmp_path / "other"):
            pass


def test_up_in_a_directory_that_cannot_be_created_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run("up", "--directory", str(tmp_path / "file" / "sub"))
    assert refused.exit_code == 1
    assert refused.output.startswith(f"Error: cannot use {tmp_path}/file")
