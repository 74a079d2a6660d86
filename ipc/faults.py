"""Fault and the codes that cross a process: an error is a noun with a stable code and facts."""

from typing import ClassVar, Final

from msgspec import Struct

Fact = str | int

FACT_CHARS_MAX: Final = 4096  # characters of one text fact that cross a process
FACTS_MAX: Final = 32  # facts of one fault that cross a process

# Unicode's space separators, which are "not printable" to Python like a control character is.
_BLANKS: Final = frozenset(
    "\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
)

# JSON-RPC error numbers (spec 1.2). A code that is not named here travels as "engine_error".
RPC_CODES: Final[dict[str, int]] = {
    "parse_error": -32700,
    "invalid_request": -32600,
    "method_not_found": -32601,
    "invalid_params": -32602,
    "idempotency_conflict": -32602,
    "rename_rejected": -32602,
    "approval_rejected": -32602,
    "internal": -32603,
    "engine_error": -32000,
    "handshake_required": -32001,
    "session_missing": -32004,
    "delegation_corrupt": -32005,
    "cursor_ahead": -32006,
    "run_not_found": -32007,
    "provider_connect": -32011,
    "provider_disconnect": -32012,
    "no_runnable_model": -32020,
    "provider_store_reload_failed": -32021,
}


class FaultBody(Struct, frozen=True, kw_only=True):
    """A fault as it crosses a process: `code` is protocol, `message` is for people."""

    code: str
    message: str
    facts: dict[str, Fact] = {}


class Fault(Exception):
    """Base of every error a peer can receive; `code` is protocol, the message is for people.

    Rooms subclass it locally: a class attribute `code`, and facts given by keyword.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, **facts: Fact) -> None:
        listed = ", ".join(f"{name}={value}" for name, value in facts.items())
        super().__init__(f"{self.code}: {listed}" if listed else self.code)
        self.facts: dict[str, Fact] = facts

    def body(self) -> FaultBody:
        """The fault as data, bounded and free of control characters."""
        facts = {name: _bounded(value) for name, value in list(self.facts.items())[:FACTS_MAX]}
        message = clean(str(self), FACT_CHARS_MAX)
        return FaultBody(code=self.code, message=message, facts=facts)

    def rpc_code(self) -> int:
        """The JSON-RPC error number this fault travels under."""
        return rpc_code(self.code)


class RemoteFault(Fault):
    """A fault that happened in another process: its code, message and facts as they came."""

    def __init__(self, body: FaultBody) -> None:
        super().__init__(**body.facts)
        self.args = (body.message,)
        self.remote = body

    def body(self) -> FaultBody:
        """The body as it came, so that a fault passed on keeps its code."""
        return self.remote

    def rpc_code(self) -> int:
        """The number of the fault that was passed on."""
        return rpc_code(self.remote.code)


def rpc_code(code: str) -> int:
    """The JSON-RPC number of a fault code; an unlisted code is an engine error."""
    return RPC_CODES.get(code, RPC_CODES["engine_error"])


def clean(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, what a terminal might obey replaced by U+FFFD.

    Those are control and format characters; the blanks of other scripts are left alone.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() or c in _BLANKS else "\ufffd" for c in cut)


def _bounded(fact: Fact) -> Fact:
    return clean(fact, FACT_CHARS_MAX) if isinstance(fact, str) else fact
