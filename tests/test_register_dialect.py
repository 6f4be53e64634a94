"""A dialect from outside: registered in one call, and then everything that works for the built-in ones works for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import test_dialects as generic
from stream_cassette import Assembler, Reply, Stream, assemble, register_dialect, synthesize, transcode
from stream_cassette.dialects import DIALECTS, dialect, dialects
from stream_cassette.dialects.base import (
    Framing,
    Hint,
    Spelling,
    UsageNames,
    as_dict,
    as_index,
    as_text,
    common_losses,
    payload_of,
    read_error,
    read_frame,
    read_usage,
    relinked,
    write_damage,
    write_json,
    write_keepalive,
    write_usage,
)
from stream_cassette.errors import DialectError, NotApplicable, UnknownDialect
from stream_cassette.fuzz import mutations
from stream_cassette.model import (
    Arguments,
    Delta,
    End,
    Finish,
    Frame,
    Keepalive,
    Key,
    OpaquePart,
    PartEnd,
    Reasoning,
    ReasoningPart,
    RefusalPart,
    Start,
    Stop,
    StreamError,
    Text,
    ToolCall,
    ToolCallStart,
    Unknown,
    UsageUpdate,
)
from stream_cassette.mutate import instances, law_of, mutate
from stream_cassette.mutate.laws import Outcome, broken
from streams import CALLS, EVERY, RICH

USAGE: UsageNames = {"input_tokens": [("in",)], "output_tokens": [("out",)]}


def _shout(frames: Sequence[Frame]) -> list[list[Frame]]:
    said = [as_dict(payload_of(frame)) for frame in frames]
    return [
        [write_json({"k": "SAY", "t": each["t"]}, "jsonlines", like=frame)] if each.get("k") == "say" else [frame]
        for frame, each in zip(frames, said, strict=True)
    ]


@dataclass(frozen=True)
class Toy:
    """JSON lines, one thing a line: `{"k": "say", "t": "Hi"}`."""

    name: str = "toy"
    framing: Framing = "jsonlines"
    numbers: Literal["parts", "calls", "nothing"] = "calls"
    end_mark: bool = True
    usage_rides: bool = False

    @property
    def words(self) -> Mapping[Stop, tuple[str, ...]]:
        return {"stop": ("stop",), "length": ("length",), "tool_calls": ("tool_calls",)}

    @property
    def quirks(self) -> Mapping[str, Spelling]:
        return {"shout": Spelling("a server that shouts", _shout)}

    def recognise(self, hint: Hint) -> int:
        return 80 if "k" in as_dict(hint.payload) else 0

    def payload(self, frame: Frame) -> Any:
        return payload_of(frame)

    def read(self, frame: Frame) -> list[Delta]:
        return read_frame(frame, self.deltas)

    def deltas(self, payload: Any, event: str = "message") -> list[Delta]:
        said = as_dict(payload)
        text, key = as_text(said.get("t")), Key(index=as_index(said.get("i")), id=as_text(said.get("id")) or None)
        match said.get("k"):
            case "hi":
                return [Start(Key(), as_text(said.get("who")) or None, key.id, as_text(said.get("model")) or None)]
            case "say" | "SAY":
                return [Text(Key(), text)] if text else []
            case "think":
                return [Reasoning(Key(), text)] if text else []
            case "call":
                return [ToolCallStart(key, "function", text)]
            case "with":
                return [Arguments(replace(key, id=None), text)] if text else []
            case "called":
                return [PartEnd(replace(key, id=None))]
            case "bye":
                return [Finish(Key(), text)] if text else []
            case "count":
                return read_usage(said.get("of"), USAGE)
            case "over":
                return [End()]
        error = said.get("error")
        return [read_error(error or payload)] if error or event == "error" else [Unknown(event, payload)]

    def write(self, deltas: Sequence[Delta], like: Frame | None = None) -> list[Frame]:
        return [frame for delta in deltas for frame in self._say(delta, like)]

    def _say(self, delta: Delta, like: Frame | None) -> list[Frame]:
        match delta:
            case Start(_, who, id, model):
                said: dict[str, Any] = {"k": "hi", "who": who, "id": id, "model": model}
            case Text(_, text):
                said = {"k": "say", "t": text}
            case Reasoning(_, text):
                said = {"k": "think", "t": text}
            case ToolCallStart(key, _, name):
                said = {"k": "call", "i": key.index, "id": key.id, "t": name}
            case Arguments(key, text):
                said = {"k": "with", "i": key.index, "t": text}
            case PartEnd(key) if key.index is not None:
                said = {"k": "called", "i": key.index}
            case Finish(_, reason):
                said = {"k": "bye", "t": reason}
            case UsageUpdate():
                said = {"k": "count", "of": write_usage(delta, USAGE)}
            case End():
                said = {"k": "over"}
            case Keepalive():
                return [write_keepalive(self.framing, like)]
            case Unknown(event, payload):
                return [write_json(payload, self.framing, event, like)]
            case StreamError(type_) if type_.startswith("wire:"):
                return write_damage(delta, self.framing, like)
            case StreamError(type_, message, payload):
                said = {"error": {"type": type_, "message": message} if payload is None else payload}
            case _:
                return []
        return [write_json(said, self.framing, like=like)]

    def finish(self, frames: Sequence[Frame]) -> list[Frame]:
        return relinked(frames)

    def losses(self, reply: Reply) -> tuple[str, ...]:
        out = ["the choices but the first"] if reply.choices else []
        for part in reply.parts:
            match part:
                case RefusalPart():
                    out.append("a refusal in words")
                case ReasoningPart(_, signature) if signature:
                    out.append("the signature of a reasoning part")
                case ToolCall(kind="custom"):
                    out.append("a tool call with free text")
                case OpaquePart(kind):
                    out.append(f"the part {kind!r}")
        return tuple(out + common_losses(reply, USAGE))


TOY = Toy()


@pytest.fixture
def registered() -> Any:
    with register_dialect(TOY):
        yield


def test_it_is_there_while_it_is_registered() -> None:
    assert dialects() == DIALECTS
    with register_dialect(TOY):
        assert dialects() == (TOY, *DIALECTS)
        assert dialect("toy") is TOY
        assert assemble(b'{"k":"say","t":"Hi"}\n{"k":"bye","t":"stop"}\n').text == "Hi"
        with pytest.raises(UnknownDialect, match="dialect='toy' or 'openai-chat'"):
            assemble(b'{"odd": 1}\n')
    assert dialects() == DIALECTS
    with pytest.raises(UnknownDialect, match=r"register_dialect\(...\)"):
        synthesize(RICH, "toy")


def test_it_can_be_closed_too() -> None:
    registration = register_dialect(TOY)
    registration.close()
    registration.close()
    assert dialects() == DIALECTS


def test_the_newest_wins_where_it_is_as_sure() -> None:
    with register_dialect(TOY), register_dialect(replace(TOY, name="toy-2")):
        assembler = Assembler()
        assembler.feed({"k": "say", "t": "Hi"})
        assert assembler.dialect == "toy-2"


SAMPLES = [
    *synthesize(RICH, "openai-chat", lossy=True).payloads[:1],
    {"k": "with", "i": 0, "t": "{"},
    {"error": {"type": "t", "message": "m"}},
    {"k": "count", "of": {"in": 1}},
]
PROPERTIES: list[Callable[..., None]] = [
    generic.test_a_synthesised_reply_assembles_to_the_same,
    generic.test_a_synthesised_stream_is_recognised,
    generic.test_writing_what_was_read_reads_to_the_same,
    generic.test_an_unchanged_stream_is_finished_as_it_is,
    generic.test_reading_never_raises,
    generic.test_a_keepalive_is_written_as_one_or_not_at_all,
]


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
def test_what_holds_for_every_dialect_holds_for_it(
    holds: Callable[..., None], registered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(generic.SAMPLES, "toy", [*SAMPLES, *synthesize(RICH, "toy", lossy=True).payloads])
    holds(speaker=TOY)


@pytest.mark.parametrize(
    "holds",
    [
        generic.test_frames_that_say_nothing_of_a_dialect_are_read_alike,
        generic.test_json_lines_that_say_nothing_of_a_dialect_are_read_alike,
    ],
)
def test_frames_that_say_nothing_of_it_are_read_alike(holds: Any) -> None:
    (rows,) = (mark.args[1] for mark in holds.pytestmark if mark.args[0] == ("raw", "expected"))
    for raw, expected in rows:
        holds(speaker=TOY, raw=raw, expected=expected)


def faults(stream: Stream, mutators: Sequence[Any]) -> list[str]:
    mutated = mutate(stream, mutators)
    return broken(law_of(mutators), Outcome(assemble(stream)), Outcome(assemble(mutated)), mutated.reply)


def test_every_mutator_obeys_its_law(registered: None) -> None:
    stream = transcode(CALLS, "toy", lossy=True)
    found = instances(stream, "all")
    assert {each.level for each in found} == {
        "wire",
        "framing",
        "deltas",
        "quirk",
        "loss",
        "cut",
        "limit",
        "fault",
        "damage",
    }
    for each in found:
        assert faults(stream, [each]) == [], each


@settings(max_examples=30)
@given(data=st.data())
def test_every_composition_obeys_the_composed_law(data: st.DataObject) -> None:
    with register_dialect(TOY):
        stream = transcode(CALLS, "toy", lossy=True)
        with suppress(NotApplicable):
            assert faults(stream, list(data.draw(mutations(stream)))) == []


def test_it_is_transcoded_both_ways(registered: None) -> None:
    there = transcode(EVERY["anthropic"], "toy", lossy=True)
    assert there.reply.tool_calls == EVERY["anthropic"].reply.tool_calls
    assert transcode(there, "anthropic").reply.text == RICH.text


# ------------------------------------------------------------------------------------------------------------ what is refused


class Lacks:
    name = "lacks"
    framing = "sse"


def odd(**members: Any) -> Any:
    return type("Odd", (Toy,), members)()


@pytest.mark.parametrize(
    ("strange", "says"),
    [
        (
            Lacks(),
            "it lacks numbers, end_mark, words, usage_rides, quirks, recognise, payload, deltas, read, write, finish, losses",
        ),
        (7, "it lacks name"),
        (Toy, r"it is a class; give an instance, Toy\(\)"),
        (replace(TOY, name="My Toy"), "its name is 'My Toy'"),
        (replace(TOY, name=7), "its name is 7"),
        (replace(TOY, framing="xml"), "its 'framing' is 'xml', not one of 'sse', 'eventstream', 'jsonlines'"),
        (replace(TOY, numbers="all"), "its 'numbers' is 'all'"),
        (replace(TOY, end_mark="yes"), "its 'end_mark' is 'yes'"),
        (odd(words={"stop": ("stop",)}), "without one for 'stop' and 'length'"),
        (odd(words=None), "its words are None"),
        (odd(read=None), "its 'read' is None, not callable"),
        (odd(quirks=[]), "its 'quirks' is"),
    ],
)
def test_what_is_no_dialect(strange: Any, says: str) -> None:
    with pytest.raises(DialectError, match=says) as caught:
        register_dialect(strange)
    assert "Dialect" in caught.value.mend
    assert dialects() == DIALECTS


@pytest.mark.parametrize("name", ["openai-chat", "toy"])
def test_a_name_that_is_taken(name: str, registered: None) -> None:
    with pytest.raises(DialectError, match=f"there is a dialect '{name}' already"):
        register_dialect(replace(TOY, name=name))
