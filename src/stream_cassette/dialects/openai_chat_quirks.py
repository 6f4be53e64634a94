"""How real servers spell OpenAI chat streams otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import jsontext
from ..framing import sse
from ..model import Frame
from .base import Spelling, as_dict, as_int, as_text, payload_of
from .openai_chat_calls_quirks import CALLS
from .openai_chunks import (
    behind,
    beside,
    choices_of,
    each_choice,
    each_chunk,
    each_delta,
    finishes,
    opened,
    said_by,
)
from .spelling import EVENT_STREAM, Payload, Rewrite, before, data_after_done, halves, is_event, on_payloads

_THOUGHTS = ("reasoning_content", "reasoning")


# ----------------------------------------------------------------------------------------------------------------------- usage


def _usage(payload: Payload) -> Payload:
    return as_dict(payload.get("usage"))


def _usage_twice(payloads: list[Payload]) -> list[list[Payload]]:
    out = [[payload] for payload in payloads]
    places = [at for at, payload in enumerate(payloads) if _usage(payload)]
    ends = [at for at, payload in enumerate(payloads) if finishes(payload)]
    if len(places) == 1 and ends:
        usage = payloads[places[0]]["usage"]
        if choices_of(payloads[places[0]]):
            out[places[0]].append(beside(payloads[places[0]], choices=[], usage=usage))
        else:
            payloads[ends[-1]]["usage"] = usage
    return out


def _usage_null_after(payloads: list[Payload]) -> list[list[Payload]]:
    out = [[payload] for payload in payloads]
    if places := [at for at, payload in enumerate(payloads) if _usage(payload)]:
        out[places[-1]].append(beside(payloads[places[-1]], choices=[], usage=None))
    return out


def _x_groq(payloads: list[Payload]) -> list[list[Payload]]:
    ends = [at for at, payload in enumerate(payloads) if finishes(payload)]
    usage: Payload = {}
    for payload in payloads:
        usage |= {name: value for name, value in _usage(payload).items() if value is not None}
    spelled = any(as_dict(payload.get("x_groq")).get("usage") for payload in payloads)
    if not ends or not usage or spelled:  # what is within `x_groq` already is the last word and must stay so
        return [[payload] for payload in payloads]
    carriers = [payload.get("choices") == [] and bool(_usage(payload)) for payload in payloads]
    for payload in payloads:
        payload.pop("usage", None)
    last = payloads[ends[-1]]
    last["x_groq"] = {"id": "req_01", **as_dict(last.get("x_groq")), "usage": usage}
    return [[] if carrier else [payload] for payload, carrier in zip(payloads, carriers, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------- chunks

_FILTERED = {"hate": {"filtered": False, "severity": "safe"}}


def _azure_first(frames: Sequence[Frame]) -> list[list[Frame]]:
    first = {
        "choices": [],
        "created": 0,
        "id": "",
        "model": "",
        "object": "",
        "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _FILTERED}],
    }
    at = next((at for at, frame in enumerate(frames) if isinstance(payload_of(frame), dict)), None)
    if at is None or not is_event(frames[at]) or not as_dict(payload_of(frames[at])).get("choices"):
        return [[frame] for frame in frames]
    return before(frames, at, sse.encode(jsontext.dump(first), like=frames[at]))


def _without_delta(payload: Payload) -> Payload:
    number = choices_of(payload)[0].get("index", 0)
    offsets = {"check_offset": 0, "start_offset": 0, "end_offset": 9}
    choice = {
        "content_filter_offsets": offsets,
        "content_filter_results": _FILTERED,
        "finish_reason": None,
        "index": number,
    }
    return beside(payload, choices=[choice])


def _ids_change(payloads: list[Payload]) -> list[list[Payload]]:
    for number, payload in enumerate(payloads):
        if number and as_text(payload.get("id")):
            payload["id"] = f"{payload['id']}-{number}"
    return [[payload] for payload in payloads]


def _created_float(payload: Payload) -> None:
    if as_int(payload.get("created")) is not None:
        payload["created"] += 0.25


def _unknown_fields(payload: Payload) -> None:
    payload["x_vendor"] = {"request": "r-1", "timings": [1, 2.5]}
    for choice in choices_of(payload):
        choice |= {"matched_stop": None, "native_finish_reason": choice.get("finish_reason"), "token_ids": [7]}


def _choices_unnumbered(payloads: list[Payload]) -> list[list[Payload]]:
    choices = [choice for payload in payloads for choice in choices_of(payload)]
    if not any(choice.get("index") for choice in choices):
        for choice in choices:
            choice.pop("index", None)
    return [[payload] for payload in payloads]


def _set(**fields: Any) -> Callable[[Payload], None]:
    """Gives an object the fields that it does not have."""

    def change(place: Payload) -> None:
        for name, value in fields.items():
            place.setdefault(name, value)

    return change


def _without(name: str, values: Sequence[Any]) -> Callable[[Payload], None]:
    def change(place: Payload) -> None:
        if name in place and place[name] in values:
            del place[name]

    return change


def _only(name: str, old: Sequence[Any], new: Any) -> Callable[[Payload], None]:
    """Puts `new` where the field is missing or has one of the `old` values."""

    def change(place: Payload) -> None:
        if place.get(name) in old:
            place[name] = new

    return change


# --------------------------------------------------------------------------------------------------------------------- content


def _null_delta(choice: Payload) -> None:
    if isinstance(choice.get("delta"), dict) and not any(choice["delta"].values()):
        choice["delta"] = None


def _in_list(delta: Payload) -> None:
    if text := as_text(delta.get("content")):
        delta["content"] = [{"type": "text", "text": text}]


def _with_reference(payloads: list[Payload]) -> list[list[Payload]]:
    deltas = (as_dict(choice.get("delta")) for payload in payloads for choice in choices_of(payload))
    if delta := next((delta for delta in deltas if as_text(delta.get("content"))), None):
        texts = [{"type": "text", "text": text} for text in halves(delta["content"]) if text]
        delta["content"] = [*texts, {"type": "reference", "reference_ids": [3]}]
    return [[payload] for payload in payloads]


def _surrogates_apart(payloads: list[Payload]) -> list[list[Payload]]:
    out = []
    for payload in payloads:
        choices = choices_of(payload)
        delta = as_dict(choices[0].get("delta")) if len(choices) == 1 else {}
        text = as_text(delta.get("content"))
        at = next((at for at, char in enumerate(text) if ord(char) > 0xFFFF), None)
        if at is None or said_by(payload) - {"role", "content"}:
            out.append([payload])
            continue
        high, low = _pair(text[at])
        first = opened(payload, choices[0], {**delta, "content": text[:at] + high})
        choices[0]["delta"] = {"content": low + text[at + 1 :]}
        out.append([first, payload])
    return out


def _pair(char: str) -> tuple[str, str]:
    code = ord(char) - 0x10000
    return chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))


def _cumulative_message(payloads: list[Payload]) -> list[list[Payload]]:
    texts: dict[Any, str] = {}
    choices = [
        choice for payload in payloads for choice in choices_of(payload) if isinstance(choice.get("delta"), dict)
    ]
    if any("message" in choice or isinstance(choice["delta"].get("content"), list) for choice in choices):
        return [[payload] for payload in payloads]
    for choice in choices:
        number = choice.get("index")
        texts[number] = texts.get(number, "") + as_text(choice["delta"].get("content"))
        choice["message"] = {"role": "assistant", "content": texts[number]}
    return [[payload] for payload in payloads]


def _message_at_end(payloads: list[Payload]) -> list[list[Payload]]:
    """In the last chunk the whole text, in place of a delta, for choices that are but text."""
    said: dict[Any, set[str]] = {}
    texts: dict[Any, str] = {}
    for payload in payloads:
        for choice in choices_of(payload):
            number, delta = choice.get("index"), as_dict(choice.get("delta"))
            said.setdefault(number, set()).update(said_by({"choices": [choice]}))
            texts[number] = texts.get(number, "") + as_text(delta.get("content"))
            said[number] |= {"parts"} if isinstance(delta.get("content"), list) else set()
            plain = said[number] <= {"role", "content"} and texts[number]
            if choice.get("finish_reason") and plain and not said_by({"choices": [choice]}) and "message" not in choice:
                choice.pop("delta", None)
                choice["message"] = {"role": "assistant", "content": texts[number]}
    return [[payload] for payload in payloads]


# ------------------------------------------------------------------------------------------------------------------- reasoning


def _other_name(delta: Payload) -> None:
    names = [name for name in _THOUGHTS if name in delta]
    if len(names) == 1:
        other = _THOUGHTS[1 - _THOUGHTS.index(names[0])]
        delta[other] = delta.pop(names[0])


def _mirrored(delta: Payload) -> None:
    if thought := next((delta[name] for name in _THOUGHTS if as_text(delta.get(name))), ""):
        delta |= dict.fromkeys(_THOUGHTS, thought)


def _detailed(delta: Payload) -> None:
    thought = next((delta[name] for name in _THOUGHTS if as_text(delta.get(name))), "")
    if thought and "reasoning_details" not in delta:
        delta["reasoning_details"] = [{"type": "reasoning.text", "text": thought, "format": "unknown", "index": 0}]


# ---------------------------------------------------------------------------------------------------------------------- finish


def _finish_again(reason: str | None) -> Rewrite:
    """Another chunk with a finish reason: the same again, or `reason` after `tool_calls`."""

    def change(payloads: list[Payload]) -> list[list[Payload]]:
        out = [[payload] for payload in payloads]
        places = [at for at, payload in enumerate(payloads) if finishes(payload)]
        choices = choices_of(payloads[places[-1]]) if len(places) == 1 else []
        if len(choices) == 1 and (reason is None or choices[0]["finish_reason"] == "tool_calls"):
            again = {
                "index": choices[0].get("index", 0),
                "delta": {},
                "finish_reason": reason or choices[0]["finish_reason"],
            }
            out[places[0]].append(beside(payloads[places[0]], choices=[again]))
        return out

    return on_payloads(change)


def _bare_done(frames: Sequence[Frame]) -> list[list[Frame]]:
    return [[sse.encode("DONE", frame.event, frame) if frame.data == "[DONE]" else frame] for frame in frames]


def _has_text(payload: Payload) -> bool:
    return "content" in said_by(payload)


CHUNKS: Mapping[str, Spelling] = {
    "usage-twice": Spelling(
        "Databricks and others send usage on the last choice and again on a chunk of its own; readers add both up",
        on_payloads(_usage_twice),
    ),
    "usage-null-after": Spelling(
        "some send a chunk with `usage: null` behind the one with usage; the last write wins and usage is lost",
        on_payloads(_usage_null_after),
    ),
    "usage-null-everywhere": Spelling(
        "OpenAI with include_usage sends `usage: null` on every chunk; readers index into it",
        each_chunk(_set(usage=None)),
    ),
    "x-groq-usage": Spelling(
        "Groq sends usage within `x_groq` alone; readers of `usage` find none", on_payloads(_x_groq)
    ),
    "empty-choices": Spelling(
        "gateways send chunks without choices as heartbeats; `choices[0]` raises IndexError",
        behind(lambda payload: bool(choices_of(payload)), lambda payload: beside(payload, choices=[])),
    ),
    "finish-empty-string": Spelling(
        'Ollama and others send `finish_reason: ""` until the end; readers that ask for `is not None` stop early',
        each_choice(_only("finish_reason", (None,), "")),
    ),
    "finish-key-absent": Spelling(
        "vLLM forks send `finish_reason` with the last chunk alone; KeyError before",
        each_choice(_without("finish_reason", (None,))),
    ),
    "ids-change-per-chunk": Spelling(
        "gateways give each chunk an id of its own; readers that group by id see many replies", on_payloads(_ids_change)
    ),
    "created-float": Spelling("some send `created` as a float; strict models refuse it", each_chunk(_created_float)),
    "object-missing": Spelling(
        "gateways leave out `object`; readers that dispatch on it skip every chunk",
        each_chunk(lambda payload: payload.pop("object", None)),
    ),
    "unknown-fields": Spelling(
        "vLLM, SGLang, OpenRouter and others add fields to chunks and choices; strict models refuse them",
        each_chunk(_unknown_fields),
    ),
    "choice-index-missing": Spelling(
        "some leave out the index of the only choice; KeyError", on_payloads(_choices_unnumbered)
    ),
    "error-null": Spelling(
        "some send `error: null` on every chunk; readers that ask whether the key is there give up",
        each_chunk(_set(error=None)),
    ),
    "done-without-brackets": Spelling("some end with `data: DONE`; parsed as JSON it raises", _bare_done),
}
"""What may happen to the chunks of any OpenAI endpoint."""

QUIRKS: Mapping[str, Spelling] = {
    **CALLS,
    **CHUNKS,
    "azure-first-chunk": Spelling(
        "Azure begins with filter results: no choices, blank id and model; `choices[0]` raises IndexError", _azure_first
    ),
    "choice-without-delta": Spelling(
        "Azure's asynchronous filter sends choices without delta, behind the finish reason too; AttributeError, or the reason is erased",
        behind(lambda payload: _has_text(payload) or finishes(payload), _without_delta),
    ),
    "delta-null": Spelling(
        "several send `delta: null` with the finish reason; readers index into it", each_choice(_null_delta)
    ),
    "tool-calls-null": Spelling(
        "Together, vLLM and others send `tool_calls: null`; iterating over it raises TypeError",
        each_delta(_set(tool_calls=None)),
    ),
    "null-fields": Spelling(
        "LiteLLM and others send every field they know as null; readers that ask whether a key is there go wrong",
        each_delta(_set(function_call=None, refusal=None, audio=None)),
    ),
    "role-repeated": Spelling(
        "Together and others send the role on every delta; readers open a message each time",
        each_delta(_set(role="assistant")),
    ),
    "role-null": Spelling(
        "SGLang sends `role: null` on later deltas; the role is overwritten", each_delta(_set(role=None))
    ),
    "role-empty": Spelling('some send `role: ""` on later deltas; the role is overwritten', each_delta(_set(role=""))),
    "role-missing": Spelling(
        "some never send a role; KeyError on the first delta", each_delta(lambda delta: delta.pop("role", None))
    ),
    "content-null": Spelling(
        "LocalAI and others send `content: null` beside reasoning and calls; str + None raises",
        each_delta(_only("content", (None, ""), None)),
    ),
    "content-key-absent": Spelling(
        "llama.cpp leaves out `content` where there is none; KeyError", each_delta(_without("content", (None, "")))
    ),
    "content-list": Spelling(
        "Mistral sends content as a list of parts; str + list raises TypeError", each_delta(_in_list)
    ),
    "content-list-reference": Spelling(
        "Mistral mixes references into the list of parts; readers fail on the part, or lose the text beside it",
        on_payloads(_with_reference),
        more_parts=True,
    ),
    "surrogate-split": Spelling(
        "byte-level tokenisers cut one character between its two escapes over two deltas; lone surrogates cannot be encoded",
        on_payloads(_surrogates_apart),
    ),
    "message-beside-delta": Spelling(
        "Perplexity repeats all that was said in `message` beside every delta; readers append it again",
        on_payloads(_cumulative_message),
    ),
    "message-at-end": Spelling(
        "some end with a whole `message` in place of a delta; AttributeError, or the answer is shown twice",
        on_payloads(_message_at_end),
    ),
    "reasoning-field": Spelling(
        "DeepSeek says `reasoning_content`, vLLM and OpenRouter say `reasoning`; readers of one lose the other",
        each_delta(_other_name),
    ),
    "reasoning-mirrored": Spelling("some send a thought in both fields; readers show it twice", each_delta(_mirrored)),
    "reasoning-details": Spelling(
        "OpenRouter sends a thought in `reasoning` and in `reasoning_details`; readers show it twice",
        each_delta(_detailed),
    ),
    "finish-string-none": Spelling(
        'SGLang sends `finish_reason: "None"` until the end; readers take it for the end',
        each_choice(_only("finish_reason", (None, ""), "None")),
    ),
    "finish-twice": Spelling("some send the finish reason on two chunks; readers finish twice", _finish_again(None)),
    "finish-twice-stop": Spelling(
        "some send `stop` behind `tool_calls`; the last write wins and the calls are never run",
        _finish_again("stop"),
        other_finish=True,
    ),
    "data-after-done": data_after_done(lambda frame: frame.data == "[DONE]", _has_text),
    **EVENT_STREAM,
}
