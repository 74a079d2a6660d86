"""`cookie run`: one prompt, headless. This file knows the flags; `headless` drives the run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cookie.cli import exits

if TYPE_CHECKING:
    from ipc.rules import PermissionMode

MODES: Final = ("auto-approve", "auto-approve-n", "auto-approve-y", "ask", "yolo")
OUTPUTS: Final = ("text", "json", "none")
STDIN: Final = "-"
PROMPT_BYTES_MAX: Final = 2 * 1024 * 1024
TIMEOUT_S: Final = 600
MAX_TURNS: Final = 100


def run(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(help="What to do; `-` reads it from stdin.", metavar="PROMPT")
    ] = None,
    prompt_option: Annotated[
        str | None, typer.Option("-p", "--prompt", help="The prompt as an option.")
    ] = None,
    prompt_file: Annotated[
        str | None, typer.Option("-f", "--prompt-file", help="Read the prompt from a file.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="PROVIDER/MODEL", help="Who answers."),
    ] = None,
    agent: Annotated[str | None, typer.Option("-a", "--agent", help="Which agent runs.")] = None,
    permission_mode: Annotated[
        str,
        typer.Option(help=f"What happens to a call that must be asked for: {', '.join(MODES)}."),
    ] = MODES[0],
    allowed_tools: Annotated[
        list[str] | None,
        typer.Option(help="Allow these tools; repeat, or separate by commas: read,write,bash."),
    ] = None,
    resume_session: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this session.")
    ] = None,
    continue_: Annotated[
        bool, typer.Option("--continue", help="Go on with this folder's newest session.")
    ] = False,
    data_dir: Annotated[
        str | None, typer.Option(help="Where sessions and config live (~/.cookie-agent).")
    ] = None,
    max_turns: Annotated[
        int, typer.Option(min=1, help="Stop after this many model turns.")
    ] = MAX_TURNS,
    timeout: Annotated[int, typer.Option(min=1, help="Stop after this many seconds.")] = TIMEOUT_S,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help=f"{', '.join(OUTPUTS)} (text).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    output_file: Annotated[
        str | None, typer.Option(help="Write the output to this file instead of stdout.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say on stderr what happens.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print the answer's text while it is written.")
    ] = False,
) -> None:
    """Run one prompt and print the answer.

    Exit codes: 0 done, 1 failed, 2 bad usage, 3 stopped by a permission, 4 cancelled, 5 not set up.
    """
    from cookie.cli import headless  # noqa: PLC0415 - `cookie --help` needs none of it

    shape = _output_shape(output, json=json, stream=stream, output_file=output_file)
    order = headless.Order(
        prompt=_prompt(prompt, prompt_option, prompt_file, resuming=resume_session is not None),
        model=model,
        agent=agent,
        permission_mode=_mode(permission_mode),
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
    if resume_session is not None and continue_:
        raise typer.BadParameter("--continue and --resume-session can't both choose the session")
    raise typer.Exit(headless.main(order, ctx.obj))


def _output_shape(output: str | None, *, json: bool, stream: bool, output_file: str | None) -> str:
    if json and output is not None:
        raise typer.BadParameter("--json and --output say the same thing: give one of them")
    shape = "json" if json else output or OUTPUTS[0]
    if shape not in OUTPUTS:
        raise typer.BadParameter(f"--output is one of {', '.join(OUTPUTS)}, not {shape!r}")
    if shape == "none" and output_file is not None:
        raise typer.BadParameter("--output none writes nothing, so --output-file has no use")
    if stream and shape != "text":
        raise typer.BadParameter("--stream prints text as it comes; --json has the same as events")
    return shape


def _mode(text: str) -> "PermissionMode":
    from ipc.rules import BadMode, parse_mode  # noqa: PLC0415 - `cookie --help` needs none of it

    try:
        return parse_mode(text)
    except BadMode:
        raise typer.BadParameter(
            f"--permission-mode is one of {', '.join(MODES)}, not {text!r}"
        ) from None


def _tools(given: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for part in given for name in part.split(",") if name.strip())


def _prompt(
    positional: str | None, option: str | None, file: str | None, *, resuming: bool
) -> str | None:
    """The prompt from the one source that was given; stdin is read only when asked for."""
    given = [source for source in (positional, option, file) if source is not None]
    if not given and resuming:
        return None
    if len(given) != 1:
        raise typer.BadParameter(
            "give the prompt once: as an argument, with --prompt, or with --prompt-file"
            if given
            else "there is no prompt: cookie run 'what to do' (or - for stdin, or -f FILE)"
        )
    if given[0] == STDIN:
        text = _decode(sys.stdin.buffer.read(PROMPT_BYTES_MAX + 1), "stdin")
    elif file is not None:
        text = _read(file)
    else:
        text = given[0]
    if not text.strip():
        raise typer.BadParameter("the prompt is empty")
    return text


def _read(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(PROMPT_BYTES_MAX + 1)
    except ValueError:
        raise typer.BadParameter("--prompt-file: a path can't hold a NUL byte") from None
    except OSError as failed:
        typer.echo(f"cookie: can't read the prompt from {file}: {failed.strerror}", err=True)
        raise typer.Exit(exits.SETUP) from None
    return _decode(data, file)


def _decode(data: bytes, source: str) -> str:
    if len(data) > PROMPT_BYTES_MAX:
        raise typer.BadParameter(f"the prompt in {source} is over {PROMPT_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as bad:
        raise typer.BadParameter(
            f"the prompt in {source} is not UTF-8 text (byte {bad.start})"
        ) from None
