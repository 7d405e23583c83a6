"""The picture in docs/architecture.md: an import never goes up a floor."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import phalanx
import phalanx_local
from phalanx.cli.main import cli

SOURCE = Path(phalanx.__file__).parent
LOCAL = Path(phalanx_local.__file__).parent
FLOORS = {
    "model": 0,
    "dialects": 1,
    "cluster": 1,
    "scheduling": 2,
    "kube": 2,
    "jobs": 3,
    "execution": 3,
    "admission": 4,
    "status": 4,
    "daemon": 5,
    "controllers": 5,
    "simulation": 6,
    "reports": 7,
    "accounting": 7,
    "hub": 8,
    "orders": 8,
    "demo": 9,
    "dashboard": 9,
    "cli": 10,
}
# Rooms that must not know each other although their floors would allow it.
STRANGERS = {
    "dialects": {"cluster"},
    "cluster": {"dialects"},
    "scheduling": {"kube", "dialects"},
    "kube": {"scheduling", "dialects", "cluster"},
    "jobs": {"scheduling", "cluster", "kube"},
    "admission": {"scheduling", "cluster"},
    "execution": {"scheduling", "cluster"},
    "controllers": {"scheduling", "cluster"},
    "simulation": {"kube", "execution", "status", "admission", "jobs", "controllers"},
}
# What the cluster on this machine may import of the scheduler, by its own rooms, and where the scheduler starts it.
OF_THE_SCHEDULER = {"nodeagent": {"model", "kube"}, "cli": {"model", "kube", "cli"}}
DOORS = {"cli/up.py", "demo/localcluster.py"}


# (ruff keeps each import on a line of its own. Parsing every module takes fifty times as long: a slow test does.)
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+(\w[\w.]*)[ \t]+import\b|import[ \t]+(\w[\w., \t]*))", re.MULTILINE)


@functools.cache
def imported_modules(path: Path) -> frozenset[str]:
    """Return the full names of the modules that a file imports, at any depth of its code."""
    found = _IMPORT.findall(path.read_text("utf-8"))
    return frozenset(part.split()[0] for pair in found for part in "".join(pair).split(",") if part.split())


def parsed_imports(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports, as Python parses it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return names


def imported_rooms(path: Path, package: str = "phalanx") -> set[str]:
    """Return the rooms of a package that a module imports; "" is the package itself."""
    return {[*parts, ""][1] for name in imported_modules(path) if (parts := name.split("."))[0] == package}


@pytest.mark.slow
def test_no_import_is_overlooked_in_a_text() -> None:
    for path in (*SOURCE.rglob("*.py"), *LOCAL.rglob("*.py")):
        assert parsed_imports(path) <= imported_modules(path), path


@pytest.mark.parametrize("room", sorted(FLOORS))
def test_no_import_goes_up(room: str) -> None:
    for path in sorted((SOURCE / room).rglob("*.py")):
        # The door for plugins belongs to scheduling, whose own plugins come through it as well.
        for other in imported_rooms(path) - {room, "", "plugin"}:
            assert FLOORS[other] < FLOORS[room], f"{path.relative_to(SOURCE)} imports {other}"
            assert other not in STRANGERS.get(room, set()), f"{path.relative_to(SOURCE)} imports {other}"


def test_every_room_has_its_floor() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert rooms == set(FLOORS)


def test_the_local_cluster_knows_the_nouns_and_its_node_agent_the_client() -> None:
    for path in sorted(LOCAL.rglob("*.py")):
        room = path.relative_to(LOCAL).parts[0]
        assert imported_rooms(path) <= OF_THE_SCHEDULER.get(room, {"model"}), path.relative_to(LOCAL)
        if room not in ("nodeagent", "cli"):
            assert not imported_rooms(path, "phalanx_local") & {"nodeagent", "cli"}, path.relative_to(LOCAL)


def test_the_scheduler_starts_the_local_cluster_at_two_doors() -> None:
    importing = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if imported_rooms(path, "phalanx_local")
    }
    assert importing == DOORS


@pytest.mark.parametrize("command", ["up", "demo", "apiserver", "node-agent"])
def test_without_the_extra_a_command_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    result = CliRunner().invoke(cli, [command])
    assert result.exit_code == 1
    assert (
        result.output
        == f"Error: `phalanx {command}` needs the local cluster: pip install 'phalanx-scheduler[local]'\n"
    )


def test_the_core_does_no_io() -> None:
    forbidden = {"asyncio", "socket", "threading", "time", "datetime", "random", "aiohttp", "os", "subprocess"}
    for room in ("model", "cluster", "scheduling"):
        for path in (SOURCE / room).rglob("*.py"):
            names = {name.partition(".")[0] for name in imported_modules(path)}
            if path.name == "recurrence.py":
                # It counts with dates; it reads no clock.
                names.discard("datetime")
                tree = ast.parse(path.read_text("utf-8"))
                asked = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
                assert not asked & {"now", "today", "utcnow"}
            assert not names & forbidden, f"{path.relative_to(SOURCE)} imports {names & forbidden}"


def test_help_is_quick_because_it_imports_no_machinery() -> None:
    code = (
        "import sys, click.testing\n"
        "from phalanx.cli.main import cli\n"
        "result = click.testing.CliRunner().invoke(cli, ['--help'])\n"
        "assert result.exit_code == 0, result.output\n"
        "print(*sorted({'numpy', 'aiohttp', 'asyncio', 'yaml', 'rich', 'prometheus_client'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_file_grows_beyond_what_one_reads_in_a_sitting() -> None:
    for path in (*SOURCE.rglob("*.py"), *LOCAL.rglob("*.py")):
        lines = len(path.read_text("utf-8").splitlines())
        assert lines <= 550, f"{path} has {lines} lines"
