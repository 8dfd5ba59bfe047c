"""Servers serve and end normally even if nothing reads their stderr, or it is not writable."""

import fcntl
import http.client
import os
import pty
import re
import signal
import socket
import termios
import unittest

import harness
from harness import Client, Received, wait_until

AT_ONCE = 25  # seconds; less than the 30 s of --drain-timeout
PAGE = 4096


def full_pipe(test):
    """Returns (reader, writer) of a pipe that is full."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PAGE)
    os.write(writer, b"." * PAGE)
    test.addCleanup(os.close, reader)
    test.addCleanup(os.close, writer)
    return reader, writer


def metric(server, name):
    connection = http.client.HTTPConnection(server.http_address, timeout=60)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return int(float(re.search(rf"^tidepool:{name} (\S+)$", page, re.MULTILINE).group(1)))


def refused(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionError:
        return True
    return False


class UnreadLogsTest(unittest.TestCase):

    def watched(self, server):
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def answers_and_ends(self, server):
        server, client = self.watched(server)
        self.assertEqual(len(client.generate(text="a", max_tokens=3).ids), 3)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(AT_ONCE), 0)

    def test_every_role_ends_even_if_its_log_is_not_read(self):
        worker = harness.worker(stderr=full_pipe(self)[1])
        self.addCleanup(worker.kill)
        front = harness.front([worker], stderr=full_pipe(self)[1])
        self.answers_and_ends(front)
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.wait(AT_ONCE), 0)
        self.answers_and_ends(harness.serve("--log-level", "debug", stderr=full_pipe(self)[1]))

    def test_a_second_signal_ends_at_once(self):
        server, client = self.watched(harness.serve("--drain-timeout", "10m",
                                                    stderr=full_pipe(self)[1]))
        stream, received = client.wide_stream(text="Nobody reads", max_tokens=1500), Received()
        harness.take_tokens(stream, received, 1)
        server.signal(signal.SIGTERM)
        wait_until(lambda: not harness.health(server.address), "the drain has begun")
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(AT_ONCE), 0)
        self.assertEqual(harness.failure(lambda: stream)[0], "UNAVAILABLE")

    def test_a_signal_while_the_log_is_waited_for_ends_at_once(self):
        # The final wait for the log takes two seconds, which a busy machine may miss.
        for _ in range(10):
            server = harness.serve("--drain-grace", "0s", stderr=full_pipe(self)[1])
            self.addCleanup(server.kill)
            server.signal(signal.SIGTERM)
            wait_until(lambda: refused(server.address), "the server has left")
            server.signal(signal.SIGTERM)
            code = server.wait(AT_ONCE)
            if code == 128 + signal.SIGTERM:
                return
            self.assertEqual(code, 0)
        self.fail("no signal was heard while the log was waited for")

    def test_dropped_lines_are_counted_and_reported(self):
        reader, writer = full_pipe(self)
        server, client = self.watched(harness.serve(stderr=writer))
        for _ in range(2100):
            code, _ = harness.failure(lambda: client.generate(text="a", top_p=7))
            self.assertEqual(code, "INVALID_ARGUMENT")
        wait_until(lambda: metric(server, "log_lines_dropped_total"), "lines are dropped")
        said = b""

        def noted():
            nonlocal said
            said += os.read(reader, 1 << 16)
            return re.search(rb"warning (\d+) log lines were dropped", said)

        dropped = int(wait_until(noted, lambda: said).group(1))
        client.generate(text="a", max_tokens=1)
        wait_until(lambda: noted() and b"output_tokens=1 " in said, lambda: said[-1000:])
        self.assertEqual(metric(server, "log_lines_dropped_total"), dropped)

    def test_a_full_disk(self):
        with open("/dev/full", "wb") as full:
            server, client = self.watched(harness.serve(stderr=full))
        client.generate(text="a", max_tokens=1)
        wait_until(lambda: metric(server, "log_lines_dropped_total"), "a line was lost")
        self.answers_and_ends(server)

    def test_a_reader_that_went_away(self):
        reader, writer = os.pipe()
        os.close(reader)
        server = harness.serve(stderr=writer)
        os.close(writer)
        self.answers_and_ends(server)

    def test_a_stopped_terminal(self):
        terminal, inside = pty.openpty()
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.close, inside)
        termios.tcflow(inside, termios.TCOOFF)
        self.answers_and_ends(harness.serve(stderr=inside))

    def test_no_other_file_takes_the_place_of_a_closed_stderr(self):
        store = harness.scratch_folder() / "sessions.db"
        closing = ("sh", "-c", 'exec "$@" 2>&-', "sh")
        server = harness.serve(store=store, launcher=closing)
        self.assertEqual(os.readlink(f"/proc/{server.pid}/fd/2"), "/dev/null")
        self.answers_and_ends(server)
        self.assertEqual(harness.run_tidepool("sessions", "verify", "--store", store).returncode, 0)

    def test_a_start_waits_for_no_reader_of_stdout(self):
        _, writer = full_pipe(self)
        port = harness.free_port()
        server = harness.Process("serve", "--model", harness.LLAMA, "--store", ":memory:", "--listen",
                                 f"127.0.0.1:{port}", "--http", "off", stdout=writer, stderr=writer)
        self.addCleanup(server.kill)
        address = harness.Address(f"127.0.0.1:{port}")
        wait_until(lambda: harness.health(address.address), "it serves", harness.START_TIMEOUT)
        client = Client(address)
        self.addCleanup(client.close)
        client.generate(text="a", max_tokens=1)
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(AT_ONCE), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
