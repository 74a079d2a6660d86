import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.frames import (
    BATCH_BYTES_MAX,
    BATCH_MARKS_MAX,
    BODY_BYTES_MAX,
    CREDIT_FRAMES,
    CREDIT_STEP,
    GATHER_BYTES_MAX,
    GATHER_WINDOW_S,
    HEAD_BYTES_MAX,
    PARTS_MAX,
    BadCredit,
    BadFrame,
    CreditWindow,
    Gather,
    Tally,
    batches,
    pack,
    unpack,
)

# ---- layout


@pytest.mark.parametrize("bodies", [(), (b"",), (b"a", b"b"), (b"x",) * (PARTS_MAX - 1)])
def test_what_is_packed_is_unpacked(bodies: tuple[bytes, ...]) -> None:
    parts = pack(b"head", bodies)
    frame = unpack(parts)
    assert parts == [b"head", *bodies]
    assert (frame.head, tuple(frame.bodies)) == (b"head", bodies)


BIG = b"x" * (BODY_BYTES_MAX // 2)


@pytest.mark.parametrize(
    ("head", "bodies"),
    [
        (b"", ()),
        (b"x" * (HEAD_BYTES_MAX + 1), ()),
        (b"h", (b"",) * PARTS_MAX),
        (b"h", (BIG, BIG, b"x")),
    ],
    ids=["no head", "big head", "many parts", "big bodies"],
)
def test_a_frame_over_a_limit_is_refused_on_both_sides(
    head: bytes, bodies: tuple[bytes, ...]
) -> None:
    with pytest.raises(BadFrame):
        pack(head, bodies)
    with pytest.raises(BadFrame):
        unpack([head, *bodies])


def test_nothing_is_no_frame() -> None:
    with pytest.raises(BadFrame):
        unpack([])


def test_a_frame_shows_sizes_and_no_bytes() -> None:
    assert repr(unpack([b"head", b"hunter2"])) == "Parted(4 bytes, 1 bodies)"


# ---- batches


def test_batches_are_cut_by_count_and_by_size() -> None:
    assert list(batches([])) == []
    assert list(batches([1, 2, 3])) == [slice(0, 3)]
    half = BATCH_BYTES_MAX // 2
    assert list(batches([half, half, 1])) == [slice(0, 2), slice(2, 3)]
    assert list(batches([BATCH_BYTES_MAX * 3, 1])) == [slice(0, 1), slice(1, 2)]
    assert list(batches([0] * (BATCH_MARKS_MAX + 1))) == [
        slice(0, BATCH_MARKS_MAX),
        slice(BATCH_MARKS_MAX, BATCH_MARKS_MAX + 1),
    ]


@given(st.lists(st.integers(min_value=0, max_value=2 * BATCH_BYTES_MAX)))
def test_batches_leave_nothing_out_and_keep_the_order(sizes: list[int]) -> None:
    cuts = [sizes[cut] for cut in batches(sizes)]
    assert [size for cut in cuts for size in cut] == sizes
    assert all(cut for cut in cuts)
    assert all(len(cut) == 1 or sum(cut) <= BATCH_BYTES_MAX for cut in cuts)


# ---- gathering


def test_the_first_thing_after_a_pause_goes_at_once() -> None:
    gather = Gather()
    assert gather.due is None
    assert gather.add(10, now=100.0) == 100.0
    gather.flushed(100.0)
    assert gather.due is None
    assert gather.add(10, now=200.0) == 200.0


def test_what_follows_waits_for_the_end_of_the_window() -> None:
    gather = Gather()
    gather.add(10, now=100.0)
    gather.flushed(100.0)
    due = 100.0 + GATHER_WINDOW_S
    assert [gather.add(10, now=100.0 + n / 1000) for n in range(1, 5)] == [due] * 4
    gather.flushed(due)
    assert gather.add(10, now=due + 0.001) == due + GATHER_WINDOW_S


def test_four_kibibytes_wait_for_nothing() -> None:
    gather = Gather()
    gather.add(10, now=100.0)
    gather.flushed(100.0)
    assert gather.add(GATHER_BYTES_MAX - 1, now=100.001) == 100.0 + GATHER_WINDOW_S
    assert gather.add(1, now=100.002) == 100.002
    assert gather.add(1, now=100.003) == 100.002
    gather.flushed(100.003)
    assert gather.add(1, now=100.004) == 100.003 + GATHER_WINDOW_S


def test_something_late_is_due_at_once_with_all_before_it() -> None:
    gather = Gather()
    gather.add(1, now=0.0)
    gather.flushed(0.0)
    gather.add(1, now=0.001)
    assert gather.add(1, now=5.0) == GATHER_WINDOW_S  # long due; the clock is past it


# ---- credits


def test_a_window_is_shut_until_the_other_side_says_its_size() -> None:
    window = CreditWindow()
    assert (window.left, window.opened, window.under_way) == (0, False, 0)
    window.credited(3)
    assert (window.left, window.opened, window.under_way) == (3, True, 0)
    window.spend()
    window.spend()
    assert (window.left, window.under_way) == (1, 2)
    window.credited(0)
    window.credited(2)
    assert (window.left, window.under_way) == (3, 0)


@pytest.mark.parametrize("size", [0, -1, CREDIT_FRAMES + 1])
def test_a_window_of_no_sane_size_is_refused(size: int) -> None:
    window = CreditWindow()
    with pytest.raises(BadCredit):
        window.credited(size)
    assert window.left == 0


@pytest.mark.parametrize("frames", [2, -1])
def test_credits_nobody_spent_are_refused(frames: int) -> None:
    window = CreditWindow()
    window.credited(5)
    window.spend()
    with pytest.raises(BadCredit):
        window.credited(frames)
    assert (window.left, window.under_way) == (4, 1)


def test_taken_frames_are_told_in_steps() -> None:
    tally = Tally()
    for _ in range(2 * CREDIT_STEP):
        tally.arrived()
    told = [tally.taken() for _ in range(2 * CREDIT_STEP)]
    assert told == [*([0] * (CREDIT_STEP - 1)), CREDIT_STEP] * 2
    assert tally.pending == 0


def test_who_asks_is_told_at_once_and_of_each_frame_that_still_waits() -> None:
    tally = Tally()
    for _ in range(3):
        tally.arrived()
    assert tally.taken() == 0
    assert tally.asked() == 1
    assert [tally.taken(), tally.taken()] == [1, 1]
    tally.arrived()
    assert tally.taken() == 0  # nobody asked again
    assert tally.asked() == 1
    assert tally.asked() == 0


def test_a_sender_that_overruns_its_window_is_noticed() -> None:
    tally = Tally()
    for _ in range(CREDIT_FRAMES):
        tally.arrived()
    with pytest.raises(BadCredit):
        tally.arrived()


@given(st.lists(st.sampled_from(["send", "take", "ask"]), max_size=2000))
def test_both_halves_of_a_window_always_agree(steps: list[str]) -> None:
    window, tally = CreditWindow(), Tally()
    window.credited(CREDIT_FRAMES)
    for step in steps:
        if step == "send" and window.left:
            window.spend()
            tally.arrived()
        elif step == "take" and tally.pending:
            window.credited(tally.taken())
        elif step == "ask":
            window.credited(tally.asked())
            assert window.under_way == tally.pending
        assert tally.pending <= window.under_way <= tally.pending + CREDIT_STEP - 1
