"""The supervisor's hands: what the roster decides, done to locks, processes and the link.

Everything here runs on one loop and in callbacks of it: the link delivers, a pidfd says that a
worker died, a timer is due. Each of them turns into a stimulus of the roster, and what the roster
answers is done at once and in order. There is no task that pumps and so none that can die unseen;
the few that wait (an end, a sweep) are kept and looked at. Works on asyncio and on uvloop, which
owns SIGCHLD, so deaths are learned from pidfds alone (hazard 31).

A worker's death is told at the earliest when everything it had sent was read, and the tree's lock
is ours until then: nobody sees a tree without an owner while a worker of it may live.
"""

import asyncio
import contextlib
import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec import Struct

from cookie.daemon import child, instance, locks, roster
from cookie.daemon.child import Worker
from cookie.daemon.instance import Incarnation
from cookie.daemon.locks import TreeLock
from cookie.daemon.roster import KEEP_ALIVE, Instruction, News, RestartPolicy, Roster, Stimulus
from ipc import orders
from ipc.disk.paths import WorkspacePaths
from ipc.faults import Fact, Fault, FaultBody, RemoteFault
from ipc.ids import Revision, SecretRef, SessionId
from ipc.lane import Bodies, LinkGone, PeerStalled
from ipc.life import NoBirth, send_birth
from ipc.link import Hub
from ipc.seams import proc

HELLO_S: Final = 30.0  # from the birth to Hello: an import on a loaded machine takes seconds
WEDGED_AFTER_S: Final = 30.0  # workers.wedged_after
PINGS_MISSED_MAX: Final = 3  # counted, not timed: a supervisor that was stopped missed none
SETTLE_S: Final = 0.25  # from a worker's Ready to what we do for the next start
UNKILLABLE_S: Final = 5.0  # how long a worker in the kernel's hands is waited for after SIGKILL
LAST_WORDS_S: Final = 0.02  # what a dead worker sent is still on its way through ZeroMQ's thread
SWEEPS_MAX: Final = 8  # looks for what a dead worker left; each kills all that it finds
NO_PIDFD_POLL_S: Final = 0.05
REFUSED_MAX: Final = 4  # refused frames of one peer that are told of; one can send any number

OnEmit = Callable[[SessionId, int, bool, bytes], None]  # session, seq, durable, notification
OnNews = Callable[[SessionId, News, str], None]
OnStatus = Callable[[SessionId, orders.Status], None]
OnRefused = Callable[[str], None]  # what was dropped and of whom, in words


class WorkerLost(Fault):
    """The worker that was asked, or was to be, is dead. `tail` is the end of its stderr."""

    code = "worker_lost"

    def __init__(self, root: SessionId, cause: str, tail: str = "") -> None:
        super().__init__(root=root, cause=cause, tail=tail)
        self.args = (f"the worker of session {root} is gone: {cause}",)
        self.cause = cause
        self.tail = tail


class Draining(Fault):
    """This supervisor takes no new work."""

    code = "draining"


class TreeOrder(Struct, frozen=True, kw_only=True):
    """What is to be supervised: a tree, where it lies, and what its runs are told.

    It holds no secret: `secrets` are their names, `secret` is asked for each when a worker is to
    be granted it. So a repr of it shows none either.
    """

    root: SessionId
    fresh: bool  # True: a new root; False: one that is on disk
    workspace: WorkspacePaths
    data_dir: str
    cwd: str
    revision: Revision
    plan: bytes  # the plan's JSON
    on_eof: orders.OnEof = "end"
    secrets: tuple[SecretRef, ...] = ()  # what the plan names and the config has
    secret: Callable[[SecretRef], str] | None = None  # as Vault.value; needed where there are some


class _Asked:
    """A Call that has no Reply yet."""

    __slots__ = ("answer", "tree")

    def __init__(self, tree: "_Tree", answer: "asyncio.Future[bytes]") -> None:
        self.tree = tree
        self.answer = answer


class _Tree:
    """One tree and its present worker, as the hands know them."""

    def __init__(self, order: TreeOrder, loop: asyncio.AbstractEventLoop) -> None:
        self.order = order
        self.lock: TreeLock | None = None
        self.ready: asyncio.Future[orders.Ready] = loop.create_future()
        self.gone = asyncio.Event()  # unlocked: no worker lives and none will come
        self.spare: Worker | None = None  # started before anybody knew for what
        self.worker: Worker | None = None
        self.epoch = 0  # the roster's number of the worker
        self.identity = ""
        self.seq: int | None = None
        self.said_bye = False
        self.unanswered = 0
        self.lost: WorkerLost | None = None
        self.death: orders.Death | None = None  # of its last worker, when we saw it
        self.fork: asyncio.TimerHandle | None = None
        self.timers: list[asyncio.TimerHandle] = []  # of the present worker

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


