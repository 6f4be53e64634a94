"""What a secret looks like in a text: the table of kinds. Facts from the makers' documentation and from what they issue."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PLACEHOLDER = "REDACTED"
"""What stands for a secret whose name gave it away, whatever its length, so that a recording matches a request made with another key."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A secret in a text. `named`: the name of its field gave it away."""

    start: int
    end: int
    kind: str
    named: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret. The group of `pattern` that took part is the secret itself, else the whole match is.

    One of `anchors` stands in every text that the pattern finds something in; where they are `folded`, in lower case. `check` has the last word
    about a match. `named`: what tells is the name of a field. `source` says who makes such secrets and what they look like there.
    """

    name: str
    pattern: re.Pattern[str]
    source: str
    anchors: tuple[str, ...] = ()
    folded: bool = False
    named: bool = False
    check: Callable[[re.Match[str]], bool] | None = None

    def hits(self, text: str) -> Iterator[Hit]:
        for match in self.pattern.finditer(text):
            start, end = match.span(match.lastindex or 0)
            if start < end and (self.check is None or self.check(match)):
                yield Hit(start, end, self.name, self.named)


def placeholder(hit: Hit) -> str:
    """What stands for the secret in a request: the same for every secret of its kind."""
    return PLACEHOLDER if hit.named else f"{PLACEHOLDER}-{re.sub('[^a-z0-9]+', '-', hit.kind.lower()).strip('-')}"


# ------------------------------------------------------------------------------------------------------------ known by a prefix

_WORD = "[A-Za-z0-9_-]"
_DIGIT = "(?=[A-Za-z-]*[0-9])"
# Twelve letters and digits in a row, at least one of them a digit: no word of prose, nor a name made of words, has that.
_RANDOM = "(?=[A-Za-z0-9._~+/-]{0,200}?(?=[A-Za-z]{0,11}[0-9])[A-Za-z0-9]{12})"


def _begun(head: str) -> str:
    """`head` at the beginning of a word. The letter of an escape, as in a text that quotes program output, is no part of the word."""
    return rf"{head}(?:(?<!{_WORD}{head})|(?<=\\[nrtbf]{head}))"


def _prefixed(name: str, source: str, prefixes: str, rest: str) -> Kind:
    """`prefixes` are parted by spaces. In the pattern literal text comes first, because re looks for that fastest."""
    heads = tuple(prefixes.split())
    each = [f"{_begun(re.escape(head))}{rest}" for head in heads]
    return Kind(name, re.compile("|".join(each), re.ASCII), source, heads)


_GITHUB = "https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/"

# A kind may stand here twice; where two kinds see a secret in the same place, the first one names it.
_BY_PREFIX = (
    _prefixed("anthropic key", "Anthropic: sk-ant-api03-, -admin01-, -oat01-", "sk-ant-", f"{_WORD}{{16,}}"),
    _prefixed("openrouter key", "OpenRouter: sk-or-v1-", "sk-or-", f"{_WORD}{{16,}}"),
    _prefixed("deepseek key", "DeepSeek: sk- and 32 hex digits", "sk-", f"[0-9a-f]{{32}}(?!{_WORD})"),
    _prefixed(
        "openai key",
        "OpenAI: keys of projects, service accounts, administrators",
        "sk-proj- sk-svcacct- sk-admin- sk-None-",
        f"{_WORD}{{16,}}",
    ),
    _prefixed(
        "openai key", "OpenAI's older keys; Moonshot, DashScope, LiteLLM", "sk-", f"(?!ant-|or-){_RANDOM}{_WORD}{{16,}}"
    ),
    _prefixed("openai session", "OpenAI: sess-", "sess-", f"{_DIGIT}[A-Za-z0-9]{{24,}}"),
    _prefixed("openai organisation", "OpenAI: org-, in its errors too", "org-", f"{_DIGIT}[A-Za-z0-9]{{16,}}"),
    _prefixed("openai project", "OpenAI: proj_, in its errors too", "proj_", f"{_DIGIT}[A-Za-z0-9]{{16,}}"),
    _prefixed("google key", "Google Cloud, AI Studio: AIza and 35 characters", "AIza", f"{_WORD}{{30,}}"),
    _prefixed("google access token", "Google OAuth: ya29.", "ya29.", "[A-Za-z0-9._-]{16,}"),
    _prefixed("google client secret", "Google OAuth: GOCSPX-", "GOCSPX-", f"{_WORD}{{20,}}"),
    _prefixed("aws access key id", "AWS: AKIA, of a session ASIA", "AKIA ASIA", "[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _prefixed("groq key", "Groq: gsk_ and 52 characters", "gsk_", "[A-Za-z0-9]{20,}"),
    _prefixed("xai key", "xAI: xai- and 80 characters", "xai-", f"{_DIGIT}[A-Za-z0-9]{{20,}}"),
    _prefixed("fireworks key", "Fireworks: fw_", "fw_", f"{_DIGIT}[A-Za-z0-9]{{16,}}"),
    _prefixed("replicate token", "Replicate: r8_ and 37 characters", "r8_", "[A-Za-z0-9]{20,}"),
    _prefixed("hugging face token", "Hugging Face: hf_ and 34 letters", "hf_", "[A-Za-z0-9]{24,}"),
    _prefixed("perplexity key", "Perplexity: pplx-", "pplx-", f"{_DIGIT}[A-Za-z0-9]{{20,}}"),
    _prefixed("cerebras key", "Cerebras: csk-", "csk-", f"{_DIGIT}[A-Za-z0-9]{{20,}}"),
    _prefixed("together key", "Together: tgp_v1_", "tgp_v1_", f"{_WORD}{{20,}}"),
    _prefixed("nvidia key", "NVIDIA: nvapi-", "nvapi-", f"{_WORD}{{20,}}"),
    _prefixed("tavily key", "Tavily: tvly-", "tvly-", f"{_RANDOM}{_WORD}{{16,}}"),
    _prefixed("langsmith key", "LangSmith: lsv2_", "lsv2_pt_ lsv2_sk_", "[A-Za-z0-9_]{20,}"),
    _prefixed("elevenlabs key", "ElevenLabs: sk_ and 48 hex digits", "sk_", f"[0-9a-f]{{40,}}(?!{_WORD})"),
    _prefixed("github token", f"GitHub: {_GITHUB}", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", "[A-Za-z0-9_]{30,}"),
    _prefixed("gitlab token", "GitLab: glpat- and others", "glpat- gldt- glrt- glptt-", f"{_WORD}{{20,}}"),
    _prefixed(
        "slack token",
        "Slack: https://api.slack.com/authentication/token-types",
        "xoxb- xoxp- xoxa- xoxe- xoxr- xoxs- xapp-",
        f"{_DIGIT}{_WORD}{{10,}}",
    ),
    _prefixed(
        "stripe key",
        "Stripe: secret and restricted keys, webhook secrets",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        "[A-Za-z0-9]{16,}",
    ),
    _prefixed("npm token", "npm: npm_ and 36 characters", "npm_", f"{_DIGIT}[A-Za-z0-9]{{36}}(?![A-Za-z0-9])"),
)

# -------------------------------------------------------------------------------------------------------------- known by a shape

_LINES = r"(?:\s|\\[nr])+"


def _is_basic(match: re.Match[str]) -> bool:
    try:
        said = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return False
    return b":" in said and said.isascii() and said.decode().isprintable()


_EVERYBODYS = frozenset(("password", "passwd", "pass", "pwd", "secret", "token", "port"))

_STRONG = "api[-_]?key|(?:access|auth|refresh|id|security|session)[-_]?token|client[-_]?secret|secret|passwo?r?d|pwd"
_CLOUD = "X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|AWSAccessKeyId"

_BY_SHAPE = (
    Kind(
        "private key",
        re.compile(
            rf"-----BEGIN (?:[A-Z]+ ){{0,3}}PRIVATE KEY-----{_LINES}"
            rf"((?:(?:Proc-Type|DEK-Info): ?[A-Za-z0-9,-]+{_LINES})*(?:[A-Za-z0-9+/=]|\s|\\[nr])+)"
        ),
        "PEM (RFC 7468): TLS, SSH, service accounts of Google Cloud",
        ("PRIVATE KEY",),
    ),
    Kind(
        "json web token",
        re.compile(rf"{_begun('eyJ')}{_WORD}{{6,}}\.{_WORD}{{6,}}(?:\.{_WORD}+){{0,3}}"),
        "RFC 7519: two parts or more, the first of them a JSON object in base64",
        ("eyJ",),
        check=lambda match: match[0].count(".") >= 2 or len(match[0]) >= 80,
    ),
    Kind(
        "bearer token",
        re.compile(rf"\bbearer\s+({_RANDOM}[A-Za-z0-9._~+/=-]{{12,}})", re.IGNORECASE),
        "RFC 6750",
        ("bearer",),
        folded=True,
    ),
    Kind(
        "basic credentials",
        re.compile(r"\bbasic\s+([A-Za-z0-9+/]{8,}(?:={1,2}|(?![A-Za-z0-9+/=])))", re.IGNORECASE),
        "RFC 7617",
        ("basic ",),
        folded=True,
        check=_is_basic,
    ),
    Kind(
        "password in a url",
        re.compile(r"""://([^\s/:@"'<>\\{}*]+:[^\s/@"'<>\\{}*]+)@"""),
        "RFC 3986, userinfo",
        ("://",),
        check=lambda match: match[1].partition(":")[2].lower() not in _EVERYBODYS,
    ),
    Kind(
        "secret url parameter",
        re.compile(rf"""[?&](?:[A-Za-z-]*(?:{_STRONG})|{_CLOUD})=([^&\s"'<>#\\]{{6,}})""", re.IGNORECASE),
        "URLs inside bodies; SigV4 in the query",
        tuple(
            f"{word}="
            for word in ("key", "token", "secret", "password", "passwd", "pwd", "signature", "credential", "keyid")
        ),
        folded=True,
    ),
    Kind(
        "secret url parameter",
        re.compile(rf"""[?&](?:key|token|sig|signature|code)=({_RANDOM}[^&\s"'<>#\\]{{16,}})""", re.IGNORECASE),
        "URLs inside bodies; SAS of Azure",
        tuple(f"{word}=" for word in ("key", "token", "sig", "signature", "code")),
        folded=True,
    ),
    Kind(
        "aws signature",
        re.compile(r"Signature=([0-9a-f]{64})(?![0-9a-f])"),
        "AWS SigV4, the Authorization header",
        ("Signature=",),
    ),
    Kind(
        "aws credential",
        re.compile(r"Credential=([A-Z0-9]{16,})(?=/[0-9]{8}/)"),
        "AWS SigV4, the Authorization header",
        ("Credential=",),
    ),
    Kind(
        "slack webhook",
        re.compile(r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/]{20,})"),
        "Slack: the whole path is the secret",
        ("hooks.slack.com/",),
    ),
    Kind(
        "secret of a connection string",
        re.compile(r"""(?:password|pwd|AccountKey|SharedAccessKey)=([^;\s"'&\\]{6,})(?=[;"']|\Z)""", re.IGNORECASE),
        "databases, Azure storage",
        ("password=", "pwd=", "accountkey=", "accesskey="),
        folded=True,
    ),
    Kind(
        "secret of an xml element",
        re.compile(
            r"<(?:\w+:)?(?:secret(?:access)?key|(?:session|security|access)token|password)>([^<\s]{6,})<", re.IGNORECASE
        ),
        "AWS STS, whose answers are XML (https://docs.aws.amazon.com/STS/latest/APIReference/API_Credentials.html)",
        ("key>", "token>", "password>"),
        folded=True,
        named=True,
        check=lambda match: not is_harmless(match[1]),
    ),
)

