"""The start of a worker: what it does not import, and which command lines it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

import workers

# What only some calls need. A start waits for none of it (benchmarks/README.md).
FOR_LATER = {
    "aiohttp",
    "argparse",
    "ctypes",
    "dataclasses",
    "difflib",
    "shutil",
    "yaml",
    "ipc.methods.table",
}
ENV = {"PYTHONPATH": str(Path(workers.__file__).parent.parent)}


def test_a_worker_waits_for_its_birth_without_what_only_some_calls_need() -> None:
    script = "import sys, workers.process.start; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=ENV, check=True, capture_output=True)
    assert not FOR_LATER & set(done.stdout.decode().split())


def test_what_will_be_needed_is_imported_before_the_birth_and_nothing_else_is() -> None:
    script = (
        "import sys, workers.process.start as start; before = set(sys.modules);"
        "start._preload(sys.argv[1:]); print(*set(sys.modules) - before)"
    )

    def imported(*adaptors: str) -> set[str]:
        command = [sys.executable, "-c", script, *adaptors]
        done = subprocess.run(command, env=ENV, check=True, capture_output=True, text=True)
        assert done.stderr == ""
        return set(done.stdout.split())

    assert imported("scripted", "no-such-adaptor") & {"aiohttp", "ctypes"} == set()
    assert imported("anthropic") >= {
        "aiohttp",
        "ctypes",
        "workers.providers.anthropic",
        "workers.providers.http",
    }


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--solo", "--on-eof=end"],
        ["--solo", "--on-eof=outlive", "--life-fd=3"],
        ["--solo", "--on-eof=end", "--life-fd=three"],
        ["--solo", "--on-eof=end", "--life-fd=3", "--more"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_means_no_worker_is_refused_with_the_one_that_does(
    flags: list[str],
) -> None:
    command = [sys.executable, "-m", "workers", *flags]
    done = subprocess.run(command, env=ENV, check=False, capture_output=True)
    assert done.returncode == 2
    usage = "python -m workers --solo --on-eof=end --life-fd=N [--preload=ADAPTOR,...]"
    assert done.stderr.decode() == f"usage: {usage}\n"
