"""Syntax of names, labels and keys, with the messages of Kubernetes.

Each function returns the errors of a value; an empty tuple means that the value is valid.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_LABEL_1035_RE: Final = re.compile(_LABEL_1035)
_KEY_RE: Final = re.compile(_KEY)
_PORT_RE: Final = re.compile("[-a-z0-9]+")
_CONFIG_KEY_RE: Final = re.compile("[-._a-zA-Z0-9]+")
_PERCENT_RE: Final = re.compile("[0-9]+%")

EMPTY: Final = "must be non-empty"

Complaints = tuple[str, ...]


def _pattern(words: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    if not listed:
        return f"{words} (regex used for validation is '{pattern}')"
    return f"{words} (e.g. {listed}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


@lru_cache(maxsize=8192)
def dns_label(value: str) -> Complaints:
    """Return the errors of a value that must be a DNS-1123 label: at most 63 of ``a-z 0-9 -``, without a dash at
    either end."""
    found: list[str] = []
    if len(value.encode()) > 63:
        found.append(_too_long(63))
    if not _LABEL_RE.fullmatch(value):
        if _SUBDOMAIN_RE.fullmatch(value):
            found.append("must not contain dots")
        else:
            found.append(
                _pattern(
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
                    "and must start and end with an alphanumeric character",
                    _LABEL,
                    "my-name",
                    "123-abc",
                )
            )
    return tuple(found)


@lru_cache(maxsize=8192)
def dns_subdomain(value: str) -> Complaints:
    """Return the errors of a value that must be a DNS-1123 subdomain: labels joined by dots, at most 253
    characters."""
    found: list[str] = []
    if len(value.encode()) > 253:
        found.append(_too_long(253))
    if not _SUBDOMAIN_RE.fullmatch(value):
        found.append(
            _pattern(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
                "and must start and end with an alphanumeric character",
                _SUBDOMAIN,
                "example.com",
            )
        )
    return tuple(found)


@lru_cache(maxsize=1024)
def dns1035_label(value: str) -> Complaints:
    """Return the errors of a value that must be a DNS-1035 label: like a DNS-1123 label, but starting with a
    letter."""
    found: list[str] = []
    if len(value.encode()) > 63:
        found.append(_too_long(63))
    if not _LABEL_1035_RE.fullmatch(value):
        found.append(
            _pattern(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
                "start with an alphabetic character, and end with an alphanumeric character",
                _LABEL_1035,
                "my-name",
                "abc-123",
            )
        )
    return tuple(found)


@lru_cache(maxsize=8192)
def label_key(value: str) -> Complaints:
    """Return the errors of a key of a label, annotation, finalizer or taint: an optional subdomain prefix, ``/``
    and a name."""
    words = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an " + (
        "alphanumeric character"
    )
    parts = value.split("/")
    if len(parts) > 2:
        pattern = _pattern(words, _KEY, "MyName", "my.name", "123-abc")
        return (
            f"a valid label key {pattern} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    found: list[str] = []
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part " + EMPTY)
        else:
            found.extend("prefix part " + text for text in dns_subdomain(parts[0]))
    if not name:
        found.append("name part " + EMPTY)
    elif len(name.encode()) > 63:
        found.append("name part " + _too_long(63))
    if not _KEY_RE.fullmatch(name):
        found.append("name part " + _pattern(words, _KEY, "MyName", "my.name", "123-abc"))
    return tuple(found)


@lru_cache(maxsize=8192)
def label_value(value: str) -> Complaints:
    """Return the errors of a label value: empty, or at most 63 characters like the name part of a key."""
    found: list[str] = []
    if len(value.encode()) > 63:
        found.append(_too_long(63))
    if value and not _KEY_RE.fullmatch(value):
        found.append(
            _pattern(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
                "and must start and end with an alphanumeric character",
                f"({_KEY})?",
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return tuple(found)


@lru_cache(maxsize=1024)
def port_name(value: str) -> Complaints:
    """Return the errors of an IANA service name: at most 15 of ``a-z 0-9 -``, with a letter."""
    found: list[str] = []
    if len(value.encode()) > 15:
        found.append(_too_long(15))
    if not _PORT_RE.fullmatch(value):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        found.append("must contain at least one letter (a-z)")
    if "--" in value:
        found.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return tuple(found)


@lru_cache(maxsize=4096)
def env_name(value: str) -> Complaints:
    """Return the errors of an environment variable's name: printable ASCII without ``=``."""
    if not value:
        return ("environment variable name " + EMPTY,)
    if any(not " " <= char <= "~" or char == "=" for char in value):
        return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)
    return ()


@lru_cache(maxsize=1024)
def config_key(value: str) -> Complaints:
    """Return the errors of a key of a ConfigMap or Secret."""
    found: list[str] = []
    if len(value.encode()) > 253:
        found.append(_too_long(253))
    if not _CONFIG_KEY_RE.fullmatch(value):
        found.append(
            _pattern(
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                "[-._a-zA-Z0-9]+",
                "key.name",
                "KEY_NAME",
                "key-name",
            )
        )
    if value in (".", ".."):
        found.append(f"must not be '{value}'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return tuple(found)


def percent(value: str) -> Complaints:
    """Return the errors of a percentage such as ``25%``."""
    if _PERCENT_RE.fullmatch(value):
        return ()
    words = "a valid percent string must be a numeric string followed by an ending '%'"
    return (_pattern(words, "[0-9]+%", "1%", "93%"),)


def port_number(value: object) -> Complaints:
    """Return the errors of a port number: 1 to 65535."""
    return in_range(value, 1, 65535)


def in_range(value: object, low: int, high: int) -> Complaints:
    """Return the errors of a whole number that must be within bounds, both included."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return ()
    return (f"must be between {low} and {high}, inclusive",)


def masked(prefix: str) -> str:
    """Return a generateName in the form to check: a trailing dash is valid, since more characters follow it."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
