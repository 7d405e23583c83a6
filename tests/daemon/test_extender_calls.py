"""Extenders over HTTP."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from phalanx.daemon import extender_calls
from phalanx.daemon.extender_calls import HttpCaller, connect_extenders
from phalanx.scheduling.plugins.nodes.extender import Extender
from phalanx.scheduling.plugins.nodes.extender_calls import CallError
from phalanx.scheduling.policy.loader import load_policy


class Handler(BaseHTTPRequestHandler):
    """An extender: /x/echo returns its request, other verbs fail in various ways."""

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
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/x"
    server.shutdown()
    server.server_close()


def test_a_question_is_posted_and_its_answer_read(url: str) -> None:
    call = HttpCaller(url, 5.0)
    assert call("echo", {"task": {"Name": ""}}) == {"task": {"Name": ""}}
    assert call("empty", {}) == {}


@pytest.mark.parametrize("verb", ["broken", "list", "odd"])
def test_malformed_answer_is_an_error(url: str, verb: str) -> None:
    with pytest.raises(CallError, match=verb):
        HttpCaller(url, 5.0)(verb, {})


def test_unreachable_extender_is_an_error() -> None:
    with pytest.raises(CallError):
        HttpCaller("http://127.0.0.1:1", 0.5)("echo", {})


class Silent:
    """A server that accepts connections and delays its answers until the test permits them; it counts requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.speaks = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.asked += 1
                self._open.append(connection)
                # A byte now and then keeps a timeout per read from ever striking.
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                if self.speaks:
                    connection.recv(1 << 16)
                    connection.sendall(b"y\r\nContent-Length: 2\r\n\r\n{}")

    def close(self) -> None:
        for each in (*self._open, self._socket):
            each.close()


def test_hanging_extender_delays_only_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extender is retried in the background until it answers."""
    monkeypatch.setattr(extender_calls, "_RETRY_PERIOD", 0.02)
    extender = Silent()
    try:
        call = HttpCaller(extender.url, 0.1)
        with pytest.raises(CallError, match="predicate: no answer within"):
            call("predicate", {})
        while extender.asked < 2:
            time.sleep(0.01)
        with pytest.raises(CallError, match="predicate: not answered yet"):
            call("prioritize", {})
        extender.speaks = True
        answer = None
        while answer is None:
            with contextlib.suppress(CallError):
                answer = call("prioritize", {})
        assert answer == {}
    finally:
        extender.close()


def test_a_policy_is_connected_to_its_extender(url: str) -> None:
    arguments = f'{{extender.urlPrefix: "{url}/", extender.httpTimeout: 5s}}'
    policy = load_policy(f"tiers: [{{plugins: [{{name: extender, arguments: {arguments}}}]}}]")
    connect_extenders(policy)
    extender = policy.configured(Extender)
    assert extender is not None
    connect_extenders(load_policy("tiers: []"))
