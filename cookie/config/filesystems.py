"""Which file systems sessions may lie on: those where flock keeps every other process out.

A network file system answers for a lock that another machine does not see, so it is refused by
what statfs(2) says of it, whatever a test on one machine finds (hazard 9). All of FUSE has one
number there; the mount table tells which program is behind it.
"""

from typing import Final, NamedTuple

FUSE: Final = 0x65735546

NETWORK: Final[dict[int, str]] = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x01021997: "9p",  # also what WSL shows of a Windows drive, and many a virtual machine
    0x5346414F: "AFS",
    0x6B414653: "kAFS",
    0x73757245: "Coda",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x61636673: "ACFS",
    0x19830326: "BeeGFS",
    0xAAD7AAEA: "PanFS",
    0x013111A8: "IBRIX",
    0xBEEFDEAD: "StorNext",
    0x564C: "NCP",
    0x7C7C6673: "Parallels shared folders",
    0x786F4256: "VirtualBox shared folders",
    0xBACBACBC: "VMware shared folders",
}
LOCAL: Final[dict[int, str]] = {
    0xEF53: "ext4",
    0x58465342: "XFS",
    0x9123683E: "btrfs",
    0xF2F52010: "F2FS",
    0x2FC12FC1: "ZFS",
    0xCA451A4E: "bcachefs",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x794C7630: "overlayfs",
    0xF15F: "eCryptfs",
    0x52654973: "ReiserFS",
    0x3153464A: "JFS",
    0x3434: "NILFS",
}
# Programs behind FUSE that keep their files on a disk of this machine.
FUSE_LOCAL: Final = frozenset(
    {"fuseblk", "fuse.gocryptfs", "fuse.encfs", "fuse.bindfs", "fuse.fuse-overlayfs", "fuse.zfs"}
)


class FileSystem(NamedTuple):
    """What a directory lies on: a name for people, and why no session may (None: it may)."""

    name: str
    refusal: str | None


def judge(magic: int | None, mounts: str, path: str) -> FileSystem:
    """What `path`, a real path, lies on; `mounts` is the text of /proc/self/mountinfo.

    A number nobody knows is let pass: the lock itself is tried out before it is trusted.
    """
    if magic is None:
        return FileSystem("unknown", None)
    if magic == FUSE:
        kind = type_of(mounts, path) or "fuse"
        if kind in FUSE_LOCAL:
            return FileSystem(kind, None)
        return FileSystem(kind, f"{kind} may keep its files on another machine")
    if (name := NETWORK.get(magic)) is not None:
        return FileSystem(name, f"{name} can't promise that one process alone writes a session")
    return FileSystem(LOCAL.get(magic, f"unknown ({magic:#x})"), None)


def type_of(mounts: str, path: str) -> str | None:
    """The type of the mount that holds `path`: the longest mount point above it, the last of two.

    A line is: id, parent, device, root, mount point, options, optional fields, `-`, type, ...
    """
    best, found = "", None
    for line in mounts.splitlines():
        head, dash, tail = line.partition(" - ")
        fields = head.split(" ")
        if not dash or len(fields) < 5:  # noqa: PLR2004 - up to the mount point
            continue
        point = _unescaped(fields[4])
        inside = point in {"/", path} or path.startswith(f"{point}/")
        if inside and len(point) >= len(best):
            best, found = point, tail.split(" ")[0]
    return found


def _unescaped(point: str) -> str:
    r"""A mount point as it is: the kernel writes blank, tab, newline and backslash in octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point
