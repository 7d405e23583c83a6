"""PodGroups that the scheduler generates, recognized when they are read back."""

from __future__ import annotations

import pytest

from phalanx.dialects.api_groups import SIGS
from phalanx.dialects.gangs.generated_pod_groups import generated_pod_group
from phalanx.dialects.kinds import ServedKind

KIND = ServedKind(SIGS, "v1alpha1", "podgroups")


@pytest.mark.parametrize("key", ["phalanx.dev/generated-from-pods", "phalanx.dev/made-from-pods"])
@pytest.mark.parametrize(("written", "adopted"), [('{"minMember":2}', False), ('{"minMember":3}', True)])
def test_generated_pod_group_with_former_or_new_annotation_is_ours_until_another_writes_its_spec(
    key: str, written: str, adopted: bool
) -> None:
    metadata = {"namespace": "ns", "name": "g", "uid": "u", "annotations": {key: written}}
    found = generated_pod_group(KIND, {"metadata": metadata, "spec": {"minMember": 2}})
    assert found is not None
    assert found.adopted == adopted
