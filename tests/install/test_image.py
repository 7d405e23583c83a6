"""The container image, where the tools to build it are installed: it is small, not root, and runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from charts.generate import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in ("buildah", "apt-get", "dpkg-deb", "strip")),
        reason="needs buildah, binutils and Debian's apt",
    ),
]
LARGEST = 60 * 2**20
# Works in containers, and without root's namespaces.
SETTING = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot", "PYTHON": sys.executable}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "phalanx.oci.tar"
    built = subprocess.run(
        [ROOT / "image" / "build.sh", path], env=SETTING, capture_output=True, text=True, check=False
    )
    if built.returncode == 75:
        pytest.skip(f"packages cannot be fetched: {built.stderr.strip()[-200:]}")
    assert built.returncode == 0, built.stdout + built.stderr
    return path


def test_image_is_small(archive: Path) -> None:
    assert archive.stat().st_size < LARGEST


def test_image_is_not_root_and_runs_our_command(archive: Path) -> None:
    with tarfile.open(archive) as files:

        def blob(digest: str) -> dict[str, object]:
            found = files.extractfile("blobs/" + digest.replace(":", "/"))
            assert found is not None
            return dict(json.load(found))

        index = files.extractfile("index.json")
        assert index is not None
        manifest = blob(json.load(index)["manifests"][0]["digest"])
        config = manifest["config"]
        assert isinstance(config, dict)
        settings = blob(config["digest"])["config"]
    assert isinstance(settings, dict)
    assert settings["User"] == "65532:65532"
    assert settings["Entrypoint"] == ["/usr/bin/python3.11", "-m", "phalanx.cli"]


def test_everything_that_the_parts_import_is_there(archive: Path) -> None:
    made = subprocess.run(
        ["buildah", "from", f"oci-archive:{archive}"], env=SETTING, capture_output=True, text=True, check=True
    )
    container = made.stdout.strip().splitlines()[-1]
    parts = "phalanx.daemon.service, phalanx.controllers.service, phalanx.admission.webhook.service"
    try:
        for words in (
            ["-m", "phalanx.cli", "--version"],
            ["-c", f"import {parts}, phalanx.cluster.dra.expressions"],
        ):
            command = ["buildah", "run", container, "--", "/usr/bin/python3.11", *words]
            ran = subprocess.run(command, env=SETTING, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stderr
        shell = subprocess.run(
            ["buildah", "run", container, "--", "/bin/sh"], env=SETTING, capture_output=True, check=False
        )
        assert shell.returncode != 0
    finally:
        subprocess.run(["buildah", "rm", container], env=SETTING, capture_output=True, check=True)
