"""The tables of docs/security.md, row by row: which clients a server accepts, and which
fronts a worker accepts. A row without a test fails, and so does a test without its row."""

import datetime
import http.client
import itertools
import pathlib
import socket
import ssl
import unittest

import grpc

import harness
from certificates import Certificates, open_tls, pair_flags, serve_tls, ssl_context
from command_test_case import CommandTest
from harness import health, inference_grpc, inference_pb, wait_until
from tokens import Tokens

PAGE = pathlib.Path.cwd() / "docs" / "security.md"
NO_CONNECTION = "no connection"
UTC = datetime.timezone.utc
OUTDATED = {"not_before": datetime.datetime(2020, 1, 1, tzinfo=UTC),
            "not_after": datetime.datetime(2021, 1, 1, tzinfo=UTC)}


def table(head):
    """Returns {first cell: other cells} for the rows of one table of the page. The table is the one
    whose first cell is given."""
    rows = PAGE.read_text().partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {row[0]: tuple(row[1:]) for row in cells}


def over_grpc(channel, headers):
    """Returns the status code of ListModels."""
    with channel:
        try:
            inference_grpc.InferenceStub(channel).ListModels(
                inference_pb.ListModelsRequest(), timeout=30,
                metadata=[("authorization", header) for header in headers])
        except grpc.RpcError as error:
            # If the server sent no status, gRPC's client makes its own.
            return NO_CONNECTION if error.code().name == "UNAVAILABLE" else error.code().name
    return "OK"


def over_http(address, context, headers):
    """Returns the HTTP status of GET /v1/models. `context` is None for plain text."""
    kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    connection = kind(*address.split(":"), timeout=60, **({"context": context} if context else {}))
    try:
        connection.putrequest("GET", "/v1/models")
        for header in headers:
            connection.putheader("Authorization", header)
        connection.endheaders()
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return NO_CONNECTION
    finally:
        connection.close()


def shakes_hands(address, context):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        try:
            context.wrap_socket(plain, server_hostname=host).close()
            return "OK"
        except OSError:
            return NO_CONNECTION


class AcceptedClientsTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.ours, cls.others, cls.gone, cls.added = (Certificates() for _ in range(4))
        cls.tokens = Tokens()
        cls.old = cls.tokens.new("alice")
        cls.alice = cls.tokens.new("alice")
        cls.front = cls.tokens.new("front-1", "front")
        cls.expired = cls.tokens.new("expired", "user", "--expires", "2020-01-01")
        cls.revoked = cls.tokens.new("revoked")
        trusted = cls.ours.folder / "clients.pem"
        trusted.write_bytes(cls.ours.ca.read_bytes() + cls.gone.ca.read_bytes())
        cls.server = serve_tls(cls.ours, "--tls-client-ca", trusted, "--auth-token-file",
                               cls.tokens.path)
        cls.pair = cls.ours.issue("client", "client.example")
        gone = cls.gone.issue("client", "client.example")
        assert cls.ask(pair=gone) == ("OK", "200")
        assert cls.ask(cls.revoked) == ("OK", "200")

        cls.tokens.revoke("revoked")
        trusted.write_bytes(cls.ours.ca.read_bytes() + cls.added.ca.read_bytes())
        wait_until(lambda: cls.server.stderr.count("is in use") == 2, lambda: cls.server.stderr)

        cls.stale = serve_tls(cls.ours, file="stale", **OUTDATED)
        cls.misnamed = serve_tls(cls.ours, file="misnamed", names=("other.example",))

    @classmethod
    def ask(cls, *tokens, headers=None, pair=None, ca=None, server=None):
        """Returns (gRPC code, HTTP status) of a client with these tokens (default: the token of
        alice). If `pair` is empty, the client has no certificate."""
        server, ca = server or cls.server, ca or cls.ours.ca
        pair = cls.pair if pair is None else pair
        if headers is None:
            headers = [f"Bearer {token}" for token in tokens or (cls.alice,)]
        return (over_grpc(open_tls(server.address, ca, pair), headers),
                over_http(server.http_address, ssl_context(ca, pair), headers))

    def in_plain_text(self):
        headers = [f"Bearer {self.alice}"]
        return (over_grpc(harness.open_channel(self.server.address), headers),
                over_http(self.server.http_address, None, headers))

    def with_an_old_tls(self):
        answers = []
        for address in (self.server.address, self.server.http_address):
            context = ssl_context(self.ours.ca, self.pair)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            context.set_alpn_protocols(["h2"] if address == self.server.address else ["http/1.1"])
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            answers.append(shakes_hands(address, context))
        return tuple(answers)

    ROWS = {
        "a token": lambda t: t.ask(t.alice),
        "an older token of the same principal, whose line is still in the file":
            lambda t: t.ask(t.old),
        "no token": lambda t: t.ask(headers=[]),
        "an unknown token": lambda t: t.ask("tp-unknown"),
        "an expired token": lambda t: t.ask(t.expired),
        "a revoked token: its line was removed": lambda t: t.ask(t.revoked),
        "a token of the role front": lambda t: t.ask(t.front),
        "a scheme other than Bearer": lambda t: t.ask(headers=[f"Basic {t.alice}"]),
        "two tokens": lambda t: t.ask(t.alice, t.old),
        "no certificate": lambda t: t.ask(pair=()),
        "a certificate of another CA":
            lambda t: t.ask(pair=t.others.issue("client", "client.example")),
        "an expired certificate":
            lambda t: t.ask(pair=t.ours.issue("stale", "client.example", **OUTDATED)),
        "a certificate of a CA that was removed from the file":
            lambda t: t.ask(pair=t.gone.issue("client", "client.example")),
        "a certificate of a CA that was added to the file":
            lambda t: t.ask(pair=t.added.issue("client", "client.example")),
        "plain text": in_plain_text,
        "TLS 1.1": with_an_old_tls,
        "trust only in another CA than the server's": lambda t: t.ask(ca=t.others.ca),
        "a connection to a server whose certificate names another host":
            lambda t: t.ask(server=t.misnamed),
        "a connection to a server whose certificate has expired": lambda t: t.ask(server=t.stale),
    }

    def test_every_row_of_the_page(self):
        told = table("the client has")
        self.assertEqual(list(told), list(self.ROWS))
        for name, answers in told.items():
            with self.subTest(name):
                self.assertEqual(self.ROWS[name](self), answers)

    def test_the_operator_hears_of_a_certificate_that_has_expired(self):
        self.assertIn("expired on 2021-01-01", self.stale.stderr)

    def test_the_operator_hears_of_a_certificate_seven_days_before_it_expires(self):
        for days, told in ((6, True), (8, False)):
            end = datetime.datetime.now(UTC) + datetime.timedelta(days=days)
            server = serve_tls(self.ours, file=f"days{days}", not_after=end)
            self.assertEqual("expires on" in server.stderr, told, f"{days} days: {server.stderr}")
            server.kill()