class Supervisor:
    """All trees of this process and their workers.

    `on_emit` gets each event of a worker as the finished notification, in order per tree;
    `on_news` what became of a tree; `on_status` a worker's own report; `on_refused` that somebody
    spoke to us who may not, or not so: of each at most `REFUSED_MAX`. They are called on the loop
    and must not block.
    """

    def __init__(
        self,
        incarnation: Incarnation,
        instance: str,
        *,
        on_emit: OnEmit,
        on_news: OnNews | None = None,
        on_status: OnStatus | None = None,
        on_refused: OnRefused | None = None,
        start: Callable[[], Worker] | None = None,
        policy: RestartPolicy = KEEP_ALIVE,
        wedged_after_s: float = WEDGED_AFTER_S,
        subreaper: bool = True,
    ) -> None:
        """Bind the link of `incarnation`; raises `ipc.link.BadPath`.

        `start` makes a worker when the roster wants one and none was handed to `open`. With
        `subreaper`, orphans of a dead worker come to this process and are killed and reaped.
        """
        self._loop = asyncio.get_running_loop()
        self._incarnation = incarnation
        self._instance = instance
        self._on_emit = on_emit
        self._on_news = on_news
        self._on_status = on_status
        self._on_refused = on_refused
        self._refused: Counter[str] = Counter()
        self._start = start
        self._ping_s = wedged_after_s / PINGS_MISSED_MAX
        self._subreaper = subreaper
        self._settling: asyncio.TimerHandle | None = None
        self._alone = False  # every child of this process is known to come from a worker
        self._closed = False
        self._failure = ""  # why this supervisor itself failed, if it did
        self._roster = Roster(policy)
        self._trees: dict[SessionId, _Tree] = {}
        self._by_identity: dict[str, _Tree] = {}
        self._asked: dict[int, _Asked] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._hub = Hub(incarnation.link_path, self._arrived, on_refused=self._refuse)

    # ---- what the owner of a supervisor does

    async def open(
        self, order: TreeOrder, worker: Worker | None = None, conn: int | None = None
    ) -> orders.Ready:
        """Take the tree, give it a worker (`worker`, if one was started) and wait until it is up.

        The worker belongs to the supervisor from here on, also when this fails. Raises what
        `locks` raises, WorkerLost when the worker died first, or Draining. A tree that is open
        already is left alone.
        """
        root = order.root
        tree = self._trees.get(root)
        if self._closed or tree is not None:
            if worker is not None:
                child.abandon(worker)
            if tree is None:
                raise Draining(root=root)
        else:
            tree = self._trees[root] = _Tree(order, self._loop)
            tree.spare = worker
        try:
            self._feed(roster.Opened(root, conn))
        except BaseException:
            self._undo(tree)
            raise
        if tree.gone.is_set():  # it is lost: what its last worker said of itself is history
            raise tree.lost or WorkerLost(root, "it was ended")
        return await asyncio.shield(tree.ready)

    async def call(self, root: SessionId, method: str, params: bytes, conn: int = 0) -> bytes:
        """Ask the worker of `root`; its result's JSON, or its fault raised as a RemoteFault.

        Raises WorkerLost when it dies first, PeerStalled when it takes nothing. A cancelled call
        is taken back.
        """
        tree = self._trees.get(root)
        if tree is None or tree.worker is None:
            raise (tree.lost if tree and tree.lost else WorkerLost(root, "it is not running"))
        number = next(self._numbers)
        asked = self._asked[number] = _Asked(tree, self._loop.create_future())
        try:
            with contextlib.suppress(LinkGone):  # its death is about to be told, with its cause
                await self._hub.send(tree.identity, orders.Call(number, conn, method), params)
            return await asked.answer
        finally:
            self._asked.pop(number, None)
            if not asked.answer.done() or asked.answer.cancelled():
                asked.answer.cancel()
                self._offer(asked.tree, orders.Cancel(number))

    async def lost(self, root: SessionId) -> WorkerLost:
        """Wait until `root` has no worker and none will come; how the last one ended."""
        tree = self._trees.get(root)
        if tree is None:
            return WorkerLost(root, "it is not running")
        await tree.gone.wait()
        return tree.lost or WorkerLost(root, "it was ended")

    def is_up(self, root: SessionId) -> bool:
        """Whether a worker of `root` is not known to be dead."""
        return self._roster.is_up(root)

    def pid(self, root: SessionId) -> int | None:
        """The pid of the tree's worker; None when it has none."""
        tree = self._trees.get(root)
        return tree.worker.pid if tree is not None and tree.worker is not None else None

    def kill(self, root: SessionId) -> None:
        """SIGKILL the worker of `root` now; what follows is a death like any other."""
        tree = self._trees.get(root)
        if tree is not None and tree.worker is not None:
            child.send_signal(tree.worker, signal.SIGKILL)

    def client_gone(self, conn: int) -> None:
        """A connection of ours ended."""
        self._feed(roster.ClientGone(conn))

    async def close(self, deadline_s: float = roster.CLOSE_S) -> bool:
        """End every worker in order, or by SIGKILL after `deadline_s`; then free locks and link.

        Returns False when ZeroMQ would not end: leave by os._exit then. Safe to repeat. The
        deadline is in seconds; a process that even SIGKILL does not end is waited for a little.
        """
        self._closed = True
        self._feed(roster.Drain(deadline_s))
        # An uninterruptible process survives SIGKILL for as long as the kernel likes; we do not.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s + UNKILLABLE_S):
                for tree in list(self._trees.values()):
                    await tree.gone.wait()
                while self._tasks:
                    await asyncio.wait(self._tasks)
        if self._settling is not None:
            self._settling.cancel()
        if self._subreaper:
            self._reap_strangers()
        ended = self._hub.close()
        self._incarnation.close()
        return ended

    # ---- stimuli and instructions

    def _undo(self, tree: _Tree) -> None:
        """A tree that could not be opened leaves nothing behind."""
        root = tree.order.root
        self._feed(roster.Refused(root))
        self._trees.pop(root, None)
        self._by_identity.pop(tree.identity, None)
        tree.cancel_timers()
        for worker in (tree.spare, tree.worker):
            if worker is not None:
                if worker.pidfd >= 0:
                    self._loop.remove_reader(worker.pidfd)
                child.abandon(worker)
        tree.spare = tree.worker = None
        if tree.lock is not None:
            tree.lock.close()

    def _guarded(self, do: Callable[..., None], *args: Any) -> None:
        """Run a callback. A bug in it may not leave anybody waiting for ever (hazard 48)."""
        try:
            do(*args)
        except Exception as error:  # noqa: BLE001 - told to the handler and to all who wait
            message = {"message": "the supervisor failed", "exception": error}
            self._loop.call_exception_handler(message)
            self._broke(f"its supervisor failed: {type(error).__name__}: {error}")

    def _broke(self, cause: str) -> None:
        self._failure = cause  # of every death from here on: we ended them
        for tree in self._trees.values():
            tree.lost = WorkerLost(tree.order.root, cause)
            if not tree.ready.done():
                tree.ready.set_exception(tree.lost)
            self._fail_calls(tree, cause, "")
            if tree.worker is not None:
                child.send_signal(tree.worker, signal.SIGKILL)

    def _fail_calls(self, tree: _Tree, cause: str, tail: str) -> None:
        for asked in self._asked.values():
            if asked.tree is tree and not asked.answer.done():
                asked.answer.set_exception(WorkerLost(tree.order.root, cause, tail))

    def _later(self, delay_s: float, do: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, self._guarded, do, *args)

    def _feed(self, stimulus: Stimulus) -> None:
        for instruction in self._roster.on(stimulus, self._loop.time()):
            self._obey(instruction)

    def _obey(self, instruction: Instruction) -> None:
        tree = self._trees.get(instruction.root)
        if tree is None:
            return
        match instruction:
            case roster.Lock():
                tree.lock = self._lock(tree.order)
            case roster.Fork(epoch=epoch, after_s=after_s):
                if after_s:
                    tree.fork = self._later(after_s, self._fork, tree, epoch)
                else:
                    self._fork(tree, epoch)
            case roster.Tell():
                self._tell(tree, instruction)
            case roster.Kill(epoch=epoch, signal=name, after_s=after_s):
                number = signal.SIGABRT if name == "ABRT" else signal.SIGKILL
                timer = self._later(after_s, self._strike, tree, epoch, number)
                tree.timers.append(timer)
            case roster.Close(epoch=epoch, deadline_s=deadline_s):
                self._end(tree, epoch, deadline_s)
            case roster.Unlock():
                self._unlock(tree)

    def _lock(self, order: TreeOrder) -> TreeLock:
        workspace, cwd = order.workspace, order.cwd
        if order.fresh:
            return locks.birth(workspace, cwd, self._instance, order.root)
        return locks.open_existing(workspace, cwd, self._instance, order.root)

    def _fork(self, tree: _Tree, epoch: int) -> None:
        assert tree.lock is not None, "a worker without its tree's lock"
        root = tree.order.root
        tree.fork, tree.epoch, tree.said_bye = None, epoch, False
        tree.unanswered, tree.seq, tree.identity = 0, None, ""
        try:
            worker, tree.spare = tree.spare, None
            tree.worker = worker = worker or self._new_worker()
        except OSError as no:
            self._lose(tree, f"a worker could not be started: {no.strerror or no}", "")
            return
        number = tree.lock.next_epoch()
        tree.identity, nonce = f"{root}.{number}", os.urandom(16).hex()
        self._hub.expect(tree.identity, nonce)
        self._by_identity[tree.identity] = tree
        self._watch(tree, worker)
        self._feed(roster.Born(root, epoch))
        self._bear(tree, tree.lock, worker, nonce)
        tree.timers.append(self._later(HELLO_S, self._no_hello, tree, epoch))

    def _new_worker(self) -> Worker:
        if self._start is None:
            raise OSError("this command has no second one")
        return self._start()

    def _bear(self, tree: _Tree, lock: TreeLock, worker: Worker, nonce: str) -> None:
        order = tree.order
        birth = orders.Birth(
            root_id=order.root,
            root_dir=str(lock.look().directory),
            final_dir=str(lock.final.directory),
            published=lock.published,
            data_dir=order.data_dir,
            cwd=order.cwd,
            link_path=self._incarnation.link_path,
            identity=tree.identity,
            nonce=nonce,
            epoch=lock.epoch,
            on_eof=order.on_eof,
            role="writer",
            last=tree.death or _before_us(lock),
        )
        with contextlib.suppress(NoBirth):  # it is dead, and its pidfd says so with a better cause
            send_birth(worker.life, birth, (lock.fd,))

    def _tell(self, tree: _Tree, told: roster.Tell) -> None:
        if told.news == "client_gone":
            self._offer(tree, orders.ClientGone(told.conn or 0))
        elif told.news == "gave_up" and not tree.ready.done():
            tree.ready.set_exception(tree.lost or WorkerLost(told.root, told.detail))
        if self._on_news is not None and told.news != "client_gone":
            self._on_news(told.root, told.news, told.detail)

    def _end(self, tree: _Tree, epoch: int, deadline_s: float) -> None:
        """Drain says "end" on the link; EOF of its life says it again, or where there is none."""
        heard = self._offer(tree, orders.Drain(deadline_s))
        grace = deadline_s / 2 if heard else 0.0
        if tree.order.on_eof == "end" and tree.worker is not None:
            tree.timers.append(self._later(grace, tree.worker.life.close))
        tree.timers.append(self._later(deadline_s, self._strike, tree, epoch, signal.SIGKILL))

    def _strike(self, tree: _Tree, epoch: int, number: signal.Signals) -> None:
        if tree.worker is not None and tree.epoch == epoch:
            child.send_signal(tree.worker, number)

    def _unlock(self, tree: _Tree) -> None:
        if tree.fork is not None:
            tree.fork.cancel()
        if tree.spare is not None:
            child.abandon(tree.spare)
            tree.spare = None
        if tree.lock is not None:
            tree.lock.close()
            tree.lock = None
        if not tree.ready.done():
            tree.ready.set_exception(tree.lost or WorkerLost(tree.order.root, "it was ended"))
        tree.ready.exception()  # looked at, so that nobody is told of it a second time
        tree.gone.set()
        if not self._roster.knows(tree.order.root):
            self._trees.pop(tree.order.root, None)

    # ---- the life and death of a worker

    def _watch(self, tree: _Tree, worker: Worker) -> None:
        if worker.pidfd >= 0:
            self._loop.add_reader(worker.pidfd, self._guarded, self._fell, tree, worker)
        else:
            self._look_for_death(tree, worker)

    def _look_for_death(self, tree: _Tree, worker: Worker) -> None:
        with contextlib.suppress(ChildProcessError):
            seen = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if seen is None:
                self._later(NO_PIDFD_POLL_S, self._look_for_death, tree, worker)
                return
        self._fell(tree, worker)

    def _fell(self, tree: _Tree, worker: Worker) -> None:
        if worker.pidfd >= 0:
            self._loop.remove_reader(worker.pidfd)
        # Bye is a worker's last frame, so there is nothing to wait for behind it.
        self._later(0.0 if tree.said_bye else LAST_WORDS_S, self._bury, tree, worker)

    def _bury(self, tree: _Tree, worker: Worker) -> None:
        self._hub.gone(tree.identity)  # delivers what is left, so `said_bye` is true after it
        tree.worker = None  # before its pid and pidfd go: a signal handler of ours may call `kill`
        status = child.reap(worker)
        tail = child.last_words(worker.stderr_fd)
        child.release(worker)
        meant, cause = tree.said_bye and status == 0, child.cause(status, tail)
        tree.death = None if meant else orders.Death(cause=cause, exit_status=status, seen=True)
        self._lose(tree, cause, tail, meant=meant)

    def _lose(self, tree: _Tree, cause: str, tail: str, *, meant: bool = False) -> None:
        root, epoch = tree.order.root, tree.epoch
        cause = self._failure or cause
        tree.cancel_timers()
        tree.worker = None
        if tree.ready.done():  # who opens the tree from now on waits for the next worker
            tree.ready = self._loop.create_future()
        tree.lost = WorkerLost(root, cause, tail)
        self._by_identity.pop(tree.identity, None)
        if not meant and self._subreaper:
            self._keep(self._sweep(root))
        self._fail_calls(tree, cause, tail)
        self._feed(roster.Died(root, epoch, cause, tree.seq, meant))

    def _no_hello(self, tree: _Tree, epoch: int) -> None:
        if tree.epoch == epoch and self._hub.state(tree.identity) == "waiting":
            self._feed(roster.Wedged(tree.order.root, epoch))

    def _ping(self, tree: _Tree, epoch: int) -> None:
        if tree.worker is None or tree.epoch != epoch:
            return
        if tree.unanswered >= PINGS_MISSED_MAX:
            self._feed(roster.Wedged(tree.order.root, epoch))
            return
        tree.unanswered += 1
        self._offer(tree, orders.Ping(tree.unanswered))
        tree.timers = [one for one in tree.timers if one.when() > self._loop.time()]
        tree.timers.append(self._later(self._ping_s, self._ping, tree, epoch))

    async def _sweep(self, root: SessionId) -> None:
        """Kill what a dead worker's tools left alive, and reap what came to us."""
        await self._loop.run_in_executor(None, child.kill_marked, f"{root}:")
        for _ in range(SWEEPS_MAX):
            self._reap_strangers()
            if not self._alone or not (strangers := await self._strangers()):
                return
            await self._loop.run_in_executor(None, child.kill_with_all_below, strangers)

    async def _strangers(self) -> list[proc.Process]:
        """Children that are no workers: orphans that came to us and hide their mark."""
        found = await self._loop.run_in_executor(None, child.children)
        ours = self._worker_pids()  # as of now, so that one that was started meanwhile is spared
        return [one for one in found if one.pid not in ours]

    def _worker_pids(self) -> set[int]:
        return {
            worker.pid
            for tree in self._trees.values()
            for worker in (tree.worker, tree.spare)
            if worker is not None
        }

    def _reap_strangers(self) -> None:
        """Reap dead children nobody watches; they are orphans of a dead worker (hazard 30)."""
        ours = self._worker_pids()
        with contextlib.suppress(ChildProcessError):
            while (
                seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            ) is not None:
                if seen.si_pid in ours:  # its own watcher reaps it; the next look sees the rest
                    return
                os.waitid(os.P_PID, seen.si_pid, os.WEXITED | os.WNOHANG)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._kept)

    def _kept(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = {"message": "a task of the supervisor failed", "exception": error}
            self._loop.call_exception_handler(message)

    # ---- news of a worker

    def _refuse(self, reason: str, identity: str) -> None:
        self._refused[identity] += 1
        if self._on_refused is not None and self._refused[identity] <= REFUSED_MAX:
            who = f"the worker {identity}" if identity else "a stranger"
            self._on_refused(f"a frame of {who} was refused: {reason}")

    def _arrived(self, identity: str, news: orders.Up, bodies: Bodies) -> None:
        self._guarded(self._deliver, identity, news, bodies)

    def _deliver(self, identity: str, news: orders.Up, bodies: Bodies) -> None:
        tree = self._by_identity.get(identity)
        if tree is None:
            return
        match news:
            case orders.Emit(marks):
                self._emitted(tree, marks, bodies)
            case orders.Reply(number, ok):
                self._replied(number, ok, bodies)
            case orders.Pong():
                tree.unanswered = 0
            case orders.Hello(last_seq=last_seq):
                tree.seq = last_seq
                self._equip(tree)
                self._ping(tree, tree.epoch)
            case orders.Ready():
                self._is_ready(tree, news)
            case orders.Status(runs):
                self._feed(roster.Running(tree.order.root, tree.epoch, runs))
                if self._on_status is not None:
                    self._on_status(tree.order.root, news)
            case orders.Bye():
                tree.said_bye = True
            case _:  # leases and errands have no one to answer them yet
                return

    def _equip(self, tree: _Tree) -> None:
        """Give a worker that proved who it is its secrets, then the plan of who needs them.

        In this order a run that goes on by itself finds them there; nobody asks for one.
        """
        order = tree.order
        if order.secrets and self._subreaper:
            proc.set_dumpable(dumpable=False)  # before a copy of one lies in a queue of ours
        with contextlib.suppress(LinkGone):  # its death is about to be told, with its cause
            for ref in order.secrets:
                assert order.secret is not None, "an order that names secrets can tell them"
                self._hub.offer(tree.identity, orders.Grant(ref, None), order.secret(ref).encode())
            self._hub.offer(tree.identity, orders.Plan(order.revision), order.plan)

    def _emitted(self, tree: _Tree, marks: tuple[orders.Mark, ...], bodies: Bodies) -> None:
        for mark, body in zip(marks, bodies, strict=False):
            if mark.session == tree.order.root and mark.seq:
                tree.seq = mark.seq
            self._on_emit(mark.session, mark.seq, mark.durable, body)

    def _replied(self, number: int, ok: bool, bodies: Bodies) -> None:
        asked = self._asked.get(number)
        if asked is None or asked.answer.done():
            return
        body = bodies[0] if bodies else b"null"
        if ok:
            asked.answer.set_result(body)
        else:
            asked.answer.set_exception(RemoteFault(read_fault(body)))

    def _is_ready(self, tree: _Tree, ready: orders.Ready) -> None:
        if self._settling is None:
            self._settling = self._later(SETTLE_S, self._settle, tree.order.workspace)
        if tree.lock is not None:
            tree.lock.look()
        self._feed(roster.Ready(tree.order.root, tree.epoch, ready.live_runs))
        if not tree.ready.done():
            tree.ready.set_result(ready)

    def _settle(self, workspace: WorkspacePaths) -> None:
        """What costs milliseconds and can wait until a worker has something to do."""
        self._keep(self._tidy(workspace))
        if self._subreaper:
            proc.set_subreaper()
            proc.set_dumpable(dumpable=False)

    async def _tidy(self, workspace: WorkspacePaths) -> None:
        """Sweep what killed supervisors left: their incarnations, their unpublished trees."""
        if self._subreaper:
            # Children from before an exec (a shell's jobs) are not ours to kill, nor are the
            # orphans that theirs may become: then only those with a mark are.
            self._alone = not await self._strangers()
        directory = self._incarnation.path.parent
        with contextlib.suppress(OSError):
            await self._loop.run_in_executor(None, instance.sweep, directory)
            await self._loop.run_in_executor(None, locks.sweep_unborn, workspace)

    def _offer(self, tree: _Tree, order: orders.Down, *bodies: bytes) -> bool:
        try:
            self._hub.offer(tree.identity, order, *bodies)
        except (LinkGone, PeerStalled):
            return False
        return self._hub.state(tree.identity) != "waiting"


def _before_us(lock: TreeLock) -> orders.Death | None:
    return None if lock.last is None else orders.Death(cause=lock.last.fate())


def read_fault(body: bytes) -> FaultBody:
    """An error object of a Reply: code, message, facts. One that makes no sense is `internal`."""
    try:
        return msgspec.json.decode(body, type=FaultBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        facts: dict[str, Fact] = {"bytes": len(body)}
        return FaultBody(code="internal", message="an answer could not be read", facts=facts)
