"""A planted secret is in nothing that cookie prints, writes, starts or gives to a tool.

What a tool can fetch for itself is another matter (docs/guide/headless.md): `bash` runs with all
the rights of who started it, and `cat config.toml` is such a right.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cookie.config.agents import load_agents
from cookie.config.secrets import tool_environment
from cookie.config.settings import load_config
from cookie.models.compile import Selection, build_plan
from ipc.plan import encode_plan
from ipc.seams import proc
from tests.fakes.double import Answer, Call, Double, Seen, anthropic_turn, ok, say
from tests.house.runs import COOKIE, YOLO, Home, Ran, home, until

pytestmark = pytest.mark.house

# Each names the place it is planted in, so that a failure says where it leaked from.
LITERAL = "planted-in-the-config-as-a-literal-9f1c"
VARIABLE = "planted-in-a-variable-of-the-config-4b7e"
HEADER = "planted-in-a-header-of-the-config-77aa"
SERVER = "planted-for-an-mcp-server-31d0"
PLUGIN = "planted-for-a-plugin-e2c5"
ADDRESS = "planted-in-an-address-5d5d"
TOKEN = "planted-as-the-daemons-token-1e90"
STORE = "planted-in-the-store-of-providers-c3f8"
PROXY = "planted-in-the-address-of-a-proxy-8d42"
ALL = (PROXY, LITERAL, VARIABLE, HEADER, SERVER, PLUGIN, ADDRESS, TOKEN, STORE)

CONFIG = f"""
[providers.mine]
source = "custom"
adaptor = "scripted"
setup = {{ script = "mine.yaml" }}
[providers.mine.models.script]

[providers.far]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://example.invalid/v1"
auth = {{ method = "bearer-api-key-v1", values = {{ api_key = "{LITERAL}" }} }}
headers = {{ "X-Team" = "${{env:TEAM_HEADER}}" }}
[providers.far.models.one]
capabilities = {{ context_tokens = 1000, output_tokens = 100 }}

[model_retry]
standard_retries = 0

[providers.near]
source = "custom"
adaptor = "openai-compatible"
endpoint = "https://example.invalid/v1"
auth = {{ method = "bearer-api-key-v1", values = {{ api_key = "${{env:NEAR_KEY}}" }} }}
[providers.near.models.one]
capabilities = {{ context_tokens = 1000, output_tokens = 100 }}

[mcp.servers.tools]
command = "/bin/false"
env = {{ TOKEN = "{SERVER}" }}

[mcp.servers.remote]
url = "https://example.invalid/mcp?key={ADDRESS}"

[plugins.helper]
command = "/bin/false"
env = {{ TOKEN = "{PLUGIN}" }}
"""
ENVIRONMENT = {"NEAR_KEY": VARIABLE, "TEAM_HEADER": HEADER, "COOKIE_DAEMON_TOKEN": TOKEN}
# Long enough for an artifact, and held up so that its processes can be looked at.
COMMAND = "env; touch started; while [ ! -e go ]; do sleep 0.02; done; env; seq 20000"
SCRIPT = f"""\
- when: {{round: 1}}
  steps:
    - say: I look around.
    - call: {{name: bash, args: {{command: "{COMMAND}"}}}}
- when: {{round: 2}}
  steps:
    - call: {{name: read, args: {{filePath: seed.txt}}}}
- when: {{user: /fail/}}
  steps:
    - error: {{kind: auth, message: the key is not valid, http_status: 401}}
- when: {{}}
  steps:
    - say: done
