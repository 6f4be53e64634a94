"""The README's table of clients says what the matrix runs: a cell is a test, or has a reason."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from clients_under_test import CLIENTS, Client
from test_matrix import CELLS, FEATURES, NOT_APPLICABLE

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
BETWEEN = re.compile(r"<!-- clients -->\n(.*?)<!-- /clients -->", re.DOTALL)
YES, NO = "✓", "–"


def minor(package: str) -> str:
    """The installed version as far as the table has it."""
    return ".".join(version(package).split(".")[:2])


def versions(client: Client) -> str:
    return ", ".join(f"{package} {minor(package)}" for package in client.packages)


def row(client: Client, run_with: str) -> list[str]:
    cells = [NO if (client.name, feature) in NOT_APPLICABLE else YES for feature in FEATURES]
    return [f"`{client.name}`", *cells, run_with]


def table(run_with: dict[str, str]) -> str:
    """The table, and what its cells do not say; `run_with` has the versions for each client."""
    head = ["client", *FEATURES, "run with"]
    rows = [head, ["---"] * len(head), *(row(client, run_with[client.name]) for client in CLIENTS)]
    reasons = dict.fromkeys(f"{feature}: {reason}" for (_, feature), reason in NOT_APPLICABLE.items())
    patient = ", ".join(f"`{client.name}`" for client in CLIENTS if not client.retries)
    notes = [
        *(f"{NO} {reason}" for reason in reasons),
        f"{YES} retry: by the code under test, not by the client, with {patient}",
    ]
    return "\n".join([*(f"| {' | '.join(each)} |" for each in rows), "", *(f"- {note}" for note in notes), ""])


def named() -> dict[str, str]:
    """The versions that the README names, by client."""
    between = BETWEEN.search(README)
    assert between, "README.md lacks the lines <!-- clients --> and <!-- /clients -->"
    lines = [line.strip("| ").split(" | ") for line in between[1].splitlines()[2:] if line.startswith("|")]
    return {cells[0].strip("`"): cells[-1] for cells in lines}


def test_the_table_of_the_readme_is_what_the_matrix_runs() -> None:
    said = named()
    wanted = table({client.name: said.get(client.name, versions(client)) for client in CLIENTS})
    assert BETWEEN.search(README)[1] == wanted, f"put this into README.md:\n\n{wanted}"


def test_the_versions_that_the_readme_names_are_not_newer_than_those_that_run_here() -> None:
    """A newer one that is installed is run by the matrix all the same; the README follows by hand."""
    said = named()
    for client in CLIENTS:
        for package, each in (each.rsplit(" ", 1) for each in said[client.name].split(", ")):
            assert package in client.packages
            assert numbers(each) <= numbers(minor(package)), f"{package} {each}"


def numbers(said: str) -> list[int]:
    return [int(number) for number in said.split(".")]


def test_every_cell_is_one_test_or_has_a_reason() -> None:
    names = [client.name for client in CLIENTS]
    assert len(set(names)) == len(names)
    run = [(client.name, feature) for client, feature in (cell.values for cell in CELLS)]
    cells = [(name, feature) for name in names for feature in FEATURES]
    assert sorted([*run, *NOT_APPLICABLE]) == sorted(cells)
