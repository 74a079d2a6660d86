import os
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.frames import BATCH_MARKS_MAX, HEAD_BYTES_MAX
from ipc.ids import ProviderId, Revision, RunId, SecretRef, SessionId
from ipc.orders import (
    BIRTH_BYTES_MAX,
    BIRTH_PREFIX_BYTES,
    BadOrder,
    Birth,
    Bye,
    Call,
    Cancel,
    ClientGone,
    Credit,
    Down,
    Drain,
    Emit,
    Errand,
    ErrandDone,
    Grant,
    Hello,
    Lease,
    LeaseWanted,
    Mark,
    Ping,
    Plan,
    Pong,
    Ready,
    RecoveredRun,
    Rehome,
    Reply,
    Spent,
    Status,
    TreeSummary,
    Up,
    birth_length,
    decode_birth,
    decode_down,
    decode_up,
    encode,
    encode_birth,
)
from ipc.schema import order_schema
from tests.ipc.test_golden import bare, pretty

GOLDEN = Path(__file__).parent / "golden" / "orders.schema.json"
WRITE = os.environ.get("COOKIE_GOLDEN") == "write"

ROOT, RUN = SessionId("0189-root"), RunId("0189-run")
DOWN: list[tuple[Down, bytes]] = [
    (Call(7, 2, "run.start"), b"\x94\xa4call\x07\x02\xa9run.start"),
    (Cancel(7), b"\x92\xa6cancel\x07"),
    (ClientGone(2), b"\x92\xabclient_gone\x02"),
    (Plan(Revision("sha256:00")), b"\x92\xa4plan\xa9sha256:00"),
    (
        Grant(SecretRef(provider_id=ProviderId("acme"), field="key"), None),
        b"\x93\xa5grant\x82\xabprovider_id\xa4acme\xa5field\xa3key\xc0",
    ),
    (Lease(1, "rate", "acme", 4, 60), b"\x96\xa5lease\x01\xa4rate\xa4acme\x04\x3c"),
    (Errand(3, "models_list"), b"\x93\xa6errand\x03\xabmodels_list"),
    (Rehome("/run/a"), b"\x92\xa6rehome\xa6/run/a"),
    (Drain(1.0), b"\x92\xa5drain\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"),
    (Ping(1), b"\x92\xa4ping\x01"),
    (Credit(64), b"\x92\xa6credit\x40"),
]
UP: list[tuple[Up, bytes]] = [
    (Hello("t.1", "n", 9, 5, "b"), b"\x96\xa5hello\xa3t.1\xa1n\x09\x05\xa1b"),
    (
        Ready(
            TreeSummary(ROOT, None, "idle", 5, 1, 0), (RUN,), (RecoveredRun(RUN, "interrupted"),)
        ),
        (
            b"\x94\xa5ready\x96\xa90189-root\xc0\xa4idle\x05\x01\x00\x91\xa80189-run"
            b"\x91\x92\xa80189-run\xabinterrupted"
        ),
    ),
    (Ready(None, (), ()), b"\x94\xa5ready\xc0\x90\x90"),
    (Emit((Mark(ROOT, 6, durable=True),)), b"\x92\xa4emit\x91\x93\xa90189-root\x06\xc3"),
    (Reply(7, ok=True), b"\x93\xa5reply\x07\xc3"),
    (LeaseWanted(1, "budget", "s", 2), b"\x95\xaclease_wanted\x01\xa6budget\xa1s\x02"),
    (Spent(1, "budget", "s", 2, 30), b"\x96\xa5spent\x01\xa6budget\xa1s\x02\x1e"),
    (ErrandDone(3, ok=False), b"\x93\xaberrand_done\x03\xc2"),
    (Status((RUN,), 10, 20, "running"), b"\x95\xa6status\x91\xa80189-run\x0a\x14\xa7running"),
    (Pong(1), b"\x92\xa4pong\x01"),
    (Bye("idle"), b"\x92\xa3bye\xa4idle"),
    (Credit(64), b"\x92\xa6credit\x40"),
]


def birth(**more: Any) -> Birth:
    known: dict[str, Any] = {
        "root_id": ROOT,
        "root_dir": "/data/sessions/k/.staging-1",
        "final_dir": "/data/sessions/k/1",
        "published": False,
        "data_dir": "/data",
        "cwd": "/work",
        "link_path": "/run/w",
        "identity": "1.1",
        "nonce": "very-private",
        "epoch": 1,
        "on_eof": "end",
        "role": "writer",
    }
    return Birth(**{**known, **more})


@pytest.mark.parametrize(("order", "head"), DOWN)
def test_an_order_has_exactly_these_bytes(order: Down, head: bytes) -> None:
    assert encode(order) == head
    assert decode_down(head) == order


@pytest.mark.parametrize(("order", "head"), UP)
def test_news_have_exactly_these_bytes(order: Up, head: bytes) -> None:
    assert encode(order) == head
    assert decode_up(head) == order


def test_every_word_of_the_table_is_among_these() -> None:
    assert {type(order) for order, _ in DOWN} == set(get_args(Down))
    assert {type(order) for order, _ in UP} == set(get_args(Up))


