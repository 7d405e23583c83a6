"""Reaches extenders over HTTP, as Volcano does: a POST of JSON per question."""

from __future__ import annotations

import http.client
import logging
import queue
import threading
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.plugins.nodes.extender import Extender
from phalanx.scheduling.plugins.nodes.extender_calls import CallError, Document

log = logging.getLogger(__name__)

# Volcano reads no more of an answer.
_MOST_BYTES = 10 * 2**20
# Who has not answered in time is asked the same again so often (seconds).
_AGAIN = 5.0


def connect_extenders(policy: Policy) -> None:
    """Lets the extender that a policy names be asked."""
    extender = policy.configured(Extender)
    if extender is not None and extender.url:
        extender.connect(HttpCaller(extender.url, extender.timeout))


class _Question(NamedTuple):
    verb: str
    body: bytes
    answer: queue.SimpleQueue[Document | CallError]


class HttpCaller:
    """Whoever asks waits for `timeout` seconds, whatever comes meanwhile. After that nobody waits any more until
    the extender has answered that question: it is asked again and again on a thread of its own, so that one that
    hangs costs one timeout, once.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = urlsplit(url)
        self._timeout = timeout
        # The verb of the question that nobody has answered yet.
        self._open = ""

    def __call__(self, verb: str, document: Document) -> Document:
        if self._open:
            raise CallError(f"{self._open}: not answered yet")
        self._open = verb
        question = _Question(verb, msgspec.json.encode(document), queue.SimpleQueue())
        threading.Thread(target=self._run, args=(question,), name="extender", daemon=True).start()
        try:
            answer = question.answer.get(timeout=self._timeout)
        except queue.Empty:
            answer = CallError(f"{verb}: no answer within {self._timeout:g} s")
        if isinstance(answer, CallError):
            log.warning("extender: %s", answer)
            raise answer
        return answer

    def _run(self, question: _Question) -> None:
        while (answer := self._ask(question)) is None:
            time.sleep(_AGAIN)
        self._open = ""
        question.answer.put(answer)

    def _ask(self, question: _Question) -> Document | CallError | None:
        """What came back; None for nothing in time."""
        try:
            return self._post(question.verb, question.body)
        except TimeoutError:
            return None
        except CallError as error:
            return error
        except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError) as error:
            return CallError(f"{question.verb}: {error}")

    def _post(self, verb: str, body: bytes) -> Document:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.netloc, timeout=self._timeout)
        try:
            connection.request(
                "POST",
                f"{self._url.path.rstrip('/')}/{verb}",
                body=body,
                headers={"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            raw = response.read(_MOST_BYTES)
            if response.status != http.client.OK:
                raise CallError(f"{verb}: status {response.status}")
            answer: Any = decode_json(raw) if raw else {}
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise CallError(f"{verb}: the answer is no object")
        return answer