"""


@pytest.fixture
def here() -> Iterator[Home]:
    with home() as made:
        made.config.write_text(CONFIG)
        (made.data / "mine.yaml").write_text(SCRIPT)
        store = made.data / "providers" / "store-v3.json"
        store.parent.mkdir(mode=0o700)
        store.write_text(json.dumps({"providers": {"near": {"api_key": STORE}}}))
        made.env |= ENVIRONMENT
        yield made
        assert made.left() == []


def leaks(data: bytes | str) -> list[str]:
    text = data if isinstance(data, bytes) else data.encode()
    return [secret for secret in ALL if secret.encode() in text]


def clean(ran: Ran) -> Ran:
    assert leaks(ran.out) == []
    assert leaks(ran.err) == []
    return ran


def on_disk(here: Home) -> dict[str, list[str]]:
    """Every file of the home that has a secret in it, but for those that were planted."""
    planted = {here.config, here.data / "providers" / "store-v3.json"}
    files = [one for one in here.path.rglob("*") if one.is_file() and one not in planted]
    assert any(one.name == "events.jsonl" for one in files)
    return {str(one): found for one in files if (found := leaks(one.read_bytes()))}


def in_processes(here: Home, command: int) -> tuple[int, dict[str, list[str]]]:
    """How many processes below `command` were read, and the secrets in what each was given."""
    below = proc.descendants(command)
    found: dict[str, list[str]] = {}
    read = 0
    for process in below:
        for name in ("environ", "cmdline"):
            path = Path(f"/proc/{process.pid}/{name}")
            try:
                data = path.read_bytes()
            except OSError:  # a worker lets nobody look, unless we are root
                continue
            read += 1
            if leaked := leaks(data):
                found[f"{path}: {data[:80]!r}"] = leaked
    assert leaks(Path(f"/proc/{command}/cmdline").read_bytes()) == []
    return read, found


def test_a_secret_is_in_no_output_log_artifact_or_process(here: Home) -> None:
    started, go = here.workspace / "started", here.workspace / "go"
    words = [*here.words("mine", *YOLO, "--json", "--verbose"), "look around"]
    with subprocess.Popen(
        words,
        cwd=here.workspace,
        env=here.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        until(started.exists)
        read, found = in_processes(here, process.pid)
        go.touch()
        out, err = process.communicate()

    assert (process.returncode, found) == (0, {})
    assert read >= 4  # the shell and its sleep, at the least
    ran = clean(Ran(process.returncode, out, err.decode()))
    assert ran.summary["status"] == "completed"
    assert b"HOME=" in out, "the environment was not printed at all"
    (tree,) = here.space.trees()
    assert list((tree / "artifacts").iterdir()), "no artifact was made"
    assert on_disk(here) == {}

    session = tree.name
    for words in (
        ["sessions", "show", session],
        ["sessions", "export", session],
        ["sessions", "list", "--json"],
        ["sessions", "search", "HOME"],
    ):
        assert clean(here.command([*COOKIE, *words, "--data-dir", str(here.data)])).code == 0
    for secret in ALL:
        ran = here.command([*COOKIE, "sessions", "search", secret, "--data-dir", str(here.data)])
        assert (ran.code, ran.out) == (1, b"")


REAL = """
[model_retry]
standard_retries = 0

[http]
proxy = "http://me:%(proxy)s@127.0.0.1:%(proxy_port)d"

[providers.real]
source = "custom"
adaptor = "anthropic"
endpoint = "http://127.0.0.1:%(port)d/${env:PLACE}"
auth = { method = "anthropic-api-key-v1", values = { api_key = "${env:NEAR_KEY}" } }
headers = { x-team = "${env:TEAM_HEADER}", x-token = "%(literal)s" }
[providers.real.models.one]
capabilities = { context_tokens = 100000, output_tokens = 100 }

