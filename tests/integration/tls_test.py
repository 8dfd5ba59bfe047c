"""TLS for clients and operators: which clients may connect, and certificates that change."""

import contextlib
import http.client
import socket
import unittest

import openai

import harness
from certificates import Certificates, open_tls, pair_flags, serve_tls, ssl_context
from command_test_case import CommandTest
from harness import Client, wait_until
from tcp_links import Links
from tokens import Tokens, code_of


def get_models(server, context):
    """Returns the HTTP status, or "closed" if TLS refuses the connection."""
    host, port = server.http_address.split(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        connection.close()


class CommandsTest(CommandTest):

    def test_commands_take_certificates(self):
        ours, tokens = Certificates(), Tokens()
        tokens.new("alice")
        server = serve_tls(ours, "--tls-client-ca", ours.ca, "--auth-token-file", tokens.path)
        self.addCleanup(server.kill)
        pair = ours.issue("client", "client.example")
        asked = ("generate", "--server", server.address, "--prompt", "Low", "--max-tokens", "2",
                 "--token-file", tokens.file_of("alice"))
        well = self.run_json(*asked, "--tls-ca", ours.ca, *pair_flags("tls", pair))
        self.assertEqual(well["usage"]["completion_tokens"], 2)
        self.refuse(*asked, "--tls-ca", pair[1], *pair_flags("tls", pair),
                    named=(str(pair[1]), "CA"))
        self.refuse(*asked, *pair_flags("tls", pair), named="--tls-ca")
        self.refuse(*asked, code=1, named=f"no server answers at {server.address}; "
                    "check the address; if the server uses TLS, set --tls-ca FILE")


class HttpsTest(CommandTest):
    """HTTP over TLS behaves like HTTP."""

    @classmethod
    def setUpClass(cls):
        cls.ours = Certificates()
        cls.server = serve_tls(cls.ours)
        cls.addClassCleanup(cls.server.kill)
        cls.context = ssl_context(cls.ours.ca)
        cls.grpc = Client(cls.server, open_tls(cls.server.address, cls.ours.ca))
        cls.addClassCleanup(cls.grpc.close)

    def connect(self):
        host, port = self.server.http_address.split(":")
        plain = socket.create_connection((host, int(port)), timeout=60)
        return self.context.wrap_socket(plain, server_hostname="localhost")

    def test_the_openai_client(self):
        client = openai.OpenAI(base_url=f"https://{self.server.http_address}/v1", api_key="unused",
                               max_retries=0, timeout=120,
                               http_client=openai.DefaultHttpxClient(verify=self.context,
                                                                     trust_env=False))
        model = client.models.list().data[0].id
        whole = client.completions.create(model=model, prompt="Low tide", max_tokens=40)
        pieces = client.completions.create(model=model, prompt="Low tide", max_tokens=40,
                                           stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in pieces if piece.choices),
                         whole.choices[0].text)

    def test_pipelined_requests_and_a_clean_end(self):
        ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
        with self.connect() as connection:
            connection.sendall(ask % b"" + ask % b"" + ask % b"Connection: close\r\n")
            said = b""
            # Without the server's close_notify, the end of the connection would raise an error.
            while chunk := connection.recv(65536):
                said += chunk
        self.assertEqual(said.count(b"HTTP/1.1 200 OK"), 3)
        self.assertEqual(said.count(b"ok\n"), 3)

    def test_a_body_that_is_too_long_is_reported(self):
        with self.connect() as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               b"Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
                               + b" " * 200000)
            self.assertIn(b"413", connection.recv(65536))

    def test_a_client_that_leaves_ends_its_generation(self):
        # The response is larger than the buffers between the server and a client that does not
        # read.
        body = (b'{"prompt": "Low", "max_tokens": 100000, "stream": true, "ignore_eos": true, '
                b'"logprobs": 20}')
        connection = self.connect()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body))
        self.assertIn(b"200 OK", connection.recv(4096))
        wait_until(lambda: self.grpc.worker_stats().sequences_running == 1, "it runs")
        connection.close()
        self.grpc.wait_idle()

    def test_half_open_connections_do_not_block_others(self):
        waiting = []
        for address in (self.server.http_address, self.server.address):
            host, port = address.split(":")
            for i in range(100):
                waiting.append(socket.create_connection((host, int(port)), timeout=60))
                if i % 2:
                    waiting[-1].sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        self.assertEqual(get_models(self.server, self.context), 200)
        self.assertEqual(len(self.grpc.generate(text="Low", max_tokens=2).ids), 2)
        for connection in waiting:
            # The server closes it at the handshake timeout, with or without an alert.
            try:
                while connection.recv(65536):
                    pass
            except ConnectionResetError:
                pass
            connection.close()


