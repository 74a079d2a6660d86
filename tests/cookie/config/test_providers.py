"""Providers, MCP servers and plugins: what is read of them, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from cookie.config.adaptors import ADAPTORS, METHODS
from cookie.config.files import BadConfig
from cookie.config.model_parts import (
    AdaptorOptions,
    Capabilities,
    GenerationOptions,
    Media,
    PricingTable,
    Reasoning,
    Variant,
)
from cookie.config.provider_models import CustomModel, ManagedModel
from cookie.config.provider_parts import (
    AnthropicCache,
    Auth,
    BedrockCache,
    CompatibleCache,
    OpenAICache,
    Timeouts,
)
from cookie.config.providers import CustomProvider, ManagedProvider
from cookie.config.secrets import Kept
from cookie.config.servers import McpOAuth, McpServerTable, PluginTable
from cookie.config.settings import Config, load_config
from ipc.ids import ProviderId, SecretRef, VariantName

ENVIRON = {"K": "k", "REGION": "eu-1", "HOST": "api.example.com", "FAR": "http://far.example"}
CAN = "capabilities = { context_tokens = 1000, output_tokens = 100 }"


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "config.toml").write_text(text)
    return load_config(tmp_path / "data", tmp_path / "ws", ENVIRON)


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadConfig) as refused:
        read(tmp_path, text)
    return str(refused.value).removeprefix(f"{tmp_path}/data/config.toml:")


def kept(field: str, shown: str, owner: str = "p") -> Kept:
    return Kept(ref=SecretRef(provider_id=ProviderId(owner), field=field), shown=shown)


def auth(method: str) -> str:
    row = METHODS[method]
    values = ", ".join(f'{name} = "${{env:K}}"' for name in row.fields)
    named = (
        f', parameters = {{ header_name = "{row.header_names[0]}" }}' if row.header_names else ""
    )
    return f'auth = {{ method = "{method}", values = {{ {values} }}{named} }}'


def custom(adaptor: str, part: str = "", model: str = CAN, method: str | None = None) -> str:
    row = ADAPTORS[adaptor]
    setup = ", ".join(f'{name} = "x"' for name in row.setup)
    reach = ""
    if row.methods:
        reach = f'endpoint = "https://api.example.com/v1"\n{auth(method or row.methods[0])}\n'
    return (
        f'[providers.p]\nsource = "custom"\nadaptor = "{adaptor}"\n{reach}'
        f"setup = {{ {setup} }}\n{part}\n[providers.p.models.m]\n{model}\n"
    )


@pytest.mark.parametrize(
    ("adaptor", "method"),
    [(name, method) for name, row in ADAPTORS.items() for method in row.methods or (None,)],
)
def test_every_adaptor_loads_with_each_of_its_methods(
    tmp_path: Path, adaptor: str, method: str | None
) -> None:
    config = read(tmp_path, custom(adaptor, method=method))

    provider = config.settings.providers[ProviderId("p")]
    assert isinstance(provider, CustomProvider)
    assert (provider.adaptor, provider.auth.method if provider.auth else None) == (adaptor, method)
    assert config.unusable == {}


@pytest.mark.parametrize(
    ("adaptor", "method"),
    [
        (name, method)
        for name, row in ADAPTORS.items()
        if row.methods
        for method in METHODS
        if method not in row.methods
    ],
)
def test_a_method_of_another_adaptor_is_refused(tmp_path: Path, adaptor: str, method: str) -> None:
    said = complaint(tmp_path, custom(adaptor, method=method))

    assert said.startswith('5: providers.p.auth.method: must be "')


EVERYTHING = """
[providers.p]
source = "custom"
adaptor = "anthropic"
endpoint = "https://${env:HOST}/v1"
auth = { method = "anthropic-api-key-v1", values = { api_key = "${env:K}" } }
headers = { X-Team = "a", Authorization = "Bearer ${env:K}", x-session = "${session_id}" }
cache = { system = "off", tools = "5m", rolling = "off" }
timeouts = { connect_seconds = 1, headers_seconds = 2.5, stream_idle_seconds = 3 }