[providers.far]
source = "custom"
adaptor = "openai-chat"
endpoint = "https://far.example/v1"
auth = { method = "bearer-api-key-v1", values = { api_key = "${env:NEAR_KEY}" } }
[providers.far.models.one]
capabilities = { context_tokens = 100000, output_tokens = 100 }
"""


def _as_told(number: int, seen: Seen) -> Answer:
    """A model that runs one command, says that it did, and then refuses, repeating all it got."""
    if number == 0:
        return ok(anthropic_turn("I look", (Call("c1", "bash", {"command": COMMAND}),)))
    if number == 1:
        return ok(anthropic_turn("done"))
    told = f"no: {seen.headers}"
    return say(401, {"type": "error", "error": {"type": "authentication_error", "message": told}})


def test_a_secret_that_a_request_carried_stays_with_the_request(here: Home) -> None:
    started, go = here.workspace / "started", here.workspace / "go"
    here.env |= {"PLACE": ADDRESS}
    with Double(_as_told) as model, Double(say(407, b"no")) as proxy:
        given = {"proxy": PROXY, "literal": LITERAL}
        given |= {"port": model.port, "proxy_port": proxy.port}
        here.config.write_text(REAL % given)
        words = [*COOKIE, "run", "--data-dir", str(here.data), "--json", "--verbose", *YOLO]
        with subprocess.Popen(
            [*words, "-m", "real/one", "look around"],
            cwd=here.workspace,
            env=here.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            until(started.exists)
            read, found = in_processes(here, process.pid)
            go.touch()
            out, err = process.communicate()
        ran = clean(Ran(process.returncode, out, err.decode()))
        refused = clean(here.command([*words, "-m", "real/one", "--continue", "again"]))
        stopped = clean(here.command([*words, "-m", "far/one", "hi"]))

    assert (ran.code, found, ran.summary["status"]) == (0, {}, "completed")
    assert read >= 4  # the shell and its sleep, at the least
    # All of it went where it belongs, or nothing here would be a proof.
    first = model.seen[0]
    assert (first.path, first.headers["x-api-key"]) == (f"/{ADDRESS}/messages", VARIABLE)
    assert (first.headers["x-team"], first.headers["x-token"]) == (HEADER, LITERAL)
    assert [refused.code, stopped.code] == [1, 1]
    assert "401" in refused.text
    basic = base64.b64encode(f"me:{PROXY}".encode()).decode()
    assert proxy.seen[0].headers["proxy-authorization"] == f"Basic {basic}"
    assert basic not in stopped.text + stopped.err
    assert all(leaks(request.body) == [] for request in model.seen)
    assert on_disk(here) == {}


def test_a_secret_is_in_nothing_that_looks_at_the_config(here: Home) -> None:
    for words in (
        ["config", "show"],
        ["config", "show", "--origin"],
        ["config", "show", "--json"],
        ["config", "check"],
        ["doctor"],
        ["doctor", "--json"],
        ["permissions", "explain", "bash: env"],
    ):
        ran = clean(here.command([*COOKIE, *words, "--data-dir", str(here.data)]))
        assert "Traceback" not in ran.err, words
    shown = here.command([*COOKIE, "config", "show", "--data-dir", str(here.data)]).text
    assert "${env:NEAR_KEY}" in shown


def test_a_secret_is_in_no_failure(here: Home) -> None:
    (here.workspace / "go").touch()
    failed = clean(here.run("mine", *YOLO, "--verbose", "--continue", "fail"))
    assert failed.code == 5
    assert clean(here.run("mine", *YOLO, "--verbose", "do it and then fail")).code in {0, 1}
    assert clean(here.run("mine", "--verbose", "ask for it")).code == 3
    for model in ("far/one", "near/one"):
        words = [*COOKIE, "run", "--data-dir", str(here.data), "-m", model, "hi"]
        unreached = clean(here.command(words))  # its host does not exist
        assert (unreached.code, "Traceback" in unreached.err) == (1, False)
    lost = {"COOKIE_FP": "append.model_turn_committed.before:1:raise"}
    assert clean(here.run("mine", *YOLO, "--verbose", "break", env=lost)).code == 1
    assert on_disk(here) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        f'api_kay = "{LITERAL}"',
        f'api_key = ["{LITERAL}"]',
        f'api_key = "{LITERAL}" x',
        f'api_key = "{LITERAL}\n"',
        f'api_key = "${{env:{LITERAL}"',
        f"api_key = {LITERAL}",
    ],
)
def test_a_mistake_beside_a_secret_does_not_repeat_it(here: Home, wrong: str) -> None:
    line = f'api_key = "{LITERAL}"'
    assert line in CONFIG
    here.config.write_text(CONFIG.replace(line, wrong))

    assert clean(here.run("mine", *YOLO, "hi")).code == 5
    for words in (["config", "check"], ["doctor"]):
        assert clean(here.command([*COOKIE, *words, "--data-dir", str(here.data)])).code == 1


def test_the_plan_holds_no_secret(tmp_path: Path) -> None:
    data, cwd = tmp_path / "data", tmp_path / "ws"
    data.mkdir()
    cwd.mkdir()
    (data / "config.toml").write_text(CONFIG)
    (data / "mine.yaml").write_text(SCRIPT)
    environ = {"PATH": os.environ["PATH"], **ENVIRONMENT}
    config = load_config(data, cwd, environ)
    plan = build_plan(
        config.settings,
        Selection(model="mine/script"),
        authored=load_agents(data, cwd),
        env=tool_environment(config.vault.variables, (), environ),
        unusable=config.unusable,
    )

    assert leaks(encode_plan(plan)) == []
    assert leaks(repr((plan, config, config.vault, config.settings))) == []
    assert config.vault.variables == {"NEAR_KEY", "TEAM_HEADER"}
    values = [config.vault.value(ref) for ref in config.vault.refs()]
    assert any(LITERAL in value for value in values), "it was not planted at all"
