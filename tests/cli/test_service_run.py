"""Execution of long-running commands: choice of the event loop."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import pytest

from phalanx.cli.connection import parsed_client_options, run_on_client
from phalanx.cli.services.service_run import fastest_loop

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: ""}}]
current-context: a
"""


class OtherLoop(asyncio.SelectorEventLoop):
    """Event loop in the place of uvloop's."""


def test_service_runs_on_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("uvloop")
    module.new_event_loop = OtherLoop  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uvloop", module)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)

    async def loop_of(client: object) -> type:
        return type(asyncio.get_running_loop())

    options = parsed_client_options(str(tmp_path / "kubeconfig"))
    assert run_on_client(loop_of, options, fastest_loop()) is OtherLoop
    assert run_on_client(loop_of, options) is not OtherLoop


def test_service_runs_on_asyncio_where_uvloop_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert fastest_loop() is None
