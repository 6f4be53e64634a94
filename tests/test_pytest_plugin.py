"""The plugin as its user meets it: pytest runs a project of its own, against a live provider on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deepdiff  # noqa: F401 - loaded here, so that not every run in this process loads it anew
import httpx  # noqa: F401
import httpx2  # noqa: F401
import pytest

import stream_cassette.clients
import stream_cassette.settings
import stream_cassette.snapshot  # noqa: F401
from stream_cassette import Reply, pytest_plugin, serve, synthesize
from stream_cassette.cassette import load, update
from stream_cassette.model import Cassette, Exchange, Interaction, Request, TextPart, ToolCall, Usage
from stream_cassette.server import Server

REPLY = Reply(
    (
        TextPart("Sunny."),
        ToolCall(0, id="a", name="get_weather", arguments_text='{"city":"Pune"}', arguments={"city": "Pune"}),
    ),
    "tool_calls",
    Usage(12, 3, 15),
    ended=True,
)

AGENT = """
import os
import httpx2

def ask(question="Weather in Pune?"):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}
    headers = {"authorization": "Bearer sk-very-secret"}
    with httpx2.stream("POST", os.environ["PROVIDER"] + "/v1/chat/completions", json=body, headers=headers) as response:
        return list(response.iter_raw())
"""

TEST = """
import pytest
from agent import ask

@pytest.mark.stream_cassette
def test_weather(stream_cassette):
    reads = ask()
    assert stream_cassette.reply.tool_calls[0].arguments == {"city": "Pune"}
    assert stream_cassette.reads == tuple(reads)
"""


def answer(request: Request) -> Exchange:
    return synthesize(REPLY, "openai-chat", request=request).exchange


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makepyfile(agent=AGENT)
    pytester.makeini(
        "[pytest]\ntestpaths = tests\npythonpath = .\naddopts = --strict-markers -p no:cacheprovider -p no:xdist -p no:hypothesispytest -p no:asyncio -p no:randomly -p no:rerunfailures -p no:timeout\n"
    )
    (pytester.path / "tests").mkdir()
    monkeypatch.setenv("PROVIDER", "http://127.0.0.1:9")
    return pytester


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serve(answer, paced=False) as server:
        monkeypatch.setenv("PROVIDER", server.url)
        yield server


def write(project: pytest.Pytester, text: str, name: str = "tests/test_agent.py") -> Path:
    path = project.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_inprocess(*arguments)


def test_record_once_replay_ever_after(project: pytest.Pytester, provider: Server) -> None:
    write(project, TEST)
    run(project, "--stream-record=once").assert_outcomes(passed=1)
    path = project.path / "cassettes" / "test_agent" / "test_weather.yaml"
    (interaction,) = load(path).interactions
    assert interaction.test == "tests/test_agent.py::test_weather"
    assert "sk-very-secret" not in path.read_text()
    assert len(provider.requests) == 1
    run(project).assert_outcomes(passed=1)
    run(project, "--stream-record=once").assert_outcomes(passed=1)
    assert len(provider.requests) == 1
    run(project, "--stream-record=all").assert_outcomes(passed=1)
    assert len(provider.requests) == 2


def test_without_a_cassette_the_error_is_the_command_that_records_it(project: pytest.Pytester) -> None:
    write(project, TEST)
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*CassetteMiss*", "*mend:*pytest tests/test_agent.py::test_weather --stream-record=once"]
    )


def test_a_changed_prompt_is_a_miss_that_shows_the_difference(project: pytest.Pytester, provider: Server) -> None:
    path = write(project, TEST)
    run(project, "--stream-record=once").assert_outcomes(passed=1)
    path.write_text(TEST.replace("ask()", "ask('Weather in Delhi?')"))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*messages[[]0[]].content*Pune*Delhi*", "*--stream-record=all*"])


@pytest.mark.parametrize(
    "ask",
    [
        "try:\n        ask()\n    except BaseException:\n        pass",
        "import threading\n    t = threading.Thread(target=quiet)\n    t.start()\n    t.join()",
        "import asyncio\n    asyncio.run(hidden())",
        "ask()\n    assert False, 'another failure'",
        "try:\n        ask()\n    except BaseException:\n        raise ValueError('wrapped')",
    ],
)
def test_a_miss_fails_the_test_whatever_the_code_does_with_it(project: pytest.Pytester, ask: str) -> None:
    write(
        project,
        f"""
