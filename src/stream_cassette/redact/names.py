"""Names: the headers that a file keeps, and the fields and parameters whose values are secrets whatever they look like."""

from __future__ import annotations

import re

# What changes the meaning of a request and says nothing about who made it, or on which machine. No user-agent and no x-stainless-*
# (platform and versions), no idempotency keys, no organisation or project.
REQUEST_HEADERS = frozenset(
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

# What a client acts on: how to read the body, whether and when to try again, where to go (or to the next page), how to prove who it is, what
# it need not fetch again, which error AWS means. No request ids, rate limits or organisation (they belong to an account), no dates and server names (noise), never a cookie.
RESPONSE_HEADERS = frozenset(
    {
        "content-encoding",
        "content-type",
        "etag",
        "link",
        "location",
        "retry-after",
        "retry-after-ms",
        "www-authenticate",
        "x-amzn-bedrock-content-type",
        "x-amzn-bedrock-input-token-count",
        "x-amzn-bedrock-output-token-count",
        "x-amzn-errortype",
        "x-should-retry",
    }
)

# Names are compared without case, `-` and `_`. The endings cover the vendors' prefixes: x-goog-api-key, X-Amz-Signature, AWSAccessKeyId.
# A bare `token` is one whole name only: page tokens are no secrets and tell pages apart.
_PARAMETER = re.compile(
    r"key|token|sig|code|auth|authorization|bearer|jwt|pwd|passwd"
    r"|.*(?:apikey|subscriptionkey|accesskey|accesskeyid|credential|credentials|password|secret|secretkey|signature)"
    r"|.*(?:access|auth|bearer|id|refresh|security|session)token"
)

# In JSON and forms `key`, `code`, `token` and `signature` are everyday words: error codes, log probabilities, sealed reasoning.
_FIELD = re.compile(
    r"authorization|proxyauthorization|cookie|setcookie|pwd|passwd|secret"
    r"|.*(?:password|passphrase|apikey|apitoken|connectionstring)"
    r"|.*(?:access|account|encryption|private|secret|signing|subscription)key(?:id)?|.*secretaccesskey"
    r"|.*(?:access|api|auth|authorization|bearer|id|personal|refresh|security|session)token"
    r"|.*(?:app|client|signing|webhook)secret"
)

# Whose values only others' cassettes hold.
_HEADER = re.compile(
    r"(?:openai|anthropic)(?:organization|organizationid|project)|.*(?:apikey|subscriptionkey|authtoken)"
)

SEALED = frozenset(
    {
        "b64_json",
        "encrypted_content",
        "encrypted_index",
        "encrypted_stdout",
        "partial_image_b64",
        "reasoning_opaque",
        "signature",
        "thoughtSignature",
        "thought_signature",
    }
)
"""Fields whose values go back to the provider as they came, or are pictures: whatever they look like, they hold no key of anyone's."""

STRUCTURE = frozenset(
    {
        "created_at",
        "event",
        "finish_reason",
        "finishReason",
        "id",
        "item_id",
        "model",
        "modelVersion",
        "name",
        "object",
        "obfuscation",
        "p",
        "responseId",
        "role",
        "service_tier",
        "status",
        "stop_reason",
        "system_fingerprint",
        "type",
    }
)
"""Fields whose values tell what an event is; said anew by every event, never a piece of a longer text."""


def _plain(name: str) -> str:
    return re.sub(r"[-_\s]", "", name).lower()


def is_secret_parameter(name: str) -> bool:
    """Is the value of this parameter of a URL a secret?"""
    return _PARAMETER.fullmatch(_plain(name)) is not None


def is_secret_field(name: str) -> bool:
    """Is a text in this field of a JSON body or form a secret?"""
    return _FIELD.fullmatch(_plain(name)) is not None


def is_secret_header(name: str) -> bool:
    """Is the value of this header a secret, or does it say who asked?"""
    return is_secret_field(name) or _HEADER.fullmatch(_plain(name)) is not None
