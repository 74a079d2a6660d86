"""A damaged log: it opens, says what it passed over, takes an append, and opens again."""

import random
from pathlib import Path

import pytest

from ipc.disk.log import SessionUnreadable, read_log
from ipc.disk.paths import TreePaths
from tests.fakes.store import check_reopens, damaged_copy, good_log

COMMITS = 40
FLIPS = 3


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[bytes]]:
    tree, lines = good_log(tmp_path_factory.mktemp("good"), COMMITS)
    content = tree.root.events.read_bytes()
    assert content == b"".join(line + b"\n" for line in lines)
    return content, lines


def starts(lines: list[bytes]) -> list[int]:
    at, found = 0, []
    for line in lines:
        found.append(at)
        at += len(line) + 1
    return found


def check_cut(good: tuple[bytes, list[bytes]], tmp_path: Path, cut: int) -> TreePaths:
    content, lines = good
    tree = damaged_copy(TreePaths(tmp_path), content[:cut], tmp_path / "copy")
    # A line that only lacks its newline is whole: its number must not be given away again.
    kept = [line for line, at in zip(lines, starts(lines), strict=True) if at + len(line) <= cut]
    read = read_log(tree.root.events)
    if not kept:
        with pytest.raises(SessionUnreadable):
            list(read)
        return tree
    assert [line for _, line in read] == kept
    rest = content[:cut].rpartition(b"\n")[2]
    torn = bool(rest) and rest not in lines
    assert [note.offset for note in read.skipped] == ([cut - len(rest)] if torn else [])
    check_reopens(tree, kept)
    return tree


def test_a_log_cut_at_any_byte_of_its_last_record_keeps_all_before_it(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    content, lines = good
    for cut in range(starts(lines)[-2], len(content) + 1):  # the last commit, and the delta
        check_cut(good, tmp_path, cut)


def test_a_log_cut_at_every_512_bytes_keeps_all_before_the_cut(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    for cut in range(0, len(good[0]), 512):
        check_cut(good, tmp_path, cut)


def test_a_cut_inside_a_code_point_costs_that_line_only(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    content, _ = good
    cut = content.rindex("é".encode()) + 1
    check_cut(good, tmp_path, cut)


def flipped(content: bytes, bits: list[int]) -> bytes:
    damaged = bytearray(content)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def check_flip(
    good: tuple[bytes, list[bytes]], tmp_path: Path, record: int, bits: list[int]
) -> None:
    content, lines = good
    tree = damaged_copy(TreePaths(tmp_path), flipped(content, bits), tmp_path / "copy")
    others = lines[:record] + lines[record + 1 :]
    read = read_log(tree.root.events)
    try:
        have = [line for _, line in read]
    except SessionUnreadable:
        assert record == 0, "only a damaged first line may close a session"
        return
    neighbours = [line for line in have if line in others]
    assert neighbours == others, f"a flip in record {record + 1} cost another one"
    whole = len(have) == len(lines)  # a flip inside a text is another text
    assert whole or read.skipped_count, "a line is missing and nobody says so"
    check_reopens(tree, others)


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_costs_its_own_record_at_most(
    good: tuple[bytes, list[bytes]], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    _, lines = good
    for record, at in enumerate(starts(lines)):
        bit = chance.randrange(at * 8, (at + len(lines[record]) + 1) * 8)
        check_flip(good, tmp_path, record, [bit])


def test_three_flipped_bits_cost_their_own_record_at_most(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    chance = random.Random(4)
    _, lines = good
    for record, at in enumerate(starts(lines)):
        span = range(at * 8, (at + len(lines[record])) * 8)
        check_flip(good, tmp_path, record, chance.sample(span, FLIPS))


def test_a_flipped_newline_costs_neither_of_the_records_it_fuses(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    content, lines = good
    for record, at in enumerate(starts(lines)):
        for bit in range(8):
            damaged = flipped(content, [(at + len(lines[record])) * 8 + bit])
            tree = damaged_copy(TreePaths(tmp_path), damaged, tmp_path / "copy")
            read = read_log(tree.root.events)
            have = [line for _, line in read]
            assert have == lines[: len(have)]
            assert len(have) == len(lines) or record == len(lines) - 1
            assert read.skipped_count
            check_reopens(tree, have)


def test_a_flipped_seq_costs_its_own_record_and_not_all_behind_it(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    content, lines = good
    for record, at in enumerate(starts(lines)):
        first = content.index(b'"seq":', at) + len(b'"seq":')
        for digit in range(first, content.index(b",", first)):
            for bit in range(8):
                check_flip(good, tmp_path, record, [digit * 8 + bit])


def test_a_first_line_with_another_seq_is_still_the_first(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    content, lines = good
    damaged = content.replace(b'"seq":1,', b'"seq":9,', 1)
    tree = damaged_copy(TreePaths(tmp_path), damaged, tmp_path / "copy")
    read = read_log(tree.root.events)
    assert [event.seq for event in read.events()] == list(range(1, len(lines) + 1))
    assert read.degraded[0].notes == ("seq 9 read as 1",)


@pytest.mark.parametrize("how", ["written over", "put between"])
def test_a_run_of_nuls_costs_the_records_it_touches_only(
    good: tuple[bytes, list[bytes]], tmp_path: Path, how: str
) -> None:
    content, lines = good
    nuls = bytes(4096)
    middle = len(lines) // 2
    for at in [starts(lines)[middle], starts(lines)[middle] + 1, starts(lines)[middle] - 1]:
        behind = at + 4096 if how == "written over" else at
        tree = damaged_copy(
            TreePaths(tmp_path), content[:at] + nuls + content[behind:], tmp_path / "copy"
        )
        kept = [
            line
            for line, start in zip(lines, starts(lines), strict=True)
            if start + len(line) <= at or start >= behind
        ]
        read = read_log(tree.root.events)
        assert [line for _, line in read] == kept
        assert read.skipped_count
        check_reopens(tree, kept)


def test_nuls_at_the_end_of_a_log_are_passed_over(
    good: tuple[bytes, list[bytes]], tmp_path: Path
) -> None:
    content, lines = good
    for tail in (content, content[:-1]):
        tree = damaged_copy(TreePaths(tmp_path), tail + bytes(4096), tmp_path / "copy")
        assert [line for _, line in read_log(tree.root.events)] == lines
        check_reopens(tree, lines)