import pytest
from agent import ask

def quiet():
    try:
        ask()
    except BaseException:
        pass

async def hidden():
    import asyncio
    await asyncio.gather(asyncio.to_thread(quiet))

@pytest.mark.stream_cassette
def test_weather():
    {ask}
""",
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*CassetteMiss*no recorded interaction answers POST*"])


def test_a_miss_after_the_test_has_ended_fails_its_teardown(project: pytest.Pytester) -> None:
    write(
        project,
        """
import pytest
from agent import ask

@pytest.fixture
def late(stream_cassette):
    yield
    try:
        ask()
    except BaseException:
        pass

def test_weather(late, stream_cassette):
    stream_cassette.used = True
""",
    )
    result = run(project)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*CassetteMiss*"])


def test_a_marked_test_that_intercepts_nothing_fails(project: pytest.Pytester) -> None:
    write(project, "import pytest\n\n@pytest.mark.stream_cassette\ndef test_nothing():\n    pass\n")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*NothingIntercepted*made no request*", "*where: tests/test_agent.py::test_nothing"])


def test_exit_and_skip_are_left_alone(project: pytest.Pytester) -> None:
    write(project, "import pytest\n\n@pytest.mark.stream_cassette\ndef test_skipped():\n    pytest.skip('not today')\n")
    run(project).assert_outcomes(skipped=1)
    write(project, "import pytest\n\n@pytest.mark.stream_cassette\ndef test_exit():\n    pytest.exit('enough')\n")
    assert run(project).ret == pytest.ExitCode.INTERRUPTED


def test_what_the_cassette_says_was_assembled_is_checked(project: pytest.Pytester, provider: Server) -> None:
    write(project, TEST)
    run(project, "--stream-record=once").assert_outcomes(passed=1)
    path = project.path / "cassettes" / "test_agent" / "test_weather.yaml"
    before, after = path.read_text().split("  assembled:\n")
    path.write_text(f"{before}  assembled:\n{after.replace('Sunny.', 'Rainy.')}")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssembledDiffers*", "*Rainy.*Sunny.*"])


def test_a_cassette_made_without_a_provider_is_read_without_a_request(project: pytest.Pytester) -> None:
    stream = synthesize(REPLY, "openai-chat")
    path = project.path / "cassettes" / "shared" / "weather.yaml"
    update(path, lambda _: Cassette((Interaction(stream.exchange),)))
    write(
        project,
        """
import pytest
from stream_cassette import assemble

@pytest.mark.stream_cassette("shared/weather")
def test_by_position(stream_cassette):
    assert assemble(stream_cassette.reads).text == "Sunny."

@pytest.mark.stream_cassette(name="shared/weather")
class TestClass:
    def test_by_name(self, stream_cassette):
        assert stream_cassette.reply.text == "Sunny."
""",
    )
    run(project).assert_outcomes(passed=2)


def test_the_mode_comes_from_option_then_marker_then_fixture_then_ini(
    project: pytest.Pytester, provider: Server
) -> None:
    text = """
import pytest

@pytest.fixture
def stream_cassette_config():
    return {"dir": "elsewhere", "mode": FIXTURE}

@pytest.mark.stream_cassette(mode=MARKER)
def test_mode(stream_cassette):
    stream_cassette.used = True
    assert stream_cassette.mode == EXPECTED
    assert "elsewhere" in str(stream_cassette.path)
"""
    for fixture, marker, option, expected in [
        (None, None, None, "none"),
        ("once", None, None, "once"),
        ("once", "new", None, "new"),
        ("once", "new", "all", "all"),
    ]:
        write(project, f"FIXTURE, MARKER, EXPECTED = {fixture!r}, {marker!r}, {expected!r}\n{text}")
        run(project, *([f"--stream-record={option}"] if option else [])).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("mode='sometimes'", "*there is no mode 'sometimes'*"),
        ("speed=2", "*has no setting speed*"),
        ("'a', 'b'", "*takes one name, not 2*"),
        ("'a', name='b'", "*takes one name, not 2*"),
        ("7", "*the name of a cassette is a string, not 7*"),
        ("name=['a']", "*the name of a cassette is a string, not [[]'a']*"),
        ("''", "*is no cassette inside the cassette directory*"),
        ("'../../secret'", "*is no cassette inside the cassette directory*"),
    ],
)
def test_a_wrong_marker_says_what_is_wrong(project: pytest.Pytester, marker: str, says: str) -> None:
    write(project, f"import pytest\n\n@pytest.mark.stream_cassette({marker})\ndef test_it():\n    pass\n")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([says, "*mend:*"])


def test_markers_add_up_and_the_closest_wins(project: pytest.Pytester) -> None:
    write(
        project,
        """
