"""Shell completion in a real bash: what Tab offers, and that nothing it offers is ever run."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.house.runs import COOKIE, Home, home

pytestmark = pytest.mark.house

DEADLINE_S = 30.0
ASK = """
. "$HOME/completion.bash"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_cookie_completion cookie
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        command = made.path / "cookie"
        command.write_text(f'#!/bin/sh\nexec {" ".join(COOKIE)} "$@"\n')
        command.chmod(0o700)
        made.env["PATH"] = f"{made.path}:{made.env['PATH']}"
        script = made.command([*COOKIE, "completion", "bash"]).text
        (made.path / "completion.bash").write_text(script)
        (made.path / ".cookie-agent").symlink_to(made.data)  # where a person has it
        yield made
        assert made.left() == []


def offered(here: Home, *words: str) -> list[str]:
    """What Tab offers after these words, the last of them unfinished."""
    ran = here.command(["bash", "--norc", "-c", ASK, "bash", "cookie", *words])
    assert (ran.code, ran.err) == (0, "")
    return [word for word in ran.text.splitlines() if word]


def test_commands_flags_and_their_words_are_offered(here: Home) -> None:
    assert offered(here, "se") == ["sessions"]
    assert "demo" not in offered(here, "")
    assert {"list", "show", "delete"} <= set(offered(here, "sessions", ""))
    assert offered(here, "run", "--resu") == ["--resume-session"]
    assert offered(here, "run", "--permission-mode", "a") == [
        *("auto-approve", "auto-approve-n", "auto-approve-y", "ask")
    ]
    assert offered(here, "run", "-o", "j") == ["json"]
    assert offered(here, "completion", "") == ["bash", "zsh", "fish"]


def test_models_and_sessions_of_this_folder_are_offered(here: Home) -> None:
    assert here.run("hello", "hi").code == 0
    (tree,) = here.space.trees()

    assert "hello/script" in offered(here, "run", "-m", "h")
    assert offered(here, "run", "--resume-session", tree.name[:4]) == [tree.name]
    assert offered(here, "sessions", "show", "") == [tree.name]
    assert offered(here, "sessions", "delete", tree.name, "") == [tree.name]
    nowhere = here.path / "nowhere"
    assert offered(here, "run", "--data-dir", str(nowhere), "-m", "h") == []
    assert not nowhere.exists()


def test_a_config_that_is_broken_offers_nothing_and_says_nothing(here: Home) -> None:
    here.config.write_text("[providers")

    assert offered(here, "run", "-m", "") == []
    assert offered(here, "run", "--agent", "") == []


def test_a_name_that_a_shell_would_run_is_not_offered(here: Home) -> None:
    """The config of a workspace may be a stranger's, and zsh evaluates what it is offered."""
    here.config.write_text("")
    folder = here.workspace / ".cookie-agent"
    folder.mkdir()
    names = ["good", "a$(touch pwned)", "\\\\$(touch pwned)", "`touch pwned`", "*", 'x\\"y']
    models = "".join(f'[providers.evil.models."{name}"]\n' for name in names)
    (folder / "config.toml").write_text(
        '[providers.evil]\nsource = "custom"\nadaptor = "scripted"\n'
        f'setup = {{ script = "x.yaml" }}\n{models}'
    )
    for shell, words in (
        ("complete_bash", {"COMP_WORDS": "cookie run -m ", "COMP_CWORD": "3"}),
        ("complete_zsh", {"_TYPER_COMPLETE_ARGS": "cookie run -m "}),
    ):
        ran = here.command(list(COOKIE), env={"_COOKIE_COMPLETE": shell, **words})
        assert "touch" not in ran.text
        assert "*\n" not in ran.text
    assert set(offered(here, "run", "-m", "")) <= {"evil/good", "rehearsal/tour"}
    assert not list(here.path.rglob("pwned"))


def test_tab_completes_in_an_interactive_bash(here: Home) -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=here.workspace,
        env={**here.env, "PS1": "$ ", "TERM": "dumb"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    ) as bash:
        os.close(terminal)
        os.write(controller, b'bind "set enable-bracketed-paste off"\n')
        os.write(controller, b'eval "$(cookie completion bash)"; echo rea""dy\n')
        seen = _until(controller, b"", b"\nready")
        os.write(controller, b"cookie sess\tli\t")
        seen = _until(controller, seen, b"cookie sessions list")
        os.write(controller, b"\nexit\n")
        _until(controller, seen, b"there are no sessions here yet")
        bash.wait(DEADLINE_S)
    os.close(controller)


def _until(controller: int, seen: bytes, wanted: bytes) -> bytes:
    limit = time.monotonic() + DEADLINE_S
    while wanted not in seen:
        assert time.monotonic() < limit, seen
        if select.select([controller], [], [], 0.1)[0]:
            try:
                seen += os.read(controller, 4096)
            except OSError:
                break
    assert wanted in seen
    return seen


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_calls_what_it_was_made_for(here: Home, shell: str) -> None:
    ran = here.command([*COOKIE, "completion", shell])

    assert (ran.code, ran.err) == (0, "")
    assert f"_COOKIE_COMPLETE=complete_{shell}" in ran.text
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=ran.out, check=False, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_an_unknown_shell_is_wrong_usage(here: Home) -> None:
    ran = here.command([*COOKIE, "completion", "tcsh"])

    assert (ran.code, ran.out) == (2, b"")
    assert sys.executable not in ran.err
