"""Examples of docs/native-gangs.md: read without warnings and as the text explains."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import yaml

from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake
from phalanx.model.gang import Gang, GangKey
from phalanx.model.topology import TopologyRule

from .objects import NATIVE, pod

_TEXT = (Path(__file__).parents[2] / "docs" / "native-gangs.md").read_text(encoding="utf-8")
_OBJECTS, _ANNOTATED = re.findall(r"^```yaml\n(.*?)^```", _TEXT, re.M | re.S)


def gang_of(door: Intake) -> Gang:
    found = door._gangs.gang(GangKey("default", "train"))
    assert found is not None
    assert (found.problem, found.warnings, door.drain_warnings()) == (None, (), [])
    return found


def test_documented_group_and_its_member_are_read() -> None:
    group, member = yaml.safe_load_all(_OBJECTS)
    door = Intake(["phalanx"])
    for document in (group, member):
        document["metadata"] |= {"namespace": "default", "uid": document["metadata"]["name"]}
    door.group(NATIVE, group)
    door.pod(decode_pod(msgspec.json.encode({**member, "status": {}})))
    assert gang_of(door).min_member == 8


def test_documented_annotations_replace_the_group() -> None:
    door = Intake(["phalanx"])
    door.pod(pod(annotations=yaml.safe_load(_ANNOTATED)["metadata"]["annotations"]))
    found = gang_of(door)
    assert (found.min_member, found.unit) == (8, True)
    assert found.topology == TopologyRule.by_label("topology.kubernetes.io/zone")
