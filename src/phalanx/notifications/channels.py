"""Sending of one notification: by HTTP to a webhook, by SMTP to a mail server."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import smtplib
import socket
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

import aiohttp
import msgspec

from phalanx.notifications.addresses import (
    RefusedAddressError,
    checked_addresses,
    checked_connector,
    is_refused,
)
from phalanx.notifications.notice import Notice, json_body, mail_message, slack_body
from phalanx.notifications.settings import MailChannel, Network, NoticeTarget, WebhookChannel

_SECONDS = 10.0
# Answers of a server after which the same request can succeed later.
_LATER = frozenset({408, 425, 429})


class SendError(Exception):
    """Failure to send a notification; the text has no URL, address or answer of the server. If it is `final`, it is
    not sent again."""

    def __init__(self, text: str, *, final: bool) -> None:
        super().__init__(text)
        self.final = final


async def send(target: NoticeTarget, notice: Notice, recipient: str, allowed: Sequence[Network]) -> None:
    """Send a notice to a target, by mail to `recipient` in the target's domain. Raises SendError."""
    try:
        async with asyncio.timeout(_SECONDS):
            if isinstance(target.channel, WebhookChannel):
                await _post(target.channel, notice, allowed)
            else:
                await _mail(target.channel, notice, recipient, allowed)
    except RefusedAddressError as error:
        raise SendError(str(error), final=True) from None
    except TimeoutError:
        raise SendError(f"no answer within {_SECONDS:.0f} s", final=False) from None
    except (OSError, aiohttp.ClientError) as error:
        # Texts of aiohttp contain the URL, and with it the secret of the webhook.
        raise SendError(f"cannot connect ({type(error).__name__})", final=False) from None
    except SendError:
        raise
    except Exception as error:
        # A traceback can contain the secrets of the target.
        raise SendError(f"failed ({type(error).__name__})", final=False) from None


async def _post(webhook: WebhookChannel, notice: Notice, allowed: Sequence[Network]) -> None:
    # The connector does not ask the resolver for an address that is written as numbers.
    with contextlib.suppress(ValueError):
        if is_refused(ipaddress.ip_address(urlsplit(webhook.url).hostname or ""), allowed):
            raise RefusedAddressError(
                "the target has a private or internal address; fix: allowAddresses in the settings"
            )
    body = slack_body(notice) if webhook.form == "slack" else json_body(notice)
    headers = {"Content-Type": "application/json", "User-Agent": "phalanx", "Idempotency-Key": notice.id}
    if webhook.token:
        headers["Authorization"] = f"Bearer {webhook.token}"
    async with (
        aiohttp.ClientSession(connector=checked_connector(allowed), trust_env=False) as session,
        session.post(
            webhook.url, data=msgspec.json.encode(body), headers=headers, allow_redirects=False
        ) as response,
    ):
        status = response.status
    if 300 <= status < 400:
        raise SendError(f"the server redirects (HTTP {status}), which is not followed", final=True)
    if status >= 400:
        raise SendError(f"the server answered HTTP {status}", final=status < 500 and status not in _LATER)


async def _mail(mail: MailChannel, notice: Notice, recipient: str, allowed: Sequence[Network]) -> None:
    addresses = await checked_addresses(mail.host, mail.port, allowed)
    message = mail_message(notice, mail.sender, f"{recipient}@{mail.domain}")

    def deliver() -> None:
        context = ssl.create_default_context()
        kind = _TlsServer if mail.security == "tls" else _Server
        more = {"context": context} if mail.security == "tls" else {}
        with kind(addresses, timeout=_SECONDS, **more) as server:
            server.connect(mail.host, mail.port)
            if mail.security == "starttls":
                server.starttls(context=context)
            if mail.username:
                server.login(mail.username, mail.password)
            server.send_message(message)

    try:
        await asyncio.to_thread(deliver)
    except smtplib.SMTPResponseException as error:
        raise SendError(f"the mail server answered {error.smtp_code}", final=error.smtp_code >= 500) from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        raise SendError("the mail server refuses the recipient", final=min(codes, default=500) >= 500) from None
    except smtplib.SMTPException as error:
        raise SendError(f"the mail server failed ({type(error).__name__})", final=False) from None


class _Server(smtplib.SMTP):
    """SMTP client that connects to checked addresses; the name of the host counts for its certificate only."""

    def __init__(self, addresses: Sequence[tuple[int, str]], timeout: float) -> None:
        self._addresses = addresses
        super().__init__(timeout=timeout, local_hostname="phalanx")

    def connect(self, host: str = "localhost", port: int = 0, source_address: object = None) -> tuple[int, bytes]:
        # starttls reads the name from this private field, which the constructor sets only if it connects.
        self._host = host
        return super().connect(host, port)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return _connected(self._addresses, port, timeout)


class _TlsServer(smtplib.SMTP_SSL):
    """Like `_Server`, with TLS from the first byte."""

    def __init__(self, addresses: Sequence[tuple[int, str]], timeout: float, context: ssl.SSLContext) -> None:
        self._addresses = addresses
        super().__init__(timeout=timeout, local_hostname="phalanx", context=context)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self.context.wrap_socket(_connected(self._addresses, port, timeout), server_hostname=host)


def _connected(addresses: Sequence[tuple[int, str]], port: int, timeout: float) -> socket.socket:
    failure: OSError = OSError("no address")
    for _, address in addresses:
        try:
            return socket.create_connection((address, port), timeout)
        except OSError as error:
            failure = error
    raise failure
