"""Settings of targets and queues, and the subscriptions that jobs state."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.notifications.events import NoticeEvent, Subscription, is_recipient, parse_events, stated_subscription
from phalanx.notifications.settings import Settings, SettingsError, WebhookChannel, read_settings

SECRET = "T0P-SECRET"
SETTINGS = """
targets:
  ops: {webhook: {urlFile: URL_FILE, form: slack}, namespaces: []}
  team: {webhook: {url: "https://hooks.example/x"}, namespaces: [ml]}
  mail: {mail: {server: "smtp.example:2525", from: phalanx@example.com, domain: example.com}}
queues:
  research: [{target: ops, events: [failure, eviction]}, {target: mail, events: [all], to: leads}]
allowAddresses: [10.0.0.0/8]
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "url").write_text(f"https://hooks.example/{SECRET}\n", "utf-8")
    return read_settings(str(write(tmp_path, SETTINGS.replace("URL_FILE", str(tmp_path / "url")))))


def write(directory: Path, text: str) -> Path:
    file = directory / "notifications.yaml"
    file.write_text(text, "utf-8")
    return file


def test_settings_have_targets_with_secrets_from_files_and_queues(settings: Settings) -> None:
    channel = settings.targets["ops"].channel
    assert isinstance(channel, WebhookChannel)
    assert channel.url.endswith(SECRET)
    assert settings.queues["research"][0] == Subscription("ops", (NoticeEvent.FAILURE, NoticeEvent.EVICTION))
    assert set(settings.queues["research"][1].events) == set(NoticeEvent)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("form: slack", "form: teams", "form: expected one of"),
        ("target: ops", "target: nosuch", "unknown target 'nosuch'; expected one of ops, team, mail"),
        ("eviction", "evicted", "unknown event 'evicted'"),
        ("to: leads", 'to: ""', r"queues.research.to: write the recipient"),
        ("domain: example.com", 'domain: "a b"', "mail.domain"),
        ("from: phalanx@example.com", "from: phalanx", "mail.from: write NAME@DOMAIN"),
        ("https://hooks.example/x", f"file:///{SECRET}", "not an http or https URL"),
        ("https://hooks.example/x", f"https://u:{SECRET}@hooks.example", "not an http or https URL"),
        ("10.0.0.0/8", "10.0.0.0/99", "allowAddresses"),
        ("namespaces: [ml]", "namespace: [ml]", "unknown field `namespace`"),
        ("targets:", "target:", "unknown field `target`"),
        ("domain: example.com}", "domain: example.com, security: none, username: x}", "over TLS only"),
    ],
)
def test_wrong_field_is_named_without_its_secret(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = SETTINGS.replace("urlFile: URL_FILE", "url: https://hooks.example/y")
    assert old in text
    with pytest.raises(SettingsError, match=message) as caught:
        read_settings(str(write(tmp_path, text.replace(old, new, 1))))
    assert SECRET not in str(caught.value)


def test_job_can_use_only_targets_of_its_namespace(settings: Settings) -> None:
    end = (NoticeEvent.END,)
    assert settings.accepted(Subscription("team", end), "ml", "") == Subscription("team", end)
    assert settings.accepted(Subscription("team", end), "web", "") is None
    assert settings.accepted(Subscription("ops", end), "ml", "") is None
    assert settings.accepted(Subscription("nosuch", end), "ml", "") is None
    assert settings.accepted(Subscription("", end), "web", "ada") == Subscription("mail", end, "ada")
    assert settings.accepted(Subscription("", end), "ml", "ada") is None, "two targets are possible"


@pytest.mark.parametrize("user", ["", "a@b", "a b", "a\nBcc: x", "-a", "a..b", "x" * 65, "ä"])
def test_name_that_is_no_recipient_receives_no_mail(settings: Settings, user: str) -> None:
    assert not is_recipient(user)
    assert settings.accepted(Subscription("mail", (NoticeEvent.END,)), "ml", user) is None


def test_end_covers_a_failure_and_not_the_other_way_round() -> None:
    assert Subscription("t", (NoticeEvent.END,)).covers(NoticeEvent.FAILURE)
    assert not Subscription("t", (NoticeEvent.FAILURE,)).covers(NoticeEvent.END)


def test_annotations_state_events_target_and_recipient() -> None:
    stated = stated_subscription(
        {"phalanx.dev/notify": "end, start", "phalanx.dev/notify-target": "mail", "phalanx.dev/notify-to": "ada"}
    )
    assert stated == '{"target":"mail","events":["end","start"],"to":"ada"}'
    assert parse_events("all") == tuple(NoticeEvent)


@pytest.mark.parametrize("events", ["", "never", "end,never", ","])
def test_unreadable_annotation_subscribes_to_nothing(events: str) -> None:
    assert stated_subscription({"phalanx.dev/notify": events}) == ""
