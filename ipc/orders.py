"""The words between the supervisor and a worker: orders down, news up, and the birth of a worker.

Each word is the *head* of a frame (`ipc/frames`): a msgpack array whose first item is its tag, with
the fields in the order written here. What is only forwarded (params, results, notifications, a
plan, a secret) travels behind the head as raw bytes and is never decoded on the way. Fields are
added at the end, with a default: a reader of an older build passes over what it does not know.

The table is that of docs/protocol.md, "Frames".
"""

from typing import Literal

import msgspec
from msgspec import Struct

from ipc.faults import Fault
from ipc.ids import Revision, RunId, SecretRef, SessionId

BIRTH_BYTES_MAX = 1024 * 1024
BIRTH_PREFIX_BYTES = 4
BIRTH_DESCRIPTORS_MAX = 8  # the lock and the log file today; the rest is room to grow

LeaseKind = Literal["credential", "rate", "budget"]
ErrandKind = Literal[
    "catalogue_fetch",
    "token_refresh",
    "connect_check",
    "models_list",
    "mcp_oauth",
    "rule_rehearsal",
]
TreeState = Literal["starting", "idle", "running", "waiting", "draining"]
OnEof = Literal["end", "outlive"]
Role = Literal["writer", "reader"]


class BadOrder(Fault):
    """A head or a birth that is no word of this table; the peer is of another build or no peer."""

    code = "bad_order"


# ---- down: supervisor to worker


class Call(Struct, frozen=True, array_like=True, tag="call", gc=False):
    """A client's request for this tree; one body: its params, JSON. Answered by one Reply{id}."""

    id: int
    conn: int  # which client connection asks; named again by ClientGone
    method: str


class Cancel(Struct, frozen=True, array_like=True, tag="cancel", gc=False):
    """The asker of Call{id} no longer waits; its Reply may be left out."""

    id: int


class ClientGone(Struct, frozen=True, array_like=True, tag="client_gone", gc=False):
    """A client connection closed; its subscriptions end, its runs go on."""

    conn: int


class Plan(Struct, frozen=True, array_like=True, tag="plan", gc=False):
    """What runs are told from now on; one body: the plan's JSON (`ipc/plan`). No secret in it."""

    revision: Revision


class Grant(Struct, frozen=True, array_like=True, tag="grant", gc=False):
    """The bytes behind a SecretRef; one body: the secret. The only word that carries one."""

    ref: SecretRef
    expires: int | None  # wall clock, ms since the epoch; None = as long as the tree lives


class Lease(Struct, frozen=True, array_like=True, tag="lease", gc=False):
    """A right to spend, bounded in amount and in time; answers LeaseWanted{id} or comes unasked."""

    id: int
    kind: LeaseKind
    scope: str  # a provider, a model key or a session, as the kind asks
    amount: int  # requests for a rate, pico-USD for a budget, 1 for a credential
    ttl_ms: int  # from its receipt, on the monotonic clock of the worker


class Errand(Struct, frozen=True, array_like=True, tag="errand", gc=False):
    """One job that belongs to no tree; one body: its params, JSON. Answered by ErrandDone{id}."""

    id: int
    kind: ErrandKind


class Rehome(Struct, frozen=True, array_like=True, tag="rehome", gc=False):
    """Another supervisor takes over: knock at `adopt_path`. The old link stays up until then."""

    adopt_path: str


class Drain(Struct, frozen=True, array_like=True, tag="drain", gc=False):
    """End: cancel what runs, record it, say Bye; after the deadline the supervisor kills."""

    deadline_s: float


class Ping(Struct, frozen=True, array_like=True, tag="ping", gc=False):
    """Answered by Pong of the same number from the worker's loop, not from a thread."""

    n: int


# ---- up: worker to supervisor


class Hello(Struct, frozen=True, array_like=True, tag="hello", gc=False):
    """The first frame of a worker; nothing before it is read. Answered by Credit.

    The nonce is shown by no repr: whoever holds it may speak as this worker.
    """

    identity: str  # tree and epoch; never used a second time
    nonce: str
    pid: int
    last_seq: int  # of the root log; 0 for a tree without events or an errand
    build: str

    def __repr__(self) -> str:
        return f"Hello({self.identity!r}, pid={self.pid}, last_seq={self.last_seq})"


class TreeSummary(Struct, frozen=True, array_like=True):
    """What a list shows of a tree without opening it."""

    root: SessionId
    title: str | None
    status: str  # SessionStatus of ipc/methods
    last_seq: int
    sessions: int  # the root and its children
    skipped: int  # lines of the root log that could not be read


class RecoveredRun(Struct, frozen=True, array_like=True):
    """What became of a run that was open when the last worker of this tree died."""

    run_id: RunId
    outcome: Literal["resumed", "interrupted"]


class Ready(Struct, frozen=True, array_like=True, tag="ready"):
    """The tree is open and reconciled; Calls are answered from now on. Once, after Hello."""

    summary: TreeSummary | None  # None: a new root without a user message, or an errand
    live_runs: tuple[RunId, ...]
    recovered: tuple[RecoveredRun, ...]


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """Where one notification of an Emit belongs."""

    session: SessionId
    seq: int  # 0: no log line (a plugin event); it is not replayed
    durable: bool  # its line is synced; False for a delta


