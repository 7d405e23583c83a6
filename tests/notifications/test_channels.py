"""Webhooks and mail over real servers, and the addresses to which none is sent."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import pytest

from phalanx.notifications.addresses import is_refused
from phalanx.notifications.channels import SendError, send
from phalanx.notifications.notice import Notice, slack_body
from phalanx.notifications.settings import MailChannel, NoticeTarget, WebhookChannel
from tests.notifications.servers import http_server, smtp_server

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
NOTICE = Notice(
    id="0123",
    event="failure",
    time="2026-11-23T08:00:00Z",
    namespace="ml",
    gang="train",
    kind="Job.batch",
    queue="research",
    user="ada",
    state="FAILED",
    reason="Error",
    submitted="2026-11-23T07:00:00Z",
    started="2026-11-23T07:01:00Z",
    ended="2026-11-23T08:00:00Z",
    evictions=0,
)
SECRET = "T0P-SECRET"


def webhook(host: str, port: int, form: str = "json") -> NoticeTarget:
    return NoticeTarget("ops", WebhookChannel(f"http://{host}:{port}/{SECRET}", SECRET, form), None, 30)


def mail(port: int, host: str = "127.0.0.1") -> NoticeTarget:
    return NoticeTarget(
        "mail", MailChannel(host, port, "none", "phalanx@example.com", "example.com", "", ""), None, 30
    )


async def test_webhook_receives_the_notice_as_json_with_its_id_and_token() -> None:
    async with http_server() as server:
        await send(webhook("127.0.0.1", server.port), NOTICE, "", LOOPBACK)
    ((path, headers, body),) = server.received
    assert path == f"/{SECRET}"
    assert (headers["Idempotency-Key"], headers["Authorization"]) == ("0123", f"Bearer {SECRET}")
    assert body["subject"] == "ml/train failed (FAILED: Error)"
    assert (body["event"], body["queue"], body["user"], body["id"]) == ("failure", "research", "ada", "0123")


def test_slack_text_neither_mentions_users_nor_links() -> None:
    notice = Notice(
        **{**{name: getattr(NOTICE, name) for name in NOTICE.__struct_fields__}, "gang": "<!channel> *x*"}
    )
    text: str = slack_body(notice)["text"]
    assert "<" not in text
    assert "&lt;!channel&gt;" in text
    assert "*x*" not in text


async def test_mail_goes_to_the_recipient_in_the_domain_of_the_target() -> None:
    async with smtp_server() as server:
        await send(mail(server.port), NOTICE, "ada", LOOPBACK)
    ((sender, recipients, message),) = server.mails
    assert (sender, recipients) == ("phalanx@example.com", ["ada@example.com"])
    assert message["Subject"] == "ml/train failed (FAILED: Error)"
    assert message["Message-ID"] == "<0123@phalanx.example.com>"
    assert "queue: research" in message.get_content()


@pytest.mark.parametrize("answer", ["550 unknown", "450 later"])
async def test_refused_recipient_is_final_unless_the_server_says_later(answer: str) -> None:
    async with smtp_server(answer) as server:
        with pytest.raises(SendError) as caught:
            await send(mail(server.port), NOTICE, "ada", LOOPBACK)
    assert caught.value.final is answer.startswith("5")


@pytest.mark.parametrize(
    ("status", "final"), [(301, True), (307, True), (404, True), (429, False), (500, False), (503, False)]
)
async def test_status_decides_whether_a_webhook_is_sent_again(status: int, final: bool) -> None:
    async with http_server(status) as server:
        with pytest.raises(SendError) as caught:
            await send(webhook("127.0.0.1", server.port), NOTICE, "", LOOPBACK)
    assert caught.value.final is final
    assert len(server.received) == 1, "a redirect is followed"
    assert SECRET not in str(caught.value)


async def test_failed_connection_is_retried_and_names_no_secret() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for target in (webhook("127.0.0.1", port), mail(port)):
        with pytest.raises(SendError) as caught:
            await send(target, NOTICE, "ada", LOOPBACK)
        assert not caught.value.final
        assert SECRET not in f"{caught.value!r}{caught.value.__cause__!r}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_loopback_is_refused_unless_the_settings_allow_it(host: str) -> None:
    async with http_server() as server:
        with pytest.raises(SendError):
            await send(webhook(host, server.port), NOTICE, "", ())
    assert server.received == []


@pytest.mark.parametrize("answers", [["127.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["169.254.169.254"], ["fd00::1"]])
async def test_name_with_an_internal_address_among_several_is_refused(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(self: Any, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, 1, 6, "", (text, port)) for text in answers]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    async with http_server() as web_server, smtp_server() as mail_server:
        for target in (webhook("hooks.example", web_server.port), mail(mail_server.port, "mail.example")):
            with pytest.raises(SendError, match="internal address") as caught:
                await send(target, NOTICE, "ada", ())
            assert caught.value.final
    assert (web_server.received, mail_server.mails) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        *("10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1"),
        *("224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "ff02::1", "::ffff:10.0.0.1"),
        *("64:ff9b::a00:1", "2002:a00:1::"),
    ],
)
def test_internal_address_is_refused(text: str) -> None:
    assert is_refused(ipaddress.ip_address(text))


def test_public_address_and_an_allowed_network_are_accepted() -> None:
    assert not is_refused(ipaddress.ip_address("1.1.1.1"))
    assert not is_refused(ipaddress.ip_address("2606:4700:4700::1111"))
    assert not is_refused(ipaddress.ip_address("10.1.2.3"), [ipaddress.ip_network("10.0.0.0/8")])
    assert is_refused(ipaddress.ip_address("10.1.2.3"), [ipaddress.ip_network("10.2.0.0/16")])
