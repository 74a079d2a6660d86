"""The worker that is started in advance: how little that waits for, and what it may know."""

import subprocess
import sys
from pathlib import Path

import cookie
from cookie.cli.early import worker_environment

HEAVY = {"asyncio", "enum", "pathlib", "re", "signal", "socket", "typing"}


def test_the_worker_is_started_before_anything_heavy_is_imported() -> None:
    script = """
import sys
before = set(sys.modules)
import cookie.cli.app, cookie.cli.early
print(*set(sys.modules) - before)
"""
    # -S: what a site-packages of this machine imports at every start is not the question.
    path = str(Path(cookie.__file__).parent.parent)
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, env={"PYTHONPATH": path}, check=True, capture_output=True)
    assert not HEAVY & set(done.stdout.decode().split())


def test_a_worker_gets_no_variable_that_may_be_a_secret() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "x", "SOME_API_KEY": "secret"}
    assert worker_environment(environ) == {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "x"}
