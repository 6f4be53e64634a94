"""How real servers spell the tool calls of OpenAI chat streams otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .. import jsontext
from .base import Spelling, Trait, as_dict, as_int, as_list, as_text
from .openai_chunks import choices_of, opened, said_by, says_nothing
from .spelling import Payload, Rewrite, compact_object, on_payloads

_INDEX: frozenset[Trait] = frozenset(("call_index",))


@dataclass(slots=True)
class _Entry:
    """One entry of a `tool_calls` list: the number of its chunk, the choice there, the entry itself."""

    at: int
    choice: Payload
    entry: Payload

    @property
    def said(self) -> Payload:
        function: Payload = self.entry["custom" if "custom" in self.entry else "function"]
        return function

    @property
    def field(self) -> str:
        return "input" if "custom" in self.entry else "arguments"

    @property
    def text(self) -> str:
        """The piece of arguments that it carries."""
        return as_text(self.said.get(self.field))

    def remove(self) -> None:
        entries = self.choice["delta"]["tool_calls"]
        entries[:] = [entry for entry in entries if entry is not self.entry]
        if not entries:
            del self.choice["delta"]["tool_calls"]


@dataclass(slots=True)
class _Call:
    choice: int
    number: int
    entries: list[_Entry] = field(default_factory=list)

    @property
    def head(self) -> _Entry:
        return self.entries[0]

    @property
    def id(self) -> str:
        return as_text(self.head.entry.get("id"))

    @property
    def name(self) -> str:
        return as_text(self.head.said.get("name"))

    @property
    def text(self) -> str:
        return jsontext.join(entry.text for entry in self.entries)

    @property
    def tells_itself(self) -> bool:
        """Does every entry say the id?"""
        return bool(self.id) and all(each.entry.get("id") == self.id for each in self.entries)

    def is_plain(self) -> bool:
        """Does the head say name and id, and nothing later another?"""
        ids = {each.entry["id"] for each in self.entries if each.entry.get("id")}
        names = {each.said["name"] for each in self.entries if each.said.get("name")}
        texts = [each.said.get(each.field) for each in self.entries]
        plain_text = all(text is None or isinstance(text, str) for text in texts)
        return bool(self.name) and names == {self.name} and ids <= {self.id} and plain_text


def _calls(payloads: list[Payload]) -> list[_Call]:
    """The calls of a stream in which every entry has the index of its call, and its head the name and, if any, the id; else none."""
    calls: dict[tuple[int, int], _Call] = {}
    for at, payload in enumerate(payloads):
        for choice in choices_of(payload):
            for entry in as_list(as_dict(choice.get("delta")).get("tool_calls")):
                index = as_int(as_dict(entry).get("index"))
                if index is None or not isinstance(entry.get("custom", entry.get("function")), dict):
                    return []
                place = as_int(choice.get("index")) or 0, index
                call = calls.setdefault(place, _Call(place[0], index))
                call.entries.append(_Entry(at, choice, entry))
    found = list(calls.values())
    return found if all(call.is_plain() for call in found) else []


def _told_apart(calls: Sequence[_Call], payloads: list[Payload]) -> bool:
    """Can a reader tell whose each entry is without an index: do ids open the calls, and come the calls one after the other?"""
    if not all(call.id for call in calls) or len({call.id for call in calls}) < len(calls):
        return False
    if all(call.tells_itself for call in calls):
        return True
    owners = {id(entry.entry): at for at, call in enumerate(calls) for entry in call.entries}
    order: dict[int, list[int]] = {}
    for payload in payloads:
        for choice in choices_of(payload):
            for entry in as_list(as_dict(choice.get("delta")).get("tool_calls")):
                order.setdefault(as_int(choice.get("index")) or 0, []).append(owners[id(entry)])
    return all(one <= two for numbers in order.values() for one, two in pairwise(numbers))


def _on_calls(change: Callable[[list[_Call], list[Payload]], None], *, apart: bool = False) -> Rewrite:
    """A rewrite that alters the entries of calls, and leaves out the chunks that say nothing more; `apart`: only if the index can be done without."""

    def changed(payloads: list[Payload]) -> list[list[Payload]]:
        empty = [says_nothing(payload) for payload in payloads]
        calls = _calls(payloads)
        if calls and (not apart or _told_apart(calls, payloads)):
            change(calls, payloads)
        return [
            [payload] if was_empty or not says_nothing(payload) else []
            for payload, was_empty in zip(payloads, empty, strict=True)
        ]

    return on_payloads(changed)


def _on_each(change: Callable[[_Call], None]) -> Rewrite:
    def all_of_them(calls: list[_Call], _: list[Payload]) -> None:
        for call in calls:
            change(call)

    return _on_calls(all_of_them)


def _on_later(change: Callable[[_Call, _Entry], None]) -> Rewrite:
    """Alters every entry of a call but its head."""

    def later(call: _Call) -> None:
        for entry in call.entries[1:]:
            change(call, entry)

    return _on_each(later)


# --------------------------------------------------------------------------------------------------------------------- indexes


def _renumber(number: Callable[[int], int], *, apart: bool = False) -> Rewrite:
    """Gives the entries of the call at place n of its choice the index `number(n)`."""

    def change(calls: list[_Call], _: list[Payload]) -> None:
        for at, call in _placed(calls):
            for entry in call.entries:
                entry.entry["index"] = number(at)

    return _on_calls(change, apart=apart)


def _placed(calls: Sequence[_Call]) -> list[tuple[int, _Call]]:
    seen: dict[int, int] = {}
    out = []
    for call in calls:
        out.append((seen.get(call.choice, 0), call))
        seen[call.choice] = out[-1][0] + 1
    return out


def _unnumbered(first: int) -> Rewrite:
    """Takes the index from the calls that come at place `first` of their choice or later."""

    def change(calls: list[_Call], _: list[Payload]) -> None:
        for at, call in _placed(calls):
            if at >= first:
                for entry in call.entries:
                    del entry.entry["index"]

    return _on_calls(change, apart=True)


def _collide(calls: list[_Call], _: list[Payload]) -> None:
    placed = _placed(calls)
    named = any(
        entry.said.get("name") for call in calls for entry in call.entries[1:]
    )  # at another index it may be another call
    for at, call in placed if any(at for at, _ in placed) and not named else []:
        for entry in call.entries:
            entry.entry["id"] = call.id  # without it nothing would tell whose the tail is
        if at:
            call.head.entry["index"] = 0


# -------------------------------------------------------------------------------------------------------------------- identity


def _repeat_identity(call: _Call, entry: _Entry) -> None:
    entry.entry |= {"type": "custom" if "custom" in entry.entry else "function"} | ({"id": call.id} if call.id else {})
    entry.said["name"] = call.name


def _empty_id(call: _Call, entry: _Entry) -> None:
    entry.entry.setdefault("id", "")


def _empty_name(call: _Call, entry: _Entry) -> None:
    entry.said.setdefault("name", "")


def _without_type(call: _Call) -> None:
    for entry in call.entries:
        entry.entry.pop("type", None)


def _in_two(cut: Callable[[str], tuple[str, str] | None]) -> Rewrite:
    """Says a name in two chunks: the head with its first part, and no more, then the rest of the chunk with the second."""

    def changed(payloads: list[Payload]) -> list[list[Payload]]:
        out = [[payload] for payload in payloads]
        for call in _calls(payloads):
            parts = cut(call.name)
            payload = payloads[call.head.at]
            # Only a chunk of its own is torn: then nothing else moves.
            if parts and said_by(payload) <= {"role", "tool_calls"} and _alone(call.head):
                first, entry = parts[0], call.head.entry
                kind = "custom" if "custom" in entry else "function"
                head = {**entry, kind: {**call.head.said, "name": first, call.head.field: ""}}
                rest = {"index": call.number, kind: {"name": parts[1], call.head.field: call.head.text}}
                delta = call.head.choice["delta"]
                out[call.head.at] = [opened(payload, call.head.choice, {**delta, "tool_calls": [head]}), payload]
                call.head.choice["delta"] = {"tool_calls": [rest]}
        return out

    return on_payloads(changed)


def _alone(entry: _Entry) -> bool:
    return len(entry.choice["delta"]["tool_calls"]) == 1


def _fragments(name: str) -> tuple[str, str] | None:
    """Two parts of a name; never two equal ones, of which the second would be a repeat."""
    cuts = ((name[:at], name[at:]) for at in (len(name) // 2, 1))
    return next((cut for cut in cuts if all(cut) and cut[0] != cut[1]), None)


# ------------------------------------------------------------------------------------------------------------------- arguments


def _null(call: _Call) -> None:
    if call.head.said.get(call.head.field) == "":
        call.head.said[call.head.field] = None


def _whole(call: _Call) -> None:
    if any(entry.text for entry in call.entries[1:]):
        _gather(call)


def _gather(call: _Call) -> None:
    call.head.said[call.head.field] = call.text
    for entry in call.entries[1:]:
        entry.remove()
    del call.entries[1:]


def _as_object(call: _Call) -> None:
    value = compact_object(call.text)
    if value is not None and call.head.field == "arguments":
        _gather(call)
        call.head.said["arguments"] = value


def _twice_in_one(call: _Call) -> None:
    """The first piece of the arguments goes into the delta of the head, as an entry of its own with the same index."""
    head, entries = call.head, call.head.choice["delta"]["tool_calls"]
    if head.text:
        piece, head.said[head.field] = head.text, ""
    elif len(call.entries) > 1 and call.entries[1].at > head.at:
        piece = call.entries[1].text
        call.entries[1].remove()
    else:
        return
    kind = "custom" if "custom" in head.entry else "function"
    place = next(at for at, entry in enumerate(entries) if entry is head.entry)
    entries.insert(place + 1, {"index": call.number, kind: {head.field: piece}})


def _in_one(calls: list[_Call], payloads: list[Payload]) -> None:
    """All calls of a choice go whole into the delta of the first, where nothing else is said up to the head of the last."""
    for number in {call.choice for call in calls}:
        first, *others = [call for call in calls if call.choice == number]
        last = max(call.head.at for call in (first, *others))
        between = [
            choice
            for payload in payloads[first.head.at + 1 : last + 1]
            for choice in choices_of(payload)
            if (as_int(choice.get("index")) or 0) == number
        ]
        if not others or said_by({"choices": between}) - {"role", "tool_calls"}:
            continue
        _gather(first)
        for call in others:
            _gather(call)
            if call.head.choice is not first.head.choice:
                call.head.remove()
                first.head.choice["delta"]["tool_calls"].append(call.head.entry)


# ---------------------------------------------------------------------------------------------------------------------- others


def _legacy(payloads: list[Payload]) -> list[list[Payload]]:
    """The one call of a stream, which has no id, in the field that came before `tool_calls`."""
    calls = _calls(payloads)
    plain = len(calls) == 1 and not calls[0].id and calls[0].head.field == "arguments"
    if plain and all(map(_alone, calls[0].entries)):
        for entry in calls[0].entries:
            entry.choice["delta"]["function_call"] = entry.choice["delta"].pop("tool_calls")[0]["function"]
        for payload in payloads:
            _finish_otherwise(payload, "function_call")
    return [[payload] for payload in payloads]


def _stop_beside_calls(payloads: list[Payload]) -> list[list[Payload]]:
    if any(as_dict(choice.get("delta")).get("tool_calls") for payload in payloads for choice in choices_of(payload)):
        for payload in payloads:
            _finish_otherwise(payload, "stop")
    return [[payload] for payload in payloads]


def _finish_otherwise(payload: Payload, reason: str) -> None:
    for choice in choices_of(payload):
        if choice.get("finish_reason") == "tool_calls":
            choice["finish_reason"] = reason


def _signed(call: _Call) -> None:
    call.head.entry["extra_content"] = {"google": {"thought_signature": "c2lnbmF0dXJl"}}


CALLS: Mapping[str, Spelling] = {
    "index-all-zero": Spelling(
        "Gemini's compatible endpoint and LMDeploy number every call 0; only a new id tells, and readers by index glue the calls together",
        _renumber(lambda at: 0, apart=True),
        _INDEX,
    ),
    "index-missing": Spelling(
        "Gemini's compatible endpoint and gateways send no index; readers raise KeyError, or take it for 0",
        _unnumbered(0),
        _INDEX,
    ),
    "index-missing-on-second": Spelling(
        "gateways number the first call alone; the second is glued to it, or lost", _unnumbered(1), _INDEX
    ),
    "index-from-one": Spelling(
        "gateways keep Anthropic's block numbers, where text is 0; lists indexed by it have a hole or raise",
        _renumber(lambda at: at + 1),
    ),
    "index-negative": Spelling(
        "Bedrock Access Gateway sends the block number less one, -1; lists indexed by it take the last call",
        _renumber(lambda at: at - 1),
    ),
    "index-with-gaps": Spelling(
        "gateways keep block numbers with text between the calls; lists indexed by it have holes or raise",
        _renumber(lambda at: 2 * at),
    ),
    "index-head-and-tail-differ": Spelling(
        "gateways open the second call at index 0 and go on at 1, under its id; readers by index glue it to the first",
        _on_calls(_collide, apart=True),
        _INDEX,
    ),
    "identity-repeated": Spelling(
        "Fireworks and others repeat id, type and name on every fragment; readers open a call each time, or join `get_get_`",
        _on_later(_repeat_identity),
    ),
    "id-empty-later": Spelling(
        'DashScope sends `id: ""` on later fragments; readers overwrite the id, or open a call', _on_later(_empty_id)
    ),
    "name-empty-later": Spelling(
        'LM Studio sends `name: ""` on later fragments; readers overwrite the name', _on_later(_empty_name)
    ),
    "name-empty-first": Spelling(
        'vMLX opens a call with `name: ""` and says the name next; readers keep the first, or drop the call',
        _in_two(lambda name: ("", name)),
    ),
    "name-fragmented": Spelling(
        "local servers stream the name in pieces as the model says it; readers keep the first or the last piece",
        _in_two(_fragments),
    ),
    "type-missing": Spelling(
        "several servers leave out `type: function`; strict models refuse it", _on_each(_without_type)
    ),
    "arguments-null": Spelling(
        "vLLM and others open a call with `arguments: null`; None + str raises, or `null` gets into the text",
        _on_each(_null),
    ),
    "arguments-object": Spelling(
        "Ollama, older vLLM and gateways send arguments as an object; str + dict raises, or Python's repr gets into the text",
        _on_each(_as_object),
    ),
    "arguments-whole": Spelling(
        "Groq, Mistral, Gemini and others send a call in one chunk; readers that wait for fragments lose it",
        _on_each(_whole),
    ),
    "same-index-twice-in-one-delta": Spelling(
        "some put the head and its first fragment into one delta as two entries; readers keep one of the two",
        _on_each(_twice_in_one),
    ),
    "two-calls-in-one-delta": Spelling(
        "Mistral and others send all calls in one delta; readers of `tool_calls[0]` lose the rest", _on_calls(_in_one)
    ),
    "thought-signature": Spelling(
        "Gemini's compatible endpoint adds `extra_content` to a call; strict models refuse it", _on_each(_signed)
    ),
    "legacy-function-call": Spelling(
        "older servers send `function_call`, without id or index; readers of `tool_calls` see none",
        on_payloads(_legacy),
        other_finish=True,
    ),
    "stop-beside-calls": Spelling(
        "many local servers finish with `stop` although there are calls; agents that ask the reason never run them",
        on_payloads(_stop_beside_calls),
        other_finish=True,
    ),
}