@pytest.mark.parametrize(
    "head",
    [b"", b"\xc0", b"\x90", b"{}", b"\x91\xa4ping", b"\x92\xa4ping\xa1x", b"\x92\xa5sneez\x01"],
)
def test_what_is_no_word_is_refused(head: bytes) -> None:
    with pytest.raises(BadOrder):
        decode_down(head)
    with pytest.raises(BadOrder):
        decode_up(head)


def test_a_word_of_the_other_direction_is_refused() -> None:
    with pytest.raises(BadOrder):
        decode_down(encode(Pong(1)))
    with pytest.raises(BadOrder):
        decode_up(encode(Ping(1)))


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_else(head: bytes) -> None:
    for decode in (decode_down, decode_up, decode_birth):
        try:
            decode(head)
        except BadOrder:
            continue


def test_a_field_that_a_newer_build_added_at_the_end_is_passed_over() -> None:
    head = msgspec.msgpack.encode(["ping", 1, "from the future"])
    assert decode_down(head) == Ping(1)


def test_the_head_of_a_full_batch_is_below_the_limit_of_heads() -> None:
    marks = tuple(Mark(SessionId("x" * 36), 2**40, durable=True) for _ in range(BATCH_MARKS_MAX))
    assert len(encode(Emit(marks))) < HEAD_BYTES_MAX


def test_a_nonce_is_in_no_repr() -> None:
    assert "very-private" not in repr(Hello("1.1", "very-private", 1, 0, "b")) + repr(birth())


# ---- birth


def test_a_birth_is_read_as_it_was_written() -> None:
    data = encode_birth(birth())
    prefix, body = data[:BIRTH_PREFIX_BYTES], data[BIRTH_PREFIX_BYTES:]
    assert birth_length(prefix) == len(body)
    assert decode_birth(body) == birth()


def test_a_birth_of_a_newer_supervisor_can_be_read() -> None:
    body = encode_birth(birth())[BIRTH_PREFIX_BYTES:]
    newer = {**msgspec.msgpack.decode(body), "moon_phase": "full"}
    assert decode_birth(msgspec.msgpack.encode(newer)) == birth()


def test_a_birth_that_is_too_big_is_not_written() -> None:
    with pytest.raises(BadOrder):
        encode_birth(birth(cwd="x" * BIRTH_BYTES_MAX))


@pytest.mark.parametrize("length", [0, BIRTH_BYTES_MAX + 1, 2**32 - 1])
def test_nobody_waits_for_a_birth_of_no_sane_length(length: int) -> None:
    with pytest.raises(BadOrder):
        birth_length(length.to_bytes(BIRTH_PREFIX_BYTES, "big"))


# ---- the golden


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What in `new` an older build could not read; arrays may only grow at their end."""
    found = []
    for way in ("down", "up"):
        found += [f"{way}: {ref} removed" for ref in old[way] if ref not in new[way]]
    for name, record in old["$defs"].items():
        now = new["$defs"].get(name)
        if now is None:
            found.append(f"{name}: removed")
        elif record.get("type") == "array":
            fields, least = record["prefixItems"], record["minItems"]
            if now["prefixItems"][: len(fields)] != fields or now["minItems"] != least:
                found.append(f"{name}: changed")
        else:
            known = {key: now["properties"].get(key) for key in record["properties"]}
            if known != record["properties"] or set(now["required"]) != set(record["required"]):
                found.append(f"{name}: changed")
    return found


def test_the_orders_only_ever_grew() -> None:
    current = bare(order_schema())
    if not GOLDEN.exists() and WRITE:
        GOLDEN.write_bytes(pretty(current))

    assert breaks(msgspec.json.decode(GOLDEN.read_bytes()), current) == []

    if WRITE:
        GOLDEN.write_bytes(pretty(current))
    assert msgspec.json.decode(GOLDEN.read_bytes()) == current, (
        "COOKIE_GOLDEN=write after additions"
    )


def test_additions_pass_and_changes_are_caught() -> None:
    old = bare(order_schema())

    def planted() -> dict[str, Any]:
        fresh: dict[str, Any] = bare(order_schema())
        return fresh

    more = planted()
    more["$defs"]["Ping"]["prefixItems"].append({"type": "string"})
    more["$defs"]["Sneeze"] = {"type": "array", "prefixItems": [], "minItems": 0}
    more["down"].append({"$ref": "#/$defs/Sneeze"})
    more["$defs"]["Birth"]["properties"]["mood"] = {"type": "string"}
    assert breaks(old, more) == []

    required, retyped, swapped, gone = planted(), planted(), planted(), planted()
    required["$defs"]["Ping"]["prefixItems"].append({"type": "string"})
    required["$defs"]["Ping"]["minItems"] += 1
    retyped["$defs"]["Mark"]["prefixItems"][1] = {"type": "string"}
    swapped["$defs"]["Lease"]["prefixItems"].reverse()
    gone["up"].remove({"$ref": "#/$defs/Bye"})
    assert [breaks(old, new) for new in (required, retyped, swapped, gone)] == [
        ["Ping: changed"],
        ["Mark: changed"],
        ["Lease: changed"],
        ["up: {'$ref': '#/$defs/Bye'} removed"],
    ]
