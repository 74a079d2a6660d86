import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cookie.config.documents import AgentDocument, BadDocument, Limits
from cookie.config.frontmatter import (
    BODY_BYTES_MAX,
    DEPTH_MAX,
    ENTRIES_MAX,
    FILE_BYTES_MAX,
    HEAD_BYTES_MAX,
    read_document,
)
from ipc.events.base import FallbackEntry
from ipc.rules import Rule

GOOD = """---
description: Reviews changes
mode: subagent
enabled: true
models:
  - { model: "openai/gpt-5", variant: null }
  - { model: "openai/gpt-5-mini", variant: "base", cache: {} }
limits:
  max_output_tokens: 2048
permissions:
  read: allow
  write: deny
  bash:
    "git diff*": allow
    "*": ask
  delegate: deny
---
Review the requested change.
"""


def written(folder: Path, text: str | bytes, name: str = "reviewer.md") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(folder: Path, text: str | bytes, name: str = "reviewer.md") -> str:
    """The message without the folder."""
    with pytest.raises(BadDocument) as bad:
        read_document(written(folder, text, name), "user")
    return str(bad.value).replace(f"{folder}/", "")


def head(**keys: str) -> str:
    """A document whose head is right but for `keys`; an empty value leaves the key out."""
    lines = {"description": "x", "mode": "all", "enabled": "true"} | keys
    body = "\n".join(f"{key}: {value}" for key, value in lines.items() if value)
    return f"---\n{body}\n---\nDo it.\n"


