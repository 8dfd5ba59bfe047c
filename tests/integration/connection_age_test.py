"""Connections over TLS end after a time, so that certificates are checked again, and no running call
is cut."""

import http.client
import struct
import unittest

import harness
from certificates import Certificates, open_tls, pair_flags, serve_tls, ssl_context
from command_test_case import CommandTest
from harness import Client, Received, admin_pb, wait_until
from http2_bytes import (ACK, DATA, END_STREAM, GOAWAY, HEADERS, PING, SETTINGS, call_headers, frame,
                         hello)
from tcp_links import Links

AGE = ("--max-connection-age", "1s")
EMPTY_MESSAGE = bytes(5)
NEVER_LAST = 2 ** 31 - 1


class RevokedTest(unittest.TestCase):
    """While clients are connected, one client's CA is removed from the server's file and another
    client's CA is added."""

    def setUp(self):
        self.servers, old, new = Certificates(), Certificates(), Certificates()
        trusted = self.servers.folder / "clients.pem"
        trusted.write_bytes(old.ca.read_bytes())
        self.server = serve_tls(self.servers, "--tls-client-ca", trusted, *AGE)
        self.addCleanup(self.server.kill)
        self.old, self.new = (one.issue("client", "client.example") for one in (old, new))
        self.trust_new = lambda: trusted.write_bytes(new.ca.read_bytes())

    def client(self, pair):
        client = Client(self.server, open_tls(self.server.address, self.servers.ca, pair))
        self.addCleanup(client.close)
        return client

    def test_calls_end_and_a_running_stream_does_not(self):
        revoked, other = self.client(self.old), self.client(self.new)
        stream, received = revoked.wide_stream(text="a", max_tokens=4000), Received()
        harness.take_tokens(stream, received, 1)
        watch = revoked.admin.WatchStats(admin_pb.WatchStatsRequest(interval_seconds=0.1))
        next(watch)
        self.trust_new()
        wait_until(lambda: refused(other.stats) is None, "the new CA is trusted")
        wait_until(lambda: refused(revoked.stats) == "UNAVAILABLE",
                   "the revoked client gets no further call")
        code, message = harness.failure(lambda: watch)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertIn("--max-connection-age", message)
        self.assertEqual(other.worker_stats().sequences_running, 1)
        for message in stream:
            received.take(message)
        self.assertEqual(len(received.answer().ids), 4000)

    def test_http_ends_too(self):
        connection = http.client.HTTPSConnection(
            *self.server.http_address.split(":"), timeout=60,
            context=ssl_context(self.servers.ca, self.old))
        self.addCleanup(connection.close)

        def ask():
            """Returns whether this is the last response on its connection."""
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.status, 200)
            return response.will_close

        def ended():
            try:
                return ask()
            except (OSError, http.client.HTTPException):
                connection.close()
                return True  # the server closed it before it responded

        # A busy machine may need more than a second for a response.
        harness.wait_met(lambda: not ended(), "an answer that is not its connection's last")
        self.trust_new()
        wait_until(ended, "the server ends the connection")
        wait_until(lambda: refused(self.client(self.new).stats) is None, "the new CA is trusted")
        with self.assertRaises((OSError, http.client.HTTPException)):
            ask()


def refused(call):
    """Returns the status code with which call() fails, or None if it succeeds."""
    try:
        call()
    except harness.grpc.RpcError as error:
        return error.code().name
    return None


