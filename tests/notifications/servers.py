"""Real HTTP and SMTP servers on a loopback port, which store what they receive."""

from __future__ import annotations

import asyncio
import contextlib
import email
import email.policy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

import msgspec
from aiohttp import web


@dataclass
class HttpServer:
    """Server that answers each POST with the next status of `answers`, else 200."""

    answers: list[int] = field(default_factory=list)
    received: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    port: int = 0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.received]

    async def _post(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        self.received.append((request.path, dict(request.headers), body))
        status = self.answers.pop(0) if self.answers else 200
        return web.Response(status=status, headers={"Location": "/elsewhere"} if 300 <= status < 400 else {})


@contextlib.asynccontextmanager
async def http_server(*answers: int) -> AsyncIterator[HttpServer]:
    server = HttpServer(list(answers))
    application = web.Application()
    application.router.add_post("/{path:.*}", server._post)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


@dataclass
class SmtpServer:
    """Server without TLS; it answers recipients with `refuses`, a status line, if that is set."""

    refuses: str = ""
    mails: list[tuple[str, list[str], EmailMessage]] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, recipients = "", list[str]()
        writer.write(b"220 test\r\n")
        while line := (await reader.readline()).decode("utf-8").strip():
            verb = line.partition(" ")[0].upper()
            answer = "250 ok"
            if verb == "MAIL":
                sender = line.partition(":")[2].partition(">")[0].lstrip("<")
            elif verb == "RCPT":
                answer = self.refuses or answer
                recipients.append(line.partition(":")[2].strip("<>"))
            elif verb == "DATA":
                writer.write(b"354 go on\r\n")
                text = await reader.readuntil(b"\r\n.\r\n")
                message = email.message_from_bytes(text[:-5], policy=email.policy.default)
                assert isinstance(message, EmailMessage)
                self.mails.append((sender, recipients, message))
                recipients = []
            elif verb == "QUIT":
                writer.write(b"221 bye\r\n")
                break
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def smtp_server(refuses: str = "") -> AsyncIterator[SmtpServer]:
    made = SmtpServer(refuses)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