def test_a_document_is_read_whole_and_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)

    assert read_document(path, "workspace") == AgentDocument(
        agent="reviewer",  # type: ignore[arg-type]
        path=str(path),
        source="workspace",
        description="Reviews changes",
        mode="subagent",
        enabled=True,
        body="Review the requested change.",
        models=(
            FallbackEntry(model="openai/gpt-5"),  # type: ignore[arg-type]
            FallbackEntry(model="openai/gpt-5-mini", variant="base", cache={}),  # type: ignore[arg-type]
        ),
        limits=Limits(max_output_tokens=2048),
        permissions=(
            Rule(action="read", resource="*", effect="allow"),
            Rule(action="write", resource="*", effect="deny"),
            Rule(action="bash", resource="git diff*", effect="allow"),
            Rule(action="bash", resource="*", effect="ask"),
            Rule(action="delegate", resource="*", effect="deny"),
        ),
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_change_nothing(
    tmp_path: Path, newline: str, mark: str
) -> None:
    plain = read_document(written(tmp_path, GOOD), "user")
    other = read_document(written(tmp_path, mark + GOOD.replace("\n", newline)), "user")
    assert other == plain


# The ten mistakes people make, with what they are told. Each message is enough to mend the file.
MISTAKES = [
    (
        head(tools="[read, bash]"),
        (
            "reviewer.md:5: tools: tools follow from permissions; remove it and write the actions "
            "under permissions"
        ),
    ),
    (
        head(model_fallback="[a/b]"),
        (
            "reviewer.md:5: model_fallback: the fallback chain is now the list under models; "
            "move its entries there"
        ),
    ),
    (head(schema="6"), "reviewer.md:5: schema: documents have no schema any more; remove it"),
    (
        head(limits="{ max_input_tokens: 9 }"),
        (
            "reviewer.md:5: limits.max_input_tokens: is gone: the input budget follows from each "
            "model's context; remove it"
        ),
    ),
    (head(mode=""), "reviewer.md:2: the key `mode` is missing"),
    (
        head(mode="agent"),
        "reviewer.md:3: mode: is 'agent'; it is one of primary, subagent, all, internal",
    ),
    (head(enabled='"yes"'), "reviewer.md:4: enabled: is 'yes'; it is true or false"),
    (
        head(permissions='{ bash: { "rm *": never } }'),
        "reviewer.md:5: permissions.bash.rm *: is 'never'; it is one of allow, ask, deny",
    ),
    (
        head(permissions="{ exec: allow }"),
        (
            "reviewer.md:5: permissions.exec: there is no such action; the actions are read, "
            "write, bash, delegate, message, mcp, plugin, skill, webfetch"
        ),
    ),
    (head(mode="primary"), "reviewer.md:3: models: a primary agent needs one"),
    (
        head(models='[{ model: "gpt-5" }]'),
        "reviewer.md:5: models.0.model: 'gpt-5' is no name of that kind",
    ),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES)
def test_a_likely_mistake_is_told_with_file_line_and_key(
    tmp_path: Path, text: str, told: str
) -> None:
    assert refused(tmp_path, text) == told


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Do it.\n", ":1: a document begins with a line ---"),
        ("---\nmode: all\n", ":1: the head has no end"),
        (head().replace("Do it.", "  "), "there is no prompt below the head"),
        (head(description='"a\\tb"'), "description: holds a control character"),
        (head(description='""'), "description: has 0 bytes"),
        (head(description="7"), "description: is 7; text belongs here"),
        (head(models="{}"), "models: is a mapping; a list belongs here"),
        (head(models="[{ variant: x }]"), "models.0: names no model"),
        (head(models="[{ model: a/b }, { model: a/b }]"), "models.1: the model a/b is in"),
        (head(models='[{ model: "${parent_model}" }]'), "is for internal agents only"),
        (
            head(mode="internal", models='[{ model: "${parent_model}", variant: base }]'),
            "takes no variant",
        ),
        (head(models="[{ model: a/b, cache: { gemini: {} } }]"), "models.0.cache.gemini: there is"),
        (
            head(models="[{ model: a/b, cache: { openai: {}, bedrock: {} } }]"),
            "takes one of anthropic, bedrock, openai",
        ),
        (
            head(models="[{ model: a/b, cache: { openai: 5 } }]"),
            "models.0.cache.openai: takes a mapping, like { system: off }",
        ),
        (
            head(models="[{ model: a/b, cache: { anthropic: { system: 7m } } }]"),
            "models.0.cache.anthropic: is not understood (Invalid enum value '7m' - at `$.system`)",
        ),
        (
            head(models="[{ model: a/b, cache: { anthropic: { systm: 1h } } }]"),
            "it may have system, tools, rolling",
        ),
        (
            head(models="[{ model: a/b, cache: { anthropic: { tools: 5m, system: 1h } } }]"),
            'models.0.cache.anthropic.system: can\'t be "1h" after tools',
        ),
        (head(limits="{ timeout_ms: 5 }"), "limits.timeout_ms: is for internal agents only"),
        (head(limits="{ max_output_tokens: -1 }"), "a whole number from 0 belongs here"),
        (head(limits="{ max_output_tokens: true }"), "a whole number from 0 belongs here"),
        (head(mode="subagent", agent_md="true"), "a subagent agent never loads AGENTS.md"),
        (head(mode="internal", agent_md="false"), "a internal agent never loads AGENTS.md"),
        (head(colour="red"), "colour: there is no such key; the keys are description"),
        (head(permissions='{ read: { "[a]": allow } }'), "the character '[' is not allowed"),
        (head(permissions='{ bash: { "${workspace_dir}/x": ask } }'), "for read and write only"),
        (head(permissions='{ read: { "${env:HOME}/*": ask } }'), "${env:...} is not read"),
        (head(description='"${env:NAME}"'), "${env:...} is not read in agent documents"),
        ("---\nmode: &a all\n---\nx", ":2: anchors (&) and aliases (*) are not read here"),
        ("---\nmode: *a\n---\nx", ":2: "),
        ("---\nmode: !!str all\n---\nx", ":2: tags are not read here"),
        ("---\nmode: all\nmode: all\n---\nx", ":3: 'mode' is given twice"),
        (head(limits='{ "<<": { max_output_tokens: 1 } }'), "merge keys (<<) are not read here"),
        ("---\nmode: [\n---\nx", "not YAML"),
        ("---\n- a\n---\nx", "is a list; a mapping of names"),
        (b"---\nmode: \xff\n---\nx", ":2: is not UTF-8 text"),
    ],
)
def test_what_a_document_may_not_hold_is_refused(
    tmp_path: Path, text: str | bytes, part: str
) -> None:
    assert part in refused(tmp_path, text)


@pytest.mark.parametrize("name", ["Reviewer.md", "a--b.md", "-a.md", "a_b.md", "a" * 65 + ".md"])
def test_a_file_that_names_no_agent_is_refused(tmp_path: Path, name: str) -> None:
    assert "the file's name is the agent's id" in refused(tmp_path, GOOD, name)


def test_the_reserved_ids_keep_their_meaning(tmp_path: Path) -> None:
    assert "belongs to the built-in agent" in refused(tmp_path, GOOD, "default.md")
    for name in ("approval", "compaction", "title"):
        assert "is an internal one: write internal" in refused(tmp_path, head(), f"{name}.md")
        path = written(tmp_path, head(mode="internal"), f"{name}.md")
        assert read_document(path, "user").mode == "internal"


def filled(size: int) -> str:
    """A document whose head has exactly `size` bytes."""
    bare = "description: x\nmode: all\nenabled: true\n#"
    return f"---\n{bare}{'y' * (size - len(bare))}\n---\nDo it.\n"


def nested(levels: int) -> str:
    return "{ a: " * levels + "1" + " }" * levels


def rules(count: int) -> str:
    return "{ bash: { " + ", ".join(f'"c{n}": ask' for n in range(count)) + " } }"


