"""An idle server uses almost no CPU: less than 0.5 % of a core over 30 s."""

import os
import time
import unittest

import harness
from harness import Client

SECONDS = 30
LIMIT = 0.005  # of one core


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class IdleTest(unittest.TestCase):

    def measure(self, *processes):
        begun = [cpu_seconds(process.pid) for process in processes]
        start = time.monotonic()
        time.sleep(SECONDS)  # the time that is measured
        passed = time.monotonic() - start
        return [(cpu_seconds(process.pid) - used) / passed
                for process, used in zip(processes, begun)]

    def test_serve_front_and_worker(self):
        alone = harness.serve(threads=2)
        worker = harness.worker(threads=2)
        front = harness.front([worker])
        clients = [Client(server) for server in (alone, front)]
        for process in (alone, worker, front):
            self.addCleanup(process.kill)
        for client in clients:
            # The server is idle after some work. A session exists, and a client stays connected.
            client.create_session("idle")
            client.generate(session="idle", text="Before the calm", max_tokens=100)
            client.wait_idle()
        shares = self.measure(alone, worker, front)
        for name, share in zip(("serve", "worker", "front"), shares):
            print(f"{name}: {100 * share:.2f} % of a core")
            self.assertLess(share, LIMIT, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
