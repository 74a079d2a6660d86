"""Identities two processes agree on: validated once at the edge, trusted after."""

import os
import re
import threading
import time
import unicodedata
from typing import Final, NewType

from msgspec import Struct

from ipc.faults import Fault

SessionId = NewType("SessionId", str)
RunId = NewType("RunId", str)
CallId = NewType("CallId", str)
ApprovalId = NewType("ApprovalId", str)
AttemptId = NewType("AttemptId", str)
InvocationId = NewType("InvocationId", str)
InternalRunId = NewType("InternalRunId", str)
GrantId = NewType("GrantId", str)
AgentId = NewType("AgentId", str)
ProviderId = NewType("ProviderId", str)
ModelKey = NewType("ModelKey", str)  # "provider/model"; the model part may hold more slashes
VariantName = NewType("VariantName", str)
PresetName = NewType("PresetName", str)
Digest = NewType("Digest", str)  # SHA-256, 64 lower-case hex digits
Revision = NewType("Revision", str)  # "sha256:" and 64 lower-case hex digits
Fingerprint = NewType("Fingerprint", str)  # the same shape as a Revision
Handle = NewType("Handle", str)  # "<agent slug>_<8 hex>", unique in a tree
ClientId = NewType("ClientId", str)

AGENT_ID_BYTES_MAX: Final = 64
CLIENT_ID_CHARS_MAX: Final = 256
HANDLE_SLUG_CHARS_MAX: Final = 16
MODEL_KEY_CHARS_MAX: Final = 512
VARIANT_CHARS_MAX: Final = 128
QUOTED_CHARS_MAX: Final = 80  # characters of a refused text that an error repeats
_TAIL_BITS: Final = 74  # random bits of a UUIDv7: 12 beside the version, 62 beside the variant
_STEP_BYTES: Final = 4  # random step inside a millisecond: rising, still not guessable
BASE_VARIANT: Final = VariantName("base")

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PROVIDER = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"sha256:[0-9a-f]{64}")
_HANDLE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,14}[a-z0-9])?_[0-9a-f]{8}")


class BadId(Fault):
    """A text that is no identity of the kind it was given for."""

    code = "bad_id"


class SecretRef(Struct, frozen=True, kw_only=True):
    """Where a secret is kept, never the secret: a provider and the name of one of its fields."""

    provider_id: ProviderId
    field: str


class Sequence:
    """UUIDv7s of one maker, each greater than the one before it."""

    lock: threading.Lock
    last: int

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        # Also right after a fork: a child may not continue its parent's sequence, and the lock
        # may have been held by a thread that does not exist there.
        self.lock = threading.Lock()
        self.last = 0

    def next(self, now_ms: int) -> str:
        """The next one, at a Unix time in milliseconds that may stand still or go back."""
        with self.lock:
            fresh = now_ms << _TAIL_BITS
            if fresh > self.last:
                value = fresh | int.from_bytes(os.urandom(10), "big") >> (80 - _TAIL_BITS)
            else:
                value = self.last + 1 + int.from_bytes(os.urandom(_STEP_BYTES), "big")
            self.last = value
        return _uuid7_of(value)


_sequence = Sequence()
os.register_at_fork(after_in_child=_sequence.restart)


