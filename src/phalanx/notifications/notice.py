"""Notification about one event of a run, and its forms: JSON, Slack, mail."""

from __future__ import annotations

from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

import msgspec

from phalanx.model.text.moments import shown_moment

_SUBJECTS = {
    "start": "started",
    "end": "ended",
    "failure": "failed",
    "eviction": "was evicted",
    "promise-broken": "starts later than promised",
}


class Notice(msgspec.Struct, frozen=True, rename="camel"):
    """Notification as it is stored and sent. `id` is the same whenever it is sent again; `time` and the other times
    are in RFC 3339, "" if unknown."""

    id: str
    event: str
    time: str
    namespace: str
    gang: str
    kind: str
    queue: str
    user: str
    state: str
    reason: str
    submitted: str
    started: str
    ended: str
    evictions: int

    @property
    def subject(self) -> str:
        """One line with gang, event, and state where it says more."""
        detail = f" ({self.state}{f': {self.reason}' if self.reason else ''})" if self.event != "start" else ""
        return f"{self.namespace}/{self.gang} {_SUBJECTS.get(self.event, self.event)}{detail}"

    @property
    def lines(self) -> list[str]:
        """All known fields, one a line."""
        fields = (
            ("queue", self.queue),
            ("user", self.user),
            ("submitted", self.submitted),
            ("started", self.started),
            ("ended", self.ended),
            ("evictions", str(self.evictions or "")),
        )
        return [f"{name}: {value}" for name, value in fields if value]


def shown_time(seconds: int | None) -> str:
    return shown_moment(seconds) if seconds else ""


def json_body(notice: Notice) -> dict[str, Any]:
    """Return the body of a webhook in our own form: all fields, and `subject` as a text."""
    document: dict[str, Any] = msgspec.to_builtins(notice)
    return {**document, "subject": notice.subject}


def slack_body(notice: Notice) -> dict[str, Any]:
    """Return the body for an incoming webhook of Slack, or of a compatible server."""
    text = "\n".join([f"*{_escaped(notice.subject)}*", *map(_escaped, notice.lines)])
    return {"text": text, "mrkdwn": True}


def mail_message(notice: Notice, sender: str, recipient: str) -> EmailMessage:
    """Return a mail. Its Message-ID is that of the notice, so that a receiver recognizes a second copy."""
    message = EmailMessage()
    name, _, domain = sender.partition("@")
    to, _, to_domain = recipient.partition("@")
    message["From"] = Address("Phalanx", name, domain)
    message["To"] = Address("", to, to_domain)
    # Names from objects of the API: a header has one line of printable characters.
    message["Subject"] = "".join(char for char in notice.subject if char.isprintable())[:200]
    message["Message-ID"] = f"<{notice.id.replace('/', '.')}@phalanx.{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["Date"] = format_datetime(datetime.now(UTC))
    message.set_content("\n".join([notice.subject, "", *notice.lines]) + "\n")
    return message


def _escaped(text: str) -> str:
    """Escape Slack's control characters, so that a name can neither mention users nor add links."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Zero-width joiners separate the characters that would format the text.
    return "".join(f"{char}\u200d" if char in "*_~`" else char for char in escaped)
