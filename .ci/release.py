"""Build the files of a release into dist/, and check each of them (`make release`).

Wheels and sdists of both distributions, the chart, the SBOM, release notes and checksums; the image where buildah
or docker can build it. Every wheel and sdist is checked by twine and installed into an empty environment. Nothing
is published.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
LOCAL = ROOT / "packages" / "local"
TWINE = "twine==7.0.0"
SBOM = "cyclonedx-bom==7.5.0"
# image/build.sh exits with this code where packages or tools cannot be had.
_UNAVAILABLE = 75


def main() -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    epoch = run("git", "log", "-1", "--format=%ct", capture=True).strip()
    os.environ.setdefault("SOURCE_DATE_EPOCH", epoch)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for project in (ROOT, LOCAL):
        step(f"wheel and sdist of {project.name if project is LOCAL else 'phalanx-scheduler'}")
        run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(DIST), cwd=project)
    step("chart")
    write_chart(version)
    step("release notes")
    (DIST / "RELEASE_NOTES.md").write_text(
        release_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version), "utf-8"
    )
    with tempfile.TemporaryDirectory(prefix="phalanx-release-") as scratch:
        step("SBOM")
        write_sbom(version, Path(scratch))
        step("twine check")
        twine = environment(Path(scratch) / "twine")
        run(*pip(twine), TWINE)
        run(str(twine / "bin/twine"), "check", "--strict", *map(str, packages()))
        for package in packages():
            step(f"install {package.name} into an empty environment")
            try_package(package, Path(scratch))
    step("image")
    image = write_image(version)
    (DIST / "SHA256SUMS").write_text(checksums(DIST), "utf-8")
    print(f"\n{(DIST / 'SHA256SUMS').read_text('utf-8')}", end="")
    if image:
        print(f"image: skipped, {image}")
    return 0


def packages() -> list[Path]:
    return sorted([*DIST.glob("*.whl"), *DIST.glob("phalanx_*.tar.gz")])


def write_chart(version: str) -> None:
    """Write the chart as `helm package` names it, with equal bytes for equal files."""
    chart = ROOT / "charts" / "phalanx"
    files = sorted(path for path in chart.rglob("*") if path.is_file())
    target = DIST / f"phalanx-{version}.tgz"
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in files:
            entry = tarfile.TarInfo(f"phalanx/{path.relative_to(chart).as_posix()}")
            entry.size, entry.mode = path.stat().st_size, 0o644
            entry.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
            with path.open("rb") as file:
                archive.addfile(entry, file)


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version, or the unreleased one of it. Raises SystemExit if there is none."""
    sections = re.split(r"(?m)^## ", changelog)[1:]
    for section in sections:
        title, _, body = section.partition("\n")
        if re.search(rf"(?<![\d.]){re.escape(version)}(?![\d.])", title):
            return f"# Phalanx {version}\n\n{body.strip()}\n"
    raise SystemExit(f"release: CHANGELOG.md has no section of {version}")


def write_sbom(version: str, scratch: Path) -> None:
    tool = environment(scratch / "sbom")
    run(*pip(tool), SBOM)
    run(
        str(tool / "bin/cyclonedx-py"),
        "requirements",
        "image/requirements.txt",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "--output-file",
        str(DIST / f"phalanx-{version}.cdx.json"),
    )


def write_image(version: str) -> str:
    """Write the image as an archive. Return the reason where this machine cannot build it."""
    if not (shutil.which("buildah") or shutil.which("docker")):
        return "neither buildah nor docker is installed"
    archive = DIST / f"phalanx-{version}.oci.tar"
    command = ["image/build.sh", str(archive), f"phalanx:{version}"]
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, check=False).returncode
    if code not in (0, _UNAVAILABLE):
        raise SystemExit(f"release: image/build.sh failed with exit code {code}")
    return "packages or the tool that builds it cannot be had here" if code else ""


def try_package(package: Path, scratch: Path) -> None:
    """Install one file into an empty environment, and run its command."""
    home = environment(scratch / package.name)
    run(*pip(home), "--find-links", str(DIST), str(package))
    is_local = package.name.startswith("phalanx_local")
    run(str(home / "bin/phalanx"), "--version")
    run(str(home / "bin/phalanx"), *(["apiserver", "--help"] if is_local else ["policy", "show"]), capture=True)


def checksums(folder: Path) -> str:
    """Return the lines of `sha256sum` for all files of a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def environment(path: Path) -> Path:
    run(sys.executable, "-m", "venv", str(path))
    return path


def pip(home: Path) -> list[str]:
    return [str(home / "bin/pip"), "install", "-qq", "--disable-pip-version-check"]


def step(title: str) -> None:
    print(f"release: {title}", flush=True)


def run(*command: str, cwd: Path = ROOT, capture: bool = False) -> str:
    # A PYTHONPATH of the caller would hide what an environment lacks.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environ, check=False, text=True, stdout=subprocess.PIPE if capture else None
    )
    if done.returncode:
        raise SystemExit(f"release: {' '.join(command[:4])} failed with exit code {done.returncode}")
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main())
