"""How real servers spell Gemini streams otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..model import Frame
from .base import Spelling, as_dict, as_list, payload_of
from .spelling import EVENT_STREAM, Payload, Rewrite, done_sentinel, each, is_event, on_payloads

_SIGNATURE = "thoughtSignature"


def _candidate(payload: Payload) -> Payload:
    """The only candidate of a chunk; empty where there are several or none."""
    candidates = as_list(payload.get("candidates"))
    return as_dict(candidates[0]) if len(candidates) == 1 else {}


def _parts(payload: Payload) -> list[Payload]:
    return as_list(as_dict(_candidate(payload).get("content")).get("parts"))


def _reason(payload: Payload) -> object:
    return _candidate(payload).get("finishReason")


def _each_candidate(change: Callable[[Payload], None]) -> Rewrite:
    def all_of_them(payload: Payload) -> None:
        for candidate in as_list(payload.get("candidates")):
            change(as_dict(candidate))

    return each(all_of_them)


def _joined(payloads: list[Payload]) -> list[list[Payload]]:
    """The parts of two chunks in the second, where the first says nothing else that the second does not say again."""
    out: list[list[Payload]] = []
    for payload in payloads:
        last = out[-1][0] if out and len(out[-1]) == 1 else {}
        alone = set(_candidate(last)) <= {"content", "index", "role"} and not as_dict(last.get("promptFeedback"))
        same = _candidate(last).get("index") == _candidate(payload).get("index")
        if _parts(last) and _parts(payload) and alone and same and set(last) <= set(payload) and len(_parts(last)) == 1:
            content = _candidate(payload)["content"]
            content["parts"] = [*_parts(last), *content["parts"]]
            if "usageMetadata" in payload:
                payload["usageMetadata"] = {**as_dict(last.get("usageMetadata")), **as_dict(payload["usageMetadata"])}
            out[-1] = []
        out.append([payload])
    return out


def _torn(payloads: list[Payload]) -> list[list[Payload]]:
    """Each part in a chunk of its own; whatever else a chunk says stays with the last."""
    out = []
    for payload in payloads:
        *first, _ = _parts(payload) or [{}]
        content = as_dict(_candidate(payload).get("content"))
        index = {"index": _candidate(payload)["index"]} if "index" in _candidate(payload) else {}
        envelope = {name: payload[name] for name in ("modelVersion", "responseId") if name in payload}
        new = [{**envelope, "candidates": [{**index, "content": {**content, "parts": [part]}}]} for part in first]
        if first:
            content["parts"] = content["parts"][-1:]
        out.append([*new, payload])
    return out


def _late_stop(payloads: list[Payload]) -> list[list[Payload]]:
    """The finish reason, and the usage beside it, in a chunk with an empty text."""
    out = [[payload] for payload in payloads]
    places = [at for at, payload in enumerate(payloads) if _reason(payload)]
    if len(places) == 1 and any(part != {"text": ""} for part in _parts(payloads[places[0]])):
        at = places[0]
        last = {
            **payloads[at],
            "candidates": [{**_candidate(payloads[at]), "content": {"role": "model", "parts": [{"text": ""}]}}],
        }
        candidate = _candidate(payloads[at])
        for name in set(candidate) - {"content", "index"}:
            del candidate[name]
        payloads[at].pop("usageMetadata", None)
        out[at].append(last)
    return out


def _always_stop(payloads: list[Payload]) -> list[list[Payload]]:
    """`STOP` on every chunk of a reply that ends with it."""
    if [_reason(payload) for payload in payloads if _reason(payload)][-1:] == ["STOP"]:
        for payload in payloads:
            if _candidate(payload):
                _candidate(payload)["finishReason"] = "STOP"
    return [[payload] for payload in payloads]


def _as_number(candidate: Payload) -> None:
    numbers = {"STOP": 1, "MAX_TOKENS": 2, "SAFETY": 3, "RECITATION": 4}
    if candidate.get("finishReason") in numbers:
        candidate["finishReason"] = numbers[candidate["finishReason"]]


def _usage_last(payloads: list[Payload]) -> list[list[Payload]]:
    """All counts on the last chunk that has some, and on no other."""
    places = [at for at, payload in enumerate(payloads) if as_dict(payload.get("usageMetadata"))]
    counts: Payload = {}
    for at in places:
        counts |= payloads[at].pop("usageMetadata")
    if places:
        payloads[places[-1]]["usageMetadata"] = counts
    return [[payload] for payload in payloads]


def _usage_everywhere(payloads: list[Payload]) -> list[list[Payload]]:
    """The counts of the prompt on every chunk before the one with all."""
    places = [at for at, payload in enumerate(payloads) if as_dict(payload.get("usageMetadata"))]
    prompt = as_dict(payloads[places[0]]["usageMetadata"]).get("promptTokenCount") if places else None
    for payload in payloads[: places[0]] if prompt is not None else []:
        payload["usageMetadata"] = {"promptTokenCount": prompt}
    return [[payload] for payload in payloads]


def _usage_apart(payloads: list[Payload]) -> list[list[Payload]]:
    """The last counts in a chunk without candidates."""
    out = [[payload] for payload in payloads]
    places = [at for at, payload in enumerate(payloads) if as_dict(payload.get("usageMetadata"))]
    if places and _candidate(last := payloads[places[-1]]):
        out[places[-1]].append(
            {name: value for name, value in last.items() if name not in ("candidates", "promptFeedback")}
        )
        del last["usageMetadata"]
    return out


def _signature_apart(payload: Payload) -> None:
    """The signature of a text in an empty part behind it."""
    for at, part in reversed(list(enumerate(_parts(payload)))):
        part = as_dict(part)
        if part.get("text") and part.get(_SIGNATURE) and not part.get("thought"):
            _parts(payload).insert(at + 1, {"text": "", _SIGNATURE: part.pop(_SIGNATURE)})


def _empty_texts(payload: Payload) -> None:
    if parts := _parts(payload):
        parts.append({"text": ""})


def _no_parts(candidate: Payload) -> None:
    content = as_dict(candidate.get("content"))
    if candidate.get("finishReason") and content.get("parts") in ([], [{"text": ""}]):
        del content["parts"]


def _no_content(candidate: Payload) -> None:
    content = as_dict(candidate.get("content"))
    if candidate.get("finishReason") and content.get("parts", []) in ([], [{"text": ""}]):
        candidate.pop("content", None)


def _rated(candidate: Payload) -> None:
    ratings = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]
    candidate |= {"safetyRatings": ratings, "avgLogprobs": -0.25}


def _in_array(frames: Sequence[Frame]) -> list[list[Frame]]:
    """One JSON array in place of events; what carries no data goes."""
    places = [at for at, frame in enumerate(frames) if isinstance(payload_of(frame), dict) and is_event(frame)]
    others = [frame for at, frame in enumerate(frames) if at not in places]
    if not places or any(frame.data is not None or payload_of(frame) is not None for frame in others):
        return [[frame] for frame in frames]
    out: list[list[Frame]] = [[] for _ in frames]
    for at in places:
        lead = b"[" if at == places[0] else b"\n,\r\n"
        out[at] = [frames[at]._replace(raw=lead + (frames[at].data or "").encode())]
    out[places[-1]].append(Frame(b"\n]\n"))
    return out


QUIRKS: Mapping[str, Spelling] = {
    "several-parts-per-chunk": Spelling(
        "Gemini may put several parts into one chunk; readers of `parts[0]` lose the rest", on_payloads(_joined)
    ),
    "one-part-per-chunk": Spelling(
        "Vertex sends parallel calls in chunks of their own; the last write wins", on_payloads(_torn)
    ),
    "late-stop": Spelling(
        "Gemini sends the finish reason with an empty text; readers take it for an empty answer",
        on_payloads(_late_stop),
    ),
    "stop-on-every-chunk": Spelling(
        "older models say `STOP` on every chunk; readers stop after the first", on_payloads(_always_stop)
    ),
    "finish-as-number": Spelling(
        "Vertex clients may pass on the number of the reason; readers know words alone", _each_candidate(_as_number)
    ),
    "usage-on-last-only": Spelling(
        "some models send usage at the end alone; KeyError before", on_payloads(_usage_last)
    ),
    "usage-on-every-chunk": Spelling(
        "most models send usage on every chunk, first of the prompt alone; readers add it up",
        on_payloads(_usage_everywhere),
    ),
    "usage-without-candidates": Spelling(
        "usage may come in a chunk without candidates; `candidates[0]` raises", on_payloads(_usage_apart)
    ),
    "signature-in-empty-part": Spelling(
        "Gemini signs a text in an empty part behind it; readers that skip empty texts lose the signature",
        each(_signature_apart),
    ),
    "empty-text-parts": Spelling(
        "Gemini sends parts with an empty text; readers open a part for each", each(_empty_texts)
    ),
    "content-without-parts": Spelling(
        "the last chunk may have a content without parts; KeyError", _each_candidate(_no_parts)
    ),
    "candidate-without-content": Spelling(
        "the last chunk may have a candidate without content; KeyError", _each_candidate(_no_content)
    ),
    "safety-ratings": Spelling("Vertex rates every chunk; strict models refuse the fields", _each_candidate(_rated)),
    "json-array": Spelling(
        "proxies drop `alt=sse`, and the body is one JSON array; readers of events see nothing, or wait for its end",
        _in_array,
    ),
    "done-sentinel": done_sentinel(lambda payload: bool(_reason(payload))),
    **EVENT_STREAM,
}