[providers.p.models."a/b:c"]
enabled = false
display_name = "A model"
model_id = "wire model"
generation_options = { temperature = 1, top_p = 0.5, max_output_tokens = 10, stop = ["x"], seed = 1, tool_choice = { named = "bash" } }
adaptor_options = { beta = ["b1"] }
pricing = { input_per_million_usd = "1.25", output_per_million_usd = "5" }
default_variant = "high"

[providers.p.models."a/b:c".capabilities]
input = ["text", "image"]
output = ["text"]
context_tokens = 100
input_tokens = 90
output_tokens = 50
tool_calling = true
parallel_tool_calls = false
structured_output = false
reasoning = true
temperature = true
top_p = true
seed = true
native_replay = "required"
media.image = { mime_types = ["image/png"], max_bytes = 5, max_count = 2 }

[providers.p.models."a/b:c".variants.high]
display_name = "High"
model_id = "wire-high"
generation_options = { stop = [] }
reasoning = { type = "budget_tokens", value = 8000 }
headers = { x-effort = "high" }
[providers.p.models."a/b:c".variants.off]
enabled = false
"""  # noqa: E501


def test_everything_there_is_of_a_custom_provider(tmp_path: Path) -> None:
    config = read(tmp_path, EVERYTHING)

    assert config.settings.providers[ProviderId("p")] == CustomProvider(
        source="custom",
        adaptor="anthropic",
        endpoint=kept("endpoint", "https://${env:HOST}/v1"),
        auth=Auth(method="anthropic-api-key-v1", values={"api_key": kept("auth", "${env:K}")}),
        headers={
            "x-team": "a",
            "authorization": kept("headers.authorization", "***${env:K}"),
            "x-session": "${session_id}",
        },
        cache=AnthropicCache(system="off", tools="5m", rolling="off"),
        timeouts=Timeouts(
            connect_seconds=1,
            headers_seconds=2.5,
            credentials_seconds=30,
            stream_idle_seconds=3,
        ),
        models={
            "a/b:c": CustomModel(
                enabled=False,
                display_name="A model",
                model_id="wire model",
                capabilities=Capabilities(
                    context_tokens=100,
                    output_tokens=50,
                    input=("text", "image"),
                    input_tokens=90,
                    parallel_tool_calls=False,
                    structured_output=False,
                    reasoning=True,
                    seed=True,
                    native_replay="required",
                    media={"image": Media(mime_types=("image/png",), max_bytes=5, max_count=2)},
                ),
                generation_options=GenerationOptions(
                    temperature=1,
                    top_p=0.5,
                    max_output_tokens=10,
                    stop=("x",),
                    seed=1,
                    tool_choice={"named": "bash"},
                ),
                adaptor_options=AdaptorOptions(beta=("b1",)),
                pricing=PricingTable(input_per_million_usd="1.25", output_per_million_usd="5"),
                variants={
                    VariantName("high"): Variant(
                        display_name="High",
                        model_id="wire-high",
                        generation_options=GenerationOptions(stop=()),
                        reasoning=Reasoning(type="budget_tokens", value=8000),
                        headers={"x-effort": "high"},
                    ),
                    VariantName("off"): Variant(enabled=False),
                },
                default_variant=VariantName("high"),
            )
        },
    )
    assert config.unusable == {}


def test_everything_there_is_of_a_provider_of_the_catalogue(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
[providers.p]
source = "models_dev"
base_url = "https://gateway.example.com/v1"
setup = { region = "${env:REGION}", project = "mine" }
auth_override = { method = "oauth-access-token-v1", values = { access_token = "${env:K}" } }
headers = { x-team = "" }
cache = { mode = "explicit", ttl = "30m", system = true, prompt_cache_retention = "24h" }
[providers.p.models.m]
enabled = true
compaction = "openai-responses-compact"
default_variant = "whatever-the-catalogue-has"
variants.low = { enabled = false }
""",
    )

    assert config.settings.providers[ProviderId("p")] == ManagedProvider(
        source="models_dev",
        base_url="https://gateway.example.com/v1",
        setup={"region": kept("setup.region", "${env:REGION}"), "project": "mine"},
        auth_override=Auth(
            method="oauth-access-token-v1", values={"access_token": kept("auth", "${env:K}")}
        ),
        headers={"x-team": ""},
        cache=OpenAICache(mode="explicit", ttl="30m", system=True, prompt_cache_retention="24h"),
        models={
            "m": ManagedModel(
                enabled=True,
                compaction="openai-responses-compact",
                default_variant=VariantName("whatever-the-catalogue-has"),
                variants={VariantName("low"): Variant(enabled=False)},
            )
        },
    )