class RotationTest(CommandTest):

    def test_certificates_are_read_again(self):
        old, new = Certificates(), Certificates()
        server = serve_tls(old)
        self.addCleanup(server.kill)

        def served_by(authority):
            with contextlib.closing(Client(server, open_tls(server.address, authority.ca))) as asked:
                code = code_of(lambda: asked.stream(text="Low", max_tokens=1, timeout=30))
            return code, get_models(server, ssl_context(authority.ca))

        self.assertEqual(served_by(old), ("OK", 200))
        self.assertEqual(served_by(new), ("UNAVAILABLE", "closed"))
        running = Client(server, open_tls(server.address, old.ca))
        self.addCleanup(running.close)
        stream = running.stream(text="Low", max_tokens=400)
        next(stream)

        pair = new.issue("next", "127.0.0.1")
        (old.folder / "server.key").write_bytes(pair[1].read_bytes())
        wait_until(lambda: "does not match the certificate" in server.stderr,
                   lambda: server.stderr)
        self.assertEqual(served_by(old), ("OK", 200), "what is half written changes nothing")
        (old.folder / "server.pem").write_bytes(pair[0].read_bytes())
        wait_until(lambda: served_by(new) == ("OK", 200), "the new certificate is shown")
        self.assertEqual(served_by(old), ("UNAVAILABLE", "closed"))
        self.assertGreater(len(list(stream)), 0, "a running stream continues")

    def test_a_ca_that_goes_takes_its_clients_with_it(self):
        servers, old, new = Certificates(), Certificates(), Certificates()
        trusted = servers.folder / "clients.pem"
        trusted.write_bytes(old.ca.read_bytes())
        server = serve_tls(servers, "--tls-client-ca", trusted)
        self.addCleanup(server.kill)
        pairs = [one.issue("client", "client.example") for one in (old, new)]

        def served_to(pair):
            channel = open_tls(server.address, servers.ca, pair)
            with contextlib.closing(Client(server, channel)) as asked:
                code = code_of(lambda: asked.stream(text="Low", max_tokens=1, timeout=30))
            return code, get_models(server, ssl_context(servers.ca, pair))

        def served():
            return [served_to(pair) for pair in pairs]

        well, refused = ("OK", 200), ("UNAVAILABLE", "closed")
        self.assertEqual(served(), [well, refused])
        open_before = Client(server, open_tls(server.address, servers.ca, pairs[0]))
        self.addCleanup(open_before.close)
        open_before.stream(text="Low", max_tokens=1)
        trusted.write_bytes(old.ca.read_bytes() + new.ca.read_bytes())
        wait_until(lambda: served() == [well, well], "both CAs are trusted")
        trusted.write_bytes(new.ca.read_bytes())
        wait_until(lambda: served() == [refused, well], "the old CA is trusted no more")
        self.assertEqual(len(open_before.generate(text="Low", max_tokens=1).ids), 1,
                         "what is open stays open")


class SlowHandshakeTest(CommandTest):

    def test_a_front_waits_for_a_slow_worker(self):
        ours = Certificates()
        worker = serve_tls(ours, "--front-name", "front.example", "--tls-client-ca", ours.ca,
                           command=harness.worker)
        self.addCleanup(worker.kill)
        links = Links([worker.address.partition(":")[2]])
        self.addCleanup(links.close)
        # Longer than the first back-off, and much shorter than the 2 s of an attempt.
        links.delay(0, 0.3)
        pair = ours.issue("front", "front.example")
        fronts = []

        def connects_once():
            before = links.accepted(0)
            for earlier in fronts:
                earlier.kill()
            fronts.append(harness.Server("front", "--worker", f"127.0.0.1:{links.ports[0]}",
                                         "--store", ":memory:", "--worker-tls-ca", ours.ca,
                                         *pair_flags("worker-tls", pair)))
            self.addCleanup(fronts[-1].kill)
            return links.accepted(0) == before + 1

        # On a busy machine, a handshake may take the whole 2 s of an attempt.
        harness.wait_met(connects_once, lambda: fronts[-1].stderr)
        front = fronts[-1]
        client = Client(front)
        self.addCleanup(client.close)
        self.assertEqual(len(client.generate(text="Low", max_tokens=1).ids), 1)


class CommandLineTest(CommandTest):

    def test_files_that_do_not_fit_end_the_start(self):
        ours = Certificates()
        pair, other = ours.issue("one", "127.0.0.1"), ours.issue("two", "127.0.0.1")
        (ours.folder / "none.pem").write_text("-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n"
                                              "-----END CERTIFICATE-----\n")
        start = ("serve", "--model", harness.LLAMA, "--store", ":memory:", "--listen",
                 "127.0.0.1:0", "--http", "off")
        for flags, named in (
                (("--tls-cert", pair[0]), "--tls-key"),
                (("--tls-client-ca", ours.ca), "--tls-cert"),
                (pair_flags("tls", (pair[0], other[1])), (str(other[1]), "does not match")),
                (pair_flags("tls", (pair[1], pair[1])), (str(pair[1]), "no certificates")),
                (pair_flags("tls", (ours.folder / "none.pem", pair[1])), "none.pem"),
                ((*pair_flags("tls", pair), "--tls-client-ca", pair[1]), (str(pair[1]), "CA")),
                (pair_flags("tls", (ours.folder / "gone.pem", pair[1])), "gone.pem")):
            self.refuse(*start, *flags, named=named)


if __name__ == "__main__":
    unittest.main()
