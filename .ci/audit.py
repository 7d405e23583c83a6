"""Asks PyPI for known vulnerabilities of all that constraints.txt pins: `make audit`.

Exit code 0 where there are none, and where nobody can be asked (no network, or a mirror that holds packages and
knows nothing about all or some of them), which is said; 1 where there are some; 2 where pip-audit failed otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TOOL = "pip-audit==2.10.1"
#: What requests, urllib3 and pip say where they cannot reach a server.
_OFFLINE = (
    "NameResolutionError",
    "NewConnectionError",
    "ConnectTimeout",
    "ConnectionError",
    "ProxyError",
    "ReadTimeout",
    "No matching distribution found",
)


def verdict(code: int, report: str, errors: str) -> tuple[int, list[str]]:
    """(exit code, lines) of what pip-audit left: its exit code, its report as JSON ("" for none), what it said."""
    if not report:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        if any(each in errors for each in _OFFLINE):
            return 0, [f"audit: skipped, nobody can be asked: {last[:200]}"]
        return 2, [f"audit: pip-audit ended with code {code}: {last[:200]}"]
    packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
    asked = [each for each in packages if "skip_reason" not in each]
    unknown = [each["name"] for each in packages if "skip_reason" in each]
    lines = [
        f"audit: {each['name']} {each['version']}: {fault['id']} {' '.join(fault.get('aliases', ()))}"
        f" (fixed in {', '.join(fault.get('fix_versions', ())) or 'no version'})"
        for each in asked
        for fault in each.get("vulns", ())
    ]
    if lines:
        return 1, lines
    if not asked:
        return 0, [f"audit: skipped, nobody can be asked: the index tells nothing about {len(unknown)} packages"]
    if unknown:
        rest = f"{len(unknown)} of {len(packages)} packages: {', '.join(unknown)}"
        return 0, [f"audit: no known vulnerability of {len(asked)} packages; nothing is known of {rest}"]
    return 0, [f"audit: {len(asked)} packages, no known vulnerability"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / "build/audit", help="where pip-audit is installed")
    options = parser.parse_args()
    python = options.venv / "bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TOOL]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", options.venv], check=True)
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        code, lines = verdict(installed.returncode, "", installed.stderr)
    else:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "report.json"
            command = [str(python), "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt")]
            command += ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", "15"]
            command += ["--format", "json", "--output", str(written)]
            asked = subprocess.run(command, capture_output=True, text=True, check=False)
            report = written.read_text("utf-8") if written.exists() else ""
            code, lines = verdict(asked.returncode, report, asked.stderr)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
