"""A cluster of `phalanx up --exec`, whose pods are processes of this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.sdk import Cluster, connect


@pytest.fixture(scope="module")
def local_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of a running cluster with 4 nodes of 16 CPUs and 2 GPUs, and the tenant ml."""
    directory = tmp_path_factory.mktemp("up")
    command = [sys.executable, "-m", "phalanx.cli", "up", "--exec", "--no-dashboard", "--directory", str(directory)]
    command += ["--tenant", "ml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            assert up.stdout.readline().startswith("phalanx up: ")
            yield directory
        finally:
            up.terminate()


@pytest.fixture(scope="module")
def local_cluster(local_directory: Path) -> Iterator[Cluster]:
    with connect(local_directory) as cluster:
        yield cluster
