"""Extenders over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from phalanx.daemon.extender_calls import HttpCaller, connect_extenders
from phalanx.scheduling.plugins.nodes.extender import Extender
from phalanx.scheduling.plugins.nodes.extender_calls import CallError
from phalanx.scheduling.policy.loader import load_policy


class Handler(BaseHTTPRequestHandler):
    """/x/echo answers with what it was told, other verbs in their own ways."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        verb = self.path.removeprefix("/x/")
        answer = {"echo": body, "empty": b"", "list": b"[]", "odd": b"{"}.get(verb, b"{}")
        self.send_response(500 if verb == "broken" else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/x"
    server.shutdown()
    server.server_close()


def test_a_question_is_posted_and_its_answer_read(url: str) -> None:
    call = HttpCaller(url, 5.0)
    assert call("echo", {"task": {"Name": ""}}) == {"task": {"Name": ""}}
    assert call("empty", {}) == {}


@pytest.mark.parametrize("verb", ["broken", "list", "odd"])
def test_what_is_no_answer_is_an_error(url: str, verb: str) -> None:
    with pytest.raises(CallError, match=verb):
        HttpCaller(url, 5.0)(verb, {})


def test_nobody_there_is_an_error() -> None:
    with pytest.raises(CallError):
        HttpCaller("http://127.0.0.1:1", 0.5)("echo", {})


def test_a_policy_is_connected_to_its_extender(url: str) -> None:
    arguments = f'{{extender.urlPrefix: "{url}/", extender.httpTimeout: 5s}}'
    policy = load_policy(f"tiers: [{{plugins: [{{name: extender, arguments: {arguments}}}]}}]")
    connect_extenders(policy)
    extender = policy.configured(Extender)
    assert extender is not None
    connect_extenders(load_policy("tiers: []"))
