"""The last moments of a server, as seen by clients that call until the end."""

import signal
import socket
import struct
import threading
import unittest

import grpc

import harness
import http2_bytes
from harness import Client, stall_of, wait_until


def end(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the other side was first


class DeafRelay:
    """Connections to a server whose clients never learn that it accepts no more calls: the relay drops GOAWAY and
   the ping after it, as if they were still in flight."""

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
        """Opens a stream that cannot end, because its client stops reading: the server waits for it, and does not close
       its connection."""
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
        # The error must also come from the server, not only from a closed connection. On a busy
        # machine, the server may be gone before this client calls.
        harness.wait_met(lambda: any("is shutting down" in message
                                     for _, message in self.last_outcomes()), "a call is refused")

    def last_outcomes(self):
        """(code, message) of all calls between a server's SIGTERM and its end."""
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