def managed(part: str) -> str:
    return f'[providers.p]\nsource = "models_dev"\n{part}\n'


MODEL = "providers.p.models.m"


def can(part: str) -> str:
    """An Anthropic provider whose model has one more capability."""
    return custom("anthropic", model=CAN.replace("}", f", {part} }}"))


def asked(part: str, adaptor: str = "anthropic") -> str:
    """A provider whose model has one more line."""
    return custom(adaptor, model=f"{CAN}\n{part}")


def image(mime: str) -> str:
    return f"media = {{ image = {{ mime_types = ['{mime}'], max_bytes = 1, max_count = 1 }} }}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # how it is reached
        (
            custom("anthropic").replace("https://api.example.com/v1", "api.example.com"),
            '4: providers.p.endpoint: must be a whole address, like "https://api.example.com/v1"',
        ),
        (
            custom("anthropic").replace("https://api", "https://me:pw@api"),
            "4: providers.p.endpoint: must not hold a name or a password; use auth or headers",
        ),
        (
            custom("anthropic").replace("com/v1", "com/v1?key=1"),
            "4: providers.p.endpoint: must end before ? and #",
        ),
        (
            custom("anthropic").replace("com/v1", "com:99999/v1"),
            "4: providers.p.endpoint: is no address of a server",
        ),
        (
            custom("anthropic").replace('endpoint = "https://api.example.com/v1"\n', ""),
            (
                "1: providers.p: needs the key endpoint, for example "
                'endpoint = "https://api.example.com/v1"'
            ),
        ),
        (
            custom("openai-chat").replace(f"{auth('bearer-api-key-v1')}\n", ""),
            (
                "1: providers.p: needs the key auth, for example "
                'auth = { method = "bearer-api-key-v1", values = { api_key = "${env:MY_API_KEY}" '
                '} }, or auth = { method = "no-auth-v1" } for a server that asks for no key'
            ),
        ),
        (
            custom("anthropic").replace('api_key = "${env:K}"', ""),
            (
                "5: providers.p.auth: needs the key values.api_key, for example "
                'values = { api_key = "${env:MY_API_KEY}" }'
            ),
        ),
        (
            custom("anthropic").replace('api_key = "${env:K}"', 'token = "x", api_key = "x"'),
            "5: providers.p.auth.values.token: unknown key; it may have api_key",
        ),
        (
            custom("openai-compatible", method="api-key-header-v1").replace('"x-api-key"', '"x"'),
            '5: providers.p.auth.parameters.header_name: must be "x-api-key" or "api-key"',
        ),
        (
            custom("aws-bedrock-converse").replace("region", "regio"),
            "6: providers.p.setup.regio: unknown key; did you mean region? it may have region",
        ),
        (
            custom("azure-openai-chat").replace('deployment = "x", ', ""),
            (
                "6: providers.p.setup: needs the key setup.deployment, for example "
                'setup = { deployment = "...", api_version = "..." }'
            ),
        ),
        (
            custom("scripted", 'endpoint = "https://x"'),
            "5: providers.p.endpoint: means nothing to a script; remove it",
        ),
        (
            managed('base_url = "https://gateway.example.com"'),
            (
                "3: providers.p.base_url: needs api_key or auth_override beside it: "
                "a saved connection is never sent to another address"
            ),
        ),
        (
            managed('api_key = "${env:K}"\nauth_override = { method = "no-auth-v1" }'),
            "4: providers.p.auth_override: and api_key exclude each other; keep one",
        ),
        (
            managed('endpoint = "https://x"'),
            "3: providers.p.endpoint: is called base_url in a provider of the catalogue",
        ),
        (
            managed("[providers.p.model_overrides.m]"),
            "3: providers.p.model_overrides: is now models",
        ),
        (
            managed(f"[providers.p.models.m]\n{CAN}"),
            (
                f"4: {MODEL}.capabilities: come from the catalogue; "
                "a model of your own needs a custom provider"
            ),
        ),
        # headers
        (
            custom("anthropic", 'headers = { Content-Type = "x" }'),
            "7: providers.p.headers.Content-Type: belongs to the request itself and can't be set",
        ),
        (
            custom("anthropic", 'headers = { X-Amz-Date = "x" }'),
            "7: providers.p.headers.X-Amz-Date: belongs to the request itself and can't be set",
        ),
        (
            custom("anthropic", 'headers = { x-a = "1", X-A = "2" }'),
            (
                "7: providers.p.headers.X-A: is set twice: "
                "upper and lower case are the same in a header"
            ),
        ),
        (
            custom("anthropic", 'headers = { "x a" = "1" }'),
            '7: providers.p.headers."x a": is no name of a header of at most 128 letters',
        ),
        (
            custom("anthropic", 'headers = { x-a = "é" }'),
            "7: providers.p.headers.x-a: has a letter that no header can carry",
        ),
        (
            custom("anthropic", 'headers = { x-a = "${sesion_id}" }'),
            (
                "7: providers.p.headers.x-a: only ${env:NAME} and ${session_id} and "
                "${parent_session_id} can stand here; a plain $ is written $$"
            ),
        ),
        # the prompt cache
        (
            custom("anthropic", 'cache = { system = "1h", tools = "5m" }'),
            (
                '7: providers.p.cache.system: can\'t be "1h" after tools = "5m": '
                "what is kept longer must come first"
            ),
        ),
        (
            custom("anthropic", 'cache = { rolling = "1h" }'),
            '7: providers.p.cache.rolling: must be "5m" or "off"',
        ),
        (
            custom("anthropic", 'cache = { tools = "1h" }'),
            (
                f'8: {MODEL}: needs adaptor_options = {{ beta = ["extended-cache-ttl-2025-04-11"] '
                '} for a cache of "1h"'
            ),
        ),
        (
            custom("google-gemini", "cache = {}"),
            "7: providers.p.cache: can't be set: the adaptor of this provider caches by itself",
        ),
        (
            custom("openai-chat", 'cache = { prompt_cache_key = "x" }'),
            "7: providers.p.cache.prompt_cache_key: is always the session's id here; remove it",
        ),
        (
            custom("openai-compatible", 'cache = { prompt_cache_key = "${x}" }'),
            "7: providers.p.cache.prompt_cache_key: may name ${session_id} and nothing else",
        ),
        (
            custom("openai-compatible", 'cache = { mode = "auto" }'),
            "7: providers.p.cache.mode: unknown key; it may have prompt_cache_key",
        ),
        # what a model can do
        (
            custom("anthropic", model="capabilities = { context_tokens = 10 }"),
            f"9: {MODEL}.capabilities: needs the key output_tokens",
        ),
        (
            can("parallel_tool_calls = true, tool_calling = false"),
            f"9: {MODEL}.capabilities.parallel_tool_calls: needs tool_calling = true",
        ),
        (
            can('input = ["text", "imge"]'),
            (
                f'9: {MODEL}.capabilities.input: must be a list of "text", "image", "audio", '
                '"pdf" or "video"'
            ),
        ),
        (
            can("input = []"),
            f'9: {MODEL}.capabilities.input: must not be empty; write ["text"]',
        ),
        (
            can('input = ["text", "pdf"]'),
            (
                f"9: {MODEL}.capabilities.media: needs a table pdf, since input names it: "
                '{ mime_types = ["application/pdf"], max_bytes = 5000000, max_count = 20 }'
            ),
        ),
        (
            can(image("image/png")),
            f"9: {MODEL}.capabilities.media: has a table image that input does not name",
        ),
        (
            can(image("x")),
            (
                f"9: {MODEL}.capabilities.media.image.mime_types: must name image types, like "
                '{ mime_types = ["image/png"], max_bytes = 5000000, max_count = 20 }'
            ),
        ),
        (
            can("media = { smell = {} }"),
            (
                f"9: {MODEL}.capabilities.media.smell: unknown key; "
                "it may have image, audio, pdf, video"
            ),
        ),
        (
            can('cancellation = "x"'),
            f"9: {MODEL}.capabilities.cancellation: follows from the adaptor; remove it",
        ),
        (
            custom("anthropic", model="max_output = 5\n"),
            f"9: {MODEL}.max_output: is now capabilities.output_tokens",
        ),
        # what it is asked with
        (
            asked("generation_options = { seed = 1 }"),
            f"10: {MODEL}.generation_options.seed: needs capabilities.seed = true",
        ),
        (
            asked("generation_options = { tool_choice = 'any' }"),
            (
                f'10: {MODEL}.generation_options.tool_choice: must be "auto", "none", "required" '
                'or { named = "tool" }'
            ),
        ),
        (
            asked("adaptor_options = { organization = 'x' }"),
            (
                f"10: {MODEL}.adaptor_options.organization: "
                "means nothing to the adaptor of this provider"
            ),
        ),
        (
            asked("adaptor_options = { store = true }", "openai-chat"),
            (
                f"10: {MODEL}.adaptor_options.store: "
                "can only be false: nothing is kept at the provider"
            ),
        ),
        (
            asked("adaptor_options = { api_path = 'x' }", "openai-chat"),
            (
                f"10: {MODEL}.adaptor_options.api_path: is now request_endpoint, "
                '"completions" or "responses"'
            ),
        ),
        # variants
        (
            asked("variants.base = {}"),
            (
                f"10: {MODEL}.variants.base: is what a model without a variant is called; "
                "choose another name"
            ),
        ),
        (
            asked("variants.a = { enabled = false, model_id = 'x' }"),
            f"10: {MODEL}.variants.a.enabled: false removes the variant; remove its other keys",
        ),
        (
            asked("variants.a = { operation = 'x' }"),
            (
                f"10: {MODEL}.variants.a.operation: is gone: a table makes or changes a variant, "
                "enabled = false removes one"
            ),
        ),
        (
            asked("variants.high = {}\ndefault_variant = 'hgh'"),
            (
                f"11: {MODEL}.default_variant: names no variant of this model; "
                "did you mean high? there is high, base"
            ),
        ),
        (
            asked("variants.a.reasoning = { type = 'effort', value = 'high' }"),
            f"10: {MODEL}.variants.a.reasoning: needs capabilities.reasoning = true",
        ),
        (
            asked("variants.a.reasoning = { type = 'effort', value = 'hi' }"),
            (
                f"10: {MODEL}.variants.a.reasoning.value: must be one of none, minimal, low, "
                "medium, high, xhigh, max, default, in quotes"
            ),
        ),
        (
            asked("variants.a.reasoning = { type = 'toggle' }"),
            (
                f'10: {MODEL}.variants.a.reasoning: must be {{ type = "effort", value = "high" }}, '
                '{ type = "toggle", enabled = true } or { type = "budget_tokens", value = 8000 }'
            ),
        ),
        (
            custom(
                "cohere-v2-chat",
                model=CAN.replace("}", ", reasoning = true }")
                + "\nvariants.a.reasoning = { type = 'effort', value = 'high' }",
            ),
            (
                f"10: {MODEL}.variants.a.reasoning.type: "
                "can't be effort with the adaptor of this provider"
            ),
        ),
        # prices
        (
            asked("pricing = { input_per_million_usd = '-1' }"),
            (
                f"10: {MODEL}.pricing.input_per_million_usd: "
                "must be dollars from 0 to 9000 with at most 12 decimals"
            ),
        ),
        (
            asked("pricing = { input = '1' }"),
            (
                f"10: {MODEL}.pricing.input: unknown key; it may have input_per_million_usd, "
                "output_per_million_usd, reasoning_per_million_usd, cache_read_per_million_usd, "
                "cache_write_per_million_usd"
            ),
        ),
        # MCP servers and plugins
        (
            "[mcp.servers.x]\n",
            (
                "1: mcp.servers.x: needs either command or url, for example "
                'command = "npx", or url = "https://mcp.example.com/mcp"'
            ),
        ),
        (
            "[mcp.servers.x]\ncommand = 'x'\nurl = 'https://x'\n",
            (
                "1: mcp.servers.x: needs either command or url, for example "
                'command = "npx", or url = "https://mcp.example.com/mcp"'
            ),
        ),
        (
            "[mcp.servers.x]\ncommand = 'x'\nheaders = {}\n",
            "3: mcp.servers.x.headers: belongs to a server with url; remove it",
        ),
        (
            "[mcp.servers.x]\nurl = 'https://x'\nargs = []\n",
            "3: mcp.servers.x.args: belongs to a server with command; remove it",
        ),
        (
            "[mcp.servers.x]\nurl = 'x'\n",
            '2: mcp.servers.x.url: must be a whole address, like "https://mcp.example.com/mcp"',
        ),
        (
            "[mcp.servers.x]\nurl = 'https://x'\noauth = { client_secret = 'x' }\n",
            "3: mcp.servers.x.oauth.client_secret: needs a client_id beside it",
        ),
        (
            "[mcp.servers.x]\nurl = 'https://x'\noauth.client_metadata_url = 'https://x'\n",
            (
                "3: mcp.servers.x.oauth.client_metadata_url: "
                "must be an https:// address with a path"
            ),
        ),
        (
            "[mcp.servers.x]\nurl = 'https://x'\noauth = 'yes'\n",
            "3: mcp.servers.x.oauth: must be true or false, or a table, not a text",
        ),
        (
            "[mcp.servers.x]\ncommand = 'x'\ndisabled = true\n",
            "3: mcp.servers.x.disabled: is written enabled = false",
        ),
        (
            "[mcp.servers.x]\ncommand = 'x'\nenv = { 'A=B' = 'x' }\n",
            "3: mcp.servers.x.env.\"A=B\": is no name of a variable",
        ),
        (
            "[plugins.x]\nargs = []\n",
            '1: plugins.x: needs the key command, for example command = "/opt/plugins/example"',
        ),
        ("[plugins.x]\ncommand = ''\n", "2: plugins.x.command: must not be empty"),
        ("[plugins]\nx = 1\n", "2: plugins.x: must be a table, like [plugins.x], not a number"),
        ("[http]\nproxy = 'x'\n", "2: http.proxy: must be an address like http://proxy.example:3128"),
        ("[server]\nhost = '0.0.0.0'\n", (
            '2: server.host: must be "127.0.0.1": the daemon is for this machine only; '
            "remove the line"
        )),
        ("[permissions]\nbash = 'allow'\n", (
            "2: permissions.bash: rules are written in agent documents, under permissions; "
            "remove it here"
        )),
        ("[context_compaction]\ntrigger = {}\n", (
            "2: context_compaction.trigger: needs either percent or buffer_tokens, "
            "and only one of them"
        )),
        ("[context_compaction]\ntrigger = 70\n", (
            "2: context_compaction.trigger: must be { percent = 70 } or "
            "{ buffer_tokens = 33000 }, not a number"
        )),
        ("[context_compaction]\nbuffer_tokens = 1\ntrigger.percent = 1\n", (
            "2: context_compaction.buffer_tokens: is the same as trigger; keep one of the two"
        )),
        ("[runtime.messaging]\n", (
            "1: runtime: tables stand at the top: write [messaging], not [runtime.messaging]"
        )),
        ("[pricing]\n", (
            "1: pricing: prices are written in [providers.<id>.models.<name>.pricing]; "
            "move them there"
        )),
        ("enabled = true\n", (
            "1: enabled: belongs in [agent_md] or [loop_warning] or [messaging], below that line"
        )),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_and_a_way_out(
    tmp_path: Path, text: str, said: str
) -> None:
    assert complaint(tmp_path, text) == said


