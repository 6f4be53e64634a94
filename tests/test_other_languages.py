"""Clients that are not Python: each is served a cassette, and each is recorded, and makes of both what our assembler makes of the recording."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stream_cassette.cassette import load
from stream_cassette.cli import main
from stream_cassette.server import serve
from stream_cassette.stream import Stream

CASSETTES = Path(__file__).parent.parent / "cassettes"
CHAT, RESPONSES = CASSETTES / "openai-chat" / "tools.yaml", CASSETTES / "openai-responses" / "tools.yaml"

# Each prints {text, calls: [[id, name, arguments]], reads}.
NODE = """
const OpenAI = require("openai");
const [api, body] = process.argv.slice(1);
const client = new OpenAI({ apiKey: "sk-none" });
let reads = 0;
const counted = async (url, options) => {
  const response = await fetch(url, options);
  const count = new TransformStream({ transform: (data, out) => { reads += 1; out.enqueue(data); } });
  return new Response(response.body.pipeThrough(count), response);
};
const say = (text, calls) => console.log(JSON.stringify({ text, calls, reads }));
const ask = {
  chat: async (client) => {
    const { message } = (await client.chat.completions.stream(JSON.parse(body)).finalChatCompletion()).choices[0];
    say(message.content, message.tool_calls.map((each) => [each.id, each.function.name, each.function.arguments]));
  },
  responses: async (client) => {
    const { output, output_text } = await client.responses.stream(JSON.parse(body)).finalResponse();
    const calls = output.filter((each) => each.type === "function_call");
    say(output_text, calls.map((each) => [each.call_id, each.name, each.arguments]));
  },
};
ask[api](client.withOptions({ fetch: counted }));
"""


CURL = """
curl --silent --show-error --fail --no-buffer --header 'content-type: application/json' --data-binary "$0" "$STREAM_CASSETTE_URL$1"
"""


Client = tuple[str, Path]


@pytest.fixture(params=["curl", "chat", "responses"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Client:
    """curl, or which API the Node package `openai` is to use; and the cassette with what it asks for."""
    name = request.param
    needs = "curl" if name == "curl" else "node"
    if shutil.which(needs) is None:
        pytest.skip(f"there is no {needs}")
    if needs == "node":
        folder = os.environ.get("STREAM_CASSETTE_NODE_MODULES")
        if folder is None:
            pytest.skip("STREAM_CASSETTE_NODE_MODULES does not name a folder in which npm has installed openai")
        monkeypatch.setenv("NODE_PATH", str(Path(folder, "node_modules")))
    return name, RESPONSES if name == "responses" else CHAT


def words(client: Client) -> list[str]:
    """The command of the client, which finds the base URL in its environment."""
    name, cassette = client
    request = recorded(cassette).exchange.request
    if name == "curl":
        return ["sh", "-c", CURL, request.body.decode(), request.url.rpartition("/v1")[2]]
    return ["node", "-e", NODE, name, request.body.decode()]


def recorded(path: Path) -> Stream:
    (interaction,) = load(path).interactions
    return Stream(interaction.exchange, interaction.dialect)


def check(printed: bytes, client: Client) -> None:
    """That the client made of what it got what we make of the recording."""
    name, cassette = client
    stream = recorded(cassette)
    if name == "curl":
        assert printed == stream.body
        return
    said = json.loads(printed)
    assert said["text"] == stream.reply.text
    assert said["calls"] == [[call.id, call.name, call.arguments_text] for call in stream.reply.tool_calls]
    assert len(said["calls"]) == 2
    # However the kernel joined them: it came in pieces.
    assert 1 < said["reads"] <= len(stream.exchange.reads)


@contextmanager
def served(cassette: Path) -> Iterator[str]:
    code = "from stream_cassette.cli import main; raise SystemExit(main())"
    words = [sys.executable, "-c", code, "serve", str(cassette), "--timing", "x0.05"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield re.search(r"http://\S+", process.stdout.readline())[0]
        process.terminate()
        _, _ = process.communicate(timeout=20)
        assert process.returncode == 0


def test_served(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(client[1]) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("STREAM_CASSETTE_URL", f"{url}/v1")
        printed = subprocess.run(words(client), stdout=subprocess.PIPE, check=True, timeout=60).stdout
    check(printed, client)


def test_recorded(client: Client, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stream, path = recorded(client[1]), tmp_path / "recorded.yaml"
    paced = replace(
        stream.exchange, reads=tuple(read._replace(at_ms=read.at_ms // 20) for read in stream.exchange.reads)
    )
    with serve(lambda request: paced) as provider:
        arguments = ["record", "--upstream", f"{provider.url}/v1", "--to", str(path), "--", *words(client)]
        assert main(arguments) == 0
        check(capfdbinary.readouterr().out, client)
    again = recorded(path)
    assert (again.body, again.exchange.ending) == (stream.body, stream.exchange.ending)
    assert [read.data for read in again.exchange.reads] == [read.data for read in stream.exchange.reads]
    assert json.loads(again.exchange.request.body) == json.loads(stream.exchange.request.body)
