"""The roster, as lists of stimuli and the instructions they lead to."""

import pytest

from cookie.daemon.roster import (
    ABORT_S,
    CLOSE_S,
    KEEP_ALIVE,
    ONE_LIFE,
    Born,
    ClientGone,
    Close,
    Died,
    Drain,
    Fork,
    Idle,
    Instruction,
    Kill,
    Lock,
    Opened,
    Ready,
    Refused,
    RestartPolicy,
    Roster,
    Running,
    Stimulus,
    Tell,
    Unlock,
    Wedged,
)
from ipc.ids import RunId, SessionId

A, B = SessionId("a"), SessionId("b")
R1, R2 = RunId("r1"), RunId("r2")

Step = tuple[float, Stimulus, list[Instruction]]
UP: list[Step] = [
    (0.0, Opened(A), [Lock(A), Fork(A, 1)]),
    (0.0, Born(A, 1), []),
    (0.1, Ready(A, 1), []),
]


def crash(epoch: int, seq: int | None = None, cause: str = "killed by SIGKILL") -> Died:
    return Died(A, epoch, cause, seq)


STORIES: dict[str, tuple[RestartPolicy, list[Step]]] = {
    "a tree is locked before its worker is ordered": (KEEP_ALIVE, UP),
    "a second opening finds it there": (KEEP_ALIVE, [*UP, (1.0, Opened(A, conn=7), [])]),
    "a lock somebody else has ends the opening, and it may be tried again": (
        KEEP_ALIVE,
        [
            (0.0, Opened(A), [Lock(A), Fork(A, 1)]),
            (0.0, Refused(A), []),
            (1.0, Opened(A), [Lock(A), Fork(A, 1)]),
        ],
    ),
    "with one life a death is told, given up and unlocked at once": (
        ONE_LIFE,
        [
            *UP,
            (
                5.0,
                crash(1, 9),
                [
                    Tell(A, "worker_lost", "killed by SIGKILL"),
                    Tell(A, "gave_up", "killed by SIGKILL"),
                    Unlock(A),
                ],
            ),
            (6.0, Opened(A), [Tell(A, "gave_up", "killed by SIGKILL")]),
        ],
    ),
    "with one life a worker that never came up is given up too": (
        ONE_LIFE,
        [
            UP[0],
            (
                0.1,
                Died(A, 1, "no memory"),
                [Tell(A, "worker_lost", "no memory"), Tell(A, "gave_up", "no memory"), Unlock(A)],
            ),
        ],
    ),
    "the lock is kept across a restart, and the pause doubles": (
        KEEP_ALIVE,
        [
            *UP,
            (1.0, crash(1, 5), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 2, 0.1)]),
            (1.1, Born(A, 2), []),
            (1.2, Ready(A, 2, (R1,)), [Tell(A, "worker_back")]),
            (2.0, crash(2, 6), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 3, 0.2)]),
            (2.2, Born(A, 3), []),
            (2.5, crash(3, 7), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 4, 0.4)]),
        ],
    ),
    "the fifth death within the window is the last": (
        KEEP_ALIVE,
        [
            UP[0],
            *(
                (
                    10.0 * number,
                    crash(number, 100 + number),
                    [
                        Tell(A, "worker_lost", "killed by SIGKILL"),
                        Fork(A, number + 1, 0.1 * 2 ** (number - 1)),
                    ],
                )
                for number in (1, 2, 3, 4)
            ),
            (
                50.0,
                crash(5, 105),
                [
                    Tell(A, "worker_lost", "killed by SIGKILL"),
                    Tell(A, "gave_up", "it died 5 times within 60 s, last time: killed by SIGKILL"),
                    Unlock(A),
                ],
            ),
        ],
    ),
    "a death outside the window is forgotten": (
        RestartPolicy(deaths_max=2, window_s=60.0),
        [
            *UP,
            (1.0, crash(1, 5), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 2, 0.1)]),
            (61.0, crash(2, 6), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 3, 0.1)]),
        ],
    ),
    "two deaths at the same event are one too many": (
        KEEP_ALIVE,
        [
            *UP,
            (1.0, crash(1, 5), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 2, 0.1)]),
            (
                900.0,
                crash(2, 5, "exit code 1"),
                [
                    Tell(A, "worker_lost", "exit code 1"),
                    Tell(A, "gave_up", "it died twice at event 5, last time: exit code 1"),
                    Unlock(A),
                ],
            ),
        ],
    ),
    "two deaths before any word are no proof against one event": (
        KEEP_ALIVE,
        [
            *UP,
            (1.0, crash(1), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 2, 0.1)]),
            (2.0, crash(2), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 3, 0.2)]),
        ],
    ),
    "a worker that says goodbye is no crash": (
        KEEP_ALIVE,
        [*UP, (1.0, Died(A, 1, "exit code 0", 5, meant=True), [Unlock(A)])],
    ),
    "a goodbye with one life is no crash either": (
        ONE_LIFE,
        [*UP, (1.0, Died(A, 1, "exit code 0", 5, meant=True), [Unlock(A)])],
    ),
    "news of an older worker change nothing": (
        KEEP_ALIVE,
        [
            *UP,
            (1.0, crash(1, 5), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 2, 0.1)]),
            (1.1, Born(A, 2), []),
            (1.2, crash(1, 5), []),
            (1.2, Wedged(A, 1), []),
            (1.2, Ready(A, 1), []),
        ],
    ),
    "a wedged worker first shows its stacks": (
        KEEP_ALIVE,
        [*UP, (40.0, Wedged(A, 1), [Kill(A, 1, "ABRT"), Kill(A, 1, "KILL", ABORT_S)])],
    ),
    "an idle tree is closed and unlocked": (
        KEEP_ALIVE,
        [
            *UP,
            (600.0, Idle(A), [Close(A, 1, CLOSE_S)]),
            (601.0, Died(A, 1, "exit code 0", 5, meant=True), [Unlock(A)]),
        ],
    ),
    "a tree with a live run is not idle": (
        KEEP_ALIVE,
        [UP[0], UP[1], (0.1, Ready(A, 1, (R1,)), []), (600.0, Idle(A), [])],
    ),
    "a tree opened while it closes is started again without giving the lock away": (
        KEEP_ALIVE,
        [
            *UP,
            (600.0, Idle(A), [Close(A, 1, CLOSE_S)]),
            (600.1, Opened(A), []),
            (601.0, Died(A, 1, "exit code 0", 5, meant=True), [Fork(A, 2)]),
            (601.0, Born(A, 2), []),
        ],
    ),
    "a worker killed while it closes is not started again": (
        KEEP_ALIVE,
        [*UP, (600.0, Idle(A), [Close(A, 1, CLOSE_S)]), (610.0, crash(1, 5), [Unlock(A)])],
    ),
    "a client that goes is named to the workers it spoke to, once": (
        KEEP_ALIVE,
        [
            (0.0, Opened(A, conn=7), [Lock(A), Fork(A, 1)]),
            (0.0, Opened(B, conn=8), [Lock(B), Fork(B, 1)]),
            (1.0, ClientGone(7), [Tell(A, "client_gone", conn=7)]),
            (1.0, ClientGone(7), []),
        ],
    ),
    "draining closes all and lets nobody in": (
        KEEP_ALIVE,
        [
            *UP,
            (0.0, Opened(B), [Lock(B), Fork(B, 1)]),
            (1.0, Drain(3.0), [Close(A, 1, 3.0), Unlock(B)]),
            (1.0, Opened(A), [Tell(A, "draining")]),
            (1.0, Born(B, 1), [Kill(B, 1, "KILL")]),
            (2.0, Died(A, 1, "exit code 0", 5, meant=True), [Unlock(A)]),
            (2.0, Drain(3.0), []),
        ],
    ),
    "draining takes back a restart that is due": (
        KEEP_ALIVE,
        [
            *UP,
            (1.0, crash(1, 5), [Tell(A, "worker_lost", "killed by SIGKILL"), Fork(A, 2, 0.1)]),
            (1.05, Drain(), [Unlock(A)]),
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_one_tree(name: str) -> None:
    policy, steps = STORIES[name]
    roster = Roster(policy)

    assert [roster.on(stimulus, now) for now, stimulus, _ in steps] == [
        expected for _, _, expected in steps
    ]


def test_a_run_leads_to_its_tree_for_as_long_as_it_lives() -> None:
    roster = Roster()
    for now, stimulus, _ in UP[:2]:
        roster.on(stimulus, now)

    roster.on(Ready(A, 1, (R1,)), 0.1)
    assert (roster.tree_of(R1), roster.tree_of(R2)) == (A, None)

    roster.on(Running(A, 1, (R2,)), 1.0)
    assert (roster.tree_of(R1), roster.tree_of(R2)) == (None, A)

    roster.on(Died(A, 1, "exit code 0", 5, meant=True), 2.0)
    assert (roster.tree_of(R2), roster.knows(A)) == (None, False)


def test_a_tree_is_up_from_its_birth_to_its_death() -> None:
    roster = Roster(ONE_LIFE)
    seen = []
    for stimulus in (Opened(A), Born(A, 1), Idle(A), crash(1, 5)):
        roster.on(stimulus, 0.0)
        seen.append(roster.is_up(A))

    assert seen == [False, True, True, False]
