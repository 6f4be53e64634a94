"""The door of urllib3 as boto3 goes through it: the streams of Bedrock over loopback, then the same without a server."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import pytest
import urllib3

from stream_cassette import Reply, ToolCall, synthesize
from stream_cassette.cassette import load
from stream_cassette.clients import use
from stream_cassette.errors import CassetteMiss
from stream_cassette.model import COMPLETE, Ending, Exchange, Request, TextPart
from wires import NOWHERE, exchange, recorded, taken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


REPLY = Reply(
    (TextPart("Grüße aus Zürich"), ToolCall(0, id="t1", name="f", arguments_text='{"a": 1}', arguments={"a": 1})),
    "tool_use",
)
SECRET = "c2VjcmV0IGtleSBvZiBBV1M"


@functools.cache
def aws() -> boto3.Session:
    keys = {"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key": SECRET}
    return boto3.Session(**keys, region_name="us-east-1")


@contextmanager
def bedrock(url: str, **config: Any) -> Iterator[Any]:
    settings = botocore.config.Config(retries={"total_max_attempts": 1}, **config)
    with closing(aws().client("bedrock-runtime", endpoint_url=url, config=settings)) as client:
        yield client


def converse(url: str, most: int | None = None, **config: Any) -> Any:
    said = [{"role": "user", "content": [{"text": "hi"}]}]
    with bedrock(url, **config) as client:
        with closing(client.converse_stream(modelId="m", messages=said)["stream"]) as stream:
            return list(itertools.islice(stream, most))


def invoke(url: str, most: int | None = None, **config: Any) -> Any:
    body = json.dumps({"messages": [], "max_tokens": 9})
    with bedrock(url, **config) as client:
        with closing(client.invoke_model_with_response_stream(modelId="m", body=body)["body"]) as stream:
            return list(itertools.islice(stream, most))


BEDROCK = {"bedrock-converse": converse, "bedrock-invoke": invoke}


@pytest.mark.parametrize("dialect", BEDROCK)
def test_boto3_gets_the_same_events_from_the_recording(path: Path, dialect: str) -> None:
    def answer(request: Request) -> Exchange:
        return synthesize(REPLY, dialect, request=request, lossy=True).exchange

    client = BEDROCK[dialect]
    live, replayed = taken(path, answer, client)
    assert live == replayed
    assert len(live) > 5
    assert recorded(path).ending == COMPLETE
    text = path.read_text()
    assert "AKIA" not in text
    assert "Signature" not in text
    assert "authorization" not in text.lower()
    url = load(path).interactions[0].exchange.request.url.partition("/model")[0]
    with use(path) as tape:
        assert client(url, most=2) == live[:2]
        assert tape.reply.text == REPLY.text
        assert [each.state for each in tape.responses] == ["closed"]


@pytest.mark.parametrize("how", [Ending("disconnected", "protocol"), Ending("disconnected", "read"), Ending("stalled")])
def test_boto3_meets_a_body_that_does_not_end_well(path: Path, how: Ending) -> None:
    whole = synthesize(REPLY, "bedrock-converse", lossy=True).exchange

    def client(url: str) -> str:
        try:
            return str(converse(url, read_timeout=0.5 if how.kind == "stalled" else 60))
        except (urllib3.exceptions.HTTPError, botocore.exceptions.BotoCoreError) as error:
            return type(error).__name__

    broken = exchange(*(read.data for read in whole.reads[:3]), headers=whole.headers, ending=how)
    live, replayed = taken(path, broken, client)
    assert live == replayed
    assert live.endswith("Error")
    assert recorded(path).ending == how


def test_boto3_meets_an_error_status(path: Path) -> None:
    said = (("content-type", "application/json"), ("x-amzn-errortype", "ThrottlingException"))

    def client(url: str) -> str:
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            converse(url)
        return str(caught.value)

    live, replayed = taken(path, exchange(b'{"message": "slow down"}', status=429, headers=said), client)
    assert live == replayed
    assert "ThrottlingException" in live


def test_boto3_gets_a_miss(path: Path) -> None:
    with pytest.raises(CassetteMiss, match=r"POST http://127\.0\.0\.1:9/model/m/converse-stream"), use(path):
        converse(NOWHERE)


def test_boto3_waits_for_leave_to_send_the_body_when_it_is_live_only(path: Path) -> None:
    """`Expect: 100-continue`, which S3's clients send."""

    def client(url: str) -> Any:
        with bedrock(url) as runtime:
            headers = lambda request, **_: request.headers.add_header("Expect", "100-continue")
            runtime.meta.events.register("before-sign.bedrock-runtime.InvokeModel", headers)
            return runtime.invoke_model(modelId="m", body=b"{}")["body"].read()

    live, replayed = taken(path, lambda request: exchange(request.body), client)
    assert live == replayed == b"{}"
