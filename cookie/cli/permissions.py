"""`cookie permissions`: which rule decides about a tool call, and why that one."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, NoReturn

import msgspec
import typer
from msgspec import Struct

from cookie.cli import exits, whereabouts
from cookie.cli.advice import explain as told
from cookie.cli.advice import one_line, say
from cookie.cli.early import worker_environment
from cookie.config import agents as agents_of
from cookie.config.agents import NoSuchAgent, load_agents
from cookie.config.documents import AgentDocument, BadDocument
from cookie.models.compile import BadAllowedTool, overlay
from ipc.errands import EXPLAIN, Consequence, Explain, Explained, Explanation, Unreadable, Weighed
from ipc.events.base import AgentSnapshot
from ipc.faults import Fault, clean
from ipc.rules import MODES, BadMode, PermissionMode, parse_mode

ERRAND_S: Final = 60.0
LABEL_CHARS_MAX: Final = 400
PATTERN_COLUMNS_MAX: Final = 40
_HINT: Final = "'TOOL_CALL'"

permissions = typer.Typer(
    name="permissions",
    help="Ask the permission rules.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class ErrandLost(Fault):
    """The process that was to answer did not."""

    code = "errand_lost"

    def __init__(self, cause: str) -> None:
        super().__init__(cause=cause)
        self.args = (f"the worker that knows the tools gave no answer: {cause}",)


@permissions.callback()
def _group() -> None:
    """Ask the permission rules."""  # and `explain` stays a word of its own, though it is alone


@permissions.command()
def explain(
    tool_call: Annotated[
        str,
        typer.Argument(
            metavar="TOOL_CALL",
            help="A tool or an action and what it is given, like 'bash: git status' or "
            "'read: src/x.py'; or a call as a model writes it: "
            '\'{"name": "bash", "arguments": {"command": "ls"}}\'.',
        ),
    ],
    agent: Annotated[
        str | None, typer.Option("-a", "--agent", metavar="NAME", help="Whose rules.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="The preset its document is in.")
    ] = None,
    permission_mode: Annotated[
        str, typer.Option(metavar="MODE", help="As for `cookie run`.")
    ] = "auto-approve",
    allowed_tools: Annotated[
        list[str] | None, typer.Option(metavar="TOOLS", help="As for `cookie run`.")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where your agents are (~/.cookie-agent).")
    ] = None,
) -> None:
    """Say what would become of a tool call: the rules that match, the one that decides, and why.

    Nothing is run and no model is asked. Exits 0 when it could be told, 2 when the words stand
    for no call.
    """
    mode = _mode(permission_mode)
    given = (name.strip() for part in allowed_tools or () for name in part.split(","))
    names = tuple(name for name in given if name)
    name, text, arguments = _call(tool_call)
    try:
        subject = _subject(agent, preset, names, data_dir)
        order = Explain(
            rules=subject.snapshot.permissions,
            overlay=overlay(names),
            workspace=subject.workspace,
            mode=mode,
            name=name,
            text=text,
            arguments=arguments,
        )
        answer = _errand(order)
    except BadAllowedTool as bad:
        raise typer.BadParameter(str(bad), param_hint="--allowed-tools") from None
    except (Fault, OSError) as trouble:
        say(told(trouble))
        raise typer.Exit(exits.SETUP) from None
    if isinstance(answer, Unreadable):
        _unreadable(f"{answer.reason}; a call begins with one of {', '.join(answer.names)}")
    for line in _page(answer, subject, mode):
        typer.echo(line)


# --- what is asked -------------------------------------------------------------------------------


class _Call(Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")  # an object, or the model's own text of one


def _mode(text: str) -> PermissionMode:
    try:
        return parse_mode(text)
    except BadMode:
        known = ", ".join(MODES).replace("_", "-")
        raise typer.BadParameter(
            f"{text!r} is none of {known}", param_hint="--permission-mode"
        ) from None


def _call(words: str) -> tuple[str, str | None, str | None]:
    """The name, a person's text or a model's arguments; exits 2 for what is neither."""
    try:
        words.encode()
    except UnicodeEncodeError:
        _unreadable("it is not UTF-8")
    if words.lstrip().startswith("{"):
        try:
            call = msgspec.json.decode(words, type=_Call)
            given = bytes(call.arguments)
            arguments = (
                msgspec.json.decode(given, type=str) if given[:1] == b'"' else given.decode()
            )
        except msgspec.DecodeError as bad:
            _unreadable(f'it is no {{"name": ..., "arguments": {{...}}}}: {bad}')
        return call.name, None, arguments
    name, colon, text = words.partition(":")
    return name.strip(), text.removeprefix(" ") if colon else None, None


def _unreadable(reason: str) -> NoReturn:
    raise typer.BadParameter(
        f"{one_line(reason)}. Write it like 'bash: git status'", param_hint=_HINT
    )


class _Subject(Struct, frozen=True, kw_only=True):
    """Whose rules are asked, and where each of them is written."""

    snapshot: AgentSnapshot
    document: AgentDocument | None  # None: the agent that is built in
    flags: tuple[str, ...]  # of --allowed-tools, one an overlay rule
    workspace: str

    def origins(self) -> tuple[str, ...]:
        """The place of each of the agent's rules, in their order."""
        if self.document is None:
            return ("built in",) * len(self.snapshot.permissions)
        from cookie.config.frontmatter import rule_lines  # noqa: PLC0415 - YAML, where it is needed

        path = self.where()
        try:
            lines = rule_lines(Path(self.document.path))
        except BadDocument:  # it changed under us: what was read is what is explained
            lines = ()
        if len(lines) != len(self.snapshot.permissions):
            return (path,) * len(self.snapshot.permissions)
        return tuple(f"{path}:{line}" for line in lines)

    def where(self) -> str:
        """The document, as seen from the workspace."""
        if self.document is None:
            return "built in"
        return self.document.path.removeprefix(self.workspace.rstrip("/") + "/")


