"""Candidates for words of the command line, as kubectl asks for them; and the files for krew and k9s."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from phalanx.cli.completion import candidates
from phalanx.cli.main import SHORT_COMMANDS, SLURM_COMMANDS, cli

REPOSITORY = Path(__file__).parents[2]
# A shell starts the interpreter, as in the programs of pip: its path may contain spaces.
PROGRAM = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
from {{module}} import main
main()
"""


def values(*words: str) -> list[str]:
    return [str(item.value) for item in candidates(cli, words[:-1], words[-1])]


def test_commands_options_and_choices_are_candidates() -> None:
    assert values("rel") == ["release"]
    assert values("jobs", "--so") == ["--sort-by"]
    assert values("queue", "") == ["close", "create", "delete", "describe", "edit", "list", "open", "tree"]
    assert values("reservations", "--kind", "") == ["promise", "reservation", "koordinator"]


def test_nothing_is_offered_where_nothing_makes_sense() -> None:
    assert values("nonsense", "") == []
    assert values("hold", "--kubeconfig", "/nowhere/at/all", "") == []


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the PATH with the programs that an installation brings."""
    for name, module in (
        ("kubectl-phalanx", "phalanx.cli.main"),
        ("kubectl_complete-phalanx", "phalanx.cli.completion"),
        ("phalanx", "phalanx.cli.main"),
    ):
        program = tmp_path / name
        program.write_text(PROGRAM.format(module=module), "utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(map(str, (REPOSITORY / "src", REPOSITORY / "packages/local/src", *sys.path)))
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return tmp_path


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_installed_console_scripts_call_the_tested_programs() -> None:
    import tomllib

    scripts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts["kubectl-phalanx"] == "phalanx.cli.main:main"
    assert scripts["kubectl_complete-phalanx"] == "phalanx.cli.completion:main"


@pytest.mark.usefixtures("path")
def test_the_answer_ends_with_a_directive() -> None:
    told = ran("kubectl_complete-phalanx", "jobs", "--no-h")
    assert (told.returncode, told.stdout) == (0, "--no-headers\tPrint no header.\n:4\n")
    assert ran("kubectl_complete-phalanx", "nonsense", "").stdout == ":4\n"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.usefixtures("path")
def test_the_real_kubectl_finds_the_plugin_and_its_candidates() -> None:
    shown = ran("kubectl", "phalanx", "jobs", "--help")
    assert (shown.returncode, shown.stdout.split()[:4]) == (0, ["Usage:", "kubectl", "phalanx", "jobs"])
    told = ran("kubectl", "__complete", "phalanx", "reserv")
    if "Completion ended" in told.stderr and not told.stdout.startswith(":"):
        assert told.stdout.splitlines() == [
            "reservations\tList promised starts and advance reservations.",
            ":4",
        ]
    else:
        pytest.skip("this kubectl asks plugins for no candidates (before 1.26)")


def test_short_names_of_both_families_are_listed_and_linked(path: Path, tmp_path: Path) -> None:
    told = CliRunner().invoke(cli, ["shell-commands", "--set", "slurm"])
    assert [line.split()[0] for line in told.output.splitlines()[:-1]] == list(SLURM_COMMANDS)
    assert not SHORT_COMMANDS.keys() & SLURM_COMMANDS.keys()
    links = tmp_path / "bin"
    links.mkdir()
    made = ran("phalanx", "shell-commands", "--set", "all", "--install", str(links))
    assert made.returncode == 0, made.stderr
    assert {each.name for each in links.iterdir()} == {*SHORT_COMMANDS, *SLURM_COMMANDS}
    for name in SLURM_COMMANDS:
        shown = ran(str(links / name), "--help")
        assert (shown.returncode, shown.stdout.split()[:2]) == (0, ["Usage:", name]), shown.stderr


def test_krew_manifest_has_the_fields_that_krew_requires() -> None:
    manifest: dict[str, Any] = yaml.safe_load((REPOSITORY / "deploy/krew/phalanx.yaml").read_text("utf-8"))
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "phalanx")
    spec = manifest["spec"]
    assert len(spec["shortDescription"]) <= 50
    for platform in spec["platforms"]:
        assert set(platform) == {"selector", "uri", "sha256", "bin"}
        assert platform["bin"] == "kubectl-phalanx"


def test_the_plugins_for_k9s_run_commands_that_there_are() -> None:
    plugins = yaml.safe_load((REPOSITORY / "deploy/k9s/plugins.yaml").read_text("utf-8"))["plugins"]
    for name, plugin in plugins.items():
        assert {"shortCut", "description", "scopes", "command"} <= set(plugin), name
        words = json.dumps(plugin["args"])
        used = [each for each in ("why", "order", "hold", "release") if each in words]
        assert used, name
        for command in used:
            assert CliRunner().invoke(cli, [command, "--help"]).exit_code == 0
        # Fields that k9s fills in never become part of a shell command.
        if plugin["command"] == "sh":
            assert "$NAME" not in plugin["args"][1]
