"""Names, refusals and atomic replacement of files."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from ipc.seams.fs import Fs, StrPath
from tests.fakes.room import names
from workers.tools.base import ToolFailure
from workers.tools.paths import (
    absolute,
    binary_kind,
    destination,
    label_of,
    open_regular,
    publish,
    read_whole,
)

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("a.txt", "a.txt"),
        ("./a//b/../c", "a/c"),
        ("/w/s/a", "a"),
        ("/w/s", "."),
        (".", "."),
        ("a/../..", "/w"),
        ("../s/a", "a"),
        ("../other", "/w/other"),
        ("/w/sx", "/w/sx"),
        ("//w/s/a", "a"),
        ("///etc/passwd", "/etc/passwd"),
        ("/../etc", "/etc"),
        ("~/x", "~/x"),
        (f"artifact://{DIGEST}/stdout", f"artifact://{DIGEST}/stdout"),
        ("artifact://../../etc", "artifact://../../etc"),
        ("Artifact://x", "Artifact:/x"),
        ("a\u2028b", "a\u2028b"),
    ],
)
def test_a_label_is_the_normal_form_of_the_path(path: str, label: str) -> None:
    assert label_of(path, "/w/s") == label


def test_a_label_names_the_very_path_that_is_opened() -> None:
    for path in ("a/../b", "../x", "//y", "link/../z"):
        assert absolute(label_of(path, "/w/s"), "/w/s") == absolute(path, "/w/s")


def test_everything_is_inside_the_root_directory() -> None:
    assert label_of("/etc/passwd", "/") == "etc/passwd"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", None),
        (b"text", None),
        ("größe".encode()[:3], None),
        (b"caf\xe9 au lait", None),
        (b"ID3 tags explained", None),
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3", "application/pdf"),
        (b"\x7fELF\2\1\1\0", "application/x-elf"),
        ("\ufeffhi".encode("utf-16-le"), "UTF-16 text"),
        (b"a\0b", "binary data"),
    ],
)
def test_what_is_no_text_is_known_by_its_beginning(head: bytes, kind: str | None) -> None:
    assert binary_kind(head) == kind


def code_of(caught: pytest.ExceptionInfo[ToolFailure]) -> str:
    return caught.value.code


def test_reading_never_waits_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    with pytest.raises(ToolFailure, match="f is a FIFO, not a regular file") as caught:
        open_regular(str(tmp_path / "f"), "f")
    assert code_of(caught) == "not_a_file"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_devices_are_refused_by_name_of_their_kind(device: str) -> None:
    with pytest.raises(ToolFailure, match="is a character device"):
        open_regular(device, device)


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        with pytest.raises(ToolFailure, match="is a socket"):
            open_regular(str(tmp_path / "s"), "s")
        with pytest.raises(ToolFailure, match="is a socket"):
            publish(str(tmp_path / "s"), b"", "s")


@pytest.mark.parametrize("which", ["self", "thread-self", pytest.param(str(os.getpid()), id="pid")])
def test_the_state_of_this_process_is_not_for_reading(which: str) -> None:
    with pytest.raises(ToolFailure, match="state of this program"):
        open_regular(f"/proc/{which}/environ", "environ")


def test_a_file_over_the_limit_is_refused_with_its_size(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(ToolFailure, match="2147483648 bytes") as caught:
        read_whole(str(tmp_path / "sparse"), "sparse", 1 << 20)
    assert code_of(caught) == "resource_limit"


def test_a_file_whose_size_is_a_lie_is_read_to_its_end() -> None:
    assert Path("/proc/version").stat().st_size == 0
    assert read_whole("/proc/version", "v", 1 << 20)[0] == Path("/proc/version").read_bytes()
    with pytest.raises(ToolFailure):
        read_whole("/proc/version", "v", 10)


# --- writing -------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_gets_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        publish(str(tmp_path / "new" / "deep" / "f"), b"x", "f")
    finally:
        os.umask(old)
    assert mode(tmp_path / "new" / "deep" / "f") == 0o640
    assert mode(tmp_path / "new") == mode(tmp_path / "new" / "deep") == 0o750


@pytest.mark.parametrize("bits", [0o600, 0o755, 0o666, 0o4755])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(bits)
    written = publish(str(path), b"new", "f")

    assert (written.created, mode(path), path.read_bytes()) == (False, bits, b"new")
    assert names(tmp_path) == ["f"]


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "f").write_bytes(b"old")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "there" / "f")
    publish(str(tmp_path / "one"), b"new", "one")

    assert (tmp_path / "one").is_symlink()
    assert (tmp_path / "two").is_symlink()
    assert (tmp_path / "there" / "f").read_bytes() == b"new"
    assert names(tmp_path / "there") == ["f"]


def test_the_missing_target_of_a_link_is_created(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d/new")
    written = publish(str(tmp_path / "link"), b"x", "link")

    assert written.created
    assert written.target == str(tmp_path / "d/new")
    assert (tmp_path / "d" / "new").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()


def test_a_relative_link_is_followed_from_where_it_really_lies(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("real/deep")
    (tmp_path / "real" / "deep" / "f").symlink_to("../target")
    publish(str(tmp_path / "alias" / "f"), b"x", "f")

    assert (tmp_path / "real" / "target").read_bytes() == b"x"


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for act in (lambda: publish(str(tmp_path / "a"), b"", "a"), lambda: open_regular("a", "a")):
        with pytest.raises(ToolFailure):
            act()
    with pytest.raises(OSError, match="Too many levels") as caught:
        destination(str(tmp_path / "a"))
    assert caught.value.errno == errno.ELOOP


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    with pytest.raises(ToolFailure, match="is a FIFO"):
        publish(str(tmp_path / "f"), b"", "f")
    with pytest.raises(ToolFailure, match="is a directory") as caught:
        publish(str(tmp_path), b"", "dir")
    assert code_of(caught) == "is_directory"
    with pytest.raises(ToolFailure, match="character device"):
        publish("/dev/null", b"", "null")
    assert names(tmp_path) == ["f"]


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(ToolFailure, match="no directory"):
        publish(str(tmp_path / "f" / "x"), b"", "f/x")
    with pytest.raises(ToolFailure, match="too long"):
        publish(str(tmp_path / ("n" * 300)), b"", "n")


def test_a_file_that_is_not_the_one_that_was_read_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    _, stamp = read_whole(str(path), "f", 100)
    path.write_bytes(b"two")
    with pytest.raises(ToolFailure, match="changed meanwhile") as caught:
        publish(str(path), b"three", "f", expected=stamp)
    path.unlink()
    with pytest.raises(ToolFailure, match="changed meanwhile"):
        publish(str(path), b"three", "f", expected=stamp)

    assert code_of(caught) == "operation_changed"
    assert names(tmp_path) == []


class Meddling(Fs):
    """Does something to the target in the moment before it is replaced."""

    def __init__(self, target: Path, data: bytes) -> None:
        self.target = target
        self.data = data

    def fsync(self, fd: int) -> None:
        self.target.write_bytes(self.data)
        super().fsync(fd)


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_changes_while_we_write_is_not_replaced(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "f"
    if there:
        path.write_bytes(b"mine")
    with pytest.raises(ToolFailure, match="changed meanwhile"):
        publish(str(path), b"x", "f", fs=Meddling(path, b"theirs"))

    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["f"]


class Failing(Fs):
    """Fails one kind of call, at its n-th visit."""

    def __init__(self, call: str, nth: int, number: int) -> None:
        self.call, self.left, self.number = call, nth, number

    def _visit(self, call: str) -> None:
        if call == self.call:
            self.left -= 1
            if self.left == 0:
                raise OSError(self.number, os.strerror(self.number))

    def open(self, path: StrPath, flags: int, mode: int = 0o600) -> int:
        self._visit("open")
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._visit("write")
        return super().write(fd, data[:3])  # and short ones all along

    def fsync(self, fd: int) -> None:
        self._visit("fsync")
        super().fsync(fd)

    def rename(self, source: object, target: object) -> None:
        self._visit("rename")
        super().rename(str(source), str(target))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize(
    ("call", "nth"), [("open", 1), ("write", 1), ("write", 2), ("fsync", 1), ("rename", 1)]
)
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, call: str, nth: int, number: int
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(ToolFailure) as caught:
        publish(str(tmp_path / "f"), b"new content", "f", fs=Failing(call, nth, number))
    with pytest.raises(ToolFailure):
        publish(str(tmp_path / "d/e/f"), b"new content", "f", fs=Failing(call, nth, number))

    assert code_of(caught) == ("execution" if number == errno.EIO else "no_space")
    assert names(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_short_writes_are_no_failure(tmp_path: Path) -> None:
    publish(str(tmp_path / "f"), b"0123456789", "f", fs=Failing("never", 1, 0))
    assert (tmp_path / "f").read_bytes() == b"0123456789"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_write_protected_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(ToolFailure, match="write-protected"):
        publish(str(path), b"new", "f")
    assert path.read_bytes() == b"old"
