"""Facts about a member cluster: its capacity, and the end of its credentials."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from phalanx.hub.members.credential_expiry import CredentialLife, credential_life
from phalanx.hub.names import MEMBER_CLUSTERS
from tests.e2e.world import pod
from tests.hub.federation import Federation, Json, federation, until

HOUR, DAY = 3600, 24 * 3600


def secret(**user: str) -> Json:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"user": "hub"}}, {"name": "d", "context": {"user": "other"}}],
        "users": [{"name": "other", "user": {"token": token(exp=1)}}, {"name": "hub", "user": user}],
    }
    return {"data": {"kubeconfig": base64.b64encode(json.dumps(document).encode()).decode()}}


def token(**claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


class TestCredentials:
    def test_a_service_accounts_token_says_when_it_ends(self) -> None:
        assert credential_life(secret(token=token(iat=1000, exp=9000)), "s") == CredentialLife(1000, 9000)

    @pytest.mark.parametrize("text", ["", "opaque", "a.b", "a.!.c", "e30.W10.x", token(exp="soon"), token(exp=-1)])
    def test_credentials_without_an_expiry_do_not_end(self, text: str) -> None:
        assert credential_life(secret(token=text), "s").ends == 0

    def test_a_kubeconfig_that_cannot_be_read_does_not_end(self) -> None:
        assert credential_life({"data": {"kubeconfig": "?"}}, "s") == CredentialLife()
        assert credential_life({}, "s") == CredentialLife()

    def test_credentials_end_soon_a_day_before_expiry_or_in_the_last_quarter_of_a_shorter_life(self) -> None:
        month = CredentialLife(begins=1, ends=1 + 30 * DAY)
        assert not month.ends_soon(month.ends - DAY - 1)
        assert month.ends_soon(month.ends - DAY)
        short = CredentialLife(begins=1, ends=1 + 4 * HOUR)
        assert not short.ends_soon(short.ends - HOUR - 1)
        assert short.ends_soon(short.ends - HOUR)
        assert not CredentialLife().ends_soon(2**40)


@pytest_asyncio.fixture
async def one(tmp_path: Path) -> AsyncIterator[Federation]:
    async with federation(tmp_path, members=("east",)) as made:
        yield made


@pytest.mark.e2e
@pytest.mark.asyncio
async def test_member_reports_its_capacity_and_usage(one: Federation) -> None:
    east = one.members["east"]
    await east.node("n1", "8")
    await east.node("n2", "4500m")
    await east.client.create("/api/v1/namespaces/default/pods", pod("p", cpu="1500m", nodeName="n1"))
    await one.join("east")
    await one.start_hub()

    async def has_nodes() -> Json:
        found = (await one.hub.client.get(MEMBER_CLUSTERS.path(None, "east"))).get("status") or {}
        return found if found.get("nodes") else {}

    status = await until(has_nodes, "east says what it has")
    assert status["nodes"] == {"total": 2, "ready": 0}
    assert status["allocatable"] == {"cpu": "12500m", "memory": "64Gi", "pods": "220"}
    assert status["used"] == {"cpu": "1500m", "memory": "0", "pods": "1"}
    assert status["version"].startswith("v1.")
    (active,) = [each for each in status["conditions"] if each["type"] == "Active"]
    assert active["status"] == "True"
