"""The layers of docs/architecture.md: an import never points to a higher layer."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

import phalanx
import phalanx_local
from phalanx.cli.main import cli

SOURCE = Path(phalanx.__file__).parent
LOCAL = Path(phalanx_local.__file__).parent
LAYERS = {
    "model": 0,
    "dialects": 1,
    "cluster": 1,
    "scheduling": 2,
    "kube": 2,
    "jobs": 3,
    "execution": 3,
    "views": 3,
    "admission": 4,
    "status": 4,
    "daemon": 5,
    "controllers": 5,
    "notifications": 1,
    "simulation": 6,
    "reports": 7,
    "accounting": 7,
    "hub": 8,
    "orders": 8,
    "sdk": 9,
    "demo": 9,
    "dashboard": 9,
    "testing": 10,
    "dask": 10,
    "cli": 11,
}
# Packages that must not know each other although their layers would allow it.
STRANGERS = {
    "dialects": {"cluster"},
    "cluster": {"dialects"},
    "scheduling": {"kube", "dialects"},
    "kube": {"scheduling", "dialects", "cluster"},
    "jobs": {"scheduling", "cluster", "kube"},
    "admission": {"scheduling", "cluster"},
    "execution": {"scheduling", "cluster"},
    "views": {"kube", "dialects"},
    "controllers": {"scheduling", "cluster"},
    "simulation": {"kube", "execution", "status", "admission", "jobs", "controllers"},
    "testing": set(LAYERS) - {"model", "cluster", "scheduling"},
}
# Parts of the scheduler that the local cluster may import in its packages, and in the module that starts the
# scheduler.
OF_THE_SCHEDULER = {"nodeagent": {"model", "kube"}, "cli": {"model", "kube", "cli"}}
ENTRY_POINTS = {"cli/up.py", "demo/localcluster.py"}


# (ruff places each import on a line of its own. Parsing every module is fifty times slower: a slow test does
# it.)
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


def imported_packages(path: Path, root: str = "phalanx") -> set[str]:
    """Return the packages of a package that a module imports; "" is the package itself."""
    return {[*parts, ""][1] for name in imported_modules(path) if (parts := name.split("."))[0] == root}


@pytest.mark.slow
def test_no_import_is_overlooked_in_a_text() -> None:
    for path in (*SOURCE.rglob("*.py"), *LOCAL.rglob("*.py")):
        assert parsed_imports(path) <= imported_modules(path), path


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_import_never_points_to_a_higher_layer(package: str) -> None:
    for path in sorted((SOURCE / package).rglob("*.py")):
        # The entry point for plugins belongs to scheduling, whose own plugins are loaded through it as well.
        for other in imported_packages(path) - {package, "", "plugin"}:
            assert LAYERS[other] < LAYERS[package], f"{path.relative_to(SOURCE)} imports {other}"
            assert other not in STRANGERS.get(package, set()), f"{path.relative_to(SOURCE)} imports {other}"


def test_every_package_has_its_layer() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages == set(LAYERS)


def test_the_local_cluster_knows_the_nouns_and_its_node_agent_the_client() -> None:
    for path in sorted(LOCAL.rglob("*.py")):
        package = path.relative_to(LOCAL).parts[0]
        assert imported_packages(path) <= OF_THE_SCHEDULER.get(package, {"model"}), path.relative_to(LOCAL)
        if package not in ("nodeagent", "cli"):
            assert not imported_packages(path, "phalanx_local") & {"nodeagent", "cli"}, path.relative_to(LOCAL)


def test_scheduler_imports_the_local_cluster_at_two_entry_points() -> None:
    importing = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if imported_packages(path, "phalanx_local")
    }
    assert importing == ENTRY_POINTS


@pytest.mark.parametrize("command", ["up", "demo", "apiserver", "node-agent"])
@pytest.mark.parametrize("missing", ["phalanx_local", "cryptography"])
def test_command_of_the_local_cluster_without_the_extra_names_the_package_to_install(
    command: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    result = CliRunner().invoke(cli, [command])
    assert result.exit_code == 1
    assert (
        result.output
        == f"Error: `phalanx {command}` needs the local cluster: pip install 'phalanx-scheduler[local]'\n"
    )


def test_the_core_does_no_io() -> None:
    forbidden = {"asyncio", "socket", "threading", "time", "datetime", "random", "aiohttp", "os", "subprocess"}
    for package in ("model", "cluster", "scheduling"):
        for path in (SOURCE / package).rglob("*.py"):
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


def test_no_file_exceeds_the_limit_of_lines() -> None:
    for path in (*SOURCE.rglob("*.py"), *LOCAL.rglob("*.py")):
        lines = len(path.read_text("utf-8").splitlines())
        assert lines <= 550, f"{path} has {lines} lines"


def subclasses_in(trees: Iterable[ast.Module], roots: set[str]) -> set[str]:
    """Return the names of the classes that the modules derive from `roots`, at any depth, with the roots."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(roots)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def classes_told_apart(tree: ast.Module) -> set[str]:
    """Return the names of the classes that a module distinguishes, by isinstance, type() or a pattern of match."""
    parts: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.MatchClass):
            parts.append(node.cls)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            parts.append(node.args[1])
        elif isinstance(node, ast.Compare) and any(
            isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "type"
            for each in (node.left, *node.comparators)
        ):
            parts.append(node)
    return {each.id for part in parts for each in ast.walk(part) if isinstance(each, ast.Name)}


def test_wait_reasons_and_refusals_are_distinguished_in_units_and_queue_only() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in (SOURCE / "scheduling").rglob("*.py")}
    kinds = subclasses_in(trees.values(), {"WaitReason", "Refusal"})
    assert {"QuorumDemand", "Nominated", "OverQuota", "CompositeRefusal"} <= kinds
    allowed = (SOURCE / "scheduling" / "units", SOURCE / "scheduling" / "queue")
    for path, tree in trees.items():
        if not path.is_relative_to(allowed[0]) and not path.is_relative_to(allowed[1]):
            assert not classes_told_apart(tree) & kinds, (
                f"{path.relative_to(SOURCE)} tests {classes_told_apart(tree) & kinds}"
            )


def test_class_tests_of_a_module_are_found_in_calls_patterns_and_comparisons() -> None:
    source = "isinstance(a, X | Y)\ntype(a) is Z\nmatch a:\n    case V():\n        pass\n"
    assert {"X", "Y", "Z", "V"} <= classes_told_apart(ast.parse(source))


def test_cycle_of_the_scheduler_is_read_at_one_glance() -> None:
    text = (SOURCE / "scheduling" / "scheduler.py").read_text("utf-8")
    (cycle,) = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == "cycle"
    ]
    assert cycle.end_lineno is not None
    assert cycle.end_lineno - cycle.lineno + 1 <= 40
    assert len(text.splitlines()) <= 300


# Reasons why two classes of one distribution have one name.
SHARED_CLASS_NAMES: dict[str, str] = {
    "Job": "the job of the SDK has the name that users expect; the other is the spec of a Volcano Job",
}


@pytest.mark.parametrize("root", [SOURCE, LOCAL], ids=["phalanx", "phalanx_local"])
def test_public_class_name_is_defined_once_in_a_distribution(root: Path) -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text("utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(path.relative_to(root).as_posix())
    shared = {name: files for name, files in places.items() if len(files) > 1 and name not in SHARED_CLASS_NAMES}
    assert shared == {}
