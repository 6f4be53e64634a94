"""What never reaches a file: headers outside the allow-lists, secrets in the URL. Pure functions, one per part of an exchange."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_plus

from .model import Exchange, Headers, Request

PLACEHOLDER = "REDACTED"
"""What stands for a secret in a URL, whatever its length, so that a recording matches a request made with another key."""

# What changes the meaning of a request and says nothing about who made it, or on which machine. No user-agent and no x-stainless-*
# (platform and versions), no idempotency keys, no organisation or project.
_REQUEST_HEADERS = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "content-encoding",
        "content-type",
        "openai-beta",
        "x-amz-target",
        "x-amzn-bedrock-accept",
    }
)

# What a client acts on: how to read the body, whether and when to try again, where to go, which error AWS means. No request ids,
# rate limits or organisation (they belong to an account), no dates and server names (noise), never a cookie.
_RESPONSE_HEADERS = frozenset(
    {
        "content-encoding",
        "content-type",
        "location",
        "retry-after",
        "retry-after-ms",
        "x-amzn-bedrock-content-type",
        "x-amzn-bedrock-input-token-count",
        "x-amzn-bedrock-output-token-count",
        "x-amzn-errortype",
        "x-should-retry",
    }
)

_USERINFO = re.compile(r"^([^/?#]*//)[^/?#]*@")
_PARAMETER = re.compile(r"(?<=[?&#])([^=&#?]*)=([^&#]*)")
# Names are compared without case, `-` and `_`. The endings cover the vendors' prefixes: x-goog-api-key, X-Amz-Signature, AWSAccessKeyId.
# A bare `token` is one whole name only: page tokens are no secrets and tell pages apart.
_SECRET = re.compile(
    r"key|token|sig|code|auth|authorization|bearer|jwt|pwd|passwd"
    r"|.*(?:apikey|subscriptionkey|accesskey|accesskeyid|credential|credentials|password|secret|secretkey|signature)"
    r"|.*(?:access|auth|bearer|id|refresh|security|session)token"
)


def scrub(exchange: Exchange) -> Exchange:
    """The exchange as a file may hold it. Scrubbing twice changes nothing more; reads and status are never touched."""
    return replace(exchange, request=scrub_request(exchange.request), headers=_response_headers(exchange.headers))


def scrub_request(request: Request) -> Request:
    """The request as a file may hold it, which is also the form in which requests are matched.

    Headers outside the allow-list go, secrets in the URL become `REDACTED`, a JSON body is written compactly, as httpx sends it.
    """
    return replace(
        request,
        url=_url(request.url),
        headers=_kept(request.headers, _REQUEST_HEADERS),
        body=_compact(request.body, _content_type(request.headers)),
    )


def _response_headers(headers: Headers) -> Headers:
    kept = _kept(headers, _RESPONSE_HEADERS)
    return tuple((name, _url(value) if name.lower() == "location" else value) for name, value in kept)


def _kept(headers: Headers, allowed: frozenset[str]) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() in allowed)


def _content_type(headers: Headers) -> str:
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def _url(url: str) -> str:
    """No user and password, no secret parameter values (in the fragment too); everything else exactly as written."""
    return _PARAMETER.sub(_parameter, _USERINFO.sub(r"\1", url))


def _parameter(match: re.Match[str]) -> str:
    name = re.sub(r"[-_\s]", "", unquote_plus(match[1])).lower()
    # An empty value is replaced as well: a replay without a key asks for the same URL as the recording with one.
    return f"{match[1]}={PLACEHOLDER}" if _SECRET.fullmatch(name) else match[0]


def _compact(body: bytes, content_type: str) -> bytes:
    """A JSON body in the one spelling that a cassette shows readably; untouched where that would lose anything.

    Lost would be: repeated keys, NaN and numbers beyond a float, and escaped lone surrogates, which UTF-8 does not have.
    """
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique)
        if isinstance(value, dict | list) or "json" in content_type.lower():
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError):
        pass
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key repeats")
    return value
