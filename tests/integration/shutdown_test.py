"""The last moments of a server, as seen by clients that call until the end."""

import json
import signal
import socket
import struct
import threading
import time
import unittest

import grpc

import harness
import http2_bytes
from harness import Client, stall_of, wait_until


def is_pending(server, number):
    """Returns whether a signal to the process is still pending."""
    with open(f"/proc/{server.pid}/status") as status:
        pending = next(line.split()[1] for line in status if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> number - 1 & 1)


def end(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the peer has closed it first


class DeafRelay:
    """A relay to a server. Its clients never learn that the server accepts no more calls: the relay
    drops GOAWAY and the ping after it, as if they were still in flight."""

    def __init__(self, target):
        self._target = ("127.0.0.1", int(target.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for pump in (self._forward, self._answer):
                threading.Thread(target=pump, args=(near, far), daemon=True).start()

    @staticmethod
    def _forward(near, far):
        try:
            while data := near.recv(65536):
                far.sendall(data)
        except OSError:
            pass
        finally:
            end(far)

    @staticmethod
    def _answer(near, far):
        try:
            with far.makefile("rb") as frames:
                while len(head := frames.read(9)) == 9:
                    payload = frames.read(struct.unpack(">I", b"\0" + head[:3])[0])
                    asks = head[3] == http2_bytes.PING and not head[4] & http2_bytes.ACK
                    if head[3] != http2_bytes.GOAWAY and not asks:
                        near.sendall(head + payload)
        except OSError:
            pass
        finally:
            end(near)


class ShutdownTest(unittest.TestCase):

    def connect(self, server):
        client = Client(server)
        self.addCleanup(client.close)
        return client

    def hold_up(self, server, client):
        """Opens a stream that cannot end, because its client stops reading. So the server waits for
        the stream, and does not close its connection."""
        stream = client.wide_stream(text="Nobody reads", max_tokens=1500)
        next(stream)
        watcher = self.connect(server)
        wait_until(lambda: stall_of(watcher), "the stream is held back")
        return stream

    def outcome(self, call):
        try:
            call(timeout=30)
            return "OK", ""
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def test_no_call_is_cancelled_that_its_client_did_not_cancel(self):
        # At least one error must come from the server, and not from a closed connection. On a busy
        # machine, the server may end before this client calls.
        harness.wait_met(lambda: any("is shutting down" in message
                                     for _, message in self.last_outcomes()), "a call is refused")

    def last_outcomes(self):
        """Returns (code, message) of all calls between the SIGTERM to a server and the end of the server."""
        server = harness.serve("--drain-grace", "0s", "--drain-timeout", "200ms")
        self.addCleanup(server.kill)
        relay = DeafRelay(server.address)
        self.addCleanup(relay.close)
        late = self.connect(harness.Address(relay.address))
        request = harness.inference_pb.ListModelsRequest()

        def ask(timeout):
            late.inference.ListModels(request, timeout=timeout)

        self.assertEqual(self.outcome(ask), ("OK", ""))
        held_up = self.hold_up(server, late)
        server.signal(signal.SIGTERM)
        outcomes = set()
        while server.running():
            outcomes.add(self.outcome(ask))
        self.assertLessEqual({code for code, _ in outcomes}, {"OK", "UNAVAILABLE"}, outcomes)
        code, message = harness.failure(lambda: held_up)
        self.assertEqual(code, "UNAVAILABLE", message)
        self.assertEqual(server.wait(), 0, server.stderr)
        return outcomes


class SecondSignalTest(unittest.TestCase):
    """A second SIGTERM ends a server at once, even if clients do not read what it sends."""

    MOMENTS = (0, 0.001, 0.01, 0.03, 0.1, 0.3, 1)  # in seconds after the first signal
    WAITED = "did not read the end of their streams"

    def start(self, drain_timeout, store=":memory:"):
        server = harness.serve("--drain-grace", "0s", "--drain-timeout", drain_timeout, store=store)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        self.streams = [client.wide_stream(text=f"Nobody reads {number}", max_tokens=1500)
                        for number in range(3)]
        for stream in self.streams:
            next(stream)
        host, _, port = server.http_address.rpartition(":")
        deaf = socket.create_connection((host, int(port)))
        self.addCleanup(deaf.close)
        body = json.dumps({"prompt": "Nor this", "max_tokens": 1500, "stream": True, "logprobs": 5})
        deaf.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json"
                     f"\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        deaf.recv(1)
        harness.wait_until(lambda: harness.stall_of(client), "the streams are held back", timeout=120)
        return server, client

    def second_signal(self, server, moment):
        """Returns the exit code."""
        server.signal(signal.SIGTERM)
        # While the first signal is pending, the kernel drops a second one.
        harness.wait_until(lambda: not is_pending(server, signal.SIGTERM), "the first signal was taken")
        time.sleep(moment)
        server.signal(signal.SIGTERM)
        return server.wait()

    def test_while_it_drains(self):
        for moment in self.MOMENTS:
            with self.subTest(moment=moment):
                server, _ = self.start("1h")
                self.assertEqual(self.second_signal(server, moment), 0, server.stderr)
                self.assertNotIn(self.WAITED, server.stderr)

    def test_while_cancelled_streams_end(self):
        for moment in self.MOMENTS:
            with self.subTest(moment=moment):
                # On a busy machine, the server's whole waiting time may be over before the second
                # signal.
                harness.wait_met(lambda at=moment: self.ends_at_once(at), "it ends at once")

    def ends_at_once(self, moment):
        server, _ = self.start("1ms")
        return self.second_signal(server, moment) == 0 and self.WAITED not in server.stderr

    def test_one_signal_waits_for_clients_and_says_so(self):
        server, _ = self.start("1ms")
        self.assertEqual(server.stop(), 0)
        self.assertIn(self.WAITED, server.stderr)

    def test_tokens_that_a_client_received_are_kept(self):
        store = harness.scratch_folder() / "sessions.db"
        server, client = self.start("1h", store)
        client.create_session("kept")
        received = harness.Received()
        harness.take_tokens(client.stream(session="kept", text="Told", max_tokens=1000), received, 20)
        self.assertEqual(self.second_signal(server, 0), 0, server.stderr)
        again = harness.serve(store=store)
        self.addCleanup(again.kill)
        reader = Client(again)
        self.addCleanup(reader.close)
        session = reader.get_session("kept")
        output = list(session.token_ids)[session.turns[0].output_start:]
        self.assertEqual(output[:len(received.ids)], received.ids)


if __name__ == "__main__":
    unittest.main(verbosity=2)
