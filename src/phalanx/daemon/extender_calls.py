"""Reaches extenders over HTTP, as Volcano does: a POST of JSON per question."""

from __future__ import annotations

import http.client
import logging
from typing import Any
from urllib.parse import urlsplit

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.plugins.nodes.extender import Extender
from phalanx.scheduling.plugins.nodes.extender_calls import CallError, Document

log = logging.getLogger(__name__)

# Volcano reads no more of an answer.
_MOST_BYTES = 10 * 2**20


def connect_extenders(policy: Policy) -> None:
    """Lets the extender that a policy names be asked."""
    extender = policy.configured(Extender)
    if extender is not None and extender.url:
        extender.connect(HttpCaller(extender.url, extender.timeout))


class HttpCaller:
    """`timeout` is in seconds, for the connection and for each wait on the answer. Waits while it is asked."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = urlsplit(url)
        self._timeout = timeout

    def __call__(self, verb: str, document: Document) -> Document:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.netloc, timeout=self._timeout)
        try:
            connection.request(
                "POST",
                f"{self._url.path.rstrip('/')}/{verb}",
                body=msgspec.json.encode(document),
                headers={"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            raw = response.read(_MOST_BYTES)
            if response.status != http.client.OK:
                raise CallError(f"{verb}: status {response.status}")
            answer: Any = decode_json(raw) if raw else {}
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            log.warning("extender: %s: %s", verb, error)
            raise CallError(f"{verb}: {error}") from error
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise CallError(f"{verb}: the answer is no object")
        return answer
