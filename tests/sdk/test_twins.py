"""Names and arguments of the synchronous and the asynchronous classes are equal."""

from __future__ import annotations

import inspect

import pytest

from phalanx.sdk.arrays import AsyncJobArray, JobArray
from phalanx.sdk.async_cluster import AsyncCluster
from phalanx.sdk.async_job import AsyncJob
from phalanx.sdk.cluster import Cluster
from phalanx.sdk.job import Job


def public(kind: type) -> dict[str, object]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize(("plain", "twin"), [(Cluster, AsyncCluster), (Job, AsyncJob), (JobArray, AsyncJobArray)])
def test_twin_has_every_name_with_the_same_arguments(plain: type, twin: type) -> None:
    assert set(public(plain)) <= set(public(twin)) | {"name", "namespace", "jobs"}
    for name, value in public(plain).items():
        if inspect.isfunction(value) and name != "logs":
            # (`logs` has overloads.)
            expected = list(inspect.signature(getattr(twin, name)).parameters)
            assert list(inspect.signature(value).parameters) == expected, name
