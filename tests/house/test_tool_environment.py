"""The environment of a tool, as `env` prints it: all of ours but what is ours alone."""

from collections.abc import Iterator

import pytest

from tests.house.runs import YOLO, Home, home, one_line

pytestmark = pytest.mark.house

SCRIPT = """\
- when: {round: 1}
  steps:
    - call: {name: bash, args: {command: "env -0 > env.bin"}}
- when: {}
  steps:
    - say: done
"""
CONFIG = """
[providers.mine]
source = "custom"
adaptor = "scripted"
setup = {{ script = "mine.yaml" }}
[providers.mine.models.script]
[providers.far]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://example.invalid/v1"
auth = {{ method = "bearer-api-key-v1", values = {{ api_key = "${{env:FAR_KEY}}" }} }}
headers = {{ "X-Team" = "${{env:TEAM}}" }}
[providers.far.models.one]
capabilities = {{ context_tokens = 1000, output_tokens = 100 }}
[workers]
pass_env = {pass_env}
"""
SECRET = {"FAR_KEY": "1", "TEAM": "2"}
OURS = {
    "NOTIFY_SOCKET": "/run/notify",
    "WATCHDOG_USEC": "3",
    "WATCHDOG_PID": "4",
    "LISTEN_FDS": "5",
    "LISTEN_PID": "6",
    "LISTEN_FDNAMES": "7",
    "JOURNAL_STREAM": "8:9",
    "CREDENTIALS_DIRECTORY": "/run/credentials",
    "COOKIE_DAEMON_TOKEN": "t",
}
THEIRS = {
    "NOTIFY": "n",
    "WATCHDOG": "w",
    "LISTENER": "l",
    "COOKIE_JAR": "with\nnewline = and ünï",
    "MY_API_KEY": "nobody says that this is a secret",
    "EMPTY": "",
}
SHELLS = {"_", "SHLVL", "OLDPWD", "PWD"}  # what bash sets by itself


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        (made.data / "mine.yaml").write_text(SCRIPT)
        yield made
        assert made.left() == []


def tool_env(here: Home, pass_env: list[str]) -> dict[str, str]:
    here.config.write_text(CONFIG.format(pass_env=pass_env))
    words = [*here.words("mine", *YOLO), "go"]
    ran = here.command(words, env={**SECRET, **OURS, **THEIRS})
    assert (ran.code, ran.err) == (0, "")
    entries = (here.workspace / "env.bin").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def test_a_tool_gets_all_of_ours_but_secrets_of_the_config_and_what_is_for_us_alone(
    here: Home,
) -> None:
    given = tool_env(here, [])
    mark = given.pop("COOKIE_TREE")

    (tree,) = here.space.trees()
    assert mark.startswith(f"{tree.name}:")
    assert {name: value for name, value in given.items() if name not in SHELLS} == {
        **here.env,
        **THEIRS,
    }
    assert given["PWD"] == str(here.workspace)


def test_pass_env_gives_back_what_it_names_and_nothing_else(here: Home) -> None:
    given = tool_env(here, ["FAR_KEY", "LISTEN_FDS", "NOT_THERE"])

    back = {"FAR_KEY": "1", "LISTEN_FDS": "5"}
    assert {name: given[name] for name in given if name in {*SECRET, *OURS}} == back
    assert "NOT_THERE" not in given


def test_an_environment_over_its_bound_is_refused_before_anything_runs(here: Home) -> None:
    here.config.write_text(CONFIG.format(pass_env=[]))
    big = {f"BIG_{number}": "x" * 65_536 for number in range(4)}
    ran = here.command([*here.words("mine", *YOLO), "go"], env=big)

    assert (ran.code, ran.out) == (5, b"")
    assert "the environment has" in one_line(ran.err)
    assert "more than 262144" in ran.err
    assert here.space.trees() == []
