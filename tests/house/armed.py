"""`cookie` with failpoints in one of its two processes: `armed.py worker|command FP ARGS...`."""

import os
import sys


def main(side: str, fp: str, *args: str) -> None:
    os.environ["COOKIE_FP"] = fp if side == "command" else ""
    import ipc.seams.failpoints  # noqa: F401, PLC0415 - reads the variable, once and for all

    # What the worker's environment is made from.
    os.environ["COOKIE_FP"] = fp if side == "worker" else ""
    sys.argv = ["cookie", *args]
    from cookie.cli.app import main as cookie  # noqa: PLC0415

    cookie()


if __name__ == "__main__":
    main(*sys.argv[1:])
