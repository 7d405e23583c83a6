"""Certificates of a server over the years: made, published before they sign, replaced before they end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from cryptography import x509

from phalanx.kube.auth import serving_certificates
from phalanx.kube.auth.serving_certificates import (
    AUTHORITY_SECONDS,
    CERTIFICATE,
    KEY,
    PUBLISHED_SECONDS,
    SERVING_SECONDS,
    bundle,
)

NOW, DAY = 1_800_000_000, 86400
NAMES = ("hook.tools.svc", "127.0.0.1")

Data = dict[str, bytes]


def renewed(data: Data, names: Iterable[str], now: int) -> Data | None:
    return serving_certificates.renewed(data, names, now, "server")


def first() -> Data:
    made = renewed({}, NAMES, NOW)
    assert made is not None
    return made


def serving(data: Data) -> x509.Certificate:
    return x509.load_pem_x509_certificate(data[CERTIFICATE])


def trusted(data: Data, by: bytes) -> bool:
    """Return whether a client that trusts a bundle trusts the served certificate."""
    issuer = serving(data).issuer
    return any(authority.subject == issuer for authority in x509.load_pem_x509_certificates(by))


def test_the_first_replica_makes_everything() -> None:
    data = first()
    names = serving(data).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == set(NAMES)
    assert trusted(data, bundle(data, NOW))
    assert sorted(data) == [f"ca-{NOW}.crt", f"ca-{NOW}.key", CERTIFICATE, KEY]


def test_the_next_one_leaves_it_as_it_is() -> None:
    data = first()
    assert renewed(data, NAMES, NOW + 1) is None
    assert renewed(data, NAMES[:1], NOW + SERVING_SECONDS // 2) is None


def test_added_name_is_certified_beside_the_existing_ones() -> None:
    data = renewed(first(), ["other.tools.svc"], NOW + 1)
    assert data is not None
    names = serving(data).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == {*NAMES, "other.tools.svc"}
    assert renewed(data, NAMES, NOW + 2) is None


def test_served_certificate_is_replaced_in_its_last_third() -> None:
    data = first()
    assert renewed(data, NAMES, NOW + SERVING_SECONDS * 2 // 3 - 1) is None
    later = renewed(data, NAMES, NOW + SERVING_SECONDS * 2 // 3 + 1)
    assert later is not None
    assert later[CERTIFICATE] != data[CERTIFICATE]
    assert later[f"ca-{NOW}.crt"] == data[f"ca-{NOW}.crt"]


@pytest.mark.slow
def test_client_with_a_day_old_bundle_trusts_the_served_certificate_over_ten_years() -> None:
    data, writes = first(), 0
    yesterday = bundle(data, NOW)
    for day in range(1, 3650):
        now = NOW + day * DAY
        changed = renewed(data, NAMES, now)
        if changed is not None:
            writes += 1
            data = changed
        assert renewed(data, NAMES, now) is None
        assert trusted(data, yesterday), f"day {day}"
        assert serving(data).not_valid_after_utc.timestamp() > now + DAY
        assert len([name for name in data if name.endswith(".crt")]) <= 3
        yesterday = bundle(data, now)
    assert writes < 90


def test_a_new_authority_is_published_before_it_signs() -> None:
    data = first()
    last_third = NOW + AUTHORITY_SECONDS * 2 // 3 + 1
    data = renewed(data, NAMES, last_third) or {}
    assert f"ca-{last_third}.crt" in data
    assert serving(data).issuer != x509.load_pem_x509_certificate(data[f"ca-{last_third}.crt"]).subject
    data = renewed(data, NAMES, last_third + PUBLISHED_SECONDS) or {}
    assert serving(data).issuer == x509.load_pem_x509_certificate(data[f"ca-{last_third}.crt"]).subject


@pytest.mark.parametrize("broken", [CERTIFICATE, KEY, f"ca-{NOW}.crt", f"ca-{NOW}.key"])
@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_unreadable_certificate_is_replaced(broken: str, content: bytes | None) -> None:
    data = first()
    if content is None:
        del data[broken]
    else:
        data[broken] = content
    repaired = renewed(data, NAMES, NOW + 1)
    assert repaired is not None
    assert trusted(repaired, bundle(repaired, NOW + 1))
    assert renewed(repaired, NAMES, NOW + 2) is None


def test_foreign_key_is_replaced() -> None:
    data, other = first(), first()
    data[KEY] = other[KEY]
    repaired = renewed(data, NAMES, NOW + 1)
    assert repaired is not None
    assert repaired[KEY] != other[KEY]


def test_after_a_long_absence_everything_is_new() -> None:
    much_later = NOW + 2 * AUTHORITY_SECONDS
    data = renewed(first(), NAMES, much_later)
    assert data is not None
    assert f"ca-{NOW}.crt" not in data
    assert trusted(data, bundle(data, much_later))
