"""Which trees have a worker, since when, and what must happen next: stimuli in, instructions out.

The theory: a tree is *due* (a worker was ordered), *up* (it was started and is not known dead),
*closing* (it was asked to end), or *lost* (we stopped restarting it). The lock of a tree is taken
before its first worker and given back only when no worker of it is alive and none will come, so
nobody else can slip in across a restart. Every worker of a tree has an epoch; news of an older
epoch is history and changes nothing. Time is a value that comes with each stimulus.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct

from ipc.ids import RunId, SessionId

CLOSE_S = 10.0  # how long a worker may take to end by itself, processes.md "SIGTERM"
ABORT_S = 5.0  # from SIGABRT (it writes its stacks) to SIGKILL, processes.md "a wedged worker"


class RestartPolicy(Struct, frozen=True, kw_only=True):
    """When to stop restarting: after `deaths_max` deaths within `window_s` seconds."""

    deaths_max: int = 5
    window_s: float = 60.0
    first_pause_s: float = 0.1  # doubled by each further death in the window


KEEP_ALIVE = RestartPolicy()  # a tree of the daemon
ONE_LIFE = RestartPolicy(deaths_max=1)  # `cookie run`: the worker's death is the command's answer


# Stimuli


class Opened(Struct, frozen=True):
    """Somebody wants to work in `root`; `conn` is the connection that asked, if one did."""

    root: SessionId
    conn: int | None = None


class Refused(Struct, frozen=True):
    """The lock of `root` could not be taken."""

    root: SessionId


class Born(Struct, frozen=True):
    """The worker that Fork ordered was started. One that could not be started Died instead."""

    root: SessionId
    epoch: int


class Ready(Struct, frozen=True):
    """The worker of `root` has opened its tree; `runs` are the runs it goes on with."""

    root: SessionId
    epoch: int
    runs: tuple[RunId, ...] = ()


class Running(Struct, frozen=True):
    """The worker's own list of live runs, whenever it changes."""

    root: SessionId
    epoch: int
    runs: tuple[RunId, ...]


class Died(Struct, frozen=True):
    """The worker is known to be gone. `seq` is the last event it told of, None if it said nothing.

    `meant` is true when it said goodbye first and left with status 0.
    """

    root: SessionId
    epoch: int
    cause: str
    seq: int | None = None
    meant: bool = False


class Wedged(Struct, frozen=True):
    """The worker lives and does not answer."""

    root: SessionId
    epoch: int


class Idle(Struct, frozen=True):
    """Nothing is open in `root` and nobody looks at it."""

    root: SessionId


class ClientGone(Struct, frozen=True):
    """A connection ended; what it started goes on."""

    conn: int


class Drain(Struct, frozen=True):
    """No new work; every tree ends within `deadline_s`."""

    deadline_s: float = CLOSE_S


Stimulus: TypeAlias = (
    Opened | Refused | Born | Ready | Running | Died | Wedged | Idle | ClientGone | Drain
)


# Instructions


class Lock(Struct, frozen=True):
    """Take the tree's owner.lock; if that fails, answer Refused and skip what follows."""

    root: SessionId


class Fork(Struct, frozen=True):
    """Start worker number `epoch` of `root` in `after_s` seconds. Unlock takes the order back."""

    root: SessionId
    epoch: int
    after_s: float = 0.0


News: TypeAlias = Literal["worker_lost", "worker_back", "gave_up", "draining", "client_gone"]


class Tell(Struct, frozen=True):
    """Say `news` to the clients of `root`; `client_gone` goes to its worker, `conn` says which."""

    root: SessionId
    news: News
    detail: str = ""
    conn: int | None = None


class Kill(Struct, frozen=True):
    """Signal worker `epoch` of `root` in `after_s` seconds, unless it is known dead by then."""

    root: SessionId
    epoch: int
    signal: Literal["ABRT", "KILL"]
    after_s: float = 0.0


