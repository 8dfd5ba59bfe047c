"""A real Redis for tests, which can be killed and restarted."""

import subprocess

import harness

BINARY = "/usr/bin/redis-server"
CHECK_AOF = "/usr/bin/redis-check-aof"
SAFE = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}


class Redis:
    """A redis-server of this test, on a free port. It has the same port after a restart."""

    def __init__(self, **settings):
        self.settings = {**SAFE, **settings}
        self.folder = harness.scratch_folder()
        self.port = harness.free_port()
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def start(self):
        flags = [word for name, value in self.settings.items() for word in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [BINARY, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
            + flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        harness.wait_until(lambda: harness.answers(self.port) or self.process.poll() is not None,
                           "Redis answers", harness.START_TIMEOUT)
        assert self.process.poll() is None, f"redis-server ended with {self.process.returncode}"

    def repair(self):
        """Removes an incomplete transaction from the end of the append-only file, as
        docs/sessions.md says. A kill can leave such a transaction. Redis 7.0 then starts without
        it, but leaves its beginning in the file, and applies this beginning at the next start."""
        manifests = list(self.folder.glob("appendonlydir/*.manifest"))
        for path in manifests or self.folder.glob("*.aof"):
            done = subprocess.run([CHECK_AOF, "--fix", path], input=b"y\n", check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout.decode(errors="replace")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
