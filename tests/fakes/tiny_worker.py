"""The smallest worker there is, for the supervisor: `python -m tests.fakes.tiny_worker MANNER`.

It takes its Birth on fd 3, says Hello and Ready, and obeys Calls. Its manner is one of: `good`;
`early` (dies at its birth); `forged` (says Hello with a wrong nonce, then hangs); `mute` (says
nothing); `deaf` (ignores Drain and the end of its life). Methods: `echo`, `fault`, `ignore`, `emit`
(params: how many events), `facts` (its birth and what it heard), `publish`, `stderr` (writes
params there), `exit` (with the status in params), `abort`, `block` (its loop, for ever), `spawn` (a
`sleep` that carries the tree's mark; replies its pid), `bye` (leaves in order).
"""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from ipc.faults import FaultBody
from ipc.ids import RunId
from ipc.life import recv_birth
from ipc.link import Bodies, LinkGone, Spoke
from ipc.orders import (
    Birth,
    Call,
    ClientGone,
    Down,
    Drain,
    Grant,
    Hello,
    Mark,
    Ping,
    Plan,
    Pong,
    Ready,
    Reply,
)
from ipc.seams import proc, spawn


class TinyWorker:
    """One life, and what it heard."""

    def __init__(
        self, manner: str, birth: Birth, fds: tuple[int, ...], life: socket.socket
    ) -> None:
        self.manner, self.birth, self.fds = manner, birth, fds
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.plan = ""
        self.heard: list[str] = []  # grants and plans in their order
        self.gone_clients: list[int] = []
        self.seq = 0
        nonce = "0" * 32 if manner == "forged" else birth.nonce
        hello = Hello(birth.identity, nonce, os.getpid(), 0, "tiny")
        if manner != "mute":
            self.spoke = Spoke(birth.link_path, hello, self.take)
        if manner not in {"mute", "forged"}:
            self.spoke.offer(Ready(None, (RunId("r1"),), ()))
        if manner != "deaf":
            loop = asyncio.get_running_loop()
            loop.add_reader(life.fileno(), self.orphaned, life)

    def orphaned(self, life: socket.socket) -> None:
        """The parent is gone."""
        asyncio.get_running_loop().remove_reader(life.fileno())
        self.leave("orphaned")

    def leave(self, reason: str) -> None:
        """End, once."""
        if not self.end.done():
            self.end.set_result(reason)

    def take(self, order: Down, bodies: Bodies) -> None:
        """Obey."""
        match order:
            case Ping(n):
                self.spoke.offer(Pong(n))
            case Plan():
                self.plan = bodies[0].decode()
                self.heard.append("plan")
            case Grant(ref=ref):
                self.heard.append(f"{ref.provider_id}.{ref.field}={bodies[0].decode()}")
            case ClientGone(conn):
                self.gone_clients.append(conn)
            case Drain() if self.manner != "deaf":
                self.leave("drained")
            case Call():
                self.obey(order, bodies[0])

    def obey(self, call: Call, params: bytes) -> None:
        """Do what a method says."""
        match call.method:
            case "emit":
                for _ in range(int(params)):
                    self.seq += 1
                    mark = Mark(self.birth.root_id, self.seq, durable=True)
                    task = self.spoke.emit([mark], [b"event %d" % self.seq])
                    self.tasks = asyncio.get_running_loop().create_task(task)
            case "stderr":
                os.write(2, params)
            case "publish":
                Path(self.birth.root_dir).rename(self.birth.final_dir)
            case "exit":
                os._exit(int(params))
            case "abort":
                os.kill(os.getpid(), signal.SIGKILL)
            case "block":
                signal.pause()
            case "ignore":
                return
            case "bye":
                self.leave("asked to")
        self.spoke.offer(Reply(call.id, ok=call.method != "fault"), self.answer(call, params))

    def answer(self, call: Call, params: bytes) -> bytes:
        """The result of a method, JSON."""
        match call.method:
            case "fault":
                body = FaultBody(code="run_not_found", message="no such run", facts={"run_id": "x"})
                return msgspec.json.encode(body)
            case "facts":
                facts = {
                    "birth": self.birth,
                    "plan": self.plan,
                    "heard": self.heard,
                    "clients": self.gone_clients,
                    "lock": os.fstat(self.fds[0]).st_ino,
                    "inheritable": [os.get_inheritable(fd) for fd in self.fds],
                }
                return msgspec.json.encode(facts)
            case "spawn":
                mark = proc.tree_mark(self.birth.root_id, self.birth.nonce)
                env = {**os.environ, proc.TREE_VARIABLE: mark}
                tool = subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)
                return b"%d" % tool.pid
            case _:
                return params

    async def serve(self) -> None:
        """Live until the end."""
        reason = await self.end
        try:
            await self.spoke.farewell(reason)
        except LinkGone:
            return


async def main(manner: str) -> None:
    """Be born and live."""
    life = socket.socket(fileno=spawn.LIFE_FD)
    select.select([life], [], [])
    birth, fds = recv_birth(life)
    if manner == "early":
        sys.stderr.write("Traceback: a long story\nImportError: no module named tools\n")
        sys.stderr.flush()
        os._exit(70)
    await TinyWorker(manner, birth, fds, life).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)
