"""Workers that a front finds by a DNS name whose addresses change.

nss_wrapper gives the front's process its own hosts file, in place of DNS.
"""

import os
import unittest

import harness
from certificates import Certificates, pair_flags
from harness import Client, Received, wait_until

LEFT, RIGHT = "127.0.0.1", "127.0.0.2"


class NamesTest(unittest.TestCase):

    def setUp(self):
        self.port = harness.free_port()
        self.hosts = harness.scratch_folder() / "hosts"
        self.version = 0

    def name(self, *addresses):
        """Sets the addresses of the name. The file is written atomically."""
        part = self.hosts.with_name("part")
        part.write_text("".join(f"{address} pool.example\n" for address in addresses))
        # nss_wrapper ignores changes within one second.
        self.version += 1
        os.utime(part, (self.version, self.version))
        part.rename(self.hosts)

    def worker(self, host, *arguments):
        """Starts a worker whose name is the name of its host."""
        process = harness.Process("worker", "--model", harness.LLAMA, "--threads", "1", "--name",
                                  host, "--listen", f"{host}:{self.port}", *arguments)
        self.addCleanup(process.kill)
        wait_until(lambda: "gRPC" in process.stdout or not process.running(),
                   lambda: process.stderr, harness.START_TIMEOUT)
        self.assertTrue(process.running(), process.stderr)
        return process

    def front(self, *arguments):
        process = harness.front([], "--workers", f"dns:///pool.example:{self.port}", *arguments,
                                awaited="liveness",
                                environment={"LD_PRELOAD": "libnss_wrapper.so",
                                             "NSS_WRAPPER_HOSTS": str(self.hosts)})
        self.addCleanup(process.kill)
        client = Client(process)
        self.addCleanup(client.close)
        return process, client

    @staticmethod
    def long_stream(client):
        """Begins a stream of 4,000 tokens. Returns it, and what has arrived from it."""
        stream, received = client.wide_stream(text="a", max_tokens=4000), Received()
        harness.take_tokens(stream, received, 1)
        return stream, received

    @staticmethod
    def answering(client):
        return {one.worker_id for one in client.stats().workers if one.status_code == 0}

    def wait_for(self, client, front, *hosts):
        wait_until(lambda: self.answering(client) == set(hosts),
                   lambda: f"{hosts}: {client.stats()} {front.stderr}")

    def test_every_address_of_the_name_is_a_worker(self):
        self.name(LEFT, RIGHT)
        front, client = self.front()
        self.assertFalse(harness.health(front.address, "readiness"))
        self.worker(LEFT)
        self.worker(RIGHT)
        self.wait_for(client, front, LEFT, RIGHT)
        self.assertEqual({one.address for one in client.stats().workers},
                         {f"{host}:{self.port}" for host in (LEFT, RIGHT)})

    def test_addresses_come_and_go(self):
        self.name(LEFT)
        left, right = self.worker(LEFT), self.worker(RIGHT)
        front, client = self.front()
        self.wait_for(client, front, LEFT)
        stream, received = self.long_stream(client)
        self.name(RIGHT)
        wait_until(lambda: RIGHT in self.answering(client), lambda: front.stderr)
        self.assertEqual(len(client.generate(text="b", max_tokens=2).ids), 2)
        for message in stream:
            received.take(message)
        self.assertEqual(len(received.answer().ids), 4000)
        self.wait_for(client, front, RIGHT)
        # If the name has no addresses, the front keeps its workers.
        self.name()
        wait_until(lambda: "cannot look up pool.example" in front.stderr, lambda: front.stderr)
        self.assertEqual(self.answering(client), {RIGHT})
        for process in (left, right):
            self.assertEqual(process.stop(), 0)

    def test_a_worker_that_moved_is_found_at_once(self):
        self.name(LEFT)
        process = self.worker(LEFT)
        self.worker(RIGHT)
        front, client = self.front()
        self.wait_for(client, front, LEFT)
        stream, received = self.long_stream(client)
        self.name(RIGHT)
        process.kill()
        for message in stream:
            received.take(message)
        self.assertEqual(len(received.answer().ids), 4000)

    def test_certificates_are_for_the_name(self):
        certificates = Certificates()
        self.name(LEFT, RIGHT)
        for host, named in ((LEFT, "pool.example"), (RIGHT, "other.example")):
            self.worker(host, *pair_flags("tls", certificates.issue(named, named)))
        front, client = self.front("--worker-tls-ca", certificates.ca)
        self.wait_for(client, front, LEFT)
        self.assertEqual(len(client.generate(text="a", max_tokens=3).ids), 3)
        wait_until(lambda: f"worker at {RIGHT}:{self.port} cannot be watched" in front.stderr,
                   lambda: front.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
