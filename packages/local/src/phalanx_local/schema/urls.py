"""URLs parsed like Go's net/url, for the ``uri`` format and for CEL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote


@dataclass(frozen=True, slots=True)
class Url:
    """Parsed absolute URL or absolute path; ``host`` includes the port."""

    scheme: str
    host: str
    path: str
    query: str

    @property
    def host_name(self) -> str:
        """Host name of the URL without brackets and port."""
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        """Port of the URL; "" if absent."""
        return self.host.rpartition("]")[2].partition(":")[2]

    @property
    def escaped_path(self) -> str:
        """Path of the URL in percent-encoding."""
        return self.path if _ENCODED_PATH.fullmatch(self.path) else quote(self.path, safe="$&+,/:;=@%")

    @property
    def values(self) -> dict[str, list[str]]:
        """Values of the URL's query by key; malformed pairs are omitted."""
        parts = self.query.split("&")
        whole = "&".join(part for part in parts if ";" not in part and not _BAD_ESCAPE.search(part))
        return parse_qs(whole, keep_blank_values=True)


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%25[^\]\s]+)?\]|[^\x00-\x20\x7f\[\]\"<>\\^`{|}%:#]*)", re.ASCII)
_ENCODED_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%\[\]-]*")


def _refused(text: str, words: str) -> ValueError:
    return ValueError(f'parse "{text}": {words}')


def parse_url(text: str) -> Url:
    """Parse an absolute URL or an absolute path. Raise ValueError (with Go's message) for other texts."""
    if any(char < " " or char == "\x7f" for char in text):
        raise _refused(text, "net/url: invalid control character in URL")
    if not text:
        raise _refused(text, "empty url")
    remaining, _, fragment = text.partition("#")
    scheme_match = _SCHEME.match(remaining)
    scheme = scheme_match[1].lower() if scheme_match is not None else ""
    if remaining.startswith(":"):
        raise _refused(text, "missing protocol scheme")
    remaining = remaining[scheme_match.end() :] if scheme_match is not None else remaining
    remaining, _, query = remaining.partition("?")
    host, path = "", remaining
    if not remaining.startswith("/"):
        if not scheme and remaining != "*":
            raise _refused(text, "invalid URI for request")
        # An opaque URL (mailto:name) has neither host nor path.
        return Url(scheme, "", "" if scheme else remaining, query)
    if scheme and remaining.startswith("//"):
        authority, slash, tail = remaining[2:].partition("/")
        host, path = _host(text, authority), slash + tail
    for part in (path, fragment):
        bad = _BAD_ESCAPE.search(part)
        if bad is not None:
            raise _refused(text, f'invalid URL escape "{bad[0]}"')
    return Url(scheme, host, path, query)


def _host(text: str, authority: str) -> str:
    user, _, host = authority.rpartition("@")
    if re.search(r"[^A-Za-z0-9._~!$&'()*+,;=:%@-]", user):
        raise _refused(text, "net/url: invalid userinfo")
    name = _HOST.match(host)
    remaining = host[name.end() :] if name is not None else host
    if not re.fullmatch(r"(?::[0-9]*)?", remaining):
        if remaining.startswith(":"):
            raise _refused(text, f'invalid port "{remaining[remaining.rfind(":") :]}" after host')
        raise _refused(text, f'invalid character "{remaining[0]}" in host name')
    return host
