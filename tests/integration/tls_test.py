"""TLS as clients and operators meet it: who gets through the door, and certificates that change."""

import datetime
import http.client
import socket
import ssl
import unittest

import grpc
import openai

import harness
from certificates import Certificates, pair_flags
from command_test_case import CommandTest
from harness import Client, wait_until
from tokens import Bearer, Tokens, code_of

LAST_YEAR = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=365)


def open_tls(address, ca, pair=None, token=None):
    read = [path.read_bytes() for path in (ca, *(pair or ()))]
    credentials = grpc.ssl_channel_credentials(
        read[0], *((read[2], read[1]) if pair else (None, None)))
    channel = grpc.secure_channel(address, credentials,
                                  options=[("grpc.use_local_subchannel_pool", 1),
                                           ("grpc.enable_http_proxy", 0)])
    return grpc.intercept_channel(channel, Bearer(token)) if token else channel


def ssl_context(ca, pair=None):
    context = ssl.create_default_context(cafile=ca)
    if pair:
        context.load_cert_chain(*pair)
    return context


def get_models(server, context, token=None):
    """The HTTP status, or "closed" where TLS does not let the request through."""
    host, port = server.http_address.split(":")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if context is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
    else:
        connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=context)
    try:
        connection.request("GET", "/v1/models", headers=headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        connection.close()


def serve_tls(certificates, *arguments, command=harness.serve):
    pair = certificates.issue("server", "127.0.0.1", "localhost")
    return command(*pair_flags("tls", pair), "--probe-listen", "127.0.0.1:0", *arguments)


class WhoGetsInTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.ours, cls.others = Certificates(), Certificates()
        cls.tokens = Tokens()
        cls.alice = cls.tokens.new("alice")
        cls.server = serve_tls(cls.ours, "--tls-client-ca", cls.ours.ca, "--auth-token-file",
                               cls.tokens.path)
        cls.pair = cls.ours.issue("client", "client.example")

    def test_the_table(self):
        ours, others = self.ours.ca, self.others.ca
        foreign = self.others.issue("client", "client.example")
        expired = self.ours.issue("expired", "client.example", not_before=LAST_YEAR,
                                  not_after=LAST_YEAR + datetime.timedelta(days=1))
        rows = (
            ("the server's CA is unknown", others, self.pair, self.alice, "UNAVAILABLE", "closed"),
            ("no certificate", ours, None, self.alice, "UNAVAILABLE", "closed"),
            ("another CA's certificate", ours, foreign, self.alice, "UNAVAILABLE", "closed"),
            ("an expired certificate", ours, expired, self.alice, "UNAVAILABLE", "closed"),
            ("no token", ours, self.pair, None, "UNAUTHENTICATED", 401),
            ("an unknown token", ours, self.pair, "wrong", "UNAUTHENTICATED", 401),
            ("both", ours, self.pair, self.alice, "OK", 200))
        for name, ca, pair, token, code, status in rows:
            with self.subTest(name):
                client = Client(self.server, open_tls(self.server.address, ca, pair, token))
                asked = code_of(lambda: client.stream(text="Low", max_tokens=1, timeout=30))
                self.assertEqual(asked, code)
                self.assertEqual(get_models(self.server, ssl_context(ca, pair), token), status)
        plain = Client(self.server)
        self.assertEqual(code_of(lambda: plain.stream(text="Low", timeout=30)), "UNAVAILABLE")
        self.assertEqual(get_models(self.server, None, self.alice), "closed")

    def test_commands_take_certificates(self):
        asked = ("generate", "--server", self.server.address, "--prompt", "Low", "--max-tokens",
                 "2", "--token-file", self.tokens.file_of("alice"))
        well = self.run_json(*asked, "--tls-ca", self.ours.ca, *pair_flags("tls", self.pair))
        self.assertEqual(well["usage"]["completion_tokens"], 2)
        self.refuse(*asked, "--tls-ca", self.pair[1], *pair_flags("tls", self.pair),
                    named=(str(self.pair[1]), "CA"))
        self.refuse(*asked, *pair_flags("tls", self.pair), named="--tls-ca")

    def test_old_versions_of_tls_are_refused(self):
        context = ssl_context(self.ours.ca, self.pair)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        self.assertEqual(get_models(self.server, context, self.alice), "closed")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.assertEqual(get_models(self.server, context, self.alice), 200)


class HttpsTest(CommandTest):
    """What HTTP promises holds over TLS, too."""

    @classmethod
    def setUpClass(cls):
        cls.ours = Certificates()
        cls.server = serve_tls(cls.ours)
        cls.context = ssl_context(cls.ours.ca)
        cls.grpc = Client(cls.server, open_tls(cls.server.address, cls.ours.ca))

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
        ask = b"GET /healthz HTTP/1.1\r\nHost: a\r\n%s\r\n"
        with self.connect() as connection:
            connection.sendall(ask % b"" + ask % b"" + ask % b"Connection: close\r\n")
            said = b""
            # Without its close_notify, an end of the connection would raise an error.
            while chunk := connection.recv(65536):
                said += chunk
        self.assertEqual(said.count(b"HTTP/1.1 200 OK"), 3)
        self.assertEqual(said.count(b"ok\n"), 3)

    def test_a_body_that_is_too_long_is_told(self):
        with self.connect() as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                               b"Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
                               + b" " * 200000)
            self.assertIn(b"413", connection.recv(65536))

    def test_a_client_that_leaves_ends_its_generation(self):
        body = b'{"prompt": "Low", "max_tokens": 100000, "stream": true, "ignore_eos": true}'
        connection = self.connect()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body))
        self.assertIn(b"200 OK", connection.recv(4096))
        wait_until(lambda: self.grpc.worker_stats().sequences_running == 1, "it runs")
        connection.close()
        self.grpc.wait_idle()

    def test_half_open_connections_keep_nobody_out(self):
        waiting = []
        for address in (self.server.http_address, self.server.address):
            host, port = address.split(":")
            for i in range(100):
                waiting.append(socket.create_connection((host, int(port)), timeout=60))
                if i % 2:
                    waiting[-1].sendall(b"\x16\x03\x01\x02\x00\x01")  # a ClientHello's beginning
        self.assertEqual(get_models(self.server, self.context), 200)
        self.assertEqual(len(self.grpc.generate(text="Low", max_tokens=2).ids), 2)
        for connection in waiting:
            # Closed by the server when the time for a handshake is over, with an alert or without.
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

        def served_by(authority):
            asked = Client(server, open_tls(server.address, authority.ca))
            return (code_of(lambda: asked.stream(text="Low", max_tokens=1, timeout=30)),
                    get_models(server, ssl_context(authority.ca)))

        self.assertEqual(served_by(old), ("OK", 200))
        self.assertEqual(served_by(new), ("UNAVAILABLE", "closed"))
        running = Client(server, open_tls(server.address, old.ca))
        stream = running.stream(text="Low", max_tokens=400)
        next(stream)

        pair = new.issue("next", "127.0.0.1")
        (old.folder / "server.key").write_bytes(pair[1].read_bytes())
        wait_until(lambda: "is not the key of the certificate" in server.stderr,
                   lambda: server.stderr)
        self.assertEqual(served_by(old), ("OK", 200), "what is half written changes nothing")
        (old.folder / "server.pem").write_bytes(pair[0].read_bytes())
        wait_until(lambda: served_by(new) == ("OK", 200), "the new certificate is shown")
        self.assertEqual(served_by(old), ("UNAVAILABLE", "closed"))
        self.assertGreater(len(list(stream)), 0, "a running stream goes on")

    def test_a_ca_that_goes_takes_its_clients_with_it(self):
        servers, old, new = Certificates(), Certificates(), Certificates()
        trusted = servers.folder / "clients.pem"
        trusted.write_bytes(old.ca.read_bytes())
        server = serve_tls(servers, "--tls-client-ca", trusted)
        pairs = [one.issue("client", "client.example") for one in (old, new)]

        def served():
            return [(code_of(lambda: Client(
                server, open_tls(server.address, servers.ca, pair)).stream(
                    text="Low", max_tokens=1, timeout=30)),
                     get_models(server, ssl_context(servers.ca, pair))) for pair in pairs]

        well, refused = ("OK", 200), ("UNAVAILABLE", "closed")
        self.assertEqual(served(), [well, refused])
        trusted.write_bytes(old.ca.read_bytes() + new.ca.read_bytes())
        wait_until(lambda: served() == [well, well], "both CAs are trusted")
        trusted.write_bytes(new.ca.read_bytes())
        wait_until(lambda: served() == [refused, well], "the old CA is trusted no more")


