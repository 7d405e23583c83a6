"""The cluster is read with lists alone; what cannot be read is named, and the rest is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.reports.migration.examine import Examiner
from phalanx.reports.migration.read import Source, read_documents

QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)


class Server(KubeClient):
    """Answers with the pages that it was given, or with what went wrong."""

    def __init__(self, *answers: list[str] | ApiError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str | None]] = []

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.asked.append((method, options["params"]["continue"]))
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        token = str(len(self.answers)) if self.answers else ""
        items = [{"metadata": {"name": name}} for name in answer]
        return json.dumps({"metadata": {"continue": token}, "items": items}).encode()


async def names(server: Server, source: Source) -> list[str]:
    return [each["metadata"]["name"] async for each in read_documents(server, QUEUES, source.missing, None)]


async def test_every_page_is_asked_for_and_nothing_but_read() -> None:
    server, source = Server(["a", "b"], ["c"], ["d"]), Source(Examiner())
    assert await names(server, source) == ["a", "b", "c", "d"]
    assert server.asked == [("GET", None), ("GET", "2"), ("GET", "1")]
    assert source.missing == []


async def test_what_may_not_be_listed_is_named() -> None:
    source = Source(Examiner())
    assert await names(Server(ApiError(403, "Forbidden", "queues is forbidden")), source) == []
    assert source.missing == ["queues.scheduling.volcano.sh: queues is forbidden"]


async def test_a_list_that_breaks_off_is_named_and_what_came_is_told() -> None:
    source = Source(Examiner())
    assert await names(Server(["a"], ApiError(410, "Expired", "the list is too old")), source) == ["a"]
    assert source.missing == ["queues.scheduling.volcano.sh: the list is too old"]


async def test_what_is_not_served_is_none_of_this_cluster() -> None:
    source = Source(Examiner())
    assert await names(Server(ApiError(404, "NotFound", "no")), source) == []
    assert source.missing == []


async def test_a_server_that_fails_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(ApiError):
        await names(Server(ApiError(500, "InternalError", "no")), Source(Examiner()))