def uuid7() -> str:
    """A UUIDv7 (RFC 9562), greater than every earlier one of this process."""
    return _sequence.next(time.time_ns() // 1_000_000)


def _uuid7_of(value: int) -> str:
    stamp, tail = value >> _TAIL_BITS, value & ((1 << _TAIL_BITS) - 1)
    number = stamp << 80 | 7 << 76 | tail >> 62 << 64 | 2 << 62 | tail & ((1 << 62) - 1)
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_session_id() -> SessionId:
    """A fresh session id."""
    return SessionId(uuid7())


def new_run_id() -> RunId:
    """A fresh run id."""
    return RunId(uuid7())


def new_call_id() -> CallId:
    """A fresh tool call id."""
    return CallId(uuid7())


def new_approval_id() -> ApprovalId:
    """A fresh approval id."""
    return ApprovalId(uuid7())


def new_attempt_id() -> AttemptId:
    """A fresh model attempt id."""
    return AttemptId(uuid7())


def new_invocation_id() -> InvocationId:
    """A fresh id of one delegation or one internal agent's call."""
    return InvocationId(uuid7())


def new_internal_run_id() -> InternalRunId:
    """A fresh id of one run of an internal agent."""
    return InternalRunId(uuid7())


def new_grant_id() -> GrantId:
    """A fresh id of a tree grant."""
    return GrantId(uuid7())


def new_client_id() -> ClientId:
    """A fresh client id, for callers that need none of their own."""
    return ClientId(uuid7())


def new_handle(agent: AgentId) -> Handle:
    """A random handle for an agent's session; the caller checks it is free in its tree."""
    slug = agent[:HANDLE_SLUG_CHARS_MAX].rstrip("-")
    return Handle(f"{slug}_{os.urandom(4).hex()}")


def parse_session_id(text: str) -> SessionId:
    """Read a session id; raises BadId."""
    return SessionId(_fitting(_UUID7, text, "session_id"))


def parse_run_id(text: str) -> RunId:
    """Read a run id; raises BadId."""
    return RunId(_fitting(_UUID7, text, "run_id"))


def parse_call_id(text: str) -> CallId:
    """Read a tool call id; raises BadId."""
    return CallId(_fitting(_UUID7, text, "tool_call_id"))


def parse_approval_id(text: str) -> ApprovalId:
    """Read an approval id; raises BadId."""
    return ApprovalId(_fitting(_UUID7, text, "approval_id"))


def parse_attempt_id(text: str) -> AttemptId:
    """Read a model attempt id; raises BadId."""
    return AttemptId(_fitting(_UUID7, text, "attempt_id"))


def parse_invocation_id(text: str) -> InvocationId:
    """Read an invocation id; raises BadId."""
    return InvocationId(_fitting(_UUID7, text, "invocation_id"))


def parse_grant_id(text: str) -> GrantId:
    """Read a tree grant id; raises BadId."""
    return GrantId(_fitting(_UUID7, text, "grant_id"))


def parse_agent_id(text: str) -> AgentId:
    """Read an agent id: lower-case letters and digits, single hyphens, at most 64 bytes."""
    return AgentId(_fitting(_NAME, text, "agent", AGENT_ID_BYTES_MAX))


def parse_preset_name(text: str) -> PresetName:
    """Read a preset's name: the grammar of an agent id."""
    return PresetName(_fitting(_NAME, text, "preset", AGENT_ID_BYTES_MAX))


def parse_provider_id(text: str) -> ProviderId:
    """Read a provider id: lower-case letters, digits, `.`, `_`, `-`, at most 64."""
    return ProviderId(_fitting(_PROVIDER, text, "provider_id"))


def parse_model_key(text: str) -> ModelKey:
    """Read "provider/model"; raises BadId when a part is missing or holds blanks."""
    provider, slash, model = text.partition("/")
    printable = model.isprintable() and not any(c.isspace() for c in model)
    if not (slash and _PROVIDER.fullmatch(provider) and model and printable):
        raise _bad("model", text)
    if len(text) > MODEL_KEY_CHARS_MAX:
        raise _bad("model", text)
    return ModelKey(text)


def provider_of(key: ModelKey) -> ProviderId:
    """The provider a model key names."""
    return ProviderId(key.partition("/")[0])


def model_of(key: ModelKey) -> str:
    """The model's own name inside its provider."""
    return key.partition("/")[2]


def parse_variant_name(text: str) -> VariantName:
    """Read a variant's name: printable, no blanks, at most 128 characters."""
    if not text or len(text) > VARIANT_CHARS_MAX or not text.isprintable() or " " in text:
        raise _bad("variant", text)
    return VariantName(text)


def parse_digest(text: str) -> Digest:
    """Read a SHA-256 in 64 lower-case hex digits; raises BadId."""
    return Digest(_fitting(_DIGEST, text, "digest"))


def parse_revision(text: str) -> Revision:
    """Read a "sha256:<64 hex>" revision; raises BadId."""
    return Revision(_fitting(_REVISION, text, "revision"))


def parse_fingerprint(text: str) -> Fingerprint:
    """Read a "sha256:<64 hex>" fingerprint; raises BadId."""
    return Fingerprint(_fitting(_REVISION, text, "fingerprint"))


def parse_handle(text: str) -> Handle:
    """Read a complete handle; a part of one is refused (spec 1.11)."""
    return Handle(_fitting(_HANDLE, text, "handle"))


def parse_client_id(text: str) -> ClientId:
    """Read a client's own id: 1-256 characters, no control or format characters."""
    hidden = any(unicodedata.category(c) in {"Cc", "Cf", "Cs"} for c in text)
    if not text or len(text) > CLIENT_ID_CHARS_MAX or hidden:
        raise _bad("client_id", text)
    return ClientId(text)


def _fitting(shape: re.Pattern[str], text: str, kind: str, limit: int | None = None) -> str:
    if not shape.fullmatch(text) or (limit is not None and len(text) > limit):
        raise _bad(kind, text)
    return text


def _bad(kind: str, text: str) -> BadId:
    return BadId(kind=kind, text=ascii(text[:QUOTED_CHARS_MAX]))
