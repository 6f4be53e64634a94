"""Runs of events that differ in one text alone. Their dialect reads the first of them; of the others it is enough to take the text out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from . import jsontext
from .model import Arguments, Delta, Frame, FrameHeader, Key, Reasoning, Refusal, Start, Text

Said = Text | Reasoning | Refusal | Arguments
"""A piece of a text that grows."""

Read = Callable[[Frame], Sequence[Delta]]
"""What a frame says, going by data, event name and headers; a text is taken for a text, whatever it says."""

_Seen = tuple[Frame, Sequence[Delta]]
_SAID = frozenset((Text, Reasoning, Refusal, Arguments))

# A run is sought after so many events in a row that say pieces of one text, and again after twice as many if they go on being read one by one.
_SOUGHT_AFTER = 8

# Members that are other in every event, and that no dialect reads: padding against who measures lengths, times and running numbers.
_NOISE = frozenset(('"obfuscation"', '"p"', '"created"', '"created_at"', '"sequence_number"'))

# A JSON text as tokens, each with the white space before it; the last is empty.
_TOKEN = re.compile(r'([ \t\r\n]*+)("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]++|\Z)', re.DOTALL)

# What may stand in the places that differ. The text is looked at more closely when it was found.
_HOLES = {
    "text": r'([^"\\]*+(?:\\.[^"\\]*+)*+)',
    "space": r"[ \t\r\n]*+",
    "noise": r'(?:"[^"\\\x00-\x1f]*+"|0|[1-9][0-9]{0,17})',
}
_PROBES = (
    {"text": r"a \"probe\"\\\n7é", "space": "", "noise": '"x"'},
    {"text": "b", "space": "  ", "noise": "0"},
)
_Form = list[tuple[str, str]]  # what is in order: the name of a hole and "", or "" and what stands there in every event


@dataclass(frozen=True, slots=True)
class Shape:
    """What the events of a run have in common: all that they say but the text of one delta.

    `before` and `after`: what stays the same at both ends of the data; `between` matches what stands between, the content of the JSON string with the
    text being its group, or is None where there is nothing else. `starts`: what each says again before its text. `kind` and `key`: those of the delta that
    carries the text.
    """

    event: str
    headers: tuple[FrameHeader, ...]
    before: str
    between: re.Pattern[str] | None
    after: str
    starts: tuple[Start, ...]
    kind: type[Said]
    key: Key

    def text(self, frame: Frame) -> str:
        """The text that a frame of this shape says. Empty if it is of another shape, or says none."""
        _, data, event, _, _, problem, headers = frame
        if data is None or event != self.event or problem is not None or headers != self.headers:
            return ""
        if not (data.startswith(self.before) and data.endswith(self.after)):
            return ""
        said = data[len(self.before) : len(data) - len(self.after)]
        if self.between is not None:
            match = self.between.fullmatch(said)
            if match is None:
                return ""
            said = match[1]
        if said.isprintable() and '"' not in said and "\\" not in said:
            return said
        return _string(f'"{said}"')


class Runs:
    """The shape of the events that come, learnt as they are read."""

    def __init__(self) -> None:
        self.shape: Shape | None = None
        self._last: _Seen | None = None
        self._alike = 0  # events in a row that say pieces of one text

    def saw(self, frame: Frame, deltas: Sequence[Delta], read: Read) -> None:
        """An event that was read, with what it said."""
        last, self._last = self._last, (frame, deltas)
        if not (last and deltas and last[1] and _are_alike(last[1][-1], deltas[-1])):
            self._alike = 1
            return
        self._alike += 1
        if self._alike >= _SOUGHT_AFTER and not self._alike & (self._alike - 1):
            self.shape = shape_of(last[0], frame, deltas, read) or self.shape


def _are_alike(one: Delta, two: Delta) -> bool:
    return type(one) is type(two) and _is_said(one) and _is_said(two) and one.key == two.key


def _is_said(delta: Delta) -> TypeGuard[Said]:
    return type(delta) in _SAID


def shape_of(before: Frame, frame: Frame, deltas: Sequence[Delta], read: Read) -> Shape | None:
    """The shape of two frames, of which the second says `deltas`: last a piece of a text, before it nothing but starts. None if they have none.

    Which string is the text, and that nothing hangs on the noise, is no guess: with others in their places, the second must read to the same.
    """
    *starts, said = deltas
    again = tuple(delta for delta in starts if isinstance(delta, Start))
    if not _is_said(said) or len(again) < len(starts):
        return None
    pairs = _paired(before, frame)
    for at, (_, (_, token)) in enumerate(pairs):
        if token.startswith('"') and _string(token) == said.text and (form := _form(pairs, at)):
            expected = [[*starts, replace(said, text=_string(f'"{probe["text"]}"'))] for probe in _PROBES]
            if [read(frame._replace(data=_filled(form, probe))) for probe in _PROBES] == expected:
                return Shape(frame.event, frame.headers, *_ends(form), again, type(said), said.key)
    return None


def _string(text: str) -> str:
    """The value of a JSON text that begins with a quote; empty if it is no single string."""
    try:
        return str(jsontext.parse(text))
    except ValueError:
        return ""


# ---------------------------------------------------------------------------------------------------------------------- forms


def _paired(one: Frame, two: Frame) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """The tokens of both, side by side; none if they differ in number, or in what is no data."""
    if one.data is None or two.data is None or one.problem or two.problem:
        return []
    tokens = [_TOKEN.findall(data) for data in (one.data, two.data)]
    alike = (one.event, one.headers, len(tokens[0])) == (two.event, two.headers, len(tokens[1]))
    return list(zip(*tokens, strict=True)) if alike else []


def _form(pairs: list[tuple[tuple[str, str], tuple[str, str]]], text_at: int) -> _Form:
    """What two frames have in common whose text is the token at `text_at`; nothing if they differ in more than noise."""
    form: _Form = []
    for at, ((one_space, one), (two_space, two)) in enumerate(pairs):
        form.append(("", one_space) if one_space == two_space and len(one_space) < 2 else ("space", ""))
        is_noise = at > 1 and pairs[at - 1][0][1] == ":" and pairs[at - 2][0][1] in _NOISE
        if at == text_at:
            form += [("", '"'), ("text", ""), ("", '"')]
        elif one == two:
            form.append(("", one))
        elif is_noise:
            form.append(("noise", ""))
        else:
            return []
    return form


def _filled(form: _Form, probe: Mapping[str, str]) -> str:
    return "".join(probe[hole] if hole else literal for hole, literal in form)


def _ends(form: _Form) -> tuple[str, re.Pattern[str] | None, str]:
    """What stands before the first hole, a pattern up to the last one (None if there is only one), and what stands after it."""
    holes = [at for at, (hole, _) in enumerate(form) if hole]
    first, last = holes[0], holes[-1] + 1
    before, after = ("".join(literal for _, literal in part) for part in (form[:first], form[last:]))
    pattern = "".join(_HOLES[hole] if hole else re.escape(literal) for hole, literal in form[first:last])
    return before, re.compile(pattern, re.DOTALL) if len(holes) > 1 else None, after
