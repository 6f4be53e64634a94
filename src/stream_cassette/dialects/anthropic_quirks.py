"""How real servers spell Anthropic streams otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import jsontext
from ..framing import sse
from ..model import Frame
from .base import Spelling, as_dict, as_int, as_text, payload_of
from .spelling import (
    EVENT_STREAM,
    Payload,
    Rewrite,
    before,
    compact_object,
    data_after_done,
    done_sentinel,
    each,
    events,
    halves,
    on_payloads,
)

_START, _DELTA, _STOP = "content_block_start", "content_block_delta", "content_block_stop"
_MESSAGE_START, _MESSAGE_DELTA, _MESSAGE_STOP = "message_start", "message_delta", "message_stop"


# ---------------------------------------------------------------------------------------------------------------------- blocks


class _Block:
    """A content block: its start event, and its deltas with their places among the payloads."""

    def __init__(self, at: int, start: Payload) -> None:
        self.at = at
        self.start: Payload = as_dict(start.get("content_block"))
        self.type = as_text(self.start.get("type"))
        self.deltas: list[tuple[int, Payload]] = []

    def of(self, type_: str) -> list[tuple[int, Payload]]:
        return [(at, delta) for at, delta in self.deltas if delta.get("type") == type_]


def _blocks(payloads: list[Payload]) -> list[_Block]:
    found: list[_Block] = []
    at_index: dict[int | None, _Block] = {}
    for at, payload in enumerate(payloads):
        index = as_int(payload.get("index"))
        if payload.get("type") == _START:
            found.append(_Block(at, payload))
            at_index[index] = found[-1]
        elif payload.get("type") == _DELTA and index in at_index:
            at_index[index].deltas.append((at, as_dict(payload.get("delta"))))
    return found


def _on_blocks(change: Callable[[_Block], list[int]], *types: str) -> Rewrite:
    """A rewrite that alters the blocks of these types; `change` says which payloads go."""

    def changed(payloads: list[Payload]) -> list[list[Payload]]:
        gone = [at for block in _blocks(payloads) if block.type in types for at in change(block)]
        return [[] if at in gone else [payload] for at, payload in enumerate(payloads)]

    return on_payloads(changed)


def _input_missing(block: _Block) -> list[int]:
    if block.start.get("input") == {}:
        del block.start["input"]
    return []


def _input_whole(block: _Block) -> list[int]:
    pieces = block.of("input_json_delta")
    value = compact_object(jsontext.join(as_text(delta.get("partial_json")) for _, delta in pieces))
    if not value or block.start.get("input"):  # an empty object in the start says nothing
        return []
    block.start["input"] = value
    return [at for at, _ in pieces]


def _initial(block: _Block) -> list[int]:
    name = "thinking" if block.type == "thinking" else "text"
    pieces = block.of(f"{name}_delta")
    if not pieces or block.start.get(name):
        return []
    block.start[name] = pieces[0][1].get(name)
    return [pieces[0][0]]


def _signature_in_start(block: _Block) -> list[int]:
    pieces = block.of("signature_delta")
    signature = "".join(as_text(delta.get("signature")) for _, delta in pieces)
    if not signature or block.start.get("signature"):
        return []
    block.start["signature"] = signature
    return [at for at, _ in pieces]


def _signature_in_pieces(payloads: list[Payload]) -> list[list[Payload]]:
    out = []
    for payload in payloads:
        delta = as_dict(payload.get("delta"))
        first, second = halves(as_text(delta.get("signature")))
        whole = delta.get("type") != "signature_delta" or not second
        out.append(
            [payload] if whole else [{**payload, "delta": {**delta, "signature": half}} for half in (first, second)]
        )
    return out


def _empty_input_first(payloads: list[Payload]) -> list[list[Payload]]:
    out = [[payload] for payload in payloads]
    for block in _blocks(payloads):
        pieces = block.of("input_json_delta")
        if block.type == "tool_use" and not (pieces and pieces[0][1].get("partial_json") == ""):
            delta = {"type": "input_json_delta", "partial_json": ""}
            out[block.at].append({"type": _DELTA, "index": payloads[block.at].get("index"), "delta": delta})
    return out


def _unknown_block(payloads: list[Payload]) -> list[list[Payload]]:
    """A block of a type that nobody knows, behind all others."""
    out = [[payload] for payload in payloads]
    stops = [at for at, payload in enumerate(payloads) if payload.get("type") == _STOP]
    numbers = [as_int(payload.get("index")) or 0 for payload in payloads if payload.get("type") == _START]
    others = [at for at, payload in enumerate(payloads) if payload.get("type") in (_START, _DELTA)]
    if numbers and stops and stops[-1] > others[-1]:
        index = max(numbers) + 1
        out[stops[-1]] += [
            {"type": _START, "index": index, "content_block": {"type": "hologram", "blob": "x"}},
            {"type": _DELTA, "index": index, "delta": {"type": "hologram_delta", "frame": 1}},
            {"type": _STOP, "index": index},
        ]
    return out


def _unknown_delta(payloads: list[Payload]) -> list[list[Payload]]:
    out = [[payload] for payload in payloads]
    for block in _blocks(payloads):
        if block.type == "text":
            delta = {"type": "hologram_delta", "frame": 1}
            out[block.at].append({"type": _DELTA, "index": payloads[block.at].get("index"), "delta": delta})
    return out


# ----------------------------------------------------------------------------------------------------------------------- usage


def _merged_usage(zeros: bool) -> Rewrite:
    """All counts in the `message_delta` too, or there alone."""

    def change(payloads: list[Payload]) -> list[list[Payload]]:
        starts = [as_dict(payload.get("message")) for payload in payloads if payload.get("type") == _MESSAGE_START]
        ends = [payload for payload in payloads if payload.get("type") == _MESSAGE_DELTA and payload.get("usage")]
        counted = any(value is not None for said in (*starts, *ends) for value in as_dict(said.get("usage")).values())
        if len(starts) == len(ends) == 1 and starts[0].get("usage") and counted:
            last = {name: value for name, value in as_dict(ends[0]["usage"]).items() if value is not None}
            ends[0]["usage"] = {**as_dict(starts[0]["usage"]), **last}
            if zeros:
                starts[0]["usage"] = {"input_tokens": 0, "output_tokens": 0}
        return [[payload] for payload in payloads]

    return on_payloads(change)


# ---------------------------------------------------------------------------------------------------------------------- events


def _ping(frames: Sequence[Frame]) -> list[list[Frame]]:
    at = next(iter(events(frames)), None)
    if at is None or as_dict(payload_of(frames[at])).get("type") == "ping":
        return [[frame] for frame in frames]
    return before(frames, at, sse.encode('{"type":"ping"}', "ping", frames[at]))


def _block_first(payloads: list[Payload]) -> list[list[Payload]]:
    """`message_start` behind the start of the first block."""
    out = [[payload] for payload in payloads]
    types = [payload.get("type") for payload in payloads]
    if types[:1] == [_MESSAGE_START] and types[1:2] == [_START]:
        out[:2] = [[], [payloads[1], payloads[0]]]
    return out


def event_line_missing(name: str = "type") -> Rewrite:
    """Without event lines, where the payload says the type under `name`."""

    def rewrite(frames: Sequence[Frame]) -> list[list[Frame]]:
        def bare(frame: Frame) -> Frame:
            named = frame.event != "message" and as_dict(payload_of(frame)).get(name) == frame.event
            return sse.encode(frame.data or "", "message", frame) if named else frame

        return [[bare(frame)] for frame in frames]

    return rewrite


def type_in_event_line(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Without the type in the payload, where the event line says it."""
    out = []
    for frame in frames:
        payload = as_dict(payload_of(frame))
        if frame.event != "message" and payload.get("type") == frame.event:
            rest = {name: value for name, value in payload.items() if name != "type"}
            frame = sse.encode(jsontext.dump(rest), frame.event, frame)
        out.append([frame])
    return out