import pytest

pytestmark = pytest.mark.stream_cassette(mode="once", ignore=["a"])

@pytest.mark.stream_cassette(ignore=["b"])
class TestClass:
    @pytest.mark.stream_cassette("x")
    def test_near(self, stream_cassette):
        stream_cassette.used = True
        assert (stream_cassette.mode, stream_cassette.path.name) == ("once", "x.yaml")
        assert stream_cassette._ignore == (("b",),)

    @pytest.mark.stream_cassette(mode="new", name=None)
    def test_nearer(self, stream_cassette):
        stream_cassette.used = True
        assert (stream_cassette.mode, stream_cassette.path.name) == ("new", "TestClass.test_nearer.yaml")
""",
    )
    run(project).assert_outcomes(passed=2)


def test_a_configuration_that_is_none(project: pytest.Pytester) -> None:
    write(
        project,
        "import pytest\n\n@pytest.fixture\ndef stream_cassette_config():\n    return ['once']\n\ndef test_it(stream_cassette):\n    pass\n",
    )
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*stream_cassette_config gave list, not a mapping*", "*mend:*"])


@pytest.mark.parametrize("setting", ["stream_record=sometimes", "stream_cassette_unplayed=maybe"])
def test_an_ini_file_that_is_wrong_is_told_at_once(project: pytest.Pytester, setting: str) -> None:
    write(project, TEST)
    result = run(project, "-o", setting)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    name, _, value = setting.partition("=")
    result.stderr.fnmatch_lines([f"ERROR: {name} cannot be '{value}': use one of *"])


def test_a_shared_cassette_of_which_one_test_alone_was_recorded(project: pytest.Pytester, provider: Server) -> None:
    text = "".join(
        f"\n@pytest.mark.stream_cassette('shared')\ndef test_{name}(stream_cassette):\n    ask()\n" for name in "abc"
    )
    write(project, f"import pytest\nfrom agent import ask\n{text}")
    run(project, "--stream-record=once", "tests/test_agent.py::test_a").assert_outcomes(passed=1)
    result = run(project)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*mend:  pytest tests/test_agent.py::test_b --stream-record=all",
            "E *(--stream-record=new keeps what is recorded and adds what is missing)",
            "E *or, to share it with every test, delete the line `test: tests/test_agent.py::test_a` of interaction 1",
        ]
    )
    path = project.path / "cassettes" / "shared.yaml"
    path.write_text(path.read_text().replace("- test: tests/test_agent.py::test_a\n  request", "- request"))
    run(project).assert_outcomes(passed=3)


def test_a_miss_is_shown_with_the_users_own_lines_alone(project: pytest.Pytester) -> None:
    write(
        project,
        "import openai\n\ndef ask():\n    client = openai.OpenAI(api_key='k', base_url='http://127.0.0.1:9')\n    return client.models.list()\n",
        "sdk.py",
    )
    cases = {
        "straight": ("ask()", []),
        "swallowed": ("try:\n        ask()\n    except BaseException:\n        pass", []),
        "wrapped": (
            "try:\n        ask()\n    except BaseException:\n        raise ValueError('no\\nanswer')",
            ["E *then:  ValueError: no"],
        ),
        "wrapped without a word": (
            "try:\n        ask()\n    except BaseException:\n        raise ValueError",
            ["E *then:  ValueError"],
        ),
    }
    for name, (code, notes) in cases.items():
        write(
            project, f"import pytest\nfrom sdk import ask\n\n@pytest.mark.stream_cassette\ndef test_it():\n    {code}\n"
        )
        result = run(project)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["E *CassetteMiss: no recorded interaction answers GET http://127.0.0.1:9/models", *notes]
        )
        result.stdout.fnmatch_lines(["FAILED tests/test_agent.py::test_it - stream_cassette.errors.CassetteMiss: no*"])
        result.stdout.no_fnmatch_line("*site-packages*")
        result.stdout.no_fnmatch_line("*stream_cassette/tape.py*")
        assert "sdk.py:5" in str(result.stdout), name
        assert len(result.outlines) < 45, name


def test_the_mode_in_the_ini_file(project: pytest.Pytester, provider: Server) -> None:
    write(project, TEST)
    run(project, "-o", "stream_record=once", "-o", "stream_cassette_dir=tapes").assert_outcomes(passed=1)
    assert (project.path / "tapes" / "test_agent" / "test_weather.yaml").exists()


def test_modules_of_one_name_and_odd_test_names_have_files_of_their_own(
    project: pytest.Pytester, provider: Server
) -> None:
    text = TEST.replace(
        "@pytest", '@pytest.mark.parametrize("x", ["a/b", "a:b", "ö", "' + "long" * 60 + '"])\n@pytest'
    ).replace("(stream_cassette)", "(stream_cassette, x)")
    write(project, text, "tests/one/test_agent.py")
    write(project, text, "tests/two/test_agent.py")
    run(project, "--stream-record=once", "--import-mode=importlib").assert_outcomes(passed=8)
    files = sorted(str(path.relative_to(project.path)) for path in project.path.glob("cassettes/*/test_agent/*.yaml"))
    assert len(files) == 8
    assert max(len(Path(name).name) for name in files) < 120
    run(project, "--import-mode=importlib").assert_outcomes(passed=8)


def test_two_test_folders_keep_their_names(project: pytest.Pytester, provider: Server) -> None:
    write(project, TEST, "one/test_agent.py")
    write(project, TEST, "two/test_agent.py")
    run(project, "--stream-record=once", "--import-mode=importlib", "-o", "testpaths=one two").assert_outcomes(passed=2)
    for folder in ("one", "two"):
        assert (project.path / "cassettes" / folder / "test_agent" / "test_weather.yaml").exists()


def test_parameters_that_differ_in_separators_have_files_of_their_own(
    project: pytest.Pytester, provider: Server
) -> None:
    text = TEST.replace("@pytest", '@pytest.mark.parametrize("x", ["a::b", "a.b"])\n@pytest').replace(
        "(stream_cassette)", "(stream_cassette, x)"
    )
    write(project, text)
    run(project, "--stream-record=once").assert_outcomes(passed=2)
    assert len(list(project.path.glob("cassettes/test_agent/*.yaml"))) == 2


def test_a_module_outside_the_test_folders(project: pytest.Pytester, provider: Server) -> None:
    write(project, TEST, "checks/test_agent.py")
    run(project, "--stream-record=once", "checks").assert_outcomes(passed=1)
    assert (project.path / "cassettes" / "checks" / "test_agent" / "test_weather.yaml").exists()


# ----------------------------------------------------------------------------------------------------------------- snapshots

SNAPSHOT_TEST = """
import pytest
from stream_cassette import assemble
from agent import ask

