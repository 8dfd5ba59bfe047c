"""Hostile clients: the server still serves others, and its memory stays bounded.

Usage: abuse_test.py [CONNECTIONS [CALLERS]] (default: 500 and 3000). Prints its measurements.
"""

import contextlib
import json
import random
import resource
import socket
import ssl
import sys
import time
import unittest

import grpc

import harness
import http2_bytes as http2
from certificates import Certificates, pair_flags
from harness import Client, resident_bytes, wait_until

CONNECTIONS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 500
CALLERS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 3000
# Limit for gRPC's memory quota and related memory. After a flood, gRPC keeps its memory for later
# connections. An idle machine needs half of this; on a busy one, gRPC frees memory late.
GRPC_MEMORY = 2048 << 20
# A sanitizer keeps freed memory and pads allocations.
KEPT_FREED = (512 << 20) if harness.SANITIZED else 0
PATIENCE = 10  # limit in seconds for a normal request, whatever else happens
HANDSHAKE_TIMEOUT = 10  # the server's, in seconds
GENERATE = "/tidepool.v1.Inference/Generate"
MIB = 1 << 20


def setUpModule():
    # Servers inherit the limit. They and this process each hold one end of a connection.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect(address):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def say(address, data):
    """Returns what the server sends after these bytes, until it closes the connection."""
    with connect(address) as connection:
        said = b""
        # The server may close before it has read everything.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                said += chunk
        return said


