"""`make audit`: vulnerabilities are never passed over, and being offline is said."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci/audit.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


audit = _load()
WELL: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
ILL: dict[str, Any] = {
    "name": "b",
    "version": "2",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}],
}
UNKNOWN: dict[str, Any] = {"name": "c", "skip_reason": "Dependency not found on PyPI"}
UNREACHABLE = "requests.exceptions.ConnectionError: Max retries exceeded (Caused by NameResolutionError(...))"


def judged(code: int, *packages: dict[str, Any], errors: str = "") -> tuple[int, str]:
    report = json.dumps({"dependencies": packages, "fixes": []}) if packages else ""
    exit_code, lines = audit.verdict(code, report, errors)
    return exit_code, "\n".join(lines)


def test_nothing_known_is_well() -> None:
    assert judged(0, WELL) == (0, "audit: 1 packages, no known vulnerability")


@pytest.mark.parametrize("others", [(), (WELL,), (UNKNOWN,), (WELL, UNKNOWN)])
def test_vulnerability_fails_the_audit_despite_unreachable_indexes(others: tuple[dict[str, Any], ...]) -> None:
    code, told = judged(1, ILL, *others, errors=UNREACHABLE)
    assert code == 1
    assert told == "audit: b 2: PYSEC-1 CVE-1 (fixed in 3)"


def test_unreachable_index_is_skipped_with_a_clear_message() -> None:
    code, told = judged(1, errors=UNREACHABLE)
    assert code == 0
    assert told.startswith("audit: skipped, nobody can be asked")


def test_index_without_any_known_package_counts_as_unreachable() -> None:
    """pip-audit itself says that there are no known vulnerabilities then."""
    code, told = judged(0, UNKNOWN, UNKNOWN)
    assert code == 0
    assert told == "audit: skipped, nobody can be asked: the index tells nothing about 2 packages"


def test_unknown_packages_are_named() -> None:
    """This is no failure: a mirror of our own packages would block all work."""
    told = "audit: no known vulnerability of 1 packages; nothing is known of 1 of 2 packages: c"
    assert judged(0, WELL, UNKNOWN) == (0, told)


def test_any_other_failure_is_one() -> None:
    assert judged(3, errors="Traceback ...\nKeyError: 'vulns'")[0] == 2
    assert judged(1)[0] == 2