@pytest.mark.stream_cassette
def test_weather(stream_cassette, stream_snapshot):
    reply = assemble(ask())
    assert reply == stream_snapshot
    assert {"calls": [call.name for call in reply.tool_calls]} == stream_snapshot
"""


def test_snapshots_are_written_only_when_asked(project: pytest.Pytester, provider: Server) -> None:
    path = write(project, SNAPSHOT_TEST)
    result = run(project, "--stream-record=once")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no snapshot*", "*--stream-snapshot-update*"])
    stored = project.path / "cassettes" / "test_agent" / "test_weather.snap.yaml"
    assert not stored.exists()
    run(project, "--stream-snapshot-update").assert_outcomes(passed=1)
    before = stored.read_text()
    assert "text: Sunny." in before
    run(project).assert_outcomes(passed=1)
    path.write_text(SNAPSHOT_TEST.replace("call.name for", "call.id for"))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*get_weather*", "*--stream-snapshot-update*"])
    assert stored.read_text() == before
    run(project, "--stream-snapshot-update").assert_outcomes(passed=1)
    assert stored.read_text() != before
    run(project).assert_outcomes(passed=1)


def test_an_assertion_without_a_snapshot_is_explained_by_pytest(project: pytest.Pytester) -> None:
    write(project, "def test_it(stream_snapshot):\n    assert 1 == 2\n")
    result = run(project)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])


# ------------------------------------------------------------------------------------------------------------------- orphans


def test_orphans_are_listed(project: pytest.Pytester, provider: Server) -> None:
    path = write(project, TEST)
    run(project, "--stream-record=once").assert_outcomes(passed=1)
    folder = project.path / "cassettes"
    ownerless = Cassette((Interaction(synthesize(REPLY, "openai-chat").exchange),))
    update(folder / "by_use.yaml", lambda _: ownerless)
    update(
        folder / "lost.yaml",
        lambda _: Cassette((Interaction(ownerless.interactions[0].exchange, "tests/gone.py::test"),)),
    )
    (folder / "broken.yaml").write_text("format: [")
    (folder / "test_agent" / "lost.snap.yaml").write_text("format: 1\nsnapshots: []\n")
    (folder / "test_agent" / ".x.yaml.0123456789ab.tmp").touch()
    write(
        project,
        "import pytest\n\n@pytest.mark.stream_cassette('../x')\ndef test_bad():\n    pass\n\ndef test_other():\n    pass\n",
        "tests/test_bad.py",
    )
    result = run(project, "--stream-orphans", "--collect-only")
    result.stdout.fnmatch_lines(
        [
            "*cassettes and snapshots without a test*",
            "cassettes/broken.yaml: not YAML*",
            "cassettes/by_use.yaml: no test names it; code that calls use(...) may",
            "cassettes/lost.yaml: a cassette of no test",
            "cassettes/test_agent/lost.snap.yaml: a snapshot of no test",
            "cassettes/test_agent/.x.yaml.0123456789ab.tmp: left by a process that was killed while it saved",
        ],
        consecutive=True,
    )
    result.stdout.no_fnmatch_line("*test_weather.yaml*")
    result.stdout.no_fnmatch_line("*were collected*")
    path.unlink()
    result = run(project, "--stream-orphans", "--collect-only", "tests/test_bad.py")
    result.stdout.fnmatch_lines(
        [
            "cassettes/test_agent/test_weather.yaml: a cassette of no test",
            "only the tests in *test_bad.py were collected*",
        ]
    )


def test_snapshots_that_nothing_is_compared_with_are_told(project: pytest.Pytester) -> None:
    path = write(
        project, "def test_it(stream_snapshot):\n    assert 1 == stream_snapshot\n    assert 2 == stream_snapshot\n"
    )
    run(project, "--stream-snapshot-update").assert_outcomes(passed=1)
    path.write_text("def test_it(stream_snapshot):\n    assert 1 == stream_snapshot\n")
    result = run(project)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*test_it.snap.yaml: nothing was compared with 1 of its snapshots; remove them: *--stream-snapshot-update"]
    )
    run(project, "--stream-snapshot-update").assert_outcomes(passed=1)
    run(project).stdout.no_fnmatch_line("*nothing was compared*")


@pytest.mark.parametrize(
    ("nodeid", "marks", "expected"),
    [
        ("a.py::test[x@y]", [], "a.py::test[x@y]"),
        ("a.py::test@one", [pytest.mark.xdist_group("one")], "a.py::test"),
        ("a.py::test@one", [pytest.mark.xdist_group(name="one")], "a.py::test"),
        ("a.py::test@default", [pytest.mark.xdist_group()], "a.py::test"),
        ("a.py::test@a_b", [pytest.mark.xdist_group("b"), pytest.mark.xdist_group("a")], "a.py::test"),
    ],
)
def test_a_group_of_xdist_is_no_part_of_a_name(nodeid: str, marks: list[pytest.MarkDecorator], expected: str) -> None:
    item: Any = SimpleNamespace(nodeid=nodeid, iter_markers=lambda name: [mark.mark for mark in marks])
    assert pytest_plugin._nodeid(item) == expected


def test_a_fixture_of_a_wider_scope_is_told_what_to_do(project: pytest.Pytester) -> None:
    write(
        project,
        "import pytest\n\n@pytest.fixture(scope='module')\ndef wide(stream_cassette):\n    pass\n\ndef test_it(wide):\n    pass\n",
    )
    run(project).stdout.fnmatch_lines(
        ["*ScopeMismatch*", "*with stream_cassette.use('cassettes/NAME.yaml', mode='once') as tape: ..."]
    )
