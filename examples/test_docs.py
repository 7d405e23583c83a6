"""docs/plugins.md shows the examples as they are, and all extension points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS
from phalanx.scheduling.session.cycle_plugin import CYCLE_POINTS

HERE = Path(__file__).parent
DOCS = (HERE.parent / "docs" / "plugins.md").read_text("utf-8")


@pytest.mark.parametrize("file", ["plugin/node_price.py", "action/express.py", "feature/long_wait.py"])
def test_the_code_shown_is_that_of_the_example(file: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    code = (HERE / file).read_text("utf-8")
    assert [block for block in blocks if code.endswith(block)]


def test_the_tables_have_every_point_in_order() -> None:
    plugins, features = DOCS.split("\n## A feature of the cycle\n")
    assert tuple(re.findall(r"^\| `(\w+)` \|", plugins, re.MULTILINE)) == EXTENSION_POINTS
    shown = tuple(re.findall(r"^\| `(\w+)` \|", features, re.MULTILINE))
    assert shown == tuple(point for point in CYCLE_POINTS if point != "reserved_room")
