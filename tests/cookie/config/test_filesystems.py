"""Which file systems sessions may lie on: the table, and what the mount table adds for FUSE."""

import pytest

from cookie.config.filesystems import FUSE, LOCAL, NETWORK, FileSystem, judge, type_of

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:41 / /home/somebody rw - fuse.sshfs host:/ rw
31 22 0:42 / /home/somebody/crypt rw master:3 shared:9 - fuse.gocryptfs /x rw
32 22 8:1 / /media/my\\040disk rw - fuseblk /dev/sdb1 rw
33 22 0:43 / /twice rw - fuse.encfs /y rw
34 22 0:44 / /twice rw - fuse.rclone remote: rw
not a line
"""


@pytest.mark.parametrize("magic", NETWORK)
def test_a_network_file_system_is_refused_by_its_number(magic: int) -> None:
    found = judge(magic, "", "/anything")

    assert found.name == NETWORK[magic]
    assert found.refusal == f"{found.name} can't promise that one process alone writes a session"


@pytest.mark.parametrize("magic", LOCAL)
def test_a_local_one_is_taken(magic: int) -> None:
    assert judge(magic, "", "/anything") == FileSystem(LOCAL[magic], None)


def test_one_that_nobody_knows_is_taken_since_its_lock_is_tried_out() -> None:
    assert judge(0x1234, "", "/") == FileSystem("unknown (0x1234)", None)
    assert judge(None, "", "/") == FileSystem("unknown", None)


def test_no_number_is_in_two_tables() -> None:
    assert not set(LOCAL) & set(NETWORK)
    assert FUSE not in {*LOCAL, *NETWORK}


@pytest.mark.parametrize(
    ("path", "kind", "taken"),
    [
        ("/home/somebody/.cookie-agent", "fuse.sshfs", False),
        ("/home/somebody", "fuse.sshfs", False),
        ("/home/somebody/crypt/x", "fuse.gocryptfs", True),
        ("/home/somebody/cryptic", "fuse.sshfs", False),
        ("/media/my disk/x", "fuseblk", True),
        ("/twice/x", "fuse.rclone", False),  # the later mount hides the earlier one
    ],
)
def test_of_fuse_those_are_taken_that_keep_their_files_here(
    path: str, kind: str, taken: bool
) -> None:
    found = judge(FUSE, MOUNTS, path)

    assert (found.name, found.refusal is None) == (kind, taken)


def test_fuse_that_the_mount_table_does_not_tell_is_refused() -> None:
    assert judge(FUSE, "", "/x").refusal == "fuse may keep its files on another machine"


def test_a_mount_of_the_root_holds_what_no_other_does() -> None:
    assert type_of(MOUNTS, "/var/x") == "ext4"
    assert type_of("", "/var/x") is None
