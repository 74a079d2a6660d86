"""The system prompt: what it is made of, in which order, and how long each part may be."""

import hashlib
from collections.abc import Sequence
from typing import Final, Literal
from xml.sax.saxutils import quoteattr

from msgspec import Struct

from ipc.faults import Fault
from ipc.ids import Fingerprint

KIB: Final = 1024
SECTION_BYTES_MAX: Final = 8 * KIB  # one section of tool instructions (spec 1.10)
PROVIDER_BYTES_MAX: Final = 16 * KIB  # all sections of one provider
INSTRUCTIONS_BYTES_MAX: Final = 32 * KIB  # all sections
PROMPT_BYTES_MAX: Final = 128 * KIB  # the whole


class PromptTooLarge(Fault):
    """A part of the system prompt is over its cap; the run is not admitted."""

    code = "prompt_too_large"


class ToolInstructions(Struct, frozen=True, kw_only=True):
    """What a trusted provider of tools has to say about them: one section."""

    provider: str
    text: str


class SkillLine(Struct, frozen=True, kw_only=True):
    """A skill as the model sees it before it is loaded."""

    name: str
    description: str
    when_to_use: str | None = None
    argument_hint: str | None = None


class PromptEdit(Struct, frozen=True, kw_only=True):
    """What a plugin changed before the agent started: more text, or all of it anew."""

    plugin: str
    kind: Literal["append", "replace"]
    text: str


def compose(
    body: str,
    instructions: Sequence[ToolInstructions] = (),
    skills: Sequence[SkillLine] = (),
    edits: Sequence[PromptEdit] = (),
) -> str:
    """The system prompt: body, tool instructions, skills, then the edits in their order.

    Sizes are bytes of UTF-8. Raises PromptTooLarge, naming the part and its cap.
    """
    _check_instructions(instructions)
    parts = [
        body.strip(),
        *(_section(section) for section in instructions if section.text.strip()),
        _listing(skills),
    ]
    prompt = "\n\n".join(part for part in parts if part)
    _check("system prompt", prompt, PROMPT_BYTES_MAX)
    for edit in edits:
        text = edit.text.strip()
        prompt = text if edit.kind == "replace" else f"{prompt}\n\n{text}".strip()
        _check(f"system prompt after plugin {edit.plugin}", prompt, PROMPT_BYTES_MAX)
    return prompt


def prompt_fingerprint(prompt: str) -> Fingerprint:
    """What tells two system prompts apart: "sha256:" and the digest of the UTF-8."""
    return Fingerprint("sha256:" + hashlib.sha256(prompt.encode()).hexdigest())


def _check_instructions(instructions: Sequence[ToolInstructions]) -> None:
    by_provider: dict[str, int] = {}
    for section in instructions:
        size = _check(
            f"a tool instructions section of {section.provider}", section.text, SECTION_BYTES_MAX
        )
        by_provider[section.provider] = by_provider.get(section.provider, 0) + size
    for provider, size in by_provider.items():
        _check_size(f"tool instructions of {provider}", size, PROVIDER_BYTES_MAX)
    _check_size("tool instructions", sum(by_provider.values()), INSTRUCTIONS_BYTES_MAX)


def _check(part: str, text: str, limit: int) -> int:
    size = len(text.encode())
    _check_size(part, size, limit)
    return size


def _check_size(part: str, size: int, limit: int) -> None:
    if size > limit:
        raise PromptTooLarge(part=part, bytes=size, limit=limit)


def _section(section: ToolInstructions) -> str:
    name = quoteattr(section.provider)
    return f"<tool_instructions provider={name}>\n{section.text.strip()}\n</tool_instructions>"


def _listing(skills: Sequence[SkillLine]) -> str:
    if not skills:
        return ""
    lines = "\n".join(_line(skill) for skill in skills)
    return f"<skills>\n{lines}\n</skills>"


def _line(skill: SkillLine) -> str:
    hint = f" {_flat(skill.argument_hint)}" if skill.argument_hint else ""
    when = f" Use it when: {_flat(skill.when_to_use)}" if skill.when_to_use else ""
    return f"- {skill.name}{hint}: {_flat(skill.description)}{when}"


def _flat(text: str) -> str:
    return " ".join(text.split())
