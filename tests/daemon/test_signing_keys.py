"""Keys outlive the process, and schedulers that start together agree about them."""

from __future__ import annotations

import base64
import logging
from functools import partial
from typing import Any

import pytest

from phalanx.daemon.signing_keys import NAME, keys_in, load_keys, reading_signer
from phalanx.dialects.signatures import Key
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import Backoff

PATH = f"/api/v1/namespaces/kube-system/secrets/{NAME}"


class FakeSecrets:
    """One Secret behind the calls that are made of it; `faults` are raised, one a call, before anything else."""

    def __init__(self, secret: dict[str, Any] | None = None) -> None:
        self.secret = secret
        self.version = 1
        self.faults: list[Exception] = []
        self.calls: list[str] = []

    def _fault(self, call: str) -> None:
        self.calls.append(call)
        if self.faults:
            raise self.faults.pop(0)

    async def get(self, path: str) -> Any:
        self._fault("GET")
        assert path == PATH
        if self.secret is None:
            raise refusal(404)
        return {**self.secret, "metadata": {"name": NAME, "resourceVersion": str(self.version)}}

    async def create(self, path: str, body: dict[str, Any]) -> Any:
        self._fault("POST")
        if self.secret is not None:
            raise refusal(409)
        self.secret = body

    async def replace(self, path: str, body: dict[str, Any]) -> Any:
        self._fault("PUT")
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise refusal(409)
        self.secret, self.version = body, self.version + 1


def refusal(status: int) -> ApiError:
    return ApiError(status, "Refused", "no")


async def load(secrets: Any, byte: bytes = b"k") -> tuple[Key, ...]:
    return await load_keys(secrets, "kube-system", lambda: 1000.5, lambda size: byte * size)


@pytest.mark.parametrize(
    "secret", [None, {"type": "Opaque"}, {"data": {}}, {"data": {"1": "c2hvcnQ=", "x": "AAAA"}}]
)
async def test_first_scheduler_creates_a_key_and_all_later_ones_use_it(secret: dict[str, Any] | None) -> None:
    secrets = FakeSecrets(secret)
    first = await load(secrets)
    assert first == (("1000", b"k" * 32),)
    assert await load(secrets, b"other") == first
    assert secrets.calls[-1] == "GET"


async def test_two_schedulers_that_start_together_use_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.daemon.signing_keys.Backoff", partial(Backoff, base=0.001))
    secrets = FakeSecrets({"data": {}})
    put = secrets.replace

    async def overtaken(path: str, body: dict[str, Any]) -> Any:
        secrets.replace = put  # type: ignore[method-assign]
        assert await load(secrets, b"r") == (("1000", b"r" * 32),)
        return await put(path, body)

    secrets.replace = overtaken  # type: ignore[method-assign]
    assert await load(secrets) == (("1000", b"r" * 32),)


async def test_the_newest_key_signs() -> None:
    entries = {name: base64.b64encode(name[:1].encode() * 32).decode() for name in ("999", "2000", "1000")}
    assert [name for name, _ in await load(FakeSecrets({"data": entries}))] == ["2000", "1000", "999"]


@pytest.mark.parametrize("status", [401, 403, 422])
async def test_where_no_key_may_be_kept_one_serves_this_process_and_the_log_says_so(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = FakeSecrets()
    secrets.faults = [refusal(status)]
    with caplog.at_level(logging.ERROR):
        assert await load(secrets) == (("process", b"k" * 32),)
    assert "run `phalanx install`" in caplog.text


async def test_a_server_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None: ...

    monkeypatch.setattr("phalanx.daemon.signing_keys.asyncio.sleep", at_once)
    secrets = FakeSecrets()
    secrets.faults = [ConnectionLost("gone"), refusal(503), refusal(429)]
    assert await load(secrets) == (("1000", b"k" * 32),)


@pytest.mark.parametrize("data", [None, [], "x", {"1": 5}, {"1": None}, {"1": "%%%"}, {"²": "AAAA"}])
def test_malformed_key_is_skipped(data: Any) -> None:
    assert keys_in({"data": data}) == ()


@pytest.mark.parametrize(("fault", "said"), [(refusal(403), True), (refusal(404), False)])
async def test_scheduler_without_the_right_to_keys_warns_that_marks_are_not_verified(
    fault: ApiError, said: bool
) -> None:
    secrets: Any = FakeSecrets()
    secrets.faults = [fault]
    signer, reason = await reading_signer(secrets, "kube-system")
    assert bool(reason) == said
    assert signer.believes("anything", "at all") == said