@pytest.mark.parametrize(
    ("adaptor", "cache", "found"),
    [
        ("anthropic", "{}", AnthropicCache(system="1h", tools="1h", rolling="5m")),
        ("aws-bedrock-converse", "{}", BedrockCache(system="5m", tools="5m", rolling="5m")),
        ("openai-chat", "{}", OpenAICache()),
        ("azure-openai-responses", '{ mode = "auto" }', OpenAICache(mode="auto")),
        ("openai-compatible", "{}", CompatibleCache(prompt_cache_key="${session_id}")),
        (
            "openai-compatible",
            '{ prompt_cache_key = "" }',
            CompatibleCache(prompt_cache_key=""),
        ),
    ],
)
def test_the_cache_of_a_family(tmp_path: Path, adaptor: str, cache: str, found: Any) -> None:
    beta = 'adaptor_options = { beta = ["extended-cache-ttl-2025-04-11"] }'
    model = f"{CAN}\n{beta}" if adaptor == "anthropic" else CAN
    provider = read(tmp_path, custom(adaptor, f"cache = {cache}", model)).settings.providers[
        ProviderId("p")
    ]

    assert provider.cache == found


def test_a_server_on_this_machine_needs_no_encryption_and_no_key(tmp_path: Path) -> None:
    local = custom("openai-compatible", method="no-auth-v1").replace(
        "https://api.example.com", "http://127.0.0.1:11434"
    )
    config = read(
        tmp_path, local + "[providers.q]\nsource = 'models_dev'\nbase_url = 'http://[::1]/'\n"
    )

    assert (config.unusable, len(config.vault)) == ({}, 0)


