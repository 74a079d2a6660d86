"""The script language: which turn answers, and what is said of a script that can't be read."""

from pathlib import Path

import pytest

from ipc.content import MediaBlock, TextBlock, ToolCallBlock, Usage
from ipc.ids import Digest
from ipc.outline import BYTES_MAX, DEPTH_MAX, NODES_MAX, Misread, read_outline
from tests.fakes.conversation import request, user
from workers.providers.base import AssistantMessage, Message, Request, ToolMessage, UserMessage
from workers.providers.script import (
    Call,
    Cut,
    Delay,
    Fail,
    Finish,
    Pattern,
    Report,
    Say,
    Script,
    Span,
    Stall,
    Think,
    ToolWhen,
    Turn,
    When,
    fill,
    last_user_text,
    round_of,
)
from workers.providers.scriptfile import BadScript, load_script, parse_script


def said(text: str, *calls: str) -> AssistantMessage:
    asked = tuple(
        ToolCallBlock(model_call_id=f"c{n}", name=name, arguments=f'{{"n":{n}}}')
        for n, name in enumerate(calls)
    )
    return AssistantMessage(content=(TextBlock(text=text), *asked))


def result(n: int, name: str, output: str, *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(model_call_id=f"c{n}", name=name, output=output, is_error=is_error)


TALK: tuple[Message, ...] = (
    user("first question"),
    said("first answer"),
    user("look at it"),
    user("and hurry"),
    said("looking", "read", "bash"),
    result(0, "read", "1: hello"),
    result(1, "bash", "no such file", is_error=True),
)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        (When(), True),
        (When(turn=Span((3,))), True),
        (When(turn=Span((1, 2))), False),
        (When(turn=Span(first=2)), True),
        (When(turn=Span(first=4)), False),
        (When(round=Span((2,))), True),
        (When(round=Span((1, 3))), False),
        (When(attempt=Span((2,))), True),
        (When(attempt=Span((1,))), False),
        (When(user=Pattern("look at it")), True),
        (When(user=Pattern("and hurry")), True),
        (When(user=Pattern("first")), False),
        (When(user=Pattern("LOOK")), False),
        (When(user=Pattern.parse("/^LOOK.*hurry$/is")), True),
        (When(assistant=Pattern("looking")), True),
        (When(assistant=Pattern("first")), False),
        (When(text=Pattern("first answer")), True),
        (When(text=Pattern("hello")), True),
        (When(text=Pattern("be good")), False),
        (When(system=Pattern("be good")), True),
        (When(system=Pattern("hello")), False),
        (When(tools_include=("bash",)), True),
        (When(tools_include=("bash", "delegate")), False),
        (When(tool=ToolWhen()), True),
        (When(tool=ToolWhen(name="read")), True),
        (When(tool=ToolWhen(name="write")), False),
        (When(tool=ToolWhen(error=True)), True),
        (When(tool=ToolWhen(name="read", error=True)), False),
        (When(tool=ToolWhen(output=Pattern("such"), error=True)), True),
        (When(tool=ToolWhen(name="read", output=Pattern("such"))), False),
        (When(tool=ToolWhen(name="bash", args=Pattern('"n":1'))), True),
        (When(tool=ToolWhen(name="bash", args=Pattern('"n":0'))), False),
        (When(turn=Span((3,)), user=Pattern("nothing of this")), False),
    ],
)
def test_a_turn_is_chosen_by_what_came_before(when: When, holds: bool) -> None:
    asked = request(*TALK, system="be good", tools=("read", "bash"), attempt=2)

    assert when.holds(asked) is holds
    assert Script((Turn((), when),)).choose(asked) == (Turn((), when) if holds else None)


def test_only_the_last_batch_counts_as_tool() -> None:
    asked = request(*TALK, said("done"))

    assert not When(tool=ToolWhen()).holds(asked)


A, B, C = (Turn((Say(name),)) for name in "abc")
CHOSEN = Turn((Say("x"),), When(user=Pattern("special")))