class AcceptedFrontsTest(CommandTest):

    @classmethod
    def setUpClass(cls):
        cls.ours, cls.others = Certificates(), Certificates()
        cls.numbers = itertools.count()
        cls.tokens = Tokens()
        for principal, role in (("alice", "user"), ("front-1", "front"), ("front-2", "front")):
            cls.tokens.new(principal, role)
        cls.tokens.revoke("front-2")
        cls.worker, cls.misnamed = (
            serve_tls(cls.ours, "--tls-client-ca", cls.ours.ca, "--front-name", "front.example",
                      "--front-name", "ops@front.example", "--auth-token-file", cls.tokens.path,
                      command=harness.worker, file=name, names=(name,))
            for name in ("127.0.0.1", "other.example"))

    def connect(self, name="some.example", principal=None, ca=None, worker=None, **validity):
        """Starts a front with these credentials."""
        ca = ca or self.ours
        # Each front has its own files, because running fronts reload theirs.
        pair = ca.issue(f"front-{next(self.numbers)}", name, **validity)
        flags = [*pair_flags("worker-tls", pair), "--worker-tls-ca", self.ours.ca]
        if principal is not None:
            flags += ["--worker-token-file", self.tokens.file_of(principal)]
        return self.start(worker or self.worker, *flags)

    def start(self, worker, *flags):
        front = harness.front([worker], *flags, awaited="liveness")
        self.addCleanup(front.kill)
        return front

    def expect_serves(self, front):
        wait_until(lambda: health(front.address, "readiness"), lambda: front.stderr)

    def expect_is_unavailable(self, front):
        wait_until(lambda: "cannot be watched" in front.stderr, lambda: front.stderr)
        # On a busy machine, the first attempt may fail. Then this front retries while another one
        # connects.
        self.expect_serves(self.connect("front.example"))
        self.assertFalse(health(front.address, "readiness"), front.stderr)

    ROWS = {
        "a token of the role front": lambda t: t.connect(principal="front-1"),
        "a certificate with a name of `--front-name`": lambda t: t.connect("front.example"),
        "neither": lambda t: t.connect(),
        "a token of another role": lambda t: t.connect(principal="alice"),
        "a revoked token": lambda t: t.connect(principal="front-2"),
        "the name as an e-mail address": lambda t: t.connect("ops@front.example"),
        "the name in another CA's certificate": lambda t: t.connect("front.example", ca=t.others),
        "the name in an expired certificate": lambda t: t.connect("front.example", **OUTDATED),
        "plain text": lambda t: t.start(t.worker),
        "a token, for a worker whose certificate names another host":
            lambda t: t.connect(principal="front-1", worker=t.misnamed),
    }

    def test_every_row_of_the_page(self):
        told = table("the front has")
        self.assertEqual(list(told), list(self.ROWS))
        expect = {"serves": self.expect_serves, "is unavailable": self.expect_is_unavailable}
        for name, (answer,) in told.items():
            with self.subTest(name):
                expect[answer](self.ROWS[name](self))


if __name__ == "__main__":
    unittest.main()
