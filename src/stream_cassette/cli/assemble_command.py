"""`stream-cassette assemble`"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stream_cassette.model import Reply, ToolCall
    from stream_cassette.stream import Stream

    from .terminal import Terminal

HELP = "say what a stream means: the text, calls, finish reason and usage that the reference assembler makes of it"
EPILOG = """\
examples:
  stream-cassette assemble cassettes/test_agent/test_weather.yaml
  curl -sN https://... | stream-cassette assemble - --json

--json prints what of {text, reasoning, refusal, tool_calls: [{id, name,
arguments}], incomplete_tool_calls: [{id, name, arguments_text, problem}],
finish_reason, finish_detail, usage: {input_tokens, output_tokens,
total_tokens, cached_tokens, reasoning_tokens}, errors: [{type, message}]} was
said, and always {dialect, complete, stop, warnings}. Where the stream has
several choices that is the first, and choices has the list of all.

exit status: 0 the reply is complete, 1 it is not or has errors, 2 an error
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a cassette, or a raw body; - is standard input")
    parser.add_argument(
        "--interaction", type=int, metavar="N", help="the Nth interaction, from 1 (default: the last stream)"
    )
    parser.add_argument("--dialect", metavar="NAME", help="the wire dialect (default: what the bytes look like)")
    parser.add_argument("--json", action="store_true", help="print JSON, see below")


def run(options: argparse.Namespace) -> int:
    from stream_cassette.errors import UnknownDialect

    from .terminal import print_json, terminal

    stream = _stream(options.file, options.interaction, options.dialect)
    try:
        reply, dialect = stream.reply, stream.spoken
    except UnknownDialect as error:
        raise UnknownDialect(error.what, where=error.where, mend=_known()) from None
    if options.json:
        print_json({"dialect": dialect, **_plain(reply)})
    else:
        _say(reply, dialect, terminal())
    return 0 if _is_complete(reply) else 1


def _is_complete(reply: Reply) -> bool:
    return all(choice.complete for choice in (reply, *reply.choices))


def _stream(file: Path, number: int | None, dialect: str | None) -> Stream:
    from stream_cassette.errors import StreamCassetteError
    from stream_cassette.model import Exchange, Read, Request
    from stream_cassette.stream import Stream

    from .choosing import cassette_of, name_of, place_of, read

    data = read(file)
    found = cassette_of(data, file)
    if found is not None:
        chosen = found.interactions[place_of(found, number, name_of(file))]
        return Stream(chosen.exchange, dialect or chosen.dialect)
    if number is not None:
        raise StreamCassetteError(
            "a raw body has no interactions", where=name_of(file), mend="leave --interaction out, or name a cassette"
        )
    return Stream(Exchange(Request("POST", ""), 200, (), (Read(0, data),) if data else ()), dialect)


def _known() -> str:
    from stream_cassette.dialects import dialects

    return f"name the dialect: --dialect with one of {', '.join(each.name for each in dialects())}"


def _plain(reply: Reply) -> dict[str, Any]:
    from stream_cassette.stream import assembled

    said = {**assembled(reply), "complete": reply.complete, "stop": reply.stop, "warnings": list(reply.warnings)}
    return {**said, "choices": [_plain(choice) for choice in reply.choices]} if reply.choices else said


def _say(reply: Reply, dialect: str | None, out: Terminal) -> None:
    whole = ("complete", "bold green") if _is_complete(reply) else ("NOT COMPLETE", "bold red")
    out.line((f"{dialect or 'nothing was said'}: ", "bold"), whole)
    for number, choice in enumerate(reply.choices or (reply,), 1):
        if reply.choices:
            out.line((f"choice {number} of {len(reply.choices)}", "bold"))
        _say_choice(choice, out)
    if reply.usage:
        out.line(("usage ", "bold"), repr(reply.usage).removeprefix("Usage(").removesuffix(")"))
    for error in reply.errors:
        out.text(f"error {error.type}: {error.message}", "red")
    for warning in reply.warnings:
        out.text(f"warning: {warning}", "yellow")


def _say_choice(reply: Reply, out: Terminal) -> None:
    from stream_cassette.model import OpaquePart

    for name in ("reasoning", "text", "refusal"):
        if said := getattr(reply, name):
            out.line((name, "bold"))
            out.text(said, indent="  ")
    for title, calls in (("tool calls", reply.tool_calls), ("incomplete tool calls", reply.incomplete_tool_calls)):
        if calls:
            out.line((title, "bold"))
        for call in calls:
            _say_call(call, out)
    for part in reply.parts:
        if isinstance(part, OpaquePart):
            out.line(("not interpreted ", "bold"), f"{part.kind}, {len(part.payloads)} pieces")
    if reply.finish_reason is not None:
        detail = f" ({reply.finish_detail})" if reply.finish_detail else ""
        out.line(("finish reason ", "bold"), f"{reply.finish_reason}{detail}, that is {reply.stop}")


def _say_call(call: ToolCall, out: Terminal) -> None:
    out.text(f"{call.name or '(no name)'}({call.arguments_text})  {call.id or ''}".rstrip(), indent="  ")
    if call.problem is not None:
        out.text(call.problem, "red", indent="    must not run: ")
