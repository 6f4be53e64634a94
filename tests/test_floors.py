"""The architecture: which module may import which, and what loading the plugin may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "stream_cassette"

# From the ground up. A module imports from lower floors, and from modules listed before it on its own floor.
FLOORS: list[list[str]] = [
    ["errors", "model"],
    [
        "files",
        "headers",
        "paths",
        "literals",
        "yamltext",
        "jsontext",
        "framing.sse",
        "framing.eventstream",
        "framing.jsonlines",
        "framing",
    ],
    ["lanes", "dialects.base", "dialects.*", "dialects"],
    [
        "schemas",
        "shapes",
        "lenient",
        "arguments",
        "fold",
        "unfold",
        "runs",
        "assembler",
        "usage",
        "extraction",
        "think",
        "redact.*",
        "redact",
        "cassette.*",
        "cassette",
    ],
    ["stream"],
    ["strategies", "mutate.laws", "mutate.base", "mutate.*", "mutate", "mutate.items", "mutate.parsing"],
    [
        "hosts",
        "matching",
        "decoding",
        "recording",
        "keeping",
        "playing",
        "shelf",
        "settling",
        "saving",
        "takes",
        "drift",
        "comparing",
        "tape",
        "active",
    ],
    [
        "settings",
        "clients.*",
        "clients",
        "server",
        "serving",
        "proxy",
        "snapshot",
        "fuzz",
        "gateways",
        "invariants",
        "importing.*",
        "importing",
    ],
    ["hooks", "scan", "orphans", "collecting", "pytest_plugin", "demo", "textconv", "timeline", "cli.*", "cli"],
    [""],
]
# Loaded by one room alone, so that nobody pays for what he does not use.
HEAVY = {
    "jiter": {"jsontext", "lenient"},
    "yaml": {"literals", "scan", "yamltext", "cassette.reading", "importing.values"},
    "filelock": {"files"},
    "jsonschema": {"schemas"},
    "pydantic": {"shapes"},
    "json_repair": {"lenient"},
    "hypothesis": {
        "demo",
        "fuzz",
        "invariants",
        "strategies",
        *(f"mutate.{name}" for name in ("base", "cuts", "damage", "deltas", "faults", "framing", "quirks", "wire")),
    },
    "deepdiff": {"snapshot"},
    "aiohttp": {"clients.aiohttp_wire"},
    "httpx": {"clients.httpx"},
    "httpx2": {"proxy", "gateways", "clients.httpx", "demo"},
    "h11": {"server"},
    "rich": {"demo", "cli.terminal"},
    "pytest": {"pytest_plugin", "hooks", "orphans", "collecting"},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SRC.rglob("*.py"))}


def place(module: str) -> tuple[int, int]:
    """Floor and position on it; `dialects.*` stands for every other module of that folder."""
    for floor, names in enumerate(FLOORS):
        if module in names:
            return floor, names.index(module)
    folder = module.rpartition(".")[0]
    for floor, names in enumerate(FLOORS):
        if f"{folder}.*" in names:
            return floor, names.index(f"{folder}.*")
    raise AssertionError(f"{module} stands on no floor: put it into FLOORS, as low as what it imports allows")


def imports(path: Path, module: str) -> list[str]:
    """Everything a file imports, in functions too; our own modules by their short name, but not those for type checkers alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[str] = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += absolute(node, package)
    return found


def absolute(node: ast.ImportFrom, package: str) -> list[str]:
    base = node.module or ""
    if node.level:
        parents = package.split(".") if package else []
        base = ".".join(["stream_cassette", *parents[: len(parents) - node.level + 1], *base.split(".")]).rstrip(".")
    names = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name.removeprefix("stream_cassette.") in MODULES else base for name in names]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_below(module: str) -> None:
    for imported in imports(MODULES[module], module):
        if imported == "stream_cassette" or not imported.startswith("stream_cassette."):
            continue
        other = imported.removeprefix("stream_cassette.")
        same_folder = place(other) == place(module) and other != module
        assert same_folder or place(other) < place(module), (
            f"{module} imports {other}, which stands above it: move what both need down to floor {place(module)[0]} or lower"
        )


@pytest.mark.parametrize("module", MODULES)
def test_a_heavy_import_stands_in_its_room_alone(module: str) -> None:
    for imported in imports(MODULES[module], module):
        rooms = HEAVY.get(imported.split(".")[0])
        assert rooms is None or module in rooms, f"{module} imports {imported}; only {sorted(rooms or [])} may"


def test_every_room_exists() -> None:
    named = {name for names in FLOORS for name in names if not name.endswith("*")}
    assert named <= set(MODULES)


UNWANTED = ["httpx", "httpx2", "aiohttp", "requests", "hypothesis", "deepdiff", "yaml", "asyncio", "jiter"]


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    code = f"""
import sys
import pytest
before = set(sys.modules)
import stream_cassette.pytest_plugin
print([name for name in {UNWANTED!r} if name in sys.modules and name not in before])
print(sorted(name for name in sys.modules if name.startswith("stream_cassette")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['stream_cassette', 'stream_cassette.pytest_plugin']"]


def test_the_public_names_are_there_and_sorted() -> None:
    import stream_cassette

    assert stream_cassette.__all__ == sorted(stream_cassette.__all__)
    assert set(stream_cassette._HOME) == set(stream_cassette.__all__)
    for name in stream_cassette.__all__:
        assert getattr(stream_cassette, name).__doc__, name
    assert stream_cassette.__version__
    assert "assemble" in dir(stream_cassette)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stream_cassette.nothing
