"""Secrets in requests: replaced by fixed placeholders, so that a request matches its recording whatever key it is made with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote_plus

from ..model import Headers, Request
from .glance import suspects
from .names import REQUEST_HEADERS, SEALED, is_secret_field, is_secret_parameter
from .pages import Page
from .patterns import PLACEHOLDER
from .search import Secrets

_USERINFO = re.compile(r"^([^/?#]*//)[^/?#]*@")
_PARAMETER = re.compile(r"(?<=[?&#])([^=&#?]*)=([^&#]*)")
_FORM_FIELD = re.compile(r"(?:(?<=&)|\A)([^=&]*)=([^&]*)")
_PART = re.compile(
    rb'(?P<head>\r?\n(?:[^\r\n]+\r?\n)*?[^\r\n]*\bname="(?P<name>[^"\r\n]*)"[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n)(?P<value>.*)',
    re.DOTALL,
)


@dataclass(slots=True)
class Scrubber:
    """Replaces secrets in the texts of a request; `found` are the kind and the place of each."""

    secrets: Secrets
    found: list[tuple[str, str]] = field(default_factory=list)
    place: str = ""

    def text(self, text: str) -> str:
        """The text with placeholders in the place of secrets."""
        page = Page(text)
        self.found += [(hit.kind, self.place) for hit in page.search(self.secrets)]
        return page.filled() if page.marks else text

    def named(self, value: str, kind: str) -> str:
        """What stands for the value of a secret field."""
        # An empty value is replaced as well: a replay without a key asks the same as the recording with one.
        if value not in ("", PLACEHOLDER):
            self.found.append((kind, self.place))
        return PLACEHOLDER

    def url(self, url: str) -> str:
        """No user and password, no secret parameters (in the fragment too), no secret elsewhere; everything else exactly as written."""
        bare = _USERINFO.sub(r"\1", url)
        if bare != url:
            self.found.append(("password in a url", self.place))
        return self.text(_PARAMETER.sub(self._parameter(is_secret_parameter), bare))

    def _parameter(self, is_secret: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
        def replaced(match: re.Match[str]) -> str:
            if is_secret(unquote_plus(match[1])):
                return f"{match[1]}={self.named(match[2], 'secret url parameter')}"
            return match[0]

        return replaced

    def form(self, body: str) -> str:
        """A form, URL-encoded."""
        is_secret = self._parameter(lambda name: is_secret_parameter(name) or is_secret_field(name))
        return self.text(_FORM_FIELD.sub(is_secret, body))

    def multipart(self, body: bytes, boundary: bytes) -> bytes:
        """A form in parts; files in it as well."""
        return (b"--" + boundary).join([self._part(part) for part in body.split(b"--" + boundary)])

    def _part(self, part: bytes) -> bytes:
        match = _PART.fullmatch(part)
        if match and is_secret_field(_text(match["name"])):
            value = match["value"].removesuffix(b"\n").removesuffix(b"\r")
            end = match["value"][len(value) :]
            return match["head"] + self.named(_text(value), f"field {_text(match['name'])}").encode() + end
        return _bytes(self.text(_text(part)))

    def json(self, value: Any, *, texts: bool) -> Any:
        """A JSON value: secret fields by their name, and with `texts` secrets in keys and texts."""
        match value:
            case dict():
                out: dict[str, Any] = {}
                for key, inner in value.items():
                    name = self.text(key) if texts else key
                    while name in out:
                        name += "+"  # two keys with secrets in them stay two
                    out[name] = self._field(key, inner, texts)
                return out
            case list():
                return [self.json(inner, texts=texts) for inner in value]
            case str():
                return self._json_text(value, texts)
            case _:
                return value

    def _field(self, name: str, value: Any, texts: bool) -> Any:
        if name in SEALED:
            return value
        if isinstance(value, str) and is_secret_field(name):
            return self.named(value, f"field {name}")
        return self.json(value, texts=texts)

    def _json_text(self, text: str, texts: bool) -> str:
        """A text, which may itself be JSON: the arguments of a call."""
        if text[:1] in ("{", "["):
            try:
                value = json.loads(text, object_pairs_hook=unique)
                changed = self.json(value, texts=texts)
            except (ValueError, RecursionError):
                pass
            else:
                return text if changed == value else compact(changed)
        return self.text(text) if texts else text


def scrub_request(request: Request, secrets: Secrets) -> tuple[Request, list[tuple[str, str]]]:
    """The request as a file may hold it, with the kind and the place of what was replaced. Headers outside the allow-list go unreported."""
    scrubber = Scrubber(secrets, place="request url")
    url = scrubber.url(request.url)
    headers: list[tuple[str, str]] = []
    for name, value in request.headers:
        if name.lower() in REQUEST_HEADERS:
            scrubber.place = f"request header {name}"
            headers.append((name, scrubber.text(value)))
    scrubber.place = "request body"
    body = _body(request.body, _content_type(request.headers), scrubber)
    return replace(request, url=url, headers=tuple(headers), body=body), scrubber.found


def _content_type(headers: Headers) -> str:
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def _body(body: bytes, content_type: str, scrubber: Scrubber) -> bytes:
    """The body without secrets; JSON in the one spelling that a cassette shows readably, and that httpx sends.

    JSON stays as it is spelled where another spelling would lose anything: repeated keys, NaN and numbers beyond a float, and escaped lone
    surrogates, which UTF-8 does not have.
    """
    kind = content_type.lower()
    suspicious = suspects((_text(body),), scrubber.secrets) is not None
    try:
        value = json.loads(body.decode(), object_pairs_hook=unique)
        if isinstance(value, dict | list) or "json" in kind:
            return compact(scrubber.json(value, texts=suspicious)).encode()
    except (ValueError, RecursionError):
        pass
    boundary = re.match(r"multipart/.*\bboundary=\"?([^\";]+)", content_type, re.IGNORECASE)
    if boundary:
        return scrubber.multipart(body, boundary[1].strip().encode())
    if kind.startswith("application/x-www-form-urlencoded"):
        return _bytes(scrubber.form(_text(body)))
    return _bytes(scrubber.text(_text(body))) if suspicious else body


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key repeats")
    return value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