class Close(Struct, frozen=True):
    """Ask the worker to end: drain, let go of its life; kill it after `deadline_s` seconds."""

    root: SessionId
    epoch: int
    deadline_s: float = CLOSE_S


class Unlock(Struct, frozen=True):
    """Close our descriptor of the tree's lock: no worker of it lives and none will come."""

    root: SessionId


Instruction: TypeAlias = Lock | Fork | Tell | Kill | Close | Unlock


# The machine


class Tree:
    """What the roster knows of one tree."""

    __slots__ = ("conns", "deaths", "epoch", "last_seq", "reason", "reopen", "runs", "state")

    def __init__(self) -> None:
        self.state: Literal["due", "up", "closing", "lost"] = "due"
        self.epoch = 1
        self.conns: set[int] = set()
        self.runs: tuple[RunId, ...] = ()
        self.deaths: list[float] = []  # times of unmeant deaths within the policy's window
        self.last_seq: int | None = None  # of the last unmeant death
        self.reopen = False  # somebody opened it while it was closing
        self.reason = ""  # why it is lost


class Roster:
    """All trees of one supervisor. `on` is the only way to change it."""

    def __init__(self, policy: RestartPolicy = KEEP_ALIVE) -> None:
        self._policy = policy
        self._trees: dict[SessionId, Tree] = {}
        self._runs: dict[RunId, SessionId] = {}
        self._draining = False

    def on(self, stimulus: Stimulus, now: float) -> list[Instruction]:
        """What to do about `stimulus`, in order; `now` is seconds of a monotonic clock."""
        match stimulus:
            case Opened():
                return self._opened(stimulus)
            case Refused(root):
                return self._refused(root)
            case Born(root, epoch):
                return self._born(root, epoch)
            case Ready(root, epoch, runs) | Running(root, epoch, runs):
                return self._ready(root, epoch, runs, back=isinstance(stimulus, Ready))
            case Died():
                return self._died(stimulus, now)
            case Wedged(root, epoch):
                return self._wedged(root, epoch)
            case Idle(root):
                return self._idle(root)
            case ClientGone(conn):
                return self._client_gone(conn)
            case Drain(deadline_s):
                return self._drain(deadline_s)
            case _:
                assert_never(stimulus)

    def tree_of(self, run: RunId) -> SessionId | None:
        """The tree a live run belongs to; None for a run nobody here knows."""
        return self._runs.get(run)

    def is_up(self, root: SessionId) -> bool:
        """Whether a worker of `root` was started and is not known dead."""
        tree = self._trees.get(root)
        return tree is not None and tree.state in ("up", "closing")

    def knows(self, root: SessionId) -> bool:
        """Whether `root` is open here, or was and is lost."""
        return root in self._trees

    def trees(self) -> Iterable[SessionId]:
        """The trees known now, in the order they were first opened."""
        return tuple(self._trees)

    def _opened(self, stimulus: Opened) -> list[Instruction]:
        root, tree = stimulus.root, self._trees.get(stimulus.root)
        if self._draining:
            return [Tell(root, "draining")]
        if tree is not None and tree.state == "lost":
            return [Tell(root, "gave_up", tree.reason)]
        orders: list[Instruction] = []
        if tree is None:
            tree = self._trees[root] = Tree()
            orders = [Lock(root), Fork(root, tree.epoch)]
        elif tree.state == "closing":
            tree.reopen = True
        if stimulus.conn is not None:
            tree.conns.add(stimulus.conn)
        return orders

    def _refused(self, root: SessionId) -> list[Instruction]:
        if root in self._trees:
            self._forget(root)
        return []

    def _born(self, root: SessionId, epoch: int) -> list[Instruction]:
        tree = self._current(root, epoch)
        if tree is None:  # drained while the worker was on its way: it has nobody to live for
            return [Kill(root, epoch, "KILL")]
        tree.state = "up"
        return []

    def _ready(
        self, root: SessionId, epoch: int, runs: tuple[RunId, ...], *, back: bool
    ) -> list[Instruction]:
        tree = self._current(root, epoch)
        if tree is None:
            return []
        self._set_runs(root, tree, runs)
        return [Tell(root, "worker_back")] if back and tree.deaths else []

    def _died(self, death: Died, now: float) -> list[Instruction]:
        tree = self._current(death.root, death.epoch)
        if tree is None or tree.state == "lost":
            return []
        if tree.state == "closing" or death.meant:
            return self._ended(death.root, tree)
        return self._crashed(death, tree, now)

    def _ended(self, root: SessionId, tree: Tree) -> list[Instruction]:
        if tree.reopen and not self._draining:
            tree.state, tree.reopen = "due", False
            tree.epoch += 1
            self._set_runs(root, tree, ())
            return [Fork(root, tree.epoch)]
        self._forget(root)
        return [Unlock(root)]

    def _crashed(self, death: Died, tree: Tree, now: float) -> list[Instruction]:
        root, policy = death.root, self._policy
        # A worker that came up has appended something; two that died without a new event in
        # between died of the same one, and so would the third.
        poisoned = death.seq is not None and death.seq == tree.last_seq
        tree.last_seq = death.seq
        tree.deaths = [at for at in tree.deaths if now - at < policy.window_s] + [now]
        lost: Instruction = Tell(root, "worker_lost", death.cause)
        if poisoned or len(tree.deaths) >= policy.deaths_max:
            tree.state = "lost"
            tree.reason = _why(death, len(tree.deaths), policy, poisoned=poisoned)
            self._set_runs(root, tree, ())
            return [lost, Tell(root, "gave_up", tree.reason), Unlock(root)]
        tree.state = "due"
        tree.epoch += 1
        pause = policy.first_pause_s * 2.0 ** (len(tree.deaths) - 1)
        return [lost, Fork(root, tree.epoch, after_s=pause)]

    def _wedged(self, root: SessionId, epoch: int) -> list[Instruction]:
        if self._current(root, epoch) is None:
            return []
        return [Kill(root, epoch, "ABRT"), Kill(root, epoch, "KILL", after_s=ABORT_S)]

    def _idle(self, root: SessionId) -> list[Instruction]:
        tree = self._trees.get(root)
        if tree is None or tree.state != "up" or tree.runs:
            return []
        tree.state = "closing"
        return [Close(root, tree.epoch)]

    def _client_gone(self, conn: int) -> list[Instruction]:
        orders: list[Instruction] = []
        for root, tree in self._trees.items():
            if conn in tree.conns:
                tree.conns.discard(conn)
                orders.append(Tell(root, "client_gone", conn=conn))
        return orders

    def _drain(self, deadline_s: float) -> list[Instruction]:
        self._draining = True
        orders: list[Instruction] = []
        for root, tree in list(self._trees.items()):
            if tree.state == "due":
                self._forget(root)
                orders.append(Unlock(root))
            elif tree.state == "up":
                tree.state = "closing"
                orders.append(Close(root, tree.epoch, deadline_s))
        return orders

    def _current(self, root: SessionId, epoch: int) -> Tree | None:
        tree = self._trees.get(root)
        return tree if tree is not None and tree.epoch == epoch else None

    def _set_runs(self, root: SessionId, tree: Tree, runs: tuple[RunId, ...]) -> None:
        for run in tree.runs:
            self._runs.pop(run, None)
        tree.runs = runs
        for run in runs:
            self._runs[run] = root

    def _forget(self, root: SessionId) -> None:
        tree = self._trees.pop(root)
        self._set_runs(root, tree, ())


def _why(death: Died, count: int, policy: RestartPolicy, *, poisoned: bool) -> str:
    if poisoned:
        return f"it died twice at event {death.seq}, last time: {death.cause}"
    if policy.deaths_max == 1:
        return death.cause
    return f"it died {count} times within {policy.window_s:g} s, last time: {death.cause}"
