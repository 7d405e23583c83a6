"""An annotation that cannot be followed is its own pod's trouble: the agent and the other pods go on."""

from __future__ import annotations

import pytest

from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults, ScriptError, read_script

LONG = "9" * 5_000


@pytest.mark.parametrize("name", ["exit-code", "start-seconds", "run-seconds", "terminate-seconds"])
@pytest.mark.parametrize("text", [LONG, "1e999", "nan", "-1", "", "x", "inf", "1e308", "²", "٧٧", "0x10"])
def test_a_number_that_is_none_is_refused_by_name(name: str, text: str) -> None:
    if text == "٧٧" and name != "exit-code":
        pytest.skip("a number in Python's eyes")
    with pytest.raises(ScriptError, match=f"phalanx.dev/{name}") as refused:
        read_script({f"phalanx.dev/{name}": text}, "Never", ScriptDefaults())
    assert len(str(refused.value)) < 300
