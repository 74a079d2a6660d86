"""What is read from the environment, what of it a tool gets, and what is secret."""

import os
import pickle
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cookie.config import templates
from cookie.config.files import BadConfig, load
from cookie.config.origin import rows
from cookie.config.secrets import NoSecret, Vault, surroundings, tool_environment
from cookie.config.settings import Config, load_config
from cookie.models.compile import Selection, build_plan
from cookie.models.families import compiled
from ipc.disk.paths import default_data_dir
from ipc.ids import ProviderId, SecretRef
from ipc.plan import encode_plan


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


REF = SecretRef(provider_id=ProviderId("mine"), field="auth")


def test_a_vault_gives_its_values_to_who_asks_and_shows_them_to_nobody() -> None:
    vault = Vault({"mine": {"auth": "s3cret"}}, ["MY_KEY"])

    assert vault.value(REF) == "s3cret"
    assert (vault.refs(), len(vault), REF in vault) == ((REF,), 1, True)
    assert vault.variables == {"MY_KEY"}
    assert repr(vault) == "Vault(1 secrets)"


def test_a_secret_that_is_not_there_is_named_by_its_place() -> None:
    with pytest.raises(NoSecret, match="there is no auth of mine in the config"):
        Vault().value(REF)


@pytest.mark.parametrize("copy", [pickle.dumps, deepcopy, msgspec.json.encode, msgspec.to_builtins])
def test_a_vault_can_be_neither_copied_nor_written(copy: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        copy(Vault({"mine": {"auth": "s3cret"}}))


SECRETS = ("sk-literal", "sk-environment", "sk-instead", "sk-header", "ghp-server", "pw-proxy")
EVERYWHERE = """
[providers.mine]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://${env:HOST}/v1"
auth = { method = "bearer-api-key-v1", values = { api_key = "sk-literal" } }
headers = { Authorization = "Bearer sk-header", x-team = "a-team" }
[providers.mine.models.one]
capabilities = { context_tokens = 10, output_tokens = 10 }
headers = { x-api-token = "${env:MY_KEY}" }

[providers.other]
source = "models_dev"
api_key = "${env:NOT_THERE:-sk-instead}"

[providers.signed]
source = "custom"
adaptor = "aws-bedrock-converse"
endpoint = "https://bedrock.example.com"
setup = { region = "eu-1" }
[providers.signed.auth]
method = "aws-sigv4-credentials-v1"
[providers.signed.auth.values]
access_key_id = "${env:MY_KEY}"
secret_access_key = "sk-literal"
[providers.signed.models.two]
capabilities = { context_tokens = 10, output_tokens = 10 }

[mcp.servers.git]
command = "npx"
env = { TOKEN = "ghp-server", MODE = "fast" }
[mcp.servers.far]
url = "https://mcp.example.com/mcp?key=ghp-server"
headers = { x-anything = "ghp-server" }
oauth = { client_id = "me", client_secret = "ghp-server" }

[plugins.lint]
command = "lint"
env = { TOKEN = "${env:MY_KEY}" }

[http]
proxy = "http://me:pw-proxy@proxy.example:3128"
"""
ENVIRON = {"MY_KEY": "sk-environment", "HOST": "api.example.com"}


def everything(tmp_path: Path, environ: Mapping[str, str] = ENVIRON) -> Config:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "config.toml").write_text(EVERYWHERE)
    return load_config(tmp_path / "data", tmp_path / "ws", environ)


def test_each_secret_of_a_config_is_in_the_vault_and_nowhere_else(tmp_path: Path) -> None:
    config = everything(tmp_path)
    held = {(ref.provider_id, ref.field): config.vault.value(ref) for ref in config.vault.refs()}

    assert held == {
        ("http", "proxy"): "http://me:pw-proxy@proxy.example:3128",
        ("mcp:far", "headers.x-anything"): "ghp-server",
        ("mcp:far", "oauth.client_secret"): "ghp-server",
        ("mcp:far", "url"): "https://mcp.example.com/mcp?key=ghp-server",
        ("mcp:git", "env.MODE"): "fast",
        ("mcp:git", "env.TOKEN"): "ghp-server",
        ("mine", "auth"): '{"api_key":"sk-literal"}',
        ("mine", "endpoint"): "https://api.example.com/v1",
        ("mine", "headers.authorization"): "Bearer sk-header",
        ("mine", "models.one.headers.x-api-token"): "sk-environment",
        ("other", "auth"): '{"api_key":"sk-instead"}',
        (
            "signed",
            "auth",
        ): '{"access_key_id":"sk-environment","secret_access_key":"sk-literal"}',
        ("plugin:lint", "env.TOKEN"): "sk-environment",
    }
    assert config.vault.variables == {"MY_KEY", "HOST", "NOT_THERE"}