class RawConnection:
    """HTTP/2 over TLS by a client that ignores GOAWAY."""

    def __init__(self, server, ca):
        context = ssl_context(ca)
        context.set_alpn_protocols(["h2"])
        host, port = server.address.split(":")
        plain = harness.socket.create_connection((host, int(port)), timeout=30)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.socket.sendall(hello())
        self.last_stream = None  # from the last GOAWAY
        self.answered = set()    # streams with a response (HEADERS)
        self.rounds = 0          # number of SETTINGS that the server has acknowledged

    def call(self, stream, path):
        self.socket.sendall(call_headers(stream, path)
                            + frame(DATA, END_STREAM, stream, EMPTY_MESSAGE))

    def go_round(self):
        """Makes a round trip to the server, with SETTINGS: after a few pings, the server would
        close the connection."""
        before = self.rounds
        self.socket.sendall(frame(SETTINGS))
        while self.rounds == before:
            self.take_frame()

    def take_frame(self):
        head = self.read(9)
        size, kind, flags, stream = (int.from_bytes(head[:3], "big"), head[3], head[4],
                                     struct.unpack(">I", head[5:])[0])
        payload = self.read(size)
        if kind == SETTINGS and flags & ACK:
            self.rounds += 1
        elif kind == SETTINGS:
            self.socket.sendall(frame(SETTINGS, ACK))
        elif kind == PING:
            self.socket.sendall(frame(PING, ACK, payload=payload))
        elif kind == HEADERS:
            self.answered.add(stream)
        elif kind == GOAWAY:
            self.last_stream = struct.unpack(">I", payload[:4])[0]

    def read(self, size):
        data = b""
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            assert chunk, "the server has closed the connection"
            data += chunk
        return data


class GoawayTest(unittest.TestCase):

    def test_a_client_that_does_not_heed_it_is_not_answered(self):
        ours = Certificates()
        server = serve_tls(ours, *AGE)
        self.addCleanup(server.kill)
        connection = RawConnection(server, ours.ca)
        self.addCleanup(connection.socket.close)
        # This stream keeps the connection open, because it does not end.
        connection.call(1, "/grpc.health.v1.Health/Watch")
        connection.call(3, "/grpc.health.v1.Health/Check")
        rounds = 0
        while 3 not in connection.answered:
            connection.go_round()
            rounds += 1
        while connection.last_stream in (None, NEVER_LAST):
            connection.take_frame()
        self.assertEqual(connection.last_stream, 3)
        # After gRPC has written this last GOAWAY, it accepts no more calls. The response to this
        # round trip shows that the GOAWAY was written.
        connection.go_round()
        connection.call(5, "/grpc.health.v1.Health/Check")
        for _ in range(100 * rounds):
            connection.go_round()
        self.assertEqual(connection.answered, {1, 3})


class FrontTest(unittest.TestCase):

    def test_a_front_makes_new_connections_and_loses_nothing(self):
        ours = Certificates()
        worker = serve_tls(ours, "--front-name", "front.example", "--tls-client-ca", ours.ca, *AGE,
                           command=harness.worker)
        self.addCleanup(worker.kill)
        links = Links([worker.address.partition(":")[2]])
        self.addCleanup(links.close)
        front = harness.Server("front", "--worker", f"127.0.0.1:{links.ports[0]}", "--store",
                               ":memory:", "--worker-tls-ca", ours.ca,
                               *pair_flags("worker-tls", ours.issue("front", "front.example")))
        self.addCleanup(front.kill)
        client = Client(front)
        self.addCleanup(client.close)
        long_stream, received = client.wide_stream(text="a", max_tokens=4000), Received()
        harness.take_tokens(long_stream, received, 1)
        while links.accepted(0) < 4:
            self.assertEqual(len(client.generate(text="Low", max_tokens=2).ids), 2)
        for message in long_stream:
            received.take(message)
        self.assertEqual(len(received.answer().ids), 4000)
        self.assertEqual(client.stats().front.failovers_total, 0)
        self.assertNotIn("is lost", front.stderr)
        # If a connection ends before the worker has begun a call, the front retries the call.
        failures = [line for line in front.stderr.splitlines() if "failed a call" in line]
        self.assertEqual([line for line in failures if "GOAWAY received" not in line], [])


class CommandLineTest(CommandTest):

    def test_it_is_of_tls(self):
        start = ("serve", "--model", harness.LLAMA, "--store", ":memory:", "--listen",
                 "127.0.0.1:0", "--http", "off")
        self.refuse(*start, *AGE, named=("--max-connection-age", "--tls-cert"))
        for age in ("0", "577h"):
            self.refuse(*start, "--max-connection-age", age,
                        named=("--max-connection-age", "1s to 576h"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
