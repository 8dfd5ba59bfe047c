"""Tokens, and clients that send them."""

import json

import grpc

import harness
from harness import Client


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Sends a token with every call."""

    def __init__(self, token):
        self.header = ("authorization", f"Bearer {token}")

    def _with_token(self, call, details, request):
        metadata = [*(details.metadata or []), self.header]
        # grpcio's own details are a namedtuple of just these fields.
        return call(details._replace(metadata=metadata), request)

    intercept_unary_unary = _with_token
    intercept_unary_stream = _with_token


class Tokens:
    """A token file, and the tokens in it by principal."""

    def __init__(self):
        self.folder = harness.scratch_folder()
        self.path = self.folder / "tokens"
        self._lines = []
        self._tokens = {}

    def new(self, principal, role="user", *flags):
        result = harness.run_tidepool("token", "new", "--principal", principal, "--role", role,
                                      "--json", *flags)
        assert result.returncode == 0, result.stderr
        made = json.loads(result.stdout)
        self._lines.append(made["line"])
        self._tokens[principal] = made["token"]
        self.write("".join(line + "\n" for line in self._lines))
        return made["token"]

    def revoke(self, principal):
        self._lines = [line for line in self._lines if line.split()[0] != principal]
        self.write("".join(line + "\n" for line in self._lines))

    def write(self, text):
        part = self.folder / "part"
        part.write_text(text)
        part.rename(self.path)

    def file_of(self, principal):
        file = self.folder / f"{principal}.token"
        file.write_text(self._tokens[principal] + "\n")
        return file


def client_as(server, token):
    client = Client(server)
    return Client(server, grpc.intercept_channel(client.channel, Bearer(token)))


def code_of(call):
    """Returns the name of the status code of call()."""
    try:
        value = call()
        if hasattr(value, "__iter__") and hasattr(value, "cancel"):
            list(value)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"
