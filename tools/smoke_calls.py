"""Calls of a Tidepool server over gRPC (with the program grpcurl) and HTTP, for tools/smoke."""

import json
import os
import ssl
import subprocess
import urllib.request

API = "tidepool.v1."
# From grpc/status.h; grpcurl exits with 64 plus the code.
CODES = {3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 6: "ALREADY_EXISTS",
         7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 10: "ABORTED",
         12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 16: "UNAUTHENTICATED"}
GRPCURL_CODE_BASE = 64


class Failed(Exception):
    """A check failed; the text gives the reason."""


class Skipped(Exception):
    """A check could not run; the text gives the reason."""


def need(condition, what):
    if not condition:
        raise Failed(what)


def one_line(text):
    return " ".join(text.split())[:300]


class Access:
    """The client's credentials: a token, TLS, a certificate."""

    def __init__(self, token, ca, pair):
        self.token, self.ca, self.pair = token, ca, pair

    def grpcurl_flags(self):
        pair = ["-cert", self.pair[0], "-key", self.pair[1]] if self.pair else []
        return ["-cacert", self.ca, *pair] if self.ca else ["-plaintext"]

    def open(self, url, timeout):
        """The response to a GET."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.pair:
            context.load_cert_chain(*self.pair)
        # No proxy: connect to the server directly.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=context))
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)


class Grpcurl:
    """Calls of one server through the grpcurl program."""

    def __init__(self, program, address, timeout, access):
        self.command = [program, "-connect-timeout", "10", *access.grpcurl_flags()]
        # In the environment, because other users can see command line arguments.
        self.environment = {**os.environ, "SMOKE_TOKEN": access.token or ""}
        self.as_caller = ["-expand-headers", "-H", "authorization: Bearer ${SMOKE_TOKEN}"
                          ] if access.token else []
        self.address, self.timeout = address, timeout

    def run(self, *arguments, request=None, anonymous=False):
        """(gRPC code name, or "" for success; output)."""
        data = [] if request is None else ["-d", "@"]
        caller = [] if anonymous else self.as_caller
        try:
            result = subprocess.run([*self.command, *caller, *data, self.address, *arguments],
                                    input=json.dumps(request), capture_output=True, text=True,
                                    timeout=self.timeout, check=False, env=self.environment)
        except subprocess.TimeoutExpired:
            raise Failed(f"no response within {self.timeout} s to {' '.join(arguments)}") from None
        if result.returncode == 0:
            return "", result.stdout
        code = CODES.get(result.returncode - GRPCURL_CODE_BASE)
        if code is None:
            raise Failed(f"grpcurl exited with {result.returncode}: {one_line(result.stderr)}")
        return code, result.stderr

    def text(self, *arguments, request=None):
        code, said = self.run(*arguments, request=request)
        need(not code, f"{' '.join(arguments)}: {one_line(said)}")
        return said

    def call(self, method, request):
        """The response messages of tidepool.v1.`method`."""
        return json_stream(self.text(API + method, request=request))

    def call_one(self, method, request):
        answers = self.call(method, request)
        need(len(answers) == 1, f"{method} returned {len(answers)} messages, expected 1")
        return answers[0]

    def refusal(self, method, request, code, anonymous=False):
        """The error message of `method`, which must fail with this code."""
        got, said = self.run(API + method, request=request, anonymous=anonymous)
        need(got == code, f"{method} returned {got or 'OK'}, expected {code}: {one_line(said)}")
        message = said.partition("Message:")[2].strip()
        need(message, f"{method} failed without a message")
        return one_line(message)

    def start(self, method, request):
        return subprocess.Popen([*self.command, *self.as_caller, "-d", json.dumps(request),
                                 self.address, API + method], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, env=self.environment)


def json_stream(text):
    decoder, position, values, text = json.JSONDecoder(), 0, [], text.strip()
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        values.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    return values
