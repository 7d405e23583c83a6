"""Location of the usage database for commands without an option: that of a local cluster, or a file of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phalanx.kube.auth.config import kubeconfig_paths, with_extension
from phalanx.kube.auth.kubeconfig import Kubeconfig
from phalanx.kube.errors import ConfigError

#: Extension of a cluster in a kubeconfig, written by `phalanx up`: the SQLite file with the usage of that cluster.
EXTENSION = "phalanx.dev/history"


def default_location(
    environ: Mapping[str, str] | None = None, *, kubeconfig: str | None = None, context: str | None = None
) -> str:
    """Return the file that the kubeconfig (None: that of `environ`) names for the cluster of its context (None: the
    current one), else the file below $XDG_STATE_HOME."""
    environ = os.environ if environ is None else environ
    if file := _recorded_file([kubeconfig] if kubeconfig else kubeconfig_paths(environ), context):
        return file
    home = environ.get("HOME") or str(Path.home())
    state = environ.get("XDG_STATE_HOME") or str(Path(home) / ".local" / "state")
    return str(Path(state) / "phalanx" / "accounting.db")


def with_history(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return a kubeconfig document with `file` as the usage database of its clusters."""
    return with_extension(config, EXTENSION, {"file": str(file)})


def _recorded_file(paths: Sequence[str], context: str | None) -> str:
    try:
        loaded = Kubeconfig.load([path for path in paths if os.path.exists(path)])
        cluster = loaded.cluster(loaded.context(context, "", ""))
    except ConfigError:
        return ""
    for extension in cluster.entry.extensions or ():
        content = extension.get("extension")
        if extension.get("name") == EXTENSION and isinstance(content, dict) and content.get("file"):
            return cluster.path(str(content["file"]))
    return ""
