"""Errors for people: one clear line that says what happened and what to do about it."""

import errno
import os
import re
from typing import Final

from ipc.faults import Fault, clean

LINE_CHARS_MAX: Final = 1000
STDERR: Final = 2

_ERRNO: Final = {
    errno.ENOENT: "it is not there",
    errno.ENOSPC: "the disk is full; make room and try again",
    errno.EDQUOT: "your disk quota is used up; make room and try again",
    errno.EFBIG: "the file may not grow any more; raise `ulimit -f`",
    errno.EIO: "the disk can't do it (input/output error); look at the system's log",
    errno.EROFS: "the file system is read-only; choose another place with --data-dir",
    errno.EACCES: "no permission; check its owner and mode, or choose --data-dir elsewhere",
    errno.EPERM: "it is not permitted here; choose another place with --data-dir",
    errno.ENOTDIR: "a part of this path is a file where a directory should be",
    errno.EISDIR: "it is a directory where a file should be",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter one with --data-dir",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
    errno.ENFILE: "the system has too many open files; close something and try again",
    errno.EAGAIN: "no more processes may be started; end some, or raise `ulimit -u`",
    errno.ENOMEM: "there is no memory left; end something and try again",
}
# Fault codes of other processes whose own message is not yet advice.
_CODES: Final = {
    "append_failed": "the session's log can't be written: {reason}",
    "log_poisoned": "the session's log can't be trusted any more: {reason}",
    "fenced": "another process took the session over: {reason}",
    "session_unreadable": "the session's log can't be read: {reason}",
    "link_path": "the worker can't be reached at {path}: {reason}; set XDG_RUNTIME_DIR to a "
    "directory with a short path",
    "bad_id": "there is no such {kind} as {text}: {shape}",
    "bad_plan": "the worker can't be told what to do: {reason}",
}
_SHAPES: Final = {"model": "a model is written provider/model"}
_RAW_ERRNO: Final = re.compile(r"\[Errno (\d+)\] [^;:,]*(: '[^']*')?")


def explain(trouble: Fault | OSError, place: str | None = None) -> str:
    """One line about what went wrong, without control characters.

    `place` is what an OSError is about that names no file itself.
    """
    if isinstance(trouble, Fault):
        text = readable(_fault(trouble))
    else:
        what = _ERRNO.get(trouble.errno or 0, trouble.strerror or str(trouble))
        where = trouble.filename or place
        text = f"{where}: {what}" if where else what
    return one_line(text)


def readable(text: str) -> str:
    """Some program's words, with `[Errno 28] ...` in them said in ours."""
    return _RAW_ERRNO.sub(lambda raw: _ERRNO.get(int(raw[1]), os.strerror(int(raw[1]))), text)


def one_line(text: str) -> str:
    """`text` in one bounded line that does nothing to a terminal."""
    return clean(" ".join(text.split()), LINE_CHARS_MAX)


def say(line: str) -> None:
    """One line for the person; stderr may be closed, and then there is nobody to tell."""
    try:
        os.write(STDERR, f"cookie: {one_line(line)}\n".encode(errors="replace"))
    except OSError:
        return


def _fault(fault: Fault) -> str:
    body = fault.body()
    shape = _CODES.get(body.code)
    if shape is None:
        return body.message
    facts = {"shape": _SHAPES.get(str(body.facts.get("kind")), "it is not written like one")}
    return shape.format_map(_Facts(facts | body.facts))


class _Facts(dict[str, str | int]):
    def __missing__(self, _key: str) -> str:
        return "no reason given"
