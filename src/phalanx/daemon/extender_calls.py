"""HTTP calls of scheduler extenders in Volcano's format: one POST of JSON per call."""

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

# Limit of the answer's size; it is Volcano's.
_MOST_BYTES = 10 * 2**20
# Seconds between retries of a call that has timed out.
_RETRY_PERIOD = 5.0


def connect_extenders(policy: Policy) -> None:
    """Connect the extender that a policy names."""
    extender = policy.configured(Extender)
    if extender is not None and extender.url:
        extender.connect(HttpCaller(extender.url, extender.timeout))


class _Question(NamedTuple):
    verb: str
    body: bytes
    answer: queue.SimpleQueue[Document | CallError]


class HttpCaller:
    """HTTP client of one scheduler extender with one call at a time.

    A caller waits at most `timeout` seconds. After a timeout the call is retried on its own thread until the
    extender answers; until then each further call fails at once. So an extender that hangs costs one timeout.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = urlsplit(url)
        self._timeout = timeout
        # Verb of the call without an answer; "" if there is none.
        self._unanswered = ""

    def __call__(self, verb: str, document: Document) -> Document:
        if self._unanswered:
            raise CallError(f"{self._unanswered}: not answered yet")
        self._unanswered = verb
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
        while (answer := self._call(question)) is None:
            time.sleep(_RETRY_PERIOD)
        self._unanswered = ""
        question.answer.put(answer)

    def _call(self, question: _Question) -> Document | CallError | None:
        """Return the extender's answer, or None after a timeout."""
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
            raise CallError(f"{verb}: the answer is not a JSON object")
        return answer