# ----------------------------------------------------------------------------------------------------------- known by their name

_BARE = rf"{_RANDOM}[A-Za-z0-9_+/=~.-]{{16,}}(?![\w(\[])"
_VALUE = (
    r"""(?![A-Za-z0-9_-])["'`]?\s{0,3}(?::=|=>|[:=])\s{0,3}(?:\[\s{0,3})?"""
    r"""(?:"((?:[^"\\\r\n]|\\.){6,}+)(?:"|\Z)|'((?:[^'\\\r\n]|\\.){6,}+)(?:'|\Z)|"""
    rf"({_BARE}))"
)
# What stands in examples, and a sentence: a description, or why a password was refused.
_HARMLESS = re.compile(
    r"<.*>|\$?\{.*\}|\$\w+|%\w+%|your[-_ ].*|x+|\.+|string|boolean|secret|password|example|dummy|filtered|removed"
    r"|(?:import\.meta\.|process\.|os\.)env.*|(?:\S+ +){4,}\S+",
    re.IGNORECASE | re.DOTALL,
)


def is_harmless(value: str) -> bool:
    """Is this what people write where a secret would stand?"""
    return _HARMLESS.fullmatch(value) is not None


def _named(
    name: str, source: str, words: str, value: str = _VALUE, check: Callable[[str], bool] = lambda said: True
) -> Kind:
    """`words` as `api key` stand for api_key, api-key and apiKey; several are parted by commas."""
    anchors = [word.strip().split(" ") for word in words.split(",")]
    pattern = "|".join("[-_]?".join(parts) for parts in anchors)
    return Kind(
        name,
        re.compile(f"(?:{pattern}){value}", re.IGNORECASE),
        source,
        tuple(joint.join(parts) for parts in anchors for joint in (("", "-", "_") if len(parts) > 1 else ("",))),
        folded=True,
        named=True,
        check=lambda match: not is_harmless(match[match.lastindex or 0]) and check(match[match.lastindex or 0]),
    )


