"""The order of the system prompt, and the caps of its parts (spec 1.10)."""

import pytest

from workers.run.prompt import (
    INSTRUCTIONS_BYTES_MAX,
    PROMPT_BYTES_MAX,
    PROVIDER_BYTES_MAX,
    SECTION_BYTES_MAX,
    PromptEdit,
    PromptTooLarge,
    SkillLine,
    ToolInstructions,
    compose,
    prompt_fingerprint,
)


def section(provider: str, size: int = 4) -> ToolInstructions:
    return ToolInstructions(provider=provider, text="x" * size)


def append(text: str) -> PromptEdit:
    return PromptEdit(plugin="p", kind="append", text=text)


def test_the_parts_come_in_their_order() -> None:
    prompt = compose(
        "You are cookie.\n",
        [ToolInstructions(provider="files", text="Use paths.")],
        [
            SkillLine(name="lint", description="Find\nfaults."),
            SkillLine(
                name="ship",
                description="Release it.",
                when_to_use="asked to",
                argument_hint="[version]",
            ),
        ],
        [append("Be brief.")],
    )

    assert prompt == (
        "You are cookie.\n"
        "\n"
        '<tool_instructions provider="files">\n'
        "Use paths.\n"
        "</tool_instructions>\n"
        "\n"
        "<skills>\n"
        "- lint: Find faults.\n"
        "- ship [version]: Release it. Use it when: asked to\n"
        "</skills>\n"
        "\n"
        "Be brief."
    )


def test_parts_that_are_not_there_leave_no_trace() -> None:
    assert compose("Body.") == "Body."
    assert compose("", [section("p", 0)]) == ""


def test_edits_are_made_in_their_order() -> None:
    edits = [append("lost"), PromptEdit(plugin="q", kind="replace", text="New."), append("More.")]

    assert compose("Body.", edits=edits) == "New.\n\nMore."


def test_a_provider_name_cannot_break_out_of_its_attribute() -> None:
    assert "provider='a\"b&gt;'" in compose("", [section('a"b>')])


def test_everything_at_its_cap_is_admitted() -> None:
    sections = [section(provider, SECTION_BYTES_MAX) for provider in ("a", "a", "b", "b")]

    assert len(compose("", sections)) > INSTRUCTIONS_BYTES_MAX
    assert len(compose("x" * PROMPT_BYTES_MAX)) == PROMPT_BYTES_MAX


@pytest.mark.parametrize(
    ("parts", "part", "size", "limit"),
    [
        (
            {"instructions": [section("a", SECTION_BYTES_MAX + 1)]},
            "a tool instructions section of a",
            SECTION_BYTES_MAX + 1,
            SECTION_BYTES_MAX,
        ),
        (
            {"instructions": [section("a", SECTION_BYTES_MAX)] * 2 + [section("a", 1)]},
            "tool instructions of a",
            PROVIDER_BYTES_MAX + 1,
            PROVIDER_BYTES_MAX,
        ),
        (
            {"instructions": [section(p, SECTION_BYTES_MAX) for p in "abcd"] + [section("e", 1)]},
            "tool instructions",
            INSTRUCTIONS_BYTES_MAX + 1,
            INSTRUCTIONS_BYTES_MAX,
        ),
        (
            {"body": "é" * (PROMPT_BYTES_MAX // 2) + "x"},
            "system prompt",
            PROMPT_BYTES_MAX + 1,
            PROMPT_BYTES_MAX,
        ),
        (
            {"edits": [append("x" * (PROMPT_BYTES_MAX + 1))]},
            "system prompt after plugin p",
            PROMPT_BYTES_MAX + 1,
            PROMPT_BYTES_MAX,
        ),
    ],
)
def test_one_byte_more_than_its_cap_rejects_the_admission(parts, part, size, limit) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PromptTooLarge) as refused:
        compose(**{"body": "", **parts})

    assert refused.value.facts == {"part": part, "bytes": size, "limit": limit}


def test_equal_prompts_have_equal_fingerprints() -> None:
    assert prompt_fingerprint("") == (
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    assert prompt_fingerprint("a") != prompt_fingerprint("b")
