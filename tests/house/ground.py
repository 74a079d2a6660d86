"""`cookie` on other ground: `ground.py nfs|open ARGS...`, an NFS, or a flock that is none."""

import fcntl
import sys


def main(kind: str, *args: str) -> None:
    from ipc.seams.fs import Fs  # noqa: PLC0415 - what is changed

    if kind == "nfs":
        Fs.magic = lambda _self, _path: 0x6969  # type: ignore[method-assign]
    else:
        fcntl.flock = lambda _fd, _how: None  # type: ignore[assignment]
    sys.argv = ["cookie", *args]
    from cookie.cli.app import main as cookie  # noqa: PLC0415 - after the change

    cookie()


if __name__ == "__main__":
    main(*sys.argv[1:])
