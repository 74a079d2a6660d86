"""`cookie run`: one prompt, headless. This file knows the flags; `headless` drives the run."""

from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from cookie.cli import candidates, exits

if TYPE_CHECKING:
    from ipc.rules import PermissionMode

MODES: Final = ("auto-approve", "auto-approve-n", "auto-approve-y", "ask", "yolo")
OUTPUTS: Final = ("text", "json", "none")
TIMEOUT_S: Final = 600
MAX_TURNS: Final = 100
LIMIT_MAX: Final = 1_000_000_000

# More words than one are taken, so that a prompt without quotes gets an answer that helps.
CONTEXT: Final[dict[str, Any]] = {"allow_extra_args": True}


class BadUsage(typer.BadParameter):
    """Words that don't go together: click's usage lines, then ours as it stands."""

    def format_message(self) -> str:
        """The message without click's preface."""
        return self.message


def _limit(given: str | int) -> int:  # an int: our own default comes by here too
    text = str(given)
    if text.isdecimal() and text.isascii() and 1 <= int(text[:11]) <= LIMIT_MAX:
        return int(text)
    raise typer.BadParameter(f"{text!r} is not a whole number from 1 to {LIMIT_MAX}")


def run(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(help="What to do; `-` reads it from stdin.", metavar="PROMPT")
    ] = None,
    prompt_option: Annotated[
        str | None,
        typer.Option("-p", "--prompt", metavar="PROMPT", help="The same, as an option."),
    ] = None,
    prompt_file: Annotated[
        str | None,
        typer.Option("-f", "--prompt-file", metavar="FILE", help="Read it from a file."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--model",
            metavar="PROVIDER/MODEL",
            help="Who answers.",
            autocompletion=candidates.models,
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(metavar="NAME|base", help="In which variant; `base` is the model as it is."),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Which agent runs.",
            autocompletion=candidates.agents,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which set of agents is taken.",
            autocompletion=candidates.presets,
        ),
    ] = None,
    permission_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help=f"What happens to a call that must be asked for: {', '.join(MODES)}.",
            autocompletion=lambda: MODES,
        ),
    ] = MODES[0],
    allowed_tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOLS",
            help="Allow these; repeat, or separate by commas: read,write,bash.",
        ),
    ] = None,
    resume_session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Go on with it: its id or how its title begins.",
            autocompletion=candidates.sessions,
        ),
    ] = None,
    continue_: Annotated[
        bool, typer.Option("--continue", help="Go on with this folder's newest session.")
    ] = False,
    data_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where sessions and config.toml are (~/.cookie-agent)."),
    ] = None,
    max_turns: Annotated[
        int, typer.Option(metavar="N", parser=_limit, help="Stop after this many model turns.")
    ] = MAX_TURNS,
    timeout: Annotated[
        int, typer.Option(metavar="SECONDS", parser=_limit, help="Stop after so long.")
    ] = TIMEOUT_S,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="|".join(OUTPUTS),
            help="The answer (default), a JSON record a line, or nothing.",
            autocompletion=lambda: OUTPUTS,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    output_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the output there; emptied when a run begins."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say on stderr what happens.")] = False,
    skill: Annotated[
        str | None, typer.Option(metavar="NAME", help="Begin with this skill (not built yet).")
    ] = None,
    skill_args: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the skill is told; needs --skill.")
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the answer's text while it is written.")
    ] = False,
) -> None:
    """Run one prompt and print the answer.

    Exit codes: 0 done, 1 failed, 2 bad usage, 3 stopped by a permission, 4 cancelled or
    interrupted, 5 not set up.
    """
    if ctx.args:
        _wrong(f"the prompt is one argument, put it in quotes: {ctx.args[0]!r} is left over")
    sources = {"PROMPT": prompt, "--prompt": prompt_option, "--prompt-file": prompt_file}
    _full("--prompt-file", prompt_file)
    _full("--model", model)
    _full("--variant", variant)
    _full("--agent", agent)
    _full("--preset", preset)
    _full("--resume-session", resume_session)
    _full("--data-dir", data_dir)
    _full("--output-file", output_file)
    if resume_session is not None and continue_:
        _wrong("--continue and --resume-session can't both choose the session")
    _check_sources(sources, resuming=continue_ or resume_session is not None)
    shape = _output_shape(output, json=json, stream=stream, output_file=output_file)
    mode = _mode(permission_mode)
    _check_skill(skill, skill_args)

    from cookie.cli import headless  # noqa: PLC0415 - `cookie --help` needs none of it
    from cookie.cli.early import Spare  # noqa: PLC0415

    order = headless.Order(
        prompt=_prompt(sources),
        model=model,
        variant=variant,
        agent=agent,
        preset=preset,
        permission_mode=mode,
        allowed_tools=_tools(allowed_tools or []),
        resume=resume_session,
        newest=continue_,
        data_dir=data_dir,
        max_turns=max_turns,
        timeout_s=timeout,
        output=shape,
        output_file=output_file,
        verbose=verbose,
        stream=stream,
    )
    raise typer.Exit(headless.main(order, ctx.obj or Spare(None)))