class FrontAndWorkerTest(CommandTest):

    def test_fronts_are_known_by_their_certificates(self):
        ours = Certificates()
        worker = serve_tls(ours, "--tls-client-ca", ours.ca, "--front-name", "front.example",
                           "--front-name", "ops@front.example", command=harness.worker)
        links = {}
        # E-mail addresses are no names of fronts, whatever they read like.
        for name in ("front.example", "stranger.example", "ops@front.example"):
            pair = ours.issue(name, name)
            links[name] = harness.front([worker], "--worker-tls-ca", ours.ca,
                                        *pair_flags("worker-tls", pair),
                                        awaited="readiness" if name == "front.example"
                                        else "liveness")
        known = Client(links.pop("front.example"))
        self.assertEqual(len(known.generate(text="Low", max_tokens=3).ids), 3)
        for link in links.values():
            wait_until(lambda: "names no front" in link.stderr, lambda: link.stderr)
        plain = harness.front([worker], awaited="liveness")
        self.assertFalse(harness.health(plain.address, "readiness"))


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
                (pair_flags("tls", (pair[0], other[1])), (str(other[1]), "is not the key")),
                (pair_flags("tls", (pair[1], pair[1])), (str(pair[1]), "no certificates")),
                (pair_flags("tls", (ours.folder / "none.pem", pair[1])), "none.pem"),
                ((*pair_flags("tls", pair), "--tls-client-ca", pair[1]), (str(pair[1]), "CA")),
                (pair_flags("tls", (ours.folder / "gone.pem", pair[1])), "gone.pem")):
            self.refuse(*start, *flags, named=named)


if __name__ == "__main__":
    unittest.main()
