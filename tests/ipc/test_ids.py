"""ipc.ids: what is an identity and what is not, and that fresh ones rise."""

import os
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from ipc import ids
from ipc.ids import BadId

UUID = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_fresh_ids_are_uuids_of_version_7_and_rise_strictly() -> None:
    made = [ids.uuid7() for _ in range(20_000)]
    assert made == sorted(set(made))
    for text in made[::500]:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 7, uuid.RFC_4122)


def test_an_id_carries_the_wall_clock_in_milliseconds() -> None:
    assert ids.Sequence().next(0x7FFF_0000_0001).startswith("7fff0000-0001-7")


def test_ids_still_rise_when_the_clock_stands_or_goes_back() -> None:
    sequence = ids.Sequence()
    made = [sequence.next(now_ms) for now_ms in (5000, 4000, 4000, 3000, 5000, 6000)]
    assert made == sorted(set(made))


def test_threads_never_get_the_same_id() -> None:
    made: list[str] = []

    def make() -> None:
        made.extend([ids.uuid7() for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8_000


def test_a_forked_child_does_not_continue_its_parents_sequence() -> None:
    ids.uuid7()
    read, write = os.pipe()
    with ids._sequence.lock:  # held by somebody who does not exist in the child
        child = os.fork()
        if child == 0:
            try:
                os.write(write, f"{ids._sequence.last} {ids.uuid7()}".encode())
            finally:
                os._exit(0)
    os.close(write)
    last, made = os.read(read, 100).decode().split()
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
    assert last == "0"
    assert re.fullmatch(ids._UUID7, made)


def test_the_makers_give_what_the_parsers_take() -> None:
    pairs: list[tuple[Callable[[], str], Callable[[str], str]]] = [
        (ids.new_session_id, ids.parse_session_id),
        (ids.new_run_id, ids.parse_run_id),
        (ids.new_call_id, ids.parse_call_id),
        (ids.new_approval_id, ids.parse_approval_id),
        (ids.new_attempt_id, ids.parse_attempt_id),
        (ids.new_invocation_id, ids.parse_invocation_id),
        (ids.new_grant_id, ids.parse_grant_id),
        (ids.new_client_id, ids.parse_client_id),
    ]
    for make, parse in pairs:
        text = make()
        assert parse(text) == text
    assert ids.new_internal_run_id() != ids.new_internal_run_id()


@pytest.mark.parametrize(
    ("agent", "slug"),
    [("explore", "explore"), ("a" * 40, "a" * 16), ("fifteen-letters-x", "fifteen-letters")],
)
def test_a_handle_is_a_short_slug_and_eight_digits(agent: str, slug: str) -> None:
    handle = ids.new_handle(ids.parse_agent_id(agent))
    assert re.fullmatch(re.escape(slug) + "_[0-9a-f]{8}", handle)
    assert ids.parse_handle(handle) == handle


GOOD: list[tuple[Callable[[str], str], str]] = [
    (ids.parse_session_id, UUID),
    (ids.parse_agent_id, "a"),
    (ids.parse_agent_id, "9-lives"),
    (ids.parse_agent_id, "a" * 64),
    (ids.parse_preset_name, "rust"),
    (ids.parse_provider_id, "amazon-bedrock.eu_1"),
    (ids.parse_model_key, "openrouter/anthropic/claude-3:beta"),
    (ids.parse_model_key, "ollama/qwen2.5-coder:7b"),
    (ids.parse_variant_name, "high"),
    (ids.parse_digest, "0af9" * 16),
    (ids.parse_revision, "sha256:" + "0af9" * 16),
    (ids.parse_fingerprint, "sha256:" + "0af9" * 16),
    (ids.parse_handle, "explore_1a2b3c4d"),
    (ids.parse_client_id, "any text, até 256 ✓"),
    (ids.parse_client_id, "x" * 256),
]
BAD: list[tuple[Callable[[str], str], str]] = [
    (ids.parse_session_id, ""),
    (ids.parse_session_id, UUID.upper()),
    (ids.parse_session_id, UUID + "\n"),
    (ids.parse_session_id, UUID.replace("-7", "-4")),
    (ids.parse_session_id, UUID.replace("-b", "-c")),
    (ids.parse_session_id, UUID[:-1]),
    (ids.parse_session_id, "../" + UUID),
    (ids.parse_run_id, "x"),
    (ids.parse_agent_id, ""),
    (ids.parse_agent_id, "A"),
    (ids.parse_agent_id, "-a"),
    (ids.parse_agent_id, "a-"),
    (ids.parse_agent_id, "a--b"),
    (ids.parse_agent_id, "a_b"),
    (ids.parse_agent_id, "a" * 65),
    (ids.parse_agent_id, "é"),
    (ids.parse_agent_id, "a\n"),
    (ids.parse_provider_id, "a/b"),
    (ids.parse_provider_id, ".a"),
    (ids.parse_provider_id, "a" * 65),
    (ids.parse_model_key, "gpt-5"),
    (ids.parse_model_key, "/gpt-5"),
    (ids.parse_model_key, "openai/"),
    (ids.parse_model_key, "openai/gpt 5"),
    (ids.parse_model_key, "openai/gpt\x1b5"),
    (ids.parse_model_key, "openai/" + "x" * 512),
    (ids.parse_variant_name, ""),
    (ids.parse_variant_name, "a b"),
    (ids.parse_digest, "0AF9" * 16),
    (ids.parse_digest, "0af9" * 15),
    (ids.parse_revision, "0af9" * 16),
    (ids.parse_revision, "sha512:" + "0af9" * 16),
    (ids.parse_handle, "explore"),
    (ids.parse_handle, "explore_1a2b3c"),
    (ids.parse_handle, "_1a2b3c4d"),
    (ids.parse_handle, "a" * 17 + "_1a2b3c4d"),
    (ids.parse_client_id, ""),
    (ids.parse_client_id, "x" * 257),
    (ids.parse_client_id, "a\tb"),
    (ids.parse_client_id, "a\u202eb"),
    (ids.parse_client_id, "a\ud800b"),
]


@pytest.mark.parametrize(("parse", "text"), GOOD)
def test_an_identity_is_taken_as_it_is(parse: Callable[[str], str], text: str) -> None:
    assert parse(text) == text


@pytest.mark.parametrize(("parse", "text"), BAD)
def test_what_is_no_identity_is_refused(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(BadId) as refusal:
        parse(text)
    assert refusal.value.code == "bad_id"
    assert str(refusal.value).isprintable()


def test_a_model_key_falls_into_provider_and_model() -> None:
    key = ids.parse_model_key("openrouter/anthropic/claude")
    assert (ids.provider_of(key), ids.model_of(key)) == ("openrouter", "anthropic/claude")
