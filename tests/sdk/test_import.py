"""Import of the SDK: cheap, because machinery is imported by the first call that needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import phalanx.sdk

# Packages that only calls need: the client of the API, the scheduler, numbers, and optional extras.
_MACHINERY = (
    "aiohttp",
    "msgspec",
    "numpy",
    "yaml",
    "cryptography",
    "click",
    "cloudpickle",
    "distributed",
    "pandas",
)
_PACKAGES = (
    "phalanx.kube",
    "phalanx.scheduling",
    "phalanx.cli",
    "phalanx.daemon",
    "phalanx.reports",
    "phalanx.demo",
)


def imported_by(code: str) -> set[str]:
    report = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("code", ["import phalanx.sdk", "from phalanx.sdk import connect, Job, AsyncCluster"])
def test_import_of_the_sdk_loads_no_machinery(code: str) -> None:
    modules = imported_by(code)
    assert not modules & {*_MACHINERY, *_PACKAGES}


def test_every_public_name_of_the_sdk_is_importable() -> None:
    for name in phalanx.sdk.__all__:
        assert getattr(phalanx.sdk, name).__name__ == name


def test_unknown_name_of_the_sdk_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        phalanx.sdk.nothing  # noqa: B018
