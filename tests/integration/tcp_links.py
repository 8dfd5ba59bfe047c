"""TCP links that a test can cut, stop or delay. They run in a separate process, so that clients do
not slow them."""

import asyncio
import subprocess
import sys

CHUNK = 65536


class _Link:
    """Forwards one port to another, and disturbs its connections as requested."""

    def __init__(self, target):
        self.target = target
        self.server = None
        self.port = 0
        self.refusing = False
        self.delay = 0.0
        self.accepted = 0
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.writers = set()

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def accept(self, reader, writer):
        self.accepted += 1
        if self.refusing:
            writer.transport.abort()
            return
        await asyncio.sleep(self.delay)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        both = (writer, far_writer)
        self.writers.update(both)
        try:
            await asyncio.gather(self.pump(reader, far_writer), self.pump(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.writers.difference_update(both)
            for end in both:
                end.transport.abort()

    async def pump(self, reader, writer):
        while chunk := await reader.read(CHUNK):
            await self.flowing.wait()
            writer.write(chunk)
            await writer.drain()
        # The end of one direction ends the connection, because gRPC never half-closes one.
        raise ConnectionResetError

    def do(self, action):
        if action == "cut":  # breaks the connections, and refuses new ones
            self.refusing = True
            for writer in list(self.writers):
                writer.transport.abort()
        elif action == "stop":  # forwards nothing, and closes nothing
            self.flowing.clear()
        elif action.startswith("delay="):  # new connections forward nothing for this number of seconds
            self.delay = float(action.removeprefix("delay="))
        elif action == "repair":
            self.refusing = False
            self.delay = 0.0
            self.flowing.set()
        return self.accepted


async def _serve(targets):
    links = [_Link(target) for target in targets]
    for link in links:
        await link.start()
    print(*(link.port for link in links), flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        index, action = line.decode().split()
        print(links[int(index)].do(action), flush=True)


class Links:
    """One link to each of `targets`, ports of 127.0.0.1; `ports` are the links' ports.
    Thread-compatible."""

    def __init__(self, targets):
        self._process = subprocess.Popen([sys.executable, __file__, *map(str, targets)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = [int(port) for port in self._process.stdout.readline().split()]

    def _tell(self, index, action):
        self._process.stdin.write(f"{index} {action}\n")
        self._process.stdin.flush()
        accepted = self._process.stdout.readline()
        assert accepted, "the links' process has died"
        return int(accepted)

    def cut(self, index):
        """Breaks the link's connections and refuses new ones, until repair()."""
        self._tell(index, "cut")

    def stop(self, index):
        """Forwards nothing without closing connections, until repair()."""
        self._tell(index, "stop")

    def delay(self, index, seconds):
        """Delays the first bytes of a new connection by `seconds`, until repair()."""
        self._tell(index, f"delay={seconds}")

    def repair(self, index):
        self._tell(index, "repair")

    def accepted(self, index):
        """Returns how many connections were made to the link, including refused ones."""
        return self._tell(index, "count")

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


if __name__ == "__main__":
    asyncio.run(_serve([int(target) for target in sys.argv[1:]]))
