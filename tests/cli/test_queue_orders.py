"""`phalanx queue create|edit|open|close|delete` and `quota set`: requests and messages."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from click.testing import CliRunner

from phalanx.cli.accounts.queue_orders import queue_create, queue_edit
from phalanx.cli.main import cli
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx.orders import queues
from phalanx.orders.errors import OrderError
from phalanx.orders.queues import (
    check_deletion,
    create_queue,
    delete_queue,
    edit_queue,
    replacing,
    set_open,
    set_quota,
)

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
QUOTAS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ml/elasticquotas"


class Api:
    """API server with queues `root`, `default` and `research`; without `commands` it serves none."""

    def __init__(self, *, commands: bool = True, executes: bool = True) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self._versions = itertools.count(1)
        self._commands, self._executes = commands, executes
        for name in ("root", "default", "research"):
            self._store(f"{QUEUES}/{name}", {"metadata": {"name": name, "uid": name}, "spec": {}})

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)

    def _store(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        version = {"resourceVersion": str(next(self._versions))}
        self.objects[path] = {**document, "metadata": document["metadata"] | version}
        return self.objects[path]

    async def get(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise ApiError(404, "NotFound", "not found")
        return self.objects[path]

    async def create(self, path: str, document: dict[str, Any], params: Any = None) -> dict[str, Any]:
        self.requests.append(("create", path))
        if path == COMMANDS:
            if not self._commands:
                raise ApiError(404, "NotFound", "not served")
            if self._executes:
                state = "Open" if document["action"] == "OpenQueue" else "Closing"
                self.objects[f"{QUEUES}/{document['target']['name']}"]["status"] = {"state": state}
            return document
        if f"{path}/{document['metadata']['name']}" in self.objects:
            raise ApiError(409, "AlreadyExists", "already exists")
        return self._store(f"{path}/{document['metadata']['name']}", document)

    async def patch(self, path: str, patch: dict[str, Any], kind: PatchType) -> dict[str, Any]:
        self.requests.append(("patch", path))
        assert kind is PatchType.MERGE
        before = self.objects[path.removesuffix("/status")]
        after = merged(before, patch)
        return before if after == before else self._store(path.removesuffix("/status"), after)

    async def delete(self, path: str) -> None:
        del self.objects[path]

    async def list_all(self, path: str) -> dict[str, Any]:
        return {"items": [found for where, found in self.objects.items() if where.startswith(f"{path}/")]}

    def group(self, name: str, queue: str, phase: str) -> None:
        metadata = {"name": name, "namespace": "ml"}
        self._store(
            f"{GROUPS}/{name}", {"metadata": metadata, "spec": {"queue": queue}, "status": {"phase": phase}}
        )


def merged(before: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


async def test_queue_is_created_with_the_given_fields_under_an_existing_parent() -> None:
    api = Api()
    assert await create_queue(api.client, "vision", {"parent": "research", "weight": 3}) == "queue vision created"
    assert api.objects[f"{QUEUES}/vision"]["spec"] == {"parent": "research", "weight": 3}
    with pytest.raises(OrderError, match="no parent queue 'nosuch'; expected one of default, research, root"):
        await create_queue(api.client, "x", {"parent": "nosuch"})
    with pytest.raises(OrderError, match="queue vision exists already; change it with phalanx queue edit vision"):
        await create_queue(api.client, "vision", {})


async def test_amounts_replace_those_of_their_field_and_an_equal_edit_changes_nothing() -> None:
    api = Api()
    before = {"capability": {"cpu": "10", "gpu": "2"}, "guarantee": {"resource": {"cpu": "1"}}}
    await edit_queue(api.client, "research", before)
    patch = {"capability": replacing(before["capability"], {"cpu": "20"})}
    assert await edit_queue(api.client, "research", patch) == "queue research changed"
    assert api.objects[f"{QUEUES}/research"]["spec"]["capability"] == {"cpu": "20"}
    assert await edit_queue(api.client, "research", patch) == "queue research unchanged"
    with pytest.raises(OrderError, match="no queue 'nosuch'"):
        await edit_queue(api.client, "nosuch", patch)


@pytest.mark.parametrize("commands", [True, False])
async def test_queue_is_closed_and_opened_by_a_command_or_its_status(commands: bool) -> None:
    api = Api(commands=commands)
    assert (await set_open(api.client, "research", opened=False)).startswith("queue research is Clos")
    assert ("patch", f"{QUEUES}/research/status") in api.requests or commands
    assert "already" in await set_open(api.client, "research", opened=False)
    assert await set_open(api.client, "research", opened=True) == "queue research is Open"


async def test_command_that_no_controller_executes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_PATIENCE", 0.0)
    with pytest.raises(OrderError, match="still Open: the Command CloseQueue is created and not yet executed"):
        await set_open(Api(executes=False).client, "research", opened=False)


async def test_queue_with_gangs_or_sub_queues_is_not_deleted() -> None:
    api = Api()
    api.group("done", "research", "Completed")
    api.group("train", "research", "Running")
    with pytest.raises(OrderError, match="1 gangs: ml/train; cancel or move them first"):
        await delete_queue(api.client, "research")
    api.group("train", "default", "Running")
    await create_queue(api.client, "vision", {"parent": "research"})
    with pytest.raises(OrderError, match="sub-queues: vision"):
        await delete_queue(api.client, "research")
    assert await delete_queue(api.client, "vision") == "queue vision deleted"
    assert await delete_queue(api.client, "research") == "queue research deleted"


@pytest.mark.parametrize("name", ["root", "default"])
async def test_built_in_queue_cannot_be_deleted(name: str) -> None:
    with pytest.raises(OrderError, match="always exists"):
        await check_deletion(Api().client, name)


async def test_quota_is_created_then_its_amounts_are_replaced_and_removed() -> None:
    api = Api()
    assert await set_quota(api.client, "ml", "team", {"min": {"cpu": "4"}, "max": None}) == "quota ml/team created"
    assert await set_quota(api.client, "ml", "team", {"min": {"gpu": "1"}}) == "quota ml/team changed"
    assert api.objects[f"{QUOTAS}/team"]["spec"] == {"min": {"gpu": "1"}}
    await set_quota(api.client, "ml", "team", {"min": None})
    assert api.objects[f"{QUOTAS}/team"]["spec"] == {}


async def test_quota_with_min_above_max_is_refused_with_both_amounts() -> None:
    api = Api()
    with pytest.raises(OrderError, match="min of cpu is 4, above its max 3500m"):
        await set_quota(api.client, "ml", "team", {"min": {"cpu": "4"}, "max": {"cpu": "3500m"}})
    await set_quota(api.client, "ml", "team", {"max": {"cpu": "3500m"}})
    with pytest.raises(OrderError, match="min of cpu is 4, above its max 3500m"):
        await set_quota(api.client, "ml", "team", {"min": {"cpu": "4"}})
    await set_quota(api.client, "ml", "team", {"min": {"cpu": "4"}, "max": None})
    assert api.objects[f"{QUOTAS}/team"]["spec"] == {"min": {"cpu": "4"}}


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=4", "cpu=abc", "cpu=-1"])
def test_wrong_amount_is_named(text: str) -> None:
    for command in (queue_create, queue_edit):
        result = CliRunner().invoke(command, ["research", "--capability", text])
        assert result.exit_code == 2
        assert f"'{text}' is not NAME=AMOUNT" in result.output


def test_quota_without_amounts_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli, ["quota", "set", "team"])
    assert result.exit_code == 2
    assert "state --min, --max or both" in result.output