def _no_message_stop(payloads: list[Payload]) -> list[list[Payload]]:
    """Pings in place of `message_stop`, once there was a stop reason."""
    reasons = [as_dict(payload.get("delta")).get("stop_reason") for payload in payloads]
    if not any(reasons) or not _is_over(payloads[-1]):
        return [[payload] for payload in payloads]
    return [[{"type": "ping"}] * 2 if payload.get("type") == _MESSAGE_STOP else [payload] for payload in payloads]


def _no_stop_sequence(payload: Payload) -> None:
    for place in (as_dict(payload.get("delta")), as_dict(payload.get("message"))):
        if "stop_sequence" in place and place["stop_sequence"] is None:
            del place["stop_sequence"]


def _end_turn(payloads: list[Payload]) -> list[list[Payload]]:
    if any(block.type == "tool_use" for block in _blocks(payloads)):
        for payload in payloads:
            if payload.get("type") == _MESSAGE_DELTA and as_dict(payload.get("delta")).get("stop_reason") == "tool_use":
                payload["delta"]["stop_reason"] = "end_turn"
    return [[payload] for payload in payloads]


def _is_over(payload: Payload) -> bool:
    return payload.get("type") == _MESSAGE_STOP


EVENT_LINES: Mapping[str, Spelling] = {
    "event-line-missing": Spelling(
        "gateways send data lines alone; readers that dispatch on the event line see nothing", event_line_missing()
    ),
    "type-only-in-event-line": Spelling(
        "gateways leave the type out of the payload; readers that dispatch on it see nothing", type_in_event_line
    ),
}

