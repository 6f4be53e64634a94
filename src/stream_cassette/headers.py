"""What a header of HTTP can be (https://www.rfc-editor.org/rfc/rfc9110.html#section-5), so that none breaks the wire it is written onto."""

from __future__ import annotations

import re

from .model import Headers

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# U+DC80 to U+DCFF stand for bytes that are no UTF-8, other surrogates for nothing.
_NOT_CARRIED = re.compile("[\r\n\0\ud800-\udc7f\udd00-\udfff]")

MEND = "take that out; a header that comes several times has a list of values, [one, two]"
"""What to do about an unfit header, wherever it stands."""


def unfit(name: str, value: str) -> str:
    """Why HTTP cannot carry a header, naming it; empty where it can."""
    if not _NAME.fullmatch(name):
        return f"{name[:80]!r} is no name of a header in HTTP"
    found = _NOT_CARRIED.search(value)
    return f"HTTP cannot carry the header {name!r}: there is {found[0]!r} in its value" if found else ""


def separated(headers: Headers) -> Headers:
    """The headers without line ends and NUL in their values, as RFC 9110 has a recipient read them.

    A line that begins with a space goes on where the one before it ended; any other is a header of its own: so HTTP archives join those of one name.
    """
    return tuple((name, value) for name, said in headers for value in _lines(said))


def _lines(said: str) -> list[str]:
    lines = re.sub(r"[\r\n]+", "\n", said.replace("\0", " ")).strip("\n")
    return re.sub(r"\n[ \t]+", " ", lines).split("\n")
