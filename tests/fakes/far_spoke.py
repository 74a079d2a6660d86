"""A worker's end of a link in a process of its own: `-m tests.fakes.far_spoke PATH ID NONCE`.

It takes what comes, counts it and checks that Pings come in order. Calls tell it what to do:
`flood` (body: a number) sends that many Pongs and then replies, `tally` replies what it counted as
JSON, `leave` closes the link with whatever is queued and exits 0 if that ended in time.
"""

import asyncio
import os
import sys

import msgspec

from ipc.link import Bodies, LinkGone, Spoke
from ipc.orders import Call, Down, Hello, Ping, Pong, Reply


class FarSpoke:
    """The far end and what it counted."""

    def __init__(self, path: str, identity: str, nonce: str) -> None:
        self.pings = 0
        self.ordered = True
        self.left = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        hello = Hello(identity, nonce, os.getpid(), 0, "test")
        self.spoke = Spoke(path, hello, self.take)

    def take(self, order: Down, bodies: Bodies) -> None:
        """Count a Ping, obey a Call."""
        match order:
            case Ping(n):
                self.ordered = self.ordered and n == self.pings
                self.pings += 1
            case Call(method="flood"):
                task = asyncio.get_running_loop().create_task(self.flood(order.id, int(bodies[0])))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            case Call(method="tally"):
                counted = {"pings": self.pings, "ordered": self.ordered}
                self.spoke.offer(Reply(order.id, ok=True), msgspec.json.encode(counted))
            case Call(method="leave"):
                self.left.set()
            case _:
                pass

    async def flood(self, call: int, count: int) -> None:
        """Send `count` Pongs, as fast as they are taken."""
        try:
            for n in range(count):
                await self.spoke.send(Pong(n), b"x" * 100)
            await self.spoke.send(Reply(call, ok=True), b"{}")
        except LinkGone:
            return


async def main(path: str, identity: str, nonce: str) -> int:
    """Run until told to leave; 0 if the link closed in time."""
    far = FarSpoke(path, identity, nonce)
    # Whoever started it holds the other end of stdin: it does not outlive a killed test run.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), far.left.set)
    await far.left.wait()
    return 0 if far.spoke.close() else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