@pytest.mark.parametrize(
    ("turns", "text", "answered", "turn"),
    [
        ((A, B), "hi", 0, A),
        ((A, B), "hi", 1, B),
        ((A, B), "hi", 2, None),
        ((A, CHOSEN, B), "hi", 1, B),
        ((A, CHOSEN, B), "special", 0, CHOSEN),
        ((A, CHOSEN, B), "special", 9, CHOSEN),
        ((Turn((), repeat=3), B), "hi", 2, Turn((), repeat=3)),
        ((Turn((), repeat=3), B), "hi", 3, B),
        ((Turn((), repeat=3), B), "hi", 4, None),
    ],
)
def test_a_condition_comes_before_the_order(
    turns: tuple[Turn, ...], text: str, answered: int, turn: Turn | None
) -> None:
    asked = request(*[said("so")] * answered, user(text))

    assert Script(turns).choose(asked) == turn


def test_a_history_without_words_fits_nothing_and_breaks_nothing() -> None:
    media = MediaBlock(mime="image/png", digest=Digest("0" * 64), byte_length=1)
    picture = UserMessage(content=(media,))

    for asked in (request(), request(picture)):
        assert not When(user=Pattern("x")).holds(asked)
        assert not When(assistant=Pattern("x")).holds(asked)
        assert not When(tool=ToolWhen()).holds(asked)
        assert last_user_text(asked.messages) == ""
        assert round_of(asked.messages) == 1


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${user}", "look at it\n\nand hurry"),
        ("<${last_tool_output}>", "<no such file>"),
        ("$${user} $${last_tool_output}", "${user} ${last_tool_output}"),
        ("${HOME} $user $$ ${ user }", "${HOME} $user $$ ${ user }"),
        ("nothing", "nothing"),
    ],
)
def test_placeholders_are_replaced_and_the_rest_is_not(text: str, filled: str) -> None:
    assert fill(text, TALK) == filled


def test_what_was_put_in_is_not_looked_at_again() -> None:
    assert fill("${user}", [user("${last_tool_output}")]) == "${last_tool_output}"


EVERYTHING = """\
- - say: plain
  - say: cut
    chars: 2
    every: 0.5
    repeat: 3
  - say: cut
    chunks: 2
  - say: [a, b]
  - think: hm
    signature: sig
  - call: {name: bash}
  - call: {name: bash, args: {command: no, n: 1, deep: [1.5, true, null, {a: b}]}, id: mine}
    repeat: 2
  - call: {name: bash, raw: '{"comm'}
  - delay: 2
  - usage: {input_tokens: 5, output_tokens: 0}
  - finish: refused
- say: alone
- - error: overload
- - error:
      kind: rate_limited
      message: slow
      stage: connect
      retryable: false
      http_status: 429
      vendor_code: v
      retry_after_ms: 7
      response_body: <html>
- - cut
- - cut: true
- - stall:
- - stall
- steps: []
  repeat: 7
- when:
    turn: 3
    round: 2+
    attempt: [1, 3]
    user: /Hi/i
    assistant: there
    tool: {name: bash, args: ls, output: /x/, error: false}
    text: t
    system: s
    tools_include: [a, b]
  steps: [say: found]
- when: {tool: bash, tools_include: a}
  steps: [say: found]
"""


def test_every_word_of_the_language_is_read() -> None:
    deep = {"command": "no", "n": 1, "deep": [1.5, True, None, {"a": "b"}]}
    when = When(
        turn=Span((3,)),
        round=Span(first=2),
        attempt=Span((1, 3)),
        user=Pattern.parse("/Hi/i"),
        assistant=Pattern("there"),
        tool=ToolWhen(name="bash", args=Pattern("ls"), output=Pattern.parse("/x/"), error=False),
        text=Pattern("t"),
        system=Pattern("s"),
        tools_include=("a", "b"),
    )
    usage = Report(Usage(input_tokens=5, output_tokens=0))
    failed = Fail("rate_limited", "slow", "connect", False, 429, "v", 7, "<html>")

    script = parse_script(EVERYTHING, "everything.yaml")

    assert script == Script(
        (
            Turn(
                (
                    Say("plain"),
                    Say("cut", chars=2, every=0.5, repeat=3),
                    Say("cut", chunks=2),
                    Say(("a", "b")),
                    Think("hm", signature="sig"),
                    Call("bash"),
                    Call("bash", deep, id="mine", repeat=2),
                    Call("bash", raw='{"comm'),
                    Delay(2.0),
                    usage,
                    Finish("refused"),
                )
            ),
            Turn((Say("alone"),)),
            Turn((Fail("overload"),)),
            Turn((failed,)),
            Turn((Cut(),)),
            Turn((Cut(),)),
            Turn((Stall(),)),
            Turn((Stall(),)),
            Turn((), repeat=7),
            Turn((Say("found"),), when),
            Turn((Say("found"),), When(tool=ToolWhen("bash"), tools_include=("a",))),
        ),
        "everything.yaml",
    )