@pytest.mark.parametrize(
    ("fits", "does_not", "part"),
    [
        (head(description="x" * 512), head(description="x" * 513), "has 513 bytes"),
        (
            head(permissions=rules(ENTRIES_MAX)),
            head(permissions=rules(ENTRIES_MAX + 1)),
            "has more than 256 entries",
        ),
        (
            head(models="[" + ", ".join(f"{{ model: a/b{n} }}" for n in range(256)) + "]"),
            head(models="[" + ", ".join(f"{{ model: a/b{n} }}" for n in range(257)) + "]"),
            "has more than 256 entries",
        ),
        (
            f"{head()}{'x' * (BODY_BYTES_MAX - 7)}",
            f"{head()}{'x' * (BODY_BYTES_MAX - 6)}",
            f"the prompt is larger than {BODY_BYTES_MAX} bytes",
        ),
        (
            filled(HEAD_BYTES_MAX),
            filled(HEAD_BYTES_MAX + 1),
            f"the head is larger than {HEAD_BYTES_MAX} bytes",
        ),
    ],
)
def test_each_limit_holds_at_the_limit_and_not_one_past_it(
    tmp_path: Path, fits: str, does_not: str, part: str
) -> None:
    read_document(written(tmp_path, fits), "user")
    assert part in refused(tmp_path, does_not)


def test_a_file_over_the_limit_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.md"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(BadDocument, match=f"is larger than {FILE_BYTES_MAX} bytes"):
        read_document(path, "user")


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    models = f"[{{ model: a/b, cache: {{ openai: {nested(DEPTH_MAX - 4)} }} }}]"
    assert "nested deeper" not in refused(tmp_path, head(models=models))
    deeper = f"[{{ model: a/b, cache: {{ openai: {nested(DEPTH_MAX - 3)} }} }}]"
    assert "is nested deeper than 16 levels" in refused(tmp_path, head(models=deeper))
    assert "nesting depth" in refused(tmp_path, head(models="[" * 100_000))


def test_a_document_may_name_what_does_not_exist_yet(tmp_path: Path) -> None:
    text = head(
        models="[{ model: nobody/nothing }]", permissions="{ mcp: { x_y: allow }, skill: ask }"
    )
    assert len(read_document(written(tmp_path, text), "user").permissions) == 2


@pytest.mark.parametrize("what", ["folder", "pipe", "missing"])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x.md"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    with pytest.raises(BadDocument):
        read_document(path, "user")


any_text = st.text(max_size=200) | st.text("-:{}[]&*!%#\n \"'", max_size=200)
any_head_keys = st.sampled_from(
    ["description", "mode", "enabled", "models", "limits", "permissions", "tools"]
)

# Words that mean something in a head, so that a random one gets past the first check.
KEYS = st.sampled_from(
    [
        *("description", "mode", "enabled", "models", "limits", "permissions", "delegates"),
        *("max_output_tokens", "model", "variant", "cache", "read", "write", "bash", "skill"),
        *("git *", "/*", "${workspace_dir}/*", "<<", "&a x", "*a", "!!python/object:x", "!b c"),
    ]
) | st.text(max_size=6)
SCALARS = (
    st.sampled_from(
        [
            *("allow", "ask", "deny", "all", "primary", "subagent", "true", "null", "~", "x/y"),
            *("a/b", "&a", "*a", "!!str x", "|\n   x", ">\n x", "'", '"\\x', "{", "[*a, &b c]"),
        ]
    )
    | st.integers(-(2**70), 2**70).map(str)
    | any_text
)
NODES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda found: f"[{', '.join(found)}]")
        | st.dictionaries(KEYS, inner, max_size=4).map(
            lambda found: "{" + ", ".join(f"{key}: {value}" for key, value in found.items()) + "}"
        )
        | st.dictionaries(KEYS, inner, max_size=4).map(
            lambda found: "\n" + "\n".join(f"  {key}: {value}" for key, value in found.items())
        )
    ),
    max_leaves=12,
)
HEADS = st.dictionaries(any_head_keys | KEYS, NODES, max_size=7).map(
    lambda keys: "\n".join(f"{key}: {value}" for key, value in keys.items())
)
FILES = st.tuples(HEADS, any_text).map(
    lambda parts: f"---\n{parts[0]}\n---\n{parts[1]}".encode("utf-8", "surrogatepass")
) | st.binary(max_size=300)


def judge(content: bytes) -> None:
    """A document is read, or refused in one line that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.md"
        path.write_bytes(content)
        told = str(path)
        try:
            read_document(path, "user")
        except BadDocument as bad:
            told = str(bad)
    assert str(path) in told
    assert "\n" not in told


@given(FILES)
def test_no_text_raises_anything_else(content: bytes) -> None:
    judge(content)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=100_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FILES)
def test_a_hundred_thousand_random_documents(content: bytes) -> None:
    judge(content)