QUIRKS: Mapping[str, Spelling] = {
    "ping-first": Spelling("Anthropic may ping before `message_start`; readers take the first event for it", _ping),
    "block-before-start": Spelling(
        "gateways open the first block before `message_start`; readers of a message that is not there yet raise",
        on_payloads(_block_first),
    ),
    "usage-in-delta-cumulative": Spelling(
        "gateways send zeros in `message_start` and all counts in `message_delta`; readers of the first see no input tokens",
        _merged_usage(zeros=True),
    ),
    "usage-double": Spelling(
        "Anthropic itself now says input and cache counts in both events; readers add them up",
        _merged_usage(zeros=False),
    ),
    "input-key-missing": Spelling(
        "gateways open a tool block without `input`; KeyError", _on_blocks(_input_missing, "tool_use")
    ),
    "input-whole-in-start": Spelling(
        "gateways put the whole input into the start of the block; readers of deltas run the tool without arguments",
        _on_blocks(_input_whole, "tool_use"),
    ),
    "text-initial": Spelling(
        "gateways put the first text into the start of the block; readers of deltas lose the beginning",
        _on_blocks(_initial, "text", "thinking"),
    ),
    "signature-in-pieces": Spelling(
        "some send a signature in several deltas; the last write wins and the provider refuses the next turn",
        on_payloads(_signature_in_pieces),
    ),
    "signature-in-start": Spelling(
        "gateways put the signature into the start of the block; readers of deltas lose it",
        _on_blocks(_signature_in_start, "thinking"),
    ),
    "stop-sequence-absent": Spelling("gateways leave out `stop_sequence: null`; KeyError", each(_no_stop_sequence)),
    "empty-input-first": Spelling(
        "Anthropic opens the input of a tool with an empty piece; parsed as JSON it raises",
        on_payloads(_empty_input_first),
    ),
    "no-message-stop": Spelling(
        "gateways end with pings and no `message_stop`; readers hang, or throw the answer away",
        on_payloads(_no_message_stop),
        frozenset(("end_mark",)),
    ),
    "end-turn-beside-calls": Spelling(
        "gateways finish with `end_turn` although there are calls; agents that ask the reason never run them",
        on_payloads(_end_turn),
        other_finish=True,
    ),
    "unknown-block": Spelling(
        "new block types come without notice; readers fail on the type, or lose the blocks beside it",
        on_payloads(_unknown_block),
        more_parts=True,
    ),
    "unknown-delta": Spelling(
        "new delta types (citations) come without notice; readers fail on the type",
        on_payloads(_unknown_delta),
        more_parts=True,
    ),
    **EVENT_LINES,
    "done-sentinel": done_sentinel(_is_over),
    "data-after-done": data_after_done(
        lambda frame: _is_over({"type": frame.event, **as_dict(payload_of(frame))}),
        lambda payload: as_dict(payload.get("delta")).get("type") == "text_delta",
    ),
    **EVENT_STREAM,
}
