"""The instance directory: where it lies, who may use it, and how the dead are swept."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cookie.daemon import instance
from cookie.daemon.instance import BadInstance, InstanceHeld, Places
from ipc.seams.fs import Fs
from tests.fakes.lockers import ROOT, running, said

UID = os.getuid()

# Enters the instance directory argv[1], says where, stays until it is killed or its stdin ends.
ENTER = """
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from cookie.daemon import instance
print(instance.enter(Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""

# What every `cookie run` does at its start: sweep, enter, bind; then leave in order.
START = """
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from cookie.daemon import instance
directory = Path(sys.argv[1])
sys.stdin.readline()
mine = instance.enter(directory)
instance.sweep(directory)
Path(mine.link_path).touch()
assert sorted(path.name for path in mine.path.iterdir()) == ["alive", "w"]
print("up", flush=True)
sys.stdin.read()
mine.close()
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A temporary directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ck-", dir="/tmp") as path:
        yield Path(path)


def places(runtime: Path | str | None, temporary: Path, nowhere: str = "/nowhere") -> Places:
    return Places(str(runtime) if runtime else None, str(temporary), UID, run_user=nowhere)


def test_the_runtime_directory_comes_first(short: Path) -> None:
    found = instance.instance_dir(places(short, short), "/data", "main")

    assert found == short / "cookie" / instance.data_key("/data") / "main"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (found, found.parent)] == [0o700, 0o700]


def test_the_users_own_directory_comes_second(short: Path) -> None:
    (short / str(UID)).mkdir(mode=0o700)

    found = instance.instance_dir(places(None, short, str(short)), "/data", "run")

    assert found.relative_to(short / str(UID) / "cookie").parts[1:] == ("run",)


def test_the_temporary_directory_comes_last_in_a_folder_of_our_own(short: Path) -> None:
    found = instance.instance_dir(places(None, short), "/data", "run")

    assert found.is_relative_to(short / f"cookie-{UID}" / "cookie")
    assert instance.instance_dir(places(None, short), "/data", "run") == found


@pytest.mark.parametrize(
    "runtime",
    ["relative/path", "/nowhere/at/all", "/proc"],
    ids=["relative", "missing", "read-only"],
)
def test_a_runtime_directory_of_no_use_is_passed_over(runtime: str, short: Path) -> None:
    assert instance.instance_dir(places(runtime, short), "/data", "run").is_relative_to(short)


def test_a_runtime_directory_others_may_write_in_is_passed_over(short: Path) -> None:
    shared = short / "shared"
    shared.mkdir()
    shared.chmod(0o777)

    found = instance.instance_dir(places(shared, short), "/data", "run")

    assert not found.is_relative_to(shared)


def test_a_directory_too_deep_for_a_socket_is_passed_over(short: Path) -> None:
    deep = short / ("d" * 60)
    deep.mkdir(mode=0o700)

    found = instance.instance_dir(places(deep, short), "/data", "run")

    assert not found.is_relative_to(deep)
    assert len(os.fsencode(instance.enter(found).link_path)) <= instance.LINK_BYTES_MAX


def test_without_any_short_path_the_refusal_says_what_to_set(short: Path) -> None:
    deep = short / ("d" * 60)
    deep.mkdir(mode=0o700)
    where = places(None, deep)
    where.temporary = [str(deep)]

    with pytest.raises(BadInstance, match="set XDG_RUNTIME_DIR to one"):
        instance.instance_dir(where, "/data", "run")


def test_what_is_not_ours_alone_is_refused_in_one_line(short: Path) -> None:
    home = short / f"cookie-{UID}"
    cases = []
    for spoil in (
        lambda: home.symlink_to(short),
        lambda: home.write_text(""),
        lambda: (home.mkdir(), home.chmod(0o755)),
    ):
        spoil()
        with pytest.raises(BadInstance) as refused:
            instance.instance_dir(places(None, short), "/data", "run")
        cases.append(str(refused.value))
        home.rmdir() if home.is_dir() and not home.is_symlink() else home.unlink()

    assert cases == [
        f"{home}: is a symbolic link; remove it",
        f"{home}: is not a directory; remove it",
        f"{home}: is open to others (mode 0755); run chmod 700 on it",
    ]


def test_a_directory_of_another_user_is_refused(short: Path) -> None:
    (short / f"cookie-{UID + 1}").mkdir(mode=0o700)
    stranger = Places(None, str(short), UID + 1, run_user="/nowhere")

    with pytest.raises(BadInstance, match=f"belongs to user {UID}"):
        instance.instance_dir(stranger, "/data", "run")


def test_the_same_data_directory_has_one_key_however_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    keys = {
        instance.data_key(tmp_path / "data"),
        instance.data_key(f"{tmp_path}/data/../data/"),
        instance.data_key(tmp_path / "link"),
    }

    assert len(keys) == 1
    assert len(keys.pop()) == 16


def test_an_incarnation_is_gone_when_it_was_closed(short: Path) -> None:
    mine = instance.enter(short)
    Path(mine.link_path).touch()

    mine.close()
    mine.close()

    assert list(short.iterdir()) == []


def test_the_sweeper_takes_the_killed_and_spares_the_living(short: Path) -> None:
    with running(ENTER, short) as living, running(ENTER, short) as killed:
        alive, dead = Path(said(living)), Path(said(killed))
        (dead / "w").touch()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        (short / "1-00000000").mkdir()  # died between its first two steps
        (short / "instance.lock").touch()

        assert instance.sweep(short) == 2
        assert {path.name for path in short.iterdir()} == {alive.name, "instance.lock"}


def test_one_sweep_removes_a_bounded_number(short: Path) -> None:
    for number in range(instance.SWEEP_MAX + 2):
        (short / f"{number}-00000000").mkdir()

    assert [instance.sweep(short) for _ in range(3)] == [instance.SWEEP_MAX, 2, 0]


def test_who_is_swept_while_being_born_is_born_again(short: Path) -> None:
    class Unlucky(Fs):
        left = 3

        def open(self, path: object, flags: int, mode: int = 0o600) -> int:
            fd = super().open(path, flags, mode)  # type: ignore[arg-type]
            if self.left:
                self.left -= 1
                instance.sweep(short)
            return fd

    mine = instance.enter(short, Unlucky())

    assert [path.name for path in short.iterdir()] == [mine.path.name]
    assert instance.sweep(short) == 0


def test_twenty_starts_at_once_all_start_and_leave_nothing(short: Path) -> None:
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(short)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(20)
    ]
    for start in starts:
        assert start.stdin is not None
        start.stdin.write("go\n")
        start.stdin.flush()

    assert [said(start) for start in starts] == ["up"] * 20
    for start in starts:
        start.communicate()
    assert [start.returncode for start in starts] == [0] * 20
    assert list(short.iterdir()) == []


def test_a_second_supervisor_of_a_name_is_refused_and_told_by_whom(short: Path) -> None:
    fd = instance.hold(short, "main", "pid 4711 since noon")

    with pytest.raises(InstanceHeld) as refused:
        instance.hold(short, "main", "pid 4712")
    os.close(fd)

    named = "a cookie daemon named 'main' is already running (pid 4711 since noon)"
    assert str(refused.value) == named
    os.close(instance.hold(short, "main", "pid 4712"))