class Emit(Struct, frozen=True, array_like=True, tag="emit"):
    """Events of one gather window; as many bodies as marks, each a finished notification."""

    marks: tuple[Mark, ...]


class Reply(Struct, frozen=True, array_like=True, tag="reply", gc=False):
    """The answer to Call{id}; one body: the result's JSON, or an error object's if not `ok`."""

    id: int
    ok: bool


class LeaseWanted(Struct, frozen=True, array_like=True, tag="lease_wanted", gc=False):
    """What the tree needs for its next requests; answered by Lease{id}, perhaps later."""

    id: int
    kind: LeaseKind
    scope: str
    amount: int


class Spent(Struct, frozen=True, array_like=True, tag="spent", gc=False):
    """What was used of a lease, in the lease's own unit; facts, sent after they are in the log."""

    lease_id: int
    kind: LeaseKind
    scope: str
    amount: int
    tokens: int


class ErrandDone(Struct, frozen=True, array_like=True, tag="errand_done", gc=False):
    """The answer to Errand{id}; one body: the result's JSON, or an error object's if not `ok`."""

    id: int
    ok: bool


class Status(Struct, frozen=True, array_like=True, tag="status"):
    """How the tree is; sent when it changes and now and then, at most once a second."""

    runs: tuple[RunId, ...]  # live ones
    tokens: int  # of the whole tree, since its beginning
    pss_bytes: int  # measured by the worker itself: no other process may look
    state: TreeState


class Pong(Struct, frozen=True, array_like=True, tag="pong", gc=False):
    """Answers Ping of the same number."""

    n: int


class Bye(Struct, frozen=True, array_like=True, tag="bye", gc=False):
    """The last frame of a worker that ends in order."""

    reason: str


# ---- both ways


class Credit(Struct, frozen=True, array_like=True, tag="credit", gc=False):
    """The sender has taken `frames` frames and is ready for as many more; 0 asks for one of these.

    The first one answers Hello and opens the window. Belongs to `ipc/link`; no room sees it.
    """

    frames: int


Down = Call | Cancel | ClientGone | Plan | Grant | Lease | Errand | Rehome | Drain | Ping | Credit
Up = Hello | Ready | Emit | Reply | LeaseWanted | Spent | ErrandDone | Status | Pong | Bye | Credit

_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(Down)
_up = msgspec.msgpack.Decoder(Up)


def encode(order: Down | Up) -> bytes:
    """Write a head."""
    return _encoder.encode(order)


def decode_down(head: bytes) -> Down:
    """Read a head that came from the supervisor; raises BadOrder."""
    try:
        return _down.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadOrder(reason=str(bad)[:200]) from None


def decode_up(head: bytes) -> Up:
    """Read a head that came from a worker; raises BadOrder."""
    try:
        return _up.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadOrder(reason=str(bad)[:200]) from None


# ---- birth


class Death(Struct, frozen=True, kw_only=True):
    """How the last worker of a tree ended, as far as its supervisor knows."""

    cause: str
    exit_status: int | None = None  # minus the signal's number when one killed it
    seen: bool = False  # False: gathered from what it left behind; it may have ended in order


class Birth(Struct, frozen=True, kw_only=True, tag="birth"):
    """What a worker is: the one message on its life socket, with descriptors beside it.

    A map and not an array: an old zygote may read the birth of a newer supervisor. The descriptors
    are, in this order, `owner.lock` (for a writer) and the worker's log file (if it has one). After
    it the life socket carries nothing; its EOF says that the parent is gone. The nonce is shown by
    no repr.
    """

    root_id: SessionId
    root_dir: str  # where the tree is now: `.staging-<id>` or its final place
    final_dir: str
    published: bool
    data_dir: str
    cwd: str
    link_path: str  # a file path, at most 100 bytes; not a URL
    identity: str
    nonce: str
    epoch: int
    on_eof: OnEof
    role: Role
    last: Death | None = None  # None: this is the tree's first worker

    def __repr__(self) -> str:
        return f"Birth({self.identity!r}, root_dir={self.root_dir!r}, role={self.role!r})"


_birth = msgspec.msgpack.Decoder(Birth)


def encode_birth(birth: Birth) -> bytes:
    """Write a birth with its length before it (4 bytes, big-endian); raises BadOrder if too big."""
    body = _encoder.encode(birth)
    if len(body) > BIRTH_BYTES_MAX:
        raise BadOrder(reason="birth is too big", bytes=len(body), limit=BIRTH_BYTES_MAX)
    return len(body).to_bytes(BIRTH_PREFIX_BYTES, "big") + body


def birth_length(prefix: bytes) -> int:
    """How many bytes follow the prefix; raises BadOrder, so that nobody waits for a gigabyte."""
    length = int.from_bytes(prefix, "big")
    if not 0 < length <= BIRTH_BYTES_MAX:
        raise BadOrder(reason="birth has no sane length", bytes=length, limit=BIRTH_BYTES_MAX)
    return length


def decode_birth(body: bytes) -> Birth:
    """Read a birth without its prefix; raises BadOrder."""
    try:
        return _birth.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadOrder(reason=str(bad)[:200]) from None