def test_a_script_may_lie_where_a_variable_says(tmp_path: Path) -> None:
    config = read(tmp_path, custom("scripted").replace('"x"', '"${env:REGION}/talk.yaml"'))

    provider = config.settings.providers[ProviderId("p")]
    assert provider.setup == {"script": f"{tmp_path}/data/eu-1/talk.yaml"}
    assert (len(config.vault), config.vault.variables) == (0, {"REGION"})


def test_a_variable_that_makes_a_bad_address_is_named_and_not_shown(tmp_path: Path) -> None:
    config = read(tmp_path, custom("anthropic").replace("https://api.example.com", "${env:FAR}"))

    assert str(config.unusable["p"]).endswith(
        "config.toml:4: providers.p.endpoint: the environment variable FAR makes a text that "
        "must begin with https://; http:// is for this machine only (127.0.0.1, localhost): "
        "set it, or give it a value here with ${env:FAR:-...}"
    )


def test_everything_there_is_of_servers_and_plugins(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
[mcp.servers.near]
command = "npx"
args = ["-y", "it"]
env = { TOKEN = "${env:K}" }
cwd = "/workspace"
enabled = false
lazy = true
timeout_ms = 1
[mcp.servers.far]
url = "https://mcp.example.com/mcp"
headers = { x-key = "${env:K}" }
oauth = { client_id = "me", client_secret = "${env:K}", scopes = ["mcp"] }
[mcp.servers.plain]
url = "http://mcp.example.com/mcp"
oauth = false
[plugins.b]
command = "/bin/b"
args = ["--stdio"]
env = { PATH = "/usr/bin" }
cwd = "/workspace"
enabled = false
interception_timeout_ms = 1
startup_timeout_ms = 2
shutdown_grace_ms = 3
tool_timeout_ms = 4
producer_messaging = true
[plugins.a]
command = "/bin/a"
""",
    )

    assert config.settings.mcp_servers == {
        "near": McpServerTable(
            command="npx",
            args=("-y", "it"),
            env={"TOKEN": kept("env.TOKEN", "${env:K}", "mcp:near")},
            cwd="/workspace",
            enabled=False,
            lazy=True,
            timeout_ms=1,
        ),
        "far": McpServerTable(
            url="https://mcp.example.com/mcp",
            headers={"x-key": kept("headers.x-key", "${env:K}", "mcp:far")},
            oauth=McpOAuth(
                client_id="me",
                client_secret=kept("oauth.client_secret", "${env:K}", "mcp:far"),
                scopes=("mcp",),
            ),
        ),
        "plain": McpServerTable(url="http://mcp.example.com/mcp", oauth=False),
    }
    assert config.settings.plugins == {
        "b": PluginTable(
            command="/bin/b",
            args=("--stdio",),
            env={"PATH": kept("env.PATH", "***", "plugin:b")},
            cwd="/workspace",
            enabled=False,
            interception_timeout_ms=1,
            startup_timeout_ms=2,
            shutdown_grace_ms=3,
            tool_timeout_ms=4,
            producer_messaging=True,
        ),
        "a": PluginTable(command="/bin/a"),
    }


def test_a_plugin_of_the_workspace_keeps_the_place_of_the_one_it_replaces(tmp_path: Path) -> None:
    folder = tmp_path / "ws" / ".cookie-agent"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        '[plugins.new]\ncommand = "n"\n[plugins.one]\ncommand = "other"\n'
    )
    config = read(
        tmp_path,
        '[plugins.one]\ncommand = "1"\nargs = ["x"]\n[plugins.two]\ncommand = "2"\n',
    )

    assert list(config.settings.plugins.items()) == [
        ("one", PluginTable(command="other")),
        ("two", PluginTable(command="2")),
        ("new", PluginTable(command="n")),
    ]
