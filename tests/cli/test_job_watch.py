"""`phalanx job list --watch` and `phalanx jobs --start --watch` while the API server is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.cli.jobs.starts import StartQuestion
from phalanx.cli.main import cli
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.reports.jobs.job_report import JobReader

Work = Callable[[Any], Coroutine[Any, Any, Any]]


@pytest.mark.parametrize("outage", [ConnectionLost("connection refused"), ApiError(503, "Unavailable", "starting")])
@pytest.mark.parametrize("command", [("job", "list"), ("jobs", "--start")])
def test_watch_continues_after_an_outage_of_the_api_server(
    command: tuple[str, ...], outage: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    async def look(*_: Any, **__: Any) -> Any:
        looks.append("look")
        if len(looks) == 2:
            raise outage
        if len(looks) == 4:
            raise KeyboardInterrupt
        return ([], []) if command == ("jobs", "--start") else []

    monkeypatch.setattr(JobReader, "jobs", look)
    monkeypatch.setattr(StartQuestion, "answer", look)
    client = SimpleNamespace(namespace="default")
    monkeypatch.setattr("phalanx.cli.invocation.run_on_client", lambda work, *_: asyncio.run(work(client)))

    result = CliRunner().invoke(cli, [*command, "--watch", "--interval", "0.5"])

    assert (result.exit_code, len(looks)) == (0, 4), result.output
    assert result.output.count("warning: ") == 1
