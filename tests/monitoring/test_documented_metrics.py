"""The tables of metrics in the documentation are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.daemon.metrics.families import FAMILIES, table
from tests.monitoring.test_alerts import ROOT

DOCUMENT = ROOT / "docs/metrics.md"
OURS = [family for family in FAMILIES.values() if family.name.startswith("phalanx_")]
TABLES = {"phalanx": OURS, "kubernetes": [family for family in FAMILIES.values() if family not in OURS]}


def made_anew(text: str) -> str:
    for name, families in TABLES.items():
        head, begin, rest = text.partition(f"<!-- made: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->")
        assert begin, name
        text = f"{head}{begin}{table(families)}\n{end}{tail}"
    return text


def test_the_tables_are_current() -> None:
    """`python -m tests.monitoring.test_documented_metrics` rewrites the tables."""
    text = DOCUMENT.read_text("utf-8")
    assert text == made_anew(text)


@pytest.mark.parametrize("document", sorted(ROOT.glob("docs/*.md")), ids=lambda path: path.name)
def test_a_metric_that_a_document_names_is_served(document: Path) -> None:
    text = document.read_text("utf-8")
    for name in set(
        re.findall(r"\b(?:phalanx|scheduler|rest_client)_[a-z_]+_(?:total|seconds|bucket|sum|count)\b", text)
    ):
        if not name.startswith("phalanx_webhook"):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in FAMILIES or base in FAMILIES, name


if __name__ == "__main__":
    DOCUMENT.write_text(made_anew(DOCUMENT.read_text("utf-8")), "utf-8")
