"""`cookie doctor`: a healthy house, each thing that can be wrong with one, and no secret."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.lockers import HOLD, running, said
from tests.house.runs import COOKIE, YOLO, Home, Ran, home, one_line

pytestmark = pytest.mark.house

FAR = """
[providers.far]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://example.invalid/v1"
auth = { method = "bearer-api-key-v1", values = { api_key = "${env:FAR_KEY}" } }
[providers.far.models.one]
capabilities = { context_tokens = 1000, output_tokens = 100 }
[providers.far.models.two]
enabled = false
capabilities = { context_tokens = 1000, output_tokens = 100 }
"""
GROUND = Path(__file__).with_name("ground.py")


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        yield made
        assert made.left() == []


def doctor(here: Home, *words: str, **how: Any) -> Ran:
    return here.command([*COOKIE, "doctor", "--data-dir", str(here.data), *words], **how)


def findings(ran: Ran) -> dict[tuple[str, str], tuple[str, str]]:
    """State and text by group and name; the exit code agrees with what was found."""
    report = json.loads(ran.out)
    found = {(one["about"], one["name"]): (one["state"], one["text"]) for one in report["findings"]}
    assert report["healthy"] == all(state != "bad" for state, _ in found.values())
    assert (ran.code, ran.err) == (0 if report["healthy"] else 1, "")
    return found


def test_all_is_well_in_a_new_house(here: Home) -> None:
    ran = doctor(here)

    assert (ran.code, ran.err) == (0, "")
    assert ran.text.endswith("\nAll is well.\n")
    assert re.search(r"\n  ok  python +CPython 3\.", ran.text)
    assert f"\n  ok  data directory   {here.data} (mode 0700)\n" in ran.text
    assert f"\n  ok  instance         {here.path}/run/cookie/" in ran.text
    assert "\n  ok  locks            flock keeps other processes out\n" in ran.text
    assert "\n  ok  hello/script     usable\n" in ran.text
    assert sorted(one.name for one in here.data.iterdir()) == ["config.toml"]


def test_a_house_that_was_never_entered_is_well_too(here: Home) -> None:
    shutil.rmtree(here.data)
    found = findings(doctor(here, "--json"))

    assert found["paths", "data directory"][0] == "note"
    assert found["models", "rehearsal/tour"] == ("ok", "usable")
    assert found["models", "your own"][0] == "note"
    assert not here.data.exists()
    here.data.mkdir()


def test_what_others_can_read_is_warned_of_and_what_they_can_write_is_wrong(here: Home) -> None:
    (here.data / "providers").mkdir(mode=0o700)
    store = here.data / "providers" / "store-v3.json"
    store.write_text("{}")
    store.chmod(0o644)
    here.config.chmod(0o640)

    assert ("paths", "config.toml") not in findings(doctor(here, "--json"))  # nobody gets to it

    here.data.chmod(0o755)
    found = findings(doctor(here, "--json"))
    assert found["paths", "data directory"] == (
        "warn",
        f"{here.data} (mode 0755): others can read it; run chmod 700 on it",
    )
    assert found["paths", "config.toml"][0] == "warn"
    assert found["paths", "providers/store-v3.json"][0] == "warn"

    folder = here.workspace / ".cookie-agent"
    folder.mkdir()
    (folder / "config.toml").touch()
    (folder / "config.toml").chmod(0o664)
    assert findings(doctor(here, "--json"))["config", "workspace"] == (
        "ok",
        f"{folder}/config.toml (mode 0664)",
    )
    (folder / "config.toml").chmod(0o646)
    assert findings(doctor(here, "--json"))["config", "workspace"][0] == "bad"
    (folder / "config.toml").unlink()

    here.config.chmod(0o666)
    found = findings(doctor(here, "--json"))
    assert found["paths", "config.toml"] == (
        "bad",
        f"{here.config} (mode 0666): others can write there; run chmod 600 on it",
    )
    here.data.chmod(0o700)


def test_what_is_wrong_with_the_config_and_the_agents_is_told_with_its_place(here: Home) -> None:
    here.config.write_text(here.config.read_text() + "[tool_output]\nmax_line = 3\n")
    agents = here.data / "agents"
    agents.mkdir()
    (agents / "mine.md").write_text("no front matter\n")

    ran = doctor(here)

    assert ran.code == 1
    assert re.search(
        rf"\n  BAD mistake +{here.config}:\d+: tool_output\.max_line: unknown key", ran.text
    )
    assert re.search(rf"\n  BAD mistake +{agents}/mine\.md", ran.text)
    assert ran.text.endswith("\n2 of these must be put right.\n")


def test_a_model_that_can_not_be_used_says_why(here: Home) -> None:
    here.config.write_text(FAR)
    found = findings(doctor(here, "--json"))

    assert found["models", "far/one"][0] == "warn"
    assert found["models", "far/one"][1].startswith("can't be used: ")
    assert found["models", "far/two"][0] == "note"
    assert found["models", "your own"] == ("bad", "none of them can be used")


def test_the_environment_of_a_tool_is_names_and_no_secret(here: Home) -> None:
    here.config.write_text(FAR)
    env = {
        "FAR_KEY": "planted-one",
        "OTHER_KEY": "planted-two",
        "WATCHDOG_USEC": "planted-three",
        "LC_ALL": "C.UTF-8",
    }
    ran = doctor(here, "--json", env=env)

    found = findings(ran)
    assert "planted" not in ran.text
    about = "environment of a tool"
    assert found[about, "FAR_KEY"] == ("note", "withheld: the config reads it as a secret")
    assert found[about, "WATCHDOG_USEC"] == ("note", "withheld: it is for cookie alone")
    assert "OTHER_KEY" in found[about, "not shown"][1].split(", ")
    assert found[about, "LC_ALL"] == ("ok", "C.UTF-8")
    assert found[about, "HOME"] == ("ok", str(here.path))


def test_an_environment_that_is_too_big_is_told(here: Home) -> None:
    env = {f"BIG_{number}": "x" * 100_000 for number in range(3)}
    state, text = findings(doctor(here, "--json", env=env))["environment of a tool", "size"]

    assert (state, text.endswith("of at most 262144")) == ("bad", True)
    ran = here.run("hello", "hi", env=env)
    assert ran.code == 5
    assert "the environment has" in one_line(ran.err)


def test_who_holds_a_session_and_which_run_is_open_is_told(here: Home) -> None:
    cut = {"COOKIE_FP": "append.tool_call_executing.after:1:kill"}
    assert here.run("tool_round", *YOLO, "Cut off", env=cut).code == 1
    assert here.run("hello", "Done").code == 0
    trees = {one.name: one for one in here.space.trees()}
    (open_one,) = [name for name, tree in trees.items() if not (tree / "metadata").exists()]
    (done,) = trees.keys() - {open_one}

    with running(HOLD, trees[done]) as holder:
        assert said(holder) == "held"
        found = findings(doctor(here, "--json"))
        assert found["sessions", done] == ("ok", f"held by a `cookie run` with pid {holder.pid}")
        assert found["sessions", open_one] == (
            "note",
            f"has an open run; in {here.workspace}: cookie run --resume-session {open_one}",
        )
        assert here.run("hello", "--resume-session", done, "hi").code == 5  # it still holds
    found = findings(doctor(here, "--json"))
    assert ("sessions", done) not in found
    assert found["sessions", "total"] == ("ok", "2 sessions")


@pytest.mark.parametrize("kind", ["nfs", "open"])
def test_ground_where_a_lock_is_none_is_wrong(here: Home, kind: str) -> None:
    command = [sys.executable, "-P", str(GROUND), kind, "doctor", "--json"]
    found = findings(here.command([*command, "--data-dir", str(here.data)]))

    name = "file system" if kind == "nfs" else "locks"
    assert found["disk", name][0] == "bad"
    assert sorted(one.name for one in here.data.iterdir()) == ["config.toml"]


def test_a_folder_that_is_gone_and_a_closed_pipe_are_one_line(here: Home) -> None:
    gone = here.path / "gone"
    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.argv[1], sys.argv[1:])"
    ran = here.command([sys.executable, "-c", program, *COOKIE, "doctor"], cwd=gone)
    assert (ran.code, ran.out) == (5, b"")
    assert one_line(ran.err) == "the current directory is gone: cd to one that is there"

    theirs, ours = os.pipe()
    os.close(theirs)
    piped = doctor(here, stdout=ours, stderr=subprocess.PIPE)
    os.close(ours)
    assert piped.code == 1
    assert one_line(piped.err).startswith("can't write to stdout: ")
