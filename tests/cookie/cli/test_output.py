"""The output: a file that is only touched when a run begins, and what a terminal is spared."""

import json
import os
import threading
from pathlib import Path

import pytest

from cookie.cli.output import Output, OutputBroken


def test_a_file_keeps_what_it_held_until_a_run_begins(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("what was there before, and more of it")

    refused = Output(str(path))
    refused.put("lost")
    refused.undo()
    assert path.read_text() == "what was there before, and more of it"

    output = Output(str(path))
    output.begin()
    assert path.read_text() == ""
    output.put("new")
    output.close()
    output.close()
    assert path.read_text() == "new"


def test_a_file_that_was_not_there_is_not_there_after_nothing(tmp_path: Path) -> None:
    Output(str(tmp_path / "out")).undo()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [(".", "Is a directory"), ("no/out", "No such file or directory"), ("x" * 300, "too long")],
)
def test_a_file_that_can_not_be_opened_is_told_at_once(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(OutputBroken, match=f"can't write to .*: .*{reason}"):
        Output(str(tmp_path / name))


def test_a_device_and_a_pipe_are_files_too(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    output = Output(str(fifo))
    output.begin()
    output.put("through")
    output.close()
    reader.join()

    assert read == [b"through"]
    broken = Output("/dev/full")
    broken.begin()
    broken.put("x")
    with pytest.raises(OutputBroken, match="can't write to /dev/full: No space left on device"):
        broken.close()


def test_a_full_pipe_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    output = Output(f"/proc/self/fd/{ours}")
    os.set_blocking(output._fd, False)
    text = "x" * 1_000_000
    read = bytearray()

    def drain() -> None:
        while more := os.read(theirs, 65_536):
            read.extend(more)

    reader = threading.Thread(target=drain)
    reader.start()
    output.put(text)
    output.close()
    os.close(ours)
    reader.join()
    os.close(theirs)

    assert read.decode() == text


def test_silence_opens_nothing(tmp_path: Path) -> None:
    output = Output(None, silent=True)
    output.begin()
    output.close()

    assert not output.on_terminal


def test_a_terminal_gets_text_without_what_it_obeys() -> None:
    controller, terminal = os.openpty()
    output = Output(os.ttyname(terminal))
    output.put("a\x1b[31mb\x07\x9b1m\u202e\x7f\r\n\tc é\n")
    output.close()
    shown = os.read(controller, 1000).decode()
    os.close(controller)
    os.close(terminal)

    assert shown.replace("\r\n", "\n").expandtabs() == (
        "a\ufffd[31mb\ufffd\ufffd1m\ufffd\ufffd\n        c é\n"
    )


def test_a_file_gets_text_as_it_is(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"))
    output.put("a\x1b[31m\r\n")
    output.close()

    assert (tmp_path / "out").read_bytes() == b"a\x1b[31m\r\n"


def test_a_terminal_gets_json_that_means_the_same_and_does_nothing() -> None:
    line = '{"text":"\x9b1m\u202e\x7f é"}'
    controller, terminal = os.openpty()
    output = Output(os.ttyname(terminal))
    assert output.line(line.encode()) == len(line.encode()) + 1
    output.event(line.encode())
    output.close()
    shown = os.read(controller, 1000).decode().replace("\r\n", "\n")
    os.close(controller)
    os.close(terminal)

    plain, event = shown.splitlines()
    assert plain == '{"text":"\\u009b1m\\u202e\\u007f é"}'
    assert json.loads(plain) == json.loads(line)
    assert json.loads(event) == {"type": "event", "event": json.loads(line)}


def test_a_file_gets_json_as_it_is(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "out"))
    output.line('{"text":"\x9b\x7f"}'.encode())
    output.close()

    assert (tmp_path / "out").read_text() == '{"text":"\x9b\x7f"}\n'
