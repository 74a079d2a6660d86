"""What is read from the environment, and what of it a tool gets."""

import os
from pathlib import Path

from cookie.config.secrets import surroundings, tool_environment
from ipc.disk.paths import default_data_dir


def test_the_surroundings_are_what_the_environment_says() -> None:
    around = surroundings("some/where", {"XDG_RUNTIME_DIR": "/run/me", "TMPDIR": "/scratch/"})

    assert around.data_dir == Path.cwd() / "some/where"
    assert (around.runtime_dir, around.temporary, around.uid) == (
        "/run/me",
        "/scratch",
        os.getuid(),
    )


def test_an_empty_environment_has_defaults() -> None:
    around = surroundings(None, {"TMPDIR": "relative"})

    assert around.data_dir == default_data_dir()
    assert (around.runtime_dir, around.temporary) == (None, "/tmp")


def test_a_tool_gets_everything_but_secrets_and_what_is_meant_for_us() -> None:
    environ = {
        "PATH": "/bin",
        "API_KEY": "s3cret",
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": "1",
        "LISTEN_FDS": "1",
        "LISTEN_PID": "1",
        "JOURNAL_STREAM": "8:1",
        "CREDENTIALS_DIRECTORY": "/run/credentials",
        "COOKIE_DAEMON_TOKEN": "t",
        "LATIN": os.fsdecode(b"caf\xe9"),
        os.fsdecode(b"n\xe9"): "x",
    }

    assert tool_environment(["API_KEY"], [], environ) == {"PATH": "/bin"}
    assert tool_environment(["API_KEY"], ["LISTEN_FDS", "API_KEY"], environ) == {
        "PATH": "/bin",
        "API_KEY": "s3cret",
        "LISTEN_FDS": "1",
    }
