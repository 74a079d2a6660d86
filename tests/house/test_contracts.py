"""Each import contract is kept by the tree as it is and broken by one planted module."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("cookie", "workers", "ipc")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
# The rooms that decide and never act. One of them that exists has to stand in its contract.
PURE = {
    "ipc.events",
    "ipc.fold",
    "ipc.peer",
    "ipc.frames",
    "ipc.instants",
    "ipc.plan",
    "ipc.rules",
    "cookie.daemon.roster",
    "cookie.tui.model",
    "workers.permissions.match",
    "workers.run.loops",
    "workers.run.retry",
    "workers.delegation.slots",
}
# What breaks a contract: its name, then modules to write and the one line in each.
PLANTED = [
    ("floors", {"cookie/planted.py": "import workers"}),
    ("floors", {"workers/planted.py": "import cookie"}),
    ("floors", {"ipc/planted.py": "import cookie"}),
    ("rooms of a worker", {"workers/store/planted.py": "import workers.run"}),
    ("rooms of a worker", {"workers/store/planted.py": "import workers.providers"}),
    ("rooms of a worker", {"workers/delegation.py": "import workers.errands"}),
    ("rooms of cookie", {"cookie/config/planted.py": "import cookie.daemon"}),
    ("rooms of cookie", {"cookie/tui.py": "import cookie.daemon"}),
    ("pure rooms do no I/O", {"ipc/events/planted.py": "import asyncio"}),
    (
        "pure rooms do no I/O",
        {"ipc/fold/planted.py": "import ipc.far", "ipc/far.py": "import socket"},
    ),
    ("the supervisor stays light", {"cookie/daemon/planted.py": "import typer"}),
    ("zmq is spoken in one file", {"cookie/planted.py": "import zmq"}),
    ("zmq is spoken in one file", {"workers/run/planted.py": "import zmq"}),
    ("zmq is spoken in one file", {"ipc/planted.py": "import zmq"}),
    ("no cycles", {"ipc/east.py": "import ipc.west", "ipc/west.py": "import ipc.east"}),
]

pytestmark = pytest.mark.house


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the three floors and their contracts."""
    for floor in FLOORS:
        shutil.copytree(
            ROOT / floor, tmp_path / floor, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken(house: Path) -> set[str]:
    """The contracts that lint-imports finds broken in `house`."""
    script = Path(sys.executable).with_name("lint-imports")
    linted = subprocess.run(
        [script, "--no-cache"],
        check=False,
        cwd=house,
        env={"PYTHONPATH": str(house), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    verdicts = dict(re.findall(r"^(.+) (KEPT|BROKEN)\b", linted.stdout, re.MULTILINE))
    assert set(verdicts) == {contract["name"] for contract in CONTRACTS}, linted.stdout
    named = {name for name, verdict in verdicts.items() if verdict == "BROKEN"}
    assert linted.returncode == (1 if named else 0), linted.stdout
    return named


def test_the_tree_as_it_is_keeps_every_contract(house: Path) -> None:
    assert broken(house) == set()


@pytest.mark.parametrize(
    ("contract", "modules"), PLANTED, ids=[f"{name}: {' '.join(files)}" for name, files in PLANTED]
)
def test_a_planted_violation_breaks_its_contract(
    house: Path, contract: str, modules: dict[str, str]
) -> None:
    for name, line in modules.items():
        assert not (house / name).exists(), f"{name} is taken: plant elsewhere"
        (house / name).write_text(f'"""Planted."""\n\n{line}\n')

    # What reaches up often closes a circle too, by the way that leads down.
    found = broken(house)
    assert contract in found
    assert found <= {contract, "no cycles"}


def test_every_contract_has_a_violation_planted() -> None:
    assert {name for name, _ in PLANTED} == {contract["name"] for contract in CONTRACTS}


def test_a_pure_room_stands_in_its_contract_from_the_day_it_exists() -> None:
    (contract,) = (one for one in CONTRACTS if one["name"] == "pure rooms do no I/O")
    paths = {room: ROOT / room.replace(".", "/") for room in PURE}
    there = {
        room for room, path in paths.items() if path.is_dir() or path.with_suffix(".py").exists()
    }

    assert set(contract["source_modules"]) == there