def test_no_secret_is_in_what_is_shown_encoded_or_said(tmp_path: Path) -> None:
    config = everything(tmp_path)
    layers = load(tmp_path / "data", tmp_path / "ws")
    authored = compiled(config.settings, config.unusable)
    plan = build_plan(config.settings, Selection(model="rehearsal/tour"), unusable=config.unusable)
    lacking = everything(tmp_path, {}).unusable
    places = [
        repr(config),
        repr(config.settings),
        repr(layers),
        repr(authored),
        repr([row.value for row in rows(config.settings, layers)]),
        msgspec.json.encode(config.settings).decode(),
        msgspec.json.encode([one.bindings for one in authored]).decode(),
        encode_plan(plan).decode(),
        repr([(str(one), one.facts, one.body()) for one in lacking.values()]),
    ]

    found = {secret for secret in SECRETS for place in places if secret in place}
    assert found == set()
    assert "a-team" in places[1]  # what is no secret is there


def test_what_a_broken_file_is_told_repeats_no_value_of_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "config.toml"
    for line in EVERYWHERE.splitlines():
        if "sk-" not in line and "ghp-" not in line and "pw-" not in line:
            continue
        for broken in (
            line[:-1],
            f"{line} x",
            f"{line}\n{line}",
            f"x{line}",
            line.replace('"', ""),
        ):
            path.write_text(EVERYWHERE.replace(line, broken))
            try:
                load_config(tmp_path / "data", tmp_path / "ws", ENVIRON)
            except BadConfig as bad:
                said = repr((str(bad), bad.facts, bad.body()))
                assert not [secret for secret in SECRETS if secret in said], said


def test_a_definition_that_is_replaced_leaves_no_secret_behind(tmp_path: Path) -> None:
    everything(tmp_path)
    folder = tmp_path / "ws" / ".cookie-agent"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        '[providers.mine]\nsource = "models_dev"\n'
        "[mcp.servers.git]\ncommand = 'x'\n[plugins.lint]\ncommand = 'x'\n[http]\n"
    )

    vault = load_config(tmp_path / "data", tmp_path / "ws", ENVIRON).vault

    assert {ref.provider_id for ref in vault.refs()} == {"other", "signed", "mcp:far"}
    assert vault.variables == {"MY_KEY", "HOST", "NOT_THERE"}  # still no tool's business


@pytest.mark.parametrize(
    ("text", "value", "shown", "hidden"),
    [
        ("plain", "plain", "plain", "***"),
        ("${env:A}", "a$b", "${env:A}", "${env:A}"),
        ("x ${env:A}", "x a$b", "x ${env:A}", "***${env:A}"),
        ("${env:NO:-}", "", "${env:NO:-***}", "${env:NO:-***}"),
        ("${env:NO:-a:-b}", "a:-b", "${env:NO:-***}", "${env:NO:-***}"),
        ("${env:EMPTY:-x}", "", "${env:EMPTY:-***}", "${env:EMPTY:-***}"),
        ("$$${env:B}$$", "$b$", "$$${env:B}$$", "***${env:B}***"),
        ("a$b$", "a$b$", "a$b$", "***"),
        ("${env:C}", "${env:A}", "${env:C}", "${env:C}"),  # what was read is not read again
        ("", "", "", ""),
    ],
)
def test_a_template_and_what_is_shown_of_it(text: str, value: str, shown: str, hidden: str) -> None:
    environ = {"A": "a$b", "B": "b", "C": "${env:A}", "EMPTY": ""}
    template = templates.read(text)

    assert template.value(environ) == value
    assert (template.shown(secret=False), template.shown(secret=True)) == (shown, hidden)
    assert "b" not in repr(template)


def test_a_template_for_later_keeps_its_names_and_its_doubled_dollars() -> None:
    template = templates.read("$$ ${session_id} ${env:A}", ("session_id",))

    assert template.value({"A": "${session_id}"}, later=True) == "$$ ${session_id} $${session_id}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:lower}", "a variable is ${env:NAME}, its name in capitals, digits and _"),
        ("${env:}", "a variable is ${env:NAME}, its name in capitals, digits and _"),
        ("${env:A", "a ${ is never closed; a plain $ is written $$"),
        ("${HOME}", "only ${env:NAME} can stand here; a plain $ is written $$"),
        ("${}", "only ${env:NAME} can stand here; a plain $ is written $$"),
        ("${session_id}", "only ${env:NAME} can stand here; a plain $ is written $$"),
    ],
)
def test_what_is_no_template(text: str, said: str) -> None:
    with pytest.raises(templates.BadTemplate, match=f"^{re.escape(said)}$"):
        templates.read(text)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "MY_KEY is not set"),
        ({"MY_KEY": ""}, "MY_KEY makes a text that is empty"),
        ({"MY_KEY": "a\nb"}, "MY_KEY makes a text that holds a control character or a line break"),
        ({"MY_KEY": os.fsdecode(b"\xff")}, "MY_KEY is not UTF-8"),
    ],
)
def test_a_variable_that_is_no_good_makes_its_provider_unusable(
    tmp_path: Path, environ: dict[str, str], said: str
) -> None:
    config = everything(tmp_path, {"HOST": "api.example.com", **environ})

    assert said in str(config.unusable["signed"])
    assert "other" not in config.unusable  # it has a text for that case