BAD_SCRIPTS = Path(__file__).with_name("bad_scripts.txt")


def bad_scripts() -> list[tuple[str, str]]:
    """What the file beside this one holds: scripts, each with its complaint behind an arrow."""
    blocks = BAD_SCRIPTS.read_text().split("\n\n")
    return [(text, said.strip()) for text, _, said in (b.partition("\n=> ") for b in blocks)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        *bad_scripts(),
        ("", "1: expected a list of turns, found nothing"),
        ("- [\n", "2: not YAML: while parsing a flow node, did not find expected node content"),
        ("- say: hi\n- say: \x07", "2: not YAML: control characters are not allowed"),
    ],
)
def test_a_bad_script_is_one_line_that_says_where_and_what(text: str, complaint: str) -> None:
    with pytest.raises(BadScript) as bad:
        parse_script(text, "bad.yaml")

    assert str(bad.value) == f"bad.yaml:{complaint}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a" * (BYTES_MAX + 1), f"expected at most {BYTES_MAX} bytes"),
        ("é" * (BYTES_MAX // 2 + 1), f"expected at most {BYTES_MAX} bytes"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1), f"expected at most {DEPTH_MAX} levels"),
        ("[" + "a," * NODES_MAX + "]", f"expected at most {NODES_MAX} values"),
    ],
)
def test_an_outline_has_limits(text: str, problem: str) -> None:
    with pytest.raises(Misread) as bad:
        read_outline(text)

    assert bad.value.problem == problem


@pytest.mark.parametrize("opening", ["[" * 500_000, "{a: " * 200_000, "- " * 500_000])
def test_a_bomb_of_brackets_is_refused_and_not_a_crash(opening: str) -> None:
    with pytest.raises(Misread):
        read_outline(opening)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("no", "no"), ("On", "On"), ("12:30", "12:30"), ("2024-01-02", "2024-01-02"),
        ("1_000", "1_000"), ("0x10", "0x10"), (".inf", ".inf"), ("<<", "<<"), ("=", "="),
        ("007", 7), ("+5", 5), ("-0.5", -0.5), (".5", 0.5), ("1e3", 1000.0),
        ("true", True), ("False", False), ("~", None), ("null", None), ("'null'", "null"),
        ('"5"', "5"),
    ],
)  # fmt: skip
def test_plain_words_are_what_they_say(word: str, value: object) -> None:
    outline = read_outline(f"[{word}]").plain()

    assert outline == [value]
    assert type(outline[0]) is type(value)


def test_a_script_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbf- say: gr\xc3\xbc\xc3\x9fe\r\n")

    assert load_script(str(path)) == Script((Turn((Say("grüße"),)),), str(path))


def test_a_file_that_is_no_script_is_one_line(tmp_path: Path) -> None:
    latin, big, secret = tmp_path / "latin.yaml", tmp_path / "big.yaml", tmp_path / "s\n.yaml"
    latin.write_bytes(b"- say: a\n- say: \xe9\n")
    big.write_bytes(b"#" * (BYTES_MAX + 2))

    def complaint(path: Path | str) -> str:
        with pytest.raises(BadScript) as bad:
            load_script(str(path))
        return str(bad.value)

    assert complaint(latin) == f"{latin}:2: expected UTF-8"
    assert complaint(big) == f"{big}:1: expected at most {BYTES_MAX} bytes"
    assert complaint(tmp_path) == f"{tmp_path}:1: can't read the script: Is a directory"
    assert complaint("nowhere.yaml") == (
        "nowhere.yaml:1: can't read the script: No such file or directory"
    )
    assert complaint("a\0b") == "a\ufffdb:1: can't read the script: not a path"
    assert "\n" not in complaint(secret)


def test_the_same_request_chooses_the_same_turn_whatever_was_asked_before() -> None:
    script = parse_script(EVERYTHING)
    requests: list[Request] = [request(*TALK[:n]) for n in range(len(TALK) + 1)]

    once = [script.choose(asked) for asked in requests]
    again = [script.choose(asked) for asked in reversed(requests)]

    assert once == again[::-1]