_BY_NAME = (
    _named("aws secret key", "AWS: 40 characters without a mark of their own", "secret access key"),
    _named("mistral key", "Mistral: 32 characters without a mark", "mistral api key"),
    _named("cohere key", "Cohere: 40 characters without a mark", "cohere api key, co api key"),
    _named("together key", "Together: 64 hex digits without a mark", "together api key"),
    _named("azure key", "Azure: 32 hex digits, or 84 characters", "subscription key, azure openai key, openai api key"),
    _named("api key", "headers, settings and fields of anyone", "api key, api token"),
    _named("password", "fields of anyone", "password, passwd, passphrase, pwd"),
    _named("client secret", "OAuth 2 (RFC 6749)", "client secret, app secret, signing secret, webhook secret"),
    _named("secret key", "fields of anyone", "secret key, private key id, access key, account key, encryption key"),
    _named("access token", "OAuth 2 (RFC 6749)", "access token, auth token, bearer token, authorization token"),
    _named("refresh token", "OAuth 2 (RFC 6749)", "refresh token"),
    _named("session token", "AWS, and sessions of anyone", "session token, security token, id token"),
    _named("secret", "fields of anyone", "secret"),
    _named("authorization", "headers in a text", "authorization", check=lambda said: said.count(" ") <= 1),
    _named(
        "authorization",
        "headers in a text: the schemes of anyone",
        "authorization",
        rf":\s?(?!bearer|basic|aws4)[a-z]{{2,12}}\s+({_BARE})",
    ),
    _named("cookie", "headers in a text", "cookie", check=lambda said: "=" in said),
    _named(
        "cookie", "headers in a text (RFC 6265)", "cookie", r""":\s?([\w.-]+=[^\r\n"'\\<>]{4,})""", lambda said: True
    ),
)

KINDS: tuple[Kind, ...] = (*_BY_PREFIX, *_BY_SHAPE, *_BY_NAME)
"""Every kind known without being told. Where several see a secret in one place, the first one names it."""
