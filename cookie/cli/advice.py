"""Errors for people: one clear line that says what happened and what to do about it."""

import errno
from typing import Final

from ipc.faults import Fault, clean

LINE_CHARS_MAX: Final = 1000

_ERRNO: Final = {
    errno.ENOSPC: "the disk is full; make room and try again",
    errno.EDQUOT: "your disk quota is used up; make room and try again",
    errno.EROFS: "the file system is read-only; choose another place with --data-dir",
    errno.EACCES: "no permission; check its owner and mode, or choose --data-dir elsewhere",
    errno.ENOTDIR: "a part of this path is a file where a directory should be",
    errno.EISDIR: "it is a directory where a file should be",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
}
# Fault codes of other processes whose own message is not yet advice.
_CODES: Final = {
    "append_failed": "the session's log can't be written: {reason}; nothing of it is lost, free "
    "some space and go on with the session",
    "log_poisoned": "the session's log can't be trusted any more: {reason}; open it again with "
    "--resume-session",
    "fenced": "another process took the session over: {reason}",
    "session_unreadable": "the session's log can't be read: {reason}",
    "link_path": "the worker can't be reached at {path}: {reason}; set XDG_RUNTIME_DIR to a "
    "directory with a short path",
}


def explain(trouble: Fault | OSError) -> str:
    """One line about what went wrong, without control characters."""
    if isinstance(trouble, Fault):
        text = _fault(trouble)
    else:
        what = _ERRNO.get(trouble.errno or 0, trouble.strerror or str(trouble))
        text = f"{trouble.filename}: {what}" if trouble.filename else what
    return clean(text, LINE_CHARS_MAX)


def _fault(fault: Fault) -> str:
    body = fault.body()
    shape = _CODES.get(body.code)
    if shape is None:
        return body.message
    return shape.format_map(_Facts(body.facts))


class _Facts(dict[str, str | int]):
    def __missing__(self, _key: str) -> str:
        return "no reason given"
