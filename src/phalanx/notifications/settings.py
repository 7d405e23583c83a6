"""Settings of notifications: targets and subscriptions of queues, in a file of the administrator."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from phalanx.model.text.decoding import quoted
from phalanx.model.text.yaml_text import decode_yaml
from phalanx.notifications.events import EventsError, NoticeEvent, Subscription, is_recipient, parse_events

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORMS = ("json", "slack")
_SECURITY = {"tls": 465, "starttls": 587, "none": 25}


class SettingsError(ValueError):
    """Error in the settings of notifications; the text names the field and contains no secret."""


class WebhookSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    url: str = ""
    url_file: str = ""
    token_file: str = ""
    form: str = "json"


class MailSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    server: str
    domain: str
    sender: str = msgspec.field(name="from")
    security: str = "starttls"
    username: str = ""
    password_file: str = ""


class TargetSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    webhook: WebhookSettings | None = None
    mail: MailSettings | None = None
    namespaces: tuple[str, ...] | None = None
    per_minute: int = 30


class QueueSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    target: str
    events: tuple[str, ...]
    to: str = ""


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    targets: dict[str, TargetSettings]
    queues: dict[str, list[QueueSettings]] = {}
    allow_addresses: tuple[str, ...] = ()


class WebhookChannel(msgspec.Struct, frozen=True):
    """Webhook with its secrets: a URL, and the token of its header Authorization ("" for none)."""

    url: str
    token: str
    form: str


class MailChannel(msgspec.Struct, frozen=True):
    """Mail server with its secrets. Recipients are of `domain` only."""

    host: str
    port: int
    security: str
    sender: str
    domain: str
    username: str
    password: str


class NoticeTarget(msgspec.Struct, frozen=True):
    """Destination of notifications. `namespaces` are those whose jobs can name it, None for all; of one namespace
    it receives `per_minute` notifications at most."""

    name: str
    channel: WebhookChannel | MailChannel
    namespaces: frozenset[str] | None
    per_minute: int


class Settings(msgspec.Struct, frozen=True):
    """Targets by name, subscriptions by queue, and the private networks that targets can be in."""

    targets: dict[str, NoticeTarget]
    queues: dict[str, tuple[Subscription, ...]]
    allowed: tuple[Network, ...] = ()

    def accepted(self, stated: Subscription, namespace: str, user: str) -> Subscription | None:
        """Return the subscription of a job with its recipient; None if its target is unknown, not for this
        namespace, or a mail target without a recipient.

        Without a target name the only target that jobs of the namespace can use is meant.
        """
        usable = [
            target
            for target in self.targets.values()
            if (target.namespaces is None or namespace in target.namespaces) and stated.target in ("", target.name)
        ]
        if len(usable) != 1:
            return None
        (target,) = usable
        to = stated.to or user
        if isinstance(target.channel, MailChannel) and not is_recipient(to):
            return None
        return Subscription(target.name, stated.events, to if isinstance(target.channel, MailChannel) else "")


def read_settings(path: str) -> Settings:
    """Read the settings and the files with secrets that they name. Raises SettingsError."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    try:
        document = msgspec.convert(decode_yaml(text), _Document)
    except (ValueError, msgspec.DecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    targets = {name: _target(path, name, target) for name, target in document.targets.items()}
    queues = {
        queue: tuple(_subscription(f"{path}: queues.{queue}", targets, entry) for entry in entries)
        for queue, entries in document.queues.items()
    }
    try:
        allowed = tuple(ipaddress.ip_network(text, strict=False) for text in document.allow_addresses)
    except ValueError as error:
        raise SettingsError(f"{path}: allowAddresses: {error}") from error
    return Settings(targets, queues, allowed)


def _target(path: str, name: str, settings: TargetSettings) -> NoticeTarget:
    field = f"{path}: targets.{name}"
    if (settings.webhook is None) == (settings.mail is None):
        raise SettingsError(f"{field}: write either webhook or mail")
    if settings.per_minute < 1:
        raise SettingsError(f"{field}.perMinute: {settings.per_minute} is less than 1")
    channel: WebhookChannel | MailChannel
    if settings.webhook is not None:
        channel = _webhook(f"{field}.webhook", settings.webhook)
    else:
        assert settings.mail is not None
        channel = _mail(f"{field}.mail", settings.mail)
    namespaces = None if settings.namespaces is None else frozenset(settings.namespaces)
    return NoticeTarget(name, channel, namespaces, settings.per_minute)


def _webhook(field: str, settings: WebhookSettings) -> WebhookChannel:
    if bool(settings.url) == bool(settings.url_file):
        raise SettingsError(f"{field}: write either url or urlFile")
    if settings.form not in _FORMS:
        raise SettingsError(f"{field}.form: expected one of {', '.join(_FORMS)}")
    url = settings.url or _secret(f"{field}.urlFile", settings.url_file)
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.username or parts.password or not url.isascii() or not url.isprintable():
        raise SettingsError(f"{field}: the URL is not an http or https URL without user and password")
    token = _secret(f"{field}.tokenFile", settings.token_file) if settings.token_file else ""
    return WebhookChannel(url, token, settings.form)


def _mail(field: str, settings: MailSettings) -> MailChannel:
    if settings.security not in _SECURITY:
        raise SettingsError(f"{field}.security: expected one of {', '.join(_SECURITY)}")
    try:
        parts = urlsplit(f"//{settings.server}")
        host, port = parts.hostname or "", parts.port or _SECURITY[settings.security]
    except ValueError:
        host, port = "", 0
    if not host or parts.path or parts.username:
        raise SettingsError(f"{field}.server: write HOST or HOST:PORT")
    local, at, domain = settings.sender.partition("@")
    if not is_recipient(local) or not at or not _is_domain(domain):
        raise SettingsError(f"{field}.from: write NAME@DOMAIN")
    if not _is_domain(settings.domain):
        raise SettingsError(f"{field}.domain: write the domain of the recipients, such as example.com")
    if settings.username and settings.security == "none":
        raise SettingsError(f"{field}.username: a password is sent over TLS only; set security")
    password = _secret(f"{field}.passwordFile", settings.password_file) if settings.password_file else ""
    return MailChannel(host, port, settings.security, settings.sender, settings.domain, settings.username, password)


def _subscription(field: str, targets: dict[str, NoticeTarget], entry: QueueSettings) -> Subscription:
    target = targets.get(entry.target)
    if target is None:
        raise SettingsError(f"{field}: unknown target {quoted(entry.target)}; expected one of {', '.join(targets)}")
    if isinstance(target.channel, MailChannel) and not is_recipient(entry.to):
        raise SettingsError(f"{field}.to: write the recipient's name before the @ of {target.channel.domain}")
    try:
        events: tuple[NoticeEvent, ...] = parse_events(",".join(entry.events))
    except EventsError as error:
        raise SettingsError(f"{field}.events: {error}") from error
    return Subscription(entry.target, events, entry.to)


def _is_domain(text: str) -> bool:
    return bool(text) and all(is_recipient(part) for part in text.split("."))


def _secret(field: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{field}: cannot read {path}") from error