def _wrong(message: str) -> NoReturn:
    raise BadUsage(message)


def _full(flag: str, value: str | None) -> None:
    """A value that was given is one: a script's unset variable is not."""
    if value is not None and not value.strip():
        _wrong(f"{flag} is empty: give it a value or leave it out")
    if value is not None and "\0" in value:
        _wrong(f"{flag} has a NUL character in it")


def _check_skill(skill: str | None, skill_args: str | None) -> None:
    if skill is None and skill_args is not None:
        _wrong("--skill-args needs --skill")
    if skill is not None:
        from cookie.cli.advice import say  # noqa: PLC0415

        say("--skill is not built yet: say in the prompt what to do")
        raise typer.Exit(exits.USAGE_ERROR)


def _output_shape(output: str | None, *, json: bool, stream: bool, output_file: str | None) -> str:
    if json and output is not None:
        _wrong("--json and --output say the same thing: give one of them")
    shape = "json" if json else output if output is not None else OUTPUTS[0]
    if shape not in OUTPUTS:
        _wrong(f"--output is one of {', '.join(OUTPUTS)}, not {shape!r}")
    if shape == "none" and output_file is not None:
        _wrong("--output none writes nothing, so --output-file has no use")
    if stream and shape != "text":
        _wrong("--stream prints text as it comes; --json has the same as events")
    return shape


def _mode(text: str) -> "PermissionMode":
    from ipc.rules import BadMode, parse_mode  # noqa: PLC0415 - `cookie --help` needs none of it

    try:
        return parse_mode(text)
    except BadMode:
        _wrong(f"--permission-mode is one of {', '.join(MODES)}, not {text!r}")


def _tools(given: list[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for part in given for name in part.split(",") if name.strip())
    if given and not names:
        _wrong("--allowed-tools is empty: name tools or leave it out")
    return names


def _check_sources(sources: dict[str, str | None], *, resuming: bool) -> None:
    used = [name for name, value in sources.items() if value is not None]
    if len(used) > 1:
        _wrong(f"give the prompt once, not as {' and '.join(used)}")
    if not used and not resuming:
        _wrong("there is no prompt: cookie run 'what to do' (or - for stdin, or -f FILE)")


def _prompt(sources: dict[str, str | None]) -> str | None:
    """The prompt from the one source that was given; None without one."""
    from cookie.cli import prompt  # noqa: PLC0415
    from cookie.cli.advice import say  # noqa: PLC0415

    for name, value in sources.items():
        if value is None:
            continue
        said_here = name != "--prompt-file" and value != prompt.STDIN
        try:
            if said_here:
                return prompt.given(value)
            return prompt.from_stdin() if value == prompt.STDIN else prompt.from_file(value)
        except prompt.BadPrompt as bad:
            if said_here:
                _wrong(str(bad))
            say(str(bad))  # the command line is right; what it points at is not
            raise typer.Exit(exits.SETUP) from None
    return None
