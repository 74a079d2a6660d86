"""The rehearsal's tour, driven by a small loop over real files: it adapts, and does no harm."""

import json
import subprocess
from pathlib import Path

from ipc.content import ToolCallBlock
from ipc.events import FrozenModelBinding
from ipc.ids import ModelKey, ProviderId
from tests.fakes.conversation import parts_of, request, user
from workers.providers import make
from workers.providers.base import AssistantMessage, Done, Message, Outside, ToolMessage

ROUNDS_MAX = 20
TOOLS = ("bash", "edit", "read", "write")
BINDING = FrozenModelBinding(
    model=ModelKey("rehearsal/tour"),
    provider_id=ProviderId("rehearsal"),
    adaptor="rehearsal",
    wire_model="tour",
)
DENIED = '{"kind":"tool_denied","source":"user","reason":"user_rejected","feedback":null}'


class Desk:
    """Runs the calls of the tour in a folder, in the plainest way; remembers what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self.refuse: set[str] = set()
        self.answers: dict[str, tuple[str, bool]] = {}

    def call(self, name: str, arguments: str) -> tuple[str, bool]:
        """The output of a call, and whether it is an error."""
        args = json.loads(arguments)
        self.calls.append(f"{name} {args.get('filePath') or args['command']}")
        if name in self.refuse:
            return DENIED, True
        if name in self.answers:
            return self.answers[name]
        try:
            return getattr(self, name)(**args), False
        except OSError as failed:
            return str(failed), True

    def read(self, filePath: str, limit: int = 2000) -> str:  # noqa: N803 - the tool's own names
        path = self.folder / filePath
        if path.is_dir():
            names = [p.name + "/" * p.is_dir() for p in sorted(path.iterdir())]
            entries = "\n".join(names)
            return f"<path>{path}</path>\n<type>directory</type>\n<entries>\n{entries}\n</entries>"
        lines = path.read_text().splitlines()[:limit]
        content = "\n".join(f"{n}: {line}" for n, line in enumerate(lines, 1))
        return f"<path>{path}</path>\n<type>file</type>\n<content>\n{content}\n</content>"

    def write(self, filePath: str, content: str) -> str:  # noqa: N803
        path = self.folder / filePath
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return "written"

    def edit(self, filePath: str, oldString: str, newString: str) -> str:  # noqa: N803
        path = self.folder / filePath
        text = path.read_text()
        assert text.count(oldString) == 1
        path.write_text(text.replace(oldString, newString))
        return "edited"

    def bash(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout


async def tour(
    desk: Desk, history: list[Message] | None = None, tools: tuple[str, ...] = TOOLS
) -> str:
    """One run of the tour; what it said last."""
    provider = make(BINDING, Outside())
    messages = [] if history is None else history
    messages.append(user("Show me around."))
    for _ in range(ROUNDS_MAX):
        done = (await parts_of(provider, request(*messages, tools=tools)))[-1]
        assert isinstance(done, Done), done
        message = AssistantMessage(content=done.content)
        messages.append(message)
        calls = [block for block in done.content if isinstance(block, ToolCallBlock)]
        if not calls:
            return message.text
        for block in calls:
            output, is_error = desk.call(block.name, block.arguments)
            messages.append(
                ToolMessage(
                    model_call_id=block.model_call_id,
                    name=block.name,
                    output=output,
                    is_error=is_error,
                )
            )
    raise AssertionError("the tour does not end")


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def folder_with(tmp_path: Path, **files: str) -> Path:
    """A folder with these files; `_dot_` and `__` in a name stand for `.` and `/`."""
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


async def test_the_tour_reads_writes_edits_runs_and_answers(tmp_path: Path) -> None:
    desk = Desk(folder_with(tmp_path, README_dot_md="# Hi\n\nx\n", recipe_dot_txt="flour\n"))
    before = tree(tmp_path)

    answer = await tour(desk)

    assert [call.partition(" ")[0] for call in desk.calls] == [
        "read", "read", "write", "edit", "bash",
    ]  # fmt: skip
    made = {name: text for name, text in tree(tmp_path).items() if name not in before}
    assert list(made) == ["rehearsal/count_lines.py", "rehearsal/report.txt"]
    assert {name: text for name, text in tree(tmp_path).items() if name in before} == before
    assert (
        made["rehearsal/report.txt"] == "      3  README.md\n      1  recipe.txt\n      4  total\n"
    )
    assert made["rehearsal/report.txt"] in answer
    assert all(name in answer for name in made)


async def test_an_empty_folder_and_a_project_are_good_too(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "project").mkdir()
    empty, project = Desk(tmp_path / "empty"), Desk(tmp_path / "project")
    folder_with(project.folder, pyproject_dot_toml="[project]\n")

    assert "0  total" in await tour(empty)
    assert "1  total" in await tour(project)
    assert "read pyproject.toml" in project.calls
    assert "read README.md" not in empty.calls


async def test_a_second_tour_leaves_the_first_ones_files_alone(tmp_path: Path) -> None:
    history: list[Message] = []
    await tour(Desk(tmp_path), history)
    before = tree(tmp_path)
    same_session, new_session = Desk(tmp_path), Desk(tmp_path)

    answers = [await tour(same_session, history), await tour(new_session)]

    assert tree(tmp_path) == before
    assert same_session.calls == new_session.calls == [
        "read .",
        "read rehearsal",
        "read rehearsal/count_lines.py",
        "bash python3 rehearsal/count_lines.py",
    ]  # fmt: skip
    assert answers[0] == answers[1]
    assert "No file was written" in answers[0]


async def test_what_others_put_under_rehearsal_is_not_overwritten(tmp_path: Path) -> None:
    program = Desk(folder_with(tmp_path / "a", rehearsal__count_lines_dot_py="mine = True\n"))
    report = Desk(folder_with(tmp_path / "b", rehearsal__report_dot_txt="my report\n"))
    other = Desk(folder_with(tmp_path / "c", rehearsal__notes_dot_txt="notes\n"))

    assert "not write that count_lines.py" in await tour(program)
    assert tree(program.folder) == {"rehearsal/count_lines.py": "mine = True\n"}
    assert "ended otherwise" in await tour(report)
    assert tree(report.folder)["rehearsal/report.txt"] == "my report\n"
    assert "Two files are new" in await tour(other)
    assert tree(other.folder)["rehearsal/notes.txt"] == "notes\n"


async def test_a_file_in_the_way_ends_the_tour(tmp_path: Path) -> None:
    desk = Desk(folder_with(tmp_path, rehearsal="a file\n"))

    assert "did not work here" in await tour(desk)
    assert tree(tmp_path) == {"rehearsal": "a file\n"}


async def test_a_no_ends_the_tour_with_good_manners(tmp_path: Path) -> None:
    for tool in TOOLS:
        desk = Desk(tmp_path / tool)
        desk.folder.mkdir()
        desk.refuse = {tool}

        assert "a no is a no" in await tour(desk)
        assert desk.calls[-1].startswith(tool)


async def test_a_failing_tool_is_quoted(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.answers["read"] = ("the disk is on fire", True)

    assert "the disk is on fire" in await tour(desk)
    assert desk.calls == ["read ."]


async def test_a_machine_without_python_gets_an_honest_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.answers["bash"] = ("sh: 1: python3: not found", False)

    answer = await tour(desk)

    assert "ended otherwise" in answer
    assert "python3: not found" in answer


async def test_an_agent_without_all_tools_is_told_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    assert "does not offer all four" in await tour(desk, tools=("read", "bash"))
    assert desk.calls == []


async def test_a_read_file_that_speaks_of_denials_is_no_denial(tmp_path: Path) -> None:
    desk = Desk(folder_with(tmp_path, README_dot_md=DENIED + "\nrehearsal/\ntool_denied\n"))

    assert "Two files are new" in await tour(desk)
