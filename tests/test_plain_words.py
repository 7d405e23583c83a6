"""The counter of indirect words counts docstrings, messages, comments and pages, and no code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent

SOURCE = '''"""Whether somebody waits."""
# What is kept here stays.
SHORT = "who goes"
name = f"{SHORT} who waits for the others {SHORT} goes"


def goes(who):  # told by nobody
    """Return the victims."""
'''
PAGE = """# Gangs

Whoever waits ([what](who.md)) keeps `his` place.

```
nobody
```
"""


@pytest.fixture(scope="module")
def counter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_words", ROOT / ".ci/plain_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain_words"] = module
    spec.loader.exec_module(module)
    return module


def test_words_of_docstrings_comments_and_long_messages_count(counter: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    counts = counter.count(tmp_path)
    assert counts.hits == {"persons": 6, "what": 1, "light verbs": 2}
    assert (counts.docstrings, counts.openings) == (2, 1)


def test_words_of_pages_count_without_code_and_link_targets(counter: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    assert counter.count(tmp_path).hits == {"persons": 1, "what": 1, "light verbs": 1}


def test_line_of_counts_names_rates_and_openings(counter: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("Nobody waits for a pod here.")
    assert str(counter.count(tmp_path)) == (
        "persons 166.7, what 0.0, light verbs 0.0 per 1,000 of 6 words, openings 0 %"
    )
