"""What `cookie doctor` looks at: each look is a finding, and none of them shows a secret."""

import os
import platform
import stat
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from cookie.cli import whereabouts
from cookie.cli.advice import explain
from cookie.config.check import Findings, inspect
from cookie.config.files import places
from cookie.config.secrets import Surroundings, environment, is_withheld, tool_environment
from cookie.config.settings import Config
from cookie.daemon import holders, locks
from cookie.daemon.instance import RUN_NAME, Places, instance_dir
from cookie.daemon.listing import Listed, sessions, workspaces
from cookie.models.families import TOUR, compiled
from ipc import VERSION
from ipc.disk.files import FILE_MODE
from ipc.disk.log import SessionUnreadable, read_log
from ipc.disk.paths import WorkspacePaths, sessions_dir
from ipc.faults import Fault, clean
from ipc.fold import fold
from ipc.plan import ENV_BYTES_MAX

State = Literal["ok", "note", "warn", "bad"]

PACKAGES: Final = ("aiohttp", "msgspec", "pyzmq", "uvloop", "typer", "pyyaml")
PRIVATE: Final = ("providers", "mcp-oauth.json", "sessions")  # of the data directory
PRIVATE_FILES_MAX: Final = 256  # looked at below one of them
LOGS_MAX: Final = 64  # opened to see whether a run is open in them
NAME_CHARS: Final = 100
# Variables whose value says where things are and who one is, and nothing that opens a door.
HARMLESS: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ", "PWD"}
    | {"EDITOR", "VISUAL", "PAGER", "VIRTUAL_ENV", "XDG_RUNTIME_DIR"}
)
HARMLESS_PREFIX: Final = "LC_"


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `warn` is worth a thought, `bad` keeps something from work."""

    about: str  # the group it stands in
    name: str
    state: State
    text: str


class Patient(Struct, frozen=True, kw_only=True):
    """Whose health it is."""

    around: Surroundings
    cwd: str


def patient(data_dir: str | None) -> Patient:
    """The data directory and the folder this command is in; raises a Fault."""
    return Patient(around=whereabouts.around(data_dir), cwd=whereabouts.folder())


def look(who: Patient) -> Iterator[Finding]:
    """Everything, in the order in which one would look for a fault."""
    yield from _versions()
    yield from _paths(who)
    yield from _ground(who)
    found = inspect(who.around.data_dir, Path(who.cwd), environment())
    yield from _configuration(who, found)
    if found.config is None:
        text = "can't be told before the config is right"
        yield Finding(about="models", name="all", state="note", text=text)
        yield _variable("all", "note", text)
    else:
        yield from _models(found.config)
        yield from _environment(found.config)
    yield from _trees(who)


# --- versions


def _versions() -> Iterator[Finding]:
    def known(name: str, text: str) -> Finding:
        return Finding(about="versions", name=name, state="ok", text=text)

    yield known("cookie", VERSION)
    yield known("python", f"{platform.python_implementation()} {platform.python_version()}")
    yield known("interpreter", sys.executable)
    for package in PACKAGES:
        try:
            yield known(package, metadata.version(package))
        except metadata.PackageNotFoundError:
            text = "is not installed; install cookie again"
            yield Finding(about="versions", name=package, state="bad", text=text)
    yield known("system", f"{platform.system()} {platform.release()} {platform.machine()}")


# --- paths and their modes


def _paths(who: Patient) -> Iterator[Finding]:
    data = who.around.data_dir
    status = _status(data)
    if status is None:
        text = f"{data} is not there yet; the first run makes it"
        yield Finding(about="paths", name="data directory", state="note", text=text)
    elif not stat.S_ISDIR(status.st_mode):
        text = f"{data} is a file; choose a directory with --data-dir"
        yield Finding(about="paths", name="data directory", state="bad", text=text)
    else:
        yield _mode("data directory", data, status, who.around.uid)
        yield from _inside(data, status, who.around.uid)
    yield Finding(about="paths", name="folder", state="ok", text=who.cwd)
    yield from _instance(who)


def _inside(data: Path, status: os.stat_result, uid: int) -> Iterator[Finding]:
    """The files below it that are open to others, if others can get to them."""
    if not stat.S_IMODE(status.st_mode) & 0o011 and status.st_uid == uid:
        return  # nobody but us gets past the data directory itself
    for path in _private(data):
        inner = _status(path)
        if inner is not None and stat.S_IMODE(inner.st_mode) & 0o077:
            yield _mode(str(path.relative_to(data)), path, inner, uid)


def _private(data: Path) -> Iterator[Path]:
    yield data / "config.toml"
    for name in PRIVATE:
        top = data / name
        yield top
        if name != "sessions" and top.is_dir():
            yield from sorted(top.iterdir())[:PRIVATE_FILES_MAX]


def _mode(name: str, path: Path, status: os.stat_result, uid: int) -> Finding:
    mode = stat.S_IMODE(status.st_mode)
    wanted = 0o700 if stat.S_ISDIR(status.st_mode) else FILE_MODE
    text = f"{path} (mode {mode:04o})"
    state: State = "ok"
    if status.st_uid != uid:
        state, text = "bad", f"{path} belongs to user {status.st_uid}, and you are user {uid}"
    elif mode & 0o022:
        state, text = "bad", f"{text}: others can write there; run chmod {wanted:o} on it"
    elif mode & 0o055:
        state, text = "warn", f"{text}: others can read it; run chmod {wanted:o} on it"
    return Finding(about="paths", name=name, state=state, text=text)


def _instance(who: Patient) -> Iterator[Finding]:
    around = who.around
    offered = Places(around.runtime_dir, around.temporary, around.uid)
    try:
        # Made if it is not there, as a run would: that it can be made is what matters.
        path = instance_dir(offered, around.data_dir, RUN_NAME)
        text = f"{path} (mode {stat.S_IMODE(path.stat().st_mode):04o})"
    except (Fault, OSError) as trouble:
        yield Finding(about="paths", name="instance", state="bad", text=explain(trouble))
    else:
        yield Finding(about="paths", name="instance", state="ok", text=text)


# --- what sessions lie on


def _ground(who: Patient) -> Iterator[Finding]:
    data = who.around.data_dir
    try:
        found = locks.ground(data)
    except OSError as trouble:
        yield Finding(about="disk", name="file system", state="bad", text=explain(trouble))
        return
    if found.refusal is not None:
        text = f"{found.refusal}; choose a local disk with --data-dir"
        yield Finding(about="disk", name="file system", state="bad", text=text)
        return
    yield Finding(about="disk", name="file system", state="ok", text=found.name)
    here = sessions_dir(data)
    where = here if here.is_dir() else data
    if not where.is_dir():
        return
    try:
        locks.try_out(where)
    except (Fault, OSError) as trouble:
        yield Finding(about="disk", name="locks", state="bad", text=explain(trouble, str(where)))
    else:
        text = "flock keeps other processes out"
        yield Finding(about="disk", name="locks", state="ok", text=text)


# --- config and agents


def _configuration(who: Patient, found: Findings) -> Iterator[Finding]:
    there = {layer.path for layer in found.layers}
    state: State
    for name, path in places(who.around.data_dir, Path(who.cwd)):
        status = _status(path)
        if status is None:
            text = f"{path} is not there, which is fine"
            yield Finding(about="config", name=name, state="note", text=text)
            continue
        mode = stat.S_IMODE(status.st_mode)
        text, state = f"{path} (mode {mode:04o})", "ok" if path in there else "bad"
        if mode & stat.S_IWOTH:  # whoever writes it says what runs here
            text, state = f"{text}: anybody can write it; run chmod o-w on it", "bad"
        yield Finding(about="config", name=name, state=state, text=text)
    for wrong in found.wrong:
        # What can't be used yet, or lacks a variable, is told of the models it is about.
        usable = found.config is not None and wrong in found.config.unusable.values()
        if not usable:
            yield Finding(about="config", name="mistake", state="bad", text=explain(wrong))
    if found.agents is not None:
        shared = sorted(found.agents.shared)
        text = ", ".join(shared) if shared else "none of your own; the built-in one answers"
        yield Finding(about="config", name="agents", state="ok", text=text)
        if found.agents.presets:
            text = ", ".join(sorted(found.agents.presets))
            yield Finding(about="config", name="presets", state="ok", text=text)


def _models(config: Config) -> Iterator[Finding]:
    known = compiled(config.settings, config.unusable)
    own = [one for one in known if one.key != TOUR]
    for one in known:
        if one.unavailable is None:
            variants = ", ".join(str(made.variant) for made in one.bindings if made.variant)
            text = f"usable; variants: {variants}" if variants else "usable"
            yield Finding(about="models", name=one.key, state="ok", text=text)
        else:
            state: State = "note" if one.unavailable.kind == "disabled" else "warn"
            text = f"can't be used: {one.unavailable.reason}"
            yield Finding(about="models", name=one.key, state=state, text=text)
    if not own:
        text = "none is configured; rehearsal/tour needs no key and no network"
        yield Finding(about="models", name="your own", state="note", text=text)
    elif all(one.unavailable is not None for one in own):
        text = "none of them can be used"
        yield Finding(about="models", name="your own", state="bad", text=text)


# --- the environment of a tool


def _environment(config: Config) -> Iterator[Finding]:
    ours = environment()
    given = tool_environment(config.vault.variables, config.settings.workers.pass_env)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in given.items())
    state: State = "ok" if size <= ENV_BYTES_MAX else "bad"
    text = f"{len(given)} variables, {size} bytes of at most {ENV_BYTES_MAX}"
    yield Finding(about="environment of a tool", name="size", state=state, text=text)
    harmless = [name for name in sorted(given) if _is_harmless(name)]
    for name in harmless:
        yield _variable(name, "ok", given[name])
    if others := sorted(given.keys() - set(harmless)):
        yield _variable("not shown", "ok", ", ".join(others))
    for name in sorted(ours.keys() - given.keys()):
        why = "it is for cookie alone" if is_withheld(name) else "its value is no text"
        if name in config.vault.variables:
            why = "the config reads it as a secret"
        yield _variable(name, "note", f"withheld: {why}")


def _is_harmless(name: str) -> bool:
    return name in HARMLESS or name.startswith(HARMLESS_PREFIX)


def _variable(name: str, state: State, text: str) -> Finding:
    about = "environment of a tool"
    return Finding(about=about, name=clean(name, NAME_CHARS), state=state, text=text)


# --- trees: who holds them, what is open


def _trees(who: Patient) -> Iterator[Finding]:
    held: set[Path] = set()
    count = opened = 0
    for workspace in workspaces(sessions_dir(who.around.data_dir)):
        for one in holders.held(workspace):
            held.add(one.tree.directory)
            name = one.tree.directory.name
            yield Finding(about="sessions", name=name, state="ok", text=f"held by {one.who}")
        listing = sessions(workspace)
        count += len(listing.sessions)
        for note in listing.notes:
            text = f"{note}; it is only a cache and is written anew"
            yield Finding(about="sessions", name="metadata", state="note", text=text)
        for listed in _maybe_open(listing.sessions):
            if listed.place.directory not in held and opened < LOGS_MAX:
                opened += 1
                yield from _open_run(workspace, listed)
    yield Finding(about="sessions", name="total", state="ok", text=f"{count} sessions")


def _maybe_open(listed: Iterable[Listed]) -> Iterator[Listed]:
    """Sessions whose log grew after their metadata was written, or that have none."""
    for one in listed:
        written = _status(one.place.root.metadata)
        if written is None or written.st_mtime_ns < one.changed_ns:
            yield one


def _open_run(workspace: WorkspacePaths, listed: Listed) -> Iterator[Finding]:
    try:
        state = fold(read_log(listed.place.root.events).events())
    except (SessionUnreadable, OSError) as trouble:
        text = explain(trouble)
        yield Finding(about="sessions", name=listed.session_id, state="bad", text=text)
        return
    if state.run is not None:
        where = os.fsdecode(_bytes(workspace.cwd)) or "its folder"
        text = f"has an open run; in {where}: cookie run --resume-session {listed.session_id}"
        yield Finding(about="sessions", name=listed.session_id, state="note", text=text)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
