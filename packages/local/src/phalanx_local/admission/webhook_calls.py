"""Calls of admission webhooks: the AdmissionReview request, and the evaluation of the response.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/

The code of a write never awaits, so a write cannot wait for a webhook. If the response of a webhook is missing, the
write raises UnansweredWebhook and changes nothing. The caller then calls the webhooks and repeats the write, until
no response is missing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx_local.objects import Json, encode, mapping, sequence, text

REVIEW: Final = "admission.k8s.io/v1"
# Larger than any object with its patch.
_MAX_ANSWER: Final = 16 * 1024 * 1024
_MAX_EXCERPT: Final = 200
#: Maximum number of answers that one request needs; the calls of one round count once.
ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class WebhookCall:
    """Call of a webhook. Equal calls of the same webhook have an equal `key`."""

    key: str
    webhook: str
    client_config: Json
    timeout: int
    request: Json


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """Response of a webhook; `problem` is set instead of the other fields if the response is missing or invalid."""

    allowed: bool = False
    status: Json | None = None
    patch: object = None
    warnings: tuple[str, ...] = ()
    problem: str = ""


WebhookAnswers = dict[str, WebhookAnswer]


class UnansweredWebhook(Exception):  # noqa: N818 - an event: the write is repeated with the answers
    """Write that needs responses of webhooks first; nothing has been written."""

    def __init__(self, calls: list[WebhookCall]) -> None:
        super().__init__(", ".join(call.webhook for call in calls))
        self.calls = calls


class WebhookClient:
    """HTTP client for admission webhooks; one per server."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def answer(self, pending: UnansweredWebhook, answers: WebhookAnswers) -> None:
        """Call the pending webhooks of one write in parallel, and add their responses to `answers`."""
        for call, answer in zip(
            pending.calls, await asyncio.gather(*(self._ask(call) for call in pending.calls)), strict=True
        ):
            answers[call.key] = answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, call: WebhookCall) -> WebhookAnswer:
        url = text(call.client_config.get("url"))
        if not url:
            service = mapping(call.client_config.get("service"))
            return WebhookAnswer(
                problem=f"failed to call webhook: service {text(service.get('namespace'))}/"
                f"{text(service.get('name'))} cannot be reached: this cluster gives Services no addresses; "
                "register the webhook with clientConfig.url"
            )
        target = f"{url}{'&' if '?' in url else '?'}timeout={call.timeout}s"
        try:
            content = await asyncio.wait_for(self._post(target, call), call.timeout)
        except TimeoutError:
            return WebhookAnswer(problem=f'failed to call webhook: Post "{target}": context deadline exceeded')
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return WebhookAnswer(problem=f'failed to call webhook: Post "{target}": {error}')
        if isinstance(content, str):
            return WebhookAnswer(problem=f"failed to call webhook: {content}")
        return _read(content, text(call.request.get("uid")))

    async def _post(self, url: str, call: WebhookCall) -> bytes | str:
        """Return the body of a successful response, or the problem. Raise ValueError for an invalid CA
        certificate.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        review = {"kind": "AdmissionReview", "apiVersion": REVIEW, "request": call.request}
        async with self._session.post(
            url,
            data=encode(review),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            ssl=self._context(text(call.client_config.get("caBundle"))),
            allow_redirects=False,
        ) as answer:
            body = bytearray()
            async for piece in answer.content.iter_chunked(65536):
                body += piece
                if len(body) > _MAX_ANSWER:
                    return "the answer is too long"
            if answer.status != 200:
                shown = bytes(body[:_MAX_EXCERPT]).decode("utf-8", "replace").strip()
                return f"the server answered {answer.status}: {shown}"
            return bytes(body)

    def _context(self, bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is None:
            try:
                authorities = base64.b64decode(bundle, validate=True).decode() if bundle else None
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ValueError(f"unable to load root certificates: {error}") from None
            context = self._contexts[bundle] = ssl.create_default_context(cadata=authorities)
        return context


def _read(content: bytes, uid: str) -> WebhookAnswer:
    try:
        review = mapping(decode_json(content))
    except msgspec.DecodeError as error:
        return WebhookAnswer(problem=f"failed to call webhook: the answer is no JSON: {error}")
    kind = f"{review.get('apiVersion')}, Kind={review.get('kind')}"
    if kind != f"{REVIEW}, Kind=AdmissionReview":
        wanted = f"{REVIEW}, Kind=AdmissionReview"
        return WebhookAnswer(problem=f"expected webhook response of {wanted}, got {kind[:_MAX_EXCERPT]}")
    response = review.get("response")
    if not isinstance(response, dict):
        return WebhookAnswer(problem="webhook response was absent")
    if response.get("uid") != uid:
        return WebhookAnswer(
            problem=f'expected response.uid="{uid}", got {encode(response.get("uid")).decode()[:99]}'
        )
    patch: object = None
    if response.get("patch"):
        if response.get("patchType") != "JSONPatch":
            given = response.get("patchType")
            why = f"webhook returned invalid response.patchType of {encode(given).decode()[:99]}"
            return WebhookAnswer(
                problem=why if given else "webhook returned response.patch but not response.patchType"
            )
        try:
            patch = decode_json(base64.b64decode(response["patch"], validate=True))
        except (binascii.Error, ValueError, TypeError, msgspec.DecodeError) as error:
            return WebhookAnswer(problem=f"webhook returned a response.patch that is no JSON in base64: {error}")
    status = response.get("status")
    return WebhookAnswer(
        response.get("allowed") is True,
        status if isinstance(status, dict) else None,
        patch,
        tuple(text(warning) for warning in sequence(response.get("warnings")) if text(warning)),
    )