def _subject(
    agent: str | None, preset: str | None, names: tuple[str, ...], data_dir: str | None
) -> _Subject:
    """Whom it is about, chosen as a run chooses; a subagent too when it is named."""
    around, workspace = whereabouts.around(data_dir), whereabouts.folder()
    documents = load_agents(around.data_dir, Path(workspace)).effective(preset)
    known = agents_of.snapshots(documents, ())
    chosen = next((one for one in known if one.agent == agent), None)
    if chosen is None:
        if agent is not None:
            raise NoSuchAgent(agent, tuple(one.agent for one in known))
        chosen = agents_of.choose(documents, known, None)
    return _Subject(
        snapshot=chosen,
        document=documents.get(chosen.agent),
        flags=names,
        workspace=workspace,
    )


def _errand(order: Explain) -> Explanation:
    """Ask the floor that knows the tools; raises ErrandLost or OSError."""
    argv = [sys.executable, "-P", "-m", "workers", EXPLAIN]
    given = msgspec.json.encode(order)
    env = worker_environment(os.environ)
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            argv, check=False, input=given, capture_output=True, env=env, timeout=ERRAND_S
        )
    except subprocess.TimeoutExpired:
        raise ErrandLost(f"none within {ERRAND_S:.0f} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ErrandLost(said[-1] if said else f"it ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Explanation)


# --- what is told --------------------------------------------------------------------------------


def _page(found: Explained, subject: _Subject, mode: PermissionMode) -> Iterator[str]:
    yield f"agent      {subject.snapshot.agent} ({subject.where()})"
    if found.refused is not None:
        yield f"tool       {found.tool or 'none of that name'}"
        yield ""
        yield f"No rule is asked. The model is told: {one_line(found.refused)}"
        return
    yield f"tool       {_tool(found)}"
    yield f"action     {found.action}"
    label = "none" if found.label is None else clean(found.label, LABEL_CHARS_MAX)
    yield f"label      {label}"
    yield ""
    if found.weighed:
        yield "These rules match, the strongest first:"
        yield from _rules(found.weighed, subject)
        yield f"Rule 1 decides: {_why(found.weighed)}."
    else:
        yield (
            f"None of the {found.rules} rules for {found.action} matches."
            if found.rules
            else (f"There is no rule for {found.action}.")
        )
    yield ""
    yield from _effect(found, mode)


def _tool(found: Explained) -> str:
    offered = "offered" if found.visible else "not offered: no rule of its action allows or asks"
    if found.tool is not None:
        return f"{found.tool} ({offered})"
    if found.tools:
        return f"{', '.join(found.tools)} ({offered})"
    return f"no tool of this build falls under {found.action}"


def _rules(weighed: Sequence[Weighed], subject: _Subject) -> Iterator[str]:
    origins = subject.origins()
    shown = [clean(one.rule.resource, LABEL_CHARS_MAX) for one in weighed]
    width = min(max(map(len, shown)), PATTERN_COLUMNS_MAX)
    for number, (one, pattern) in enumerate(zip(weighed, shown, strict=True), 1):
        if one.source == "session_overlay":
            where = f"--allowed-tools {subject.flags[one.place]}"
        else:
            where = clean(origins[one.place], LABEL_CHARS_MAX)
        yield f"  {number:>2}  {one.rule.effect:<5}  {pattern:<{width}}  {where}"


def _why(weighed: Sequence[Weighed]) -> str:
    """Why the first is stronger than the second."""
    for first, second in pairwise(weighed):
        if first.source != second.source:
            return "what is laid over the agent's rules comes before them"
        if first.literal != second.literal:
            counts = f"{first.literal}, not {second.literal}"
            return f"it has more literal characters than rule 2 ({counts})"
        if first.wildcards != second.wildcards:
            counts = f"{first.wildcards}, not {second.wildcards}"
            return f"it has as many literal characters as rule 2 and fewer wildcards ({counts})"
        return "it is as exact as rule 2 and declared after it"
    return "no other matches"


def _effect(found: Explained, mode: PermissionMode) -> Iterator[str]:
    if found.effect == "allow":
        yield "allow: it runs without a question, in every mode."
    elif found.effect == "deny":
        yield "deny: it is refused in every mode, yolo too; the model is told, and the run goes on."
    else:
        yield f"ask: what happens then depends on the mode. In {mode.replace('_', '-')}:"
        yield f"  nobody to ask, as in `cookie run`: {_consequence(found.unattended)}"
        yield f"  somebody to ask:                   {_consequence(found.attended)}"
        yield "Asked for a fourth time with nothing else in between, it is refused in every mode."


def _consequence(one: Consequence | None) -> str:
    if one is None or one.outcome == "allow":
        return "it runs"
    if one.outcome == "ask":
        return "that person decides"
    end = "and the run ends (exit code 3)" if one.ends_run else "and the run goes on"
    return f"it is refused ({one.reason}), {end}"