class AbuseTest(unittest.TestCase):

    def setUp(self):
        self.server = self.serve()

    def serve(self, *arguments):
        server = harness.serve(*arguments, threads=2)
        self.addCleanup(server.kill)
        # Do not count the memory that the first request and the first connection need.
        with contextlib.closing(Client(server)) as client:
            client.generate(text="Once", max_tokens=5)
        return server

    def open_many(self, address, count, data=b""):
        connections = []
        for _ in range(count):
            connection = connect(address)
            connections.append(connection)
            self.addCleanup(connection.close)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(data)
        return connections

    def check_answers(self, what, before=None, max_bytes=None):
        """Checks that new clients of both ports are served in time. Prints this time, and the
        additional memory of the server."""
        begun = time.monotonic()
        with contextlib.closing(Client(self.server)) as client:
            answer = client.generate(text="Once", max_tokens=5, timeout=PATIENCE)
        self.assertEqual(len(answer.ids), 5)
        grpc_s = time.monotonic() - begun
        said = say(self.server.http_address,
                   b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertTrue(said.startswith(b"HTTP/1.1 200"), said)
        http_s = time.monotonic() - begun - grpc_s
        line = f"{what}: answered in {1e3 * grpc_s:.0f} ms (gRPC), {1e3 * http_s:.0f} ms (HTTP)"
        if before is not None:
            grown = resident_bytes(self.server) - before
            line += f"; memory {before / MIB:.0f} MiB before, {grown / MIB:+.1f} MiB"
        print(line, flush=True)
        if max_bytes is not None:
            self.assertLess(grown, max_bytes + KEPT_FREED, what)

    def test_idle_connections(self):
        before = resident_bytes(self.server)
        self.open_many(self.server.address, CONNECTIONS, http2.hello())
        self.check_answers(f"{CONNECTIONS} idle gRPC connections", before,
                           (64 << 10) * CONNECTIONS + 32 * MIB)
        before = resident_bytes(self.server)
        self.open_many(self.server.http_address, CONNECTIONS)
        self.check_answers(f"{CONNECTIONS} idle HTTP connections beside them", before,
                           (32 << 10) * CONNECTIONS + 32 * MIB)

    def test_more_connections_than_files(self):
        """Connections that use up all file descriptors are refused, do not affect existing
        clients, and end."""
        with contextlib.closing(Client(self.server)) as client:
            client.create_session("kept")
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, (256, hard))
            for address in (self.server.address, self.server.http_address):
                crowd = self.open_many(address, 400, http2.hello())
                answer = client.generate(session="kept", text="Once", max_tokens=5, timeout=PATIENCE)
                self.assertEqual(len(answer.ids), 5)
                for connection in crowd:
                    connection.close()
        wait_until(lambda: harness.health(self.server.address), "the crowd has left")
        self.check_answers("after a crowd of more than there are files")

    def test_clients_that_say_nothing(self):
        """A connection that sends nothing is closed."""
        before = resident_bytes(self.server)
        silent = self.open_many(self.server.address, CONNECTIONS)
        self.check_answers(f"{CONNECTIONS} connections that say nothing", before,
                           (64 << 10) * CONNECTIONS + 32 * MIB)
        for connection in silent:
            connection.settimeout(3 * HANDSHAKE_TIMEOUT)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 16):  # its settings come first
                    pass

    def test_half_open_handshakes(self):
        certificates = Certificates()
        pair = certificates.issue("server", "127.0.0.1")
        self.server = server = harness.serve(*pair_flags("tls", pair), "--probe-listen",
                                             "127.0.0.1:0", threads=2)
        self.addCleanup(server.kill)
        before = resident_bytes(server)
        beginning = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)
        half_open = self.open_many(server.address, CONNECTIONS, beginning)
        half_open += self.open_many(server.http_address, CONNECTIONS, beginning)
        begun = time.monotonic()
        trusted = grpc.ssl_channel_credentials(certificates.ca.read_bytes())
        with grpc.secure_channel(server.address, trusted,
                                 [("grpc.enable_http_proxy", 0)]) as channel:
            answer = Client(server, channel).generate(text="Once", max_tokens=5, timeout=PATIENCE)
        self.assertEqual(len(answer.ids), 5)
        context = ssl.create_default_context(cafile=certificates.ca)
        with context.wrap_socket(connect(server.http_address),
                                 server_hostname="127.0.0.1") as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertTrue(connection.recv(1 << 16).startswith(b"HTTP/1.1 200"))
        passed = time.monotonic() - begun
        grown = resident_bytes(server) - before
        print(f"{len(half_open)} half-open TLS handshakes: both ports answered in "
              f"{1e3 * passed:.0f} ms; memory {grown / MIB:+.1f} MiB", flush=True)
        self.assertLess(grown, (128 << 10) * len(half_open) + 32 * MIB + KEPT_FREED)
        for connection in half_open:
            connection.settimeout(3 * HANDSHAKE_TIMEOUT)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 16):
                    pass

    def test_oversize_headers(self):
        before = resident_bytes(self.server)
        request = harness.make_request(text="Once", max_tokens=1)
        for _ in range(20):
            # Each call has its own connection. gRPC refuses the call or closes the connection.
            with contextlib.closing(Client(self.server)) as client:
                code, _ = harness.failure(lambda: client.inference.Complete(
                    request, metadata=[("x-long", "x" * MIB)], timeout=PATIENCE))
            self.assertIn(code, {"RESOURCE_EXHAUSTED", "UNAVAILABLE"})
        header = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * MIB + b"\r\n\r\n"
        for _ in range(100):
            said = say(self.server.http_address, header)
            self.assertTrue(not said or said.startswith(b"HTTP/1.1 431"), said)
        self.check_answers("headers of 1 MiB at both ports", before, 64 * MIB)

    def test_a_header_without_end(self):
        """A client sends CONTINUATION frames without end to the gRPC port."""
        before = resident_bytes(self.server)
        more = http2.frame(http2.CONTINUATION, 0, 1, http2.header_block([("x", "y" * 8000)]) * 2)
        sent = 0
        with connect(self.server.address) as connection:
            connection.sendall(http2.hello() + http2.call_headers(1, GENERATE, flags=0))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
                for _ in range(4000):
                    connection.sendall(more)
                    sent += len(more)
        self.check_answers(f"a header of {sent / MIB:.0f} MiB", before, GRPC_MEMORY)

    def test_slow_requests(self):
        before = resident_bytes(self.server)
        count = min(CONNECTIONS, 4000)  # headers and bodies: fewer than HTTP's 8,192
        slow = self.open_many(self.server.http_address, count, b"GET / HTTP/1.1\r\nHost: localhost")
        bodies = self.open_many(
            self.server.http_address, count,
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 30000000\r\n\r\n{")
        self.check_answers(f"{count} slow headers and as many slow bodies", before,
                           (64 << 10) * len(slow + bodies) + 32 * MIB)
        # Sending a byte now and then does not extend the time limit, because it is for the whole
        # header.
        for connection in slow:
            connection.settimeout(3 * HANDSHAKE_TIMEOUT)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"\r\nX: y")
        for connection in slow:
            self.assertTrue(connection.recv(1 << 16).startswith(b"HTTP/1.1 408"))

    def test_the_server_sends_its_maximum_number_of_streams(self):
        connection = connect(self.server.address)
        self.addCleanup(connection.close)
        connection.sendall(http2.hello())
        self.assertEqual(http2.read_settings(connection)[http2.MAX_CONCURRENT_STREAMS], 1024)

    def test_garbage_at_the_grpc_port(self):
        before = resident_bytes(self.server)
        draw = random.Random(3)
        beginnings = (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00",
                      http2.PREFACE, http2.hello(), http2.hello() + http2.call_headers(1, GENERATE))
        for number in range(600):
            say(self.server.address, beginnings[number % len(beginnings)] +
                draw.randbytes(draw.randrange(1, 4000)))
        self.check_answers("garbage of 600 connections", before, 64 * MIB)

    def test_frames_by_the_thousand(self):
        """A client sends frames that cost it little: streams that it begins and resets, pings, and
        settings."""
        before = resident_bytes(self.server)
        resets = b"".join(http2.call_headers(stream, GENERATE) + http2.reset(stream)
                          for stream in range(1, 40_001, 2))
        pings = http2.frame(http2.PING, 0, 0, bytes(8)) * 50_000
        settings = http2.frame(http2.SETTINGS) * 50_000
        for flood in [resets] * 4 + [pings, settings]:
            begun = time.monotonic()
            said = say(self.server.address, http2.hello() + flood)
            print(f"{len(flood) / MIB:.1f} MiB of frames: {len(said)} bytes back within "
                  f"{time.monotonic() - begun:.2f} s")
        self.check_answers("floods of frames", before, GRPC_MEMORY)

    def test_more_callers_than_the_queue_holds(self):
        before = resident_bytes(self.server)
        most = before
        flood = harness.Process(
            "bench", "--server", self.server.address, "--concurrency", CALLERS, "--connections",
            max(8, CALLERS // 800), "-p", "32", "-n", "64", "--warm-up", "0", "--duration", "20s",
            "--json")
        slowest = 0
        with contextlib.closing(Client(self.server)) as client:
            wait_until(lambda: client.worker_stats().sequences_running, "the flood has begun")
            while flood.running():
                begun = time.monotonic()
                models = client.inference.ListModels(harness.inference_pb.ListModelsRequest(),
                                                     timeout=PATIENCE)
                self.assertEqual(len(models.models), 1)
                slowest = max(slowest, time.monotonic() - begun)
                most = max(most, resident_bytes(self.server))
        self.assertEqual(flood.wait(), 0, flood.stderr)
        report = json.loads(flood.stdout)
        requests = report["requests"]
        print(f"{CALLERS} callers: {requests['sent']} requests, {requests['completed']} completed, "
              f"refused {requests['refused']}; another client's call took at most "
              f"{1e3 * slowest:.0f} ms; memory {before / MIB:.0f} MiB before, at most "
              f"{(most - before) / MIB:+.1f} MiB", flush=True)
        self.assertEqual(set(requests["refused"]) - {"RESOURCE_EXHAUSTED"}, set())
        self.assertEqual(requests["broken"], {})
        self.assertGreater(requests["completed"], 0)
        self.assertLess(most - before, GRPC_MEMORY)
        self.check_answers("after them")


if __name__ == "__main__":
    unittest.main(verbosity=2)
