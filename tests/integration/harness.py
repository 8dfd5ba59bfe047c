"""Real tidepool processes and real gRPC clients, for the tests of this folder.

Servers listen on free ports and keep their sessions in scratch folders. When the script ends,
processes that are still running are killed. Nothing here waits for a fixed time: wait_until polls
for a condition up to a deadline.
"""

import atexit
import collections
import errno
import importlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import grpc_tools
from grpc_tools import protoc

RUNFILES = pathlib.Path.cwd()
BINARY = pathlib.Path(os.environ.get("TIDEPOOL_BINARY", "service/tidepool")).resolve()
TINY = RUNFILES / "tests" / "golden" / "tiny"
LLAMA = TINY / "serving_llama_f32.gguf"  # writes varied ASCII without end
MOE = TINY / "serving_qwen3moe_f16.gguf"
ENDPOINT = re.compile(r"\b127\.0\.0\.1:([1-9]\d*)\b")
START_TIMEOUT = 90
STOP_TIMEOUT = 60
# A sanitizer makes everything many times slower, and keeps up to 256 MiB of freed memory for a
# while.
SANITIZED = "TIDEPOOL_SANITIZER" in os.environ

_scratch = pathlib.Path(tempfile.mkdtemp(prefix="tidepool-", dir=os.environ.get("TEST_TMPDIR")))
_running = []
_claims = []  # sockets whose names are the ports that free_port returned


@atexit.register
def _clean_up():
    for process in _running:
        process.kill()
    shutil.rmtree(_scratch, ignore_errors=True)


def smollm2():
    """Returns the path of the real model. Only targets that have it in their data can use it."""
    return pathlib.Path(os.environ["TIDEPOOL_TEST_MODEL"]).resolve()


def scratch_folder():
    return pathlib.Path(tempfile.mkdtemp(dir=_scratch))


def wait_until(condition, what, timeout=30):
    """Calls condition() until it returns a true value, and returns that. After the timeout, raises an
    AssertionError with `what`."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(0.005)


def free_port():
    """Returns a port that is free now. It is outside of the range from which the kernel assigns ports, so
    no process gets it by chance before, or between, the processes that the caller starts on it. No other
    call returns it while this process runs, not even in a test that runs at the same time."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(first // 2, first) if first > 2048 else (0,)
    while True:
        claim = socket.socket(socket.AF_UNIX)
        try:
            address = ("127.0.0.1", random.SystemRandom().choice(ports))
            with socket.create_server(address) as listener:
                port = listener.getsockname()[1]
                claim.bind(f"\0tidepool-test-port-{port}")
            _claims.append(claim)
            return port
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise


def answers(port):
    """Returns whether a process accepts connections on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _make_stubs():
    folder = scratch_folder()
    protos = [str(path) for path in sorted((RUNFILES / "proto").rglob("*.proto"))]
    include = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"-I{RUNFILES / 'proto'}", f"-I{include}",
                        f"--python_out={folder}", f"--grpc_python_out={folder}"] + protos)
    assert protos and code == 0, f"protoc ended with {code} on {protos}"
    sys.path.insert(0, str(folder))
    names = ("v1.inference", "v1.sessions", "v1.admin", "worker.v1.worker")
    return [importlib.import_module(f"tidepool.{name}_pb2{kind}")
            for name in names for kind in ("", "_grpc")]


(inference_pb, inference_grpc, sessions_pb, sessions_grpc, admin_pb, admin_grpc, worker_pb,
 worker_grpc) = _make_stubs()


def clean_environment(**more):
    """Returns the environment of child processes. It has no proxies, because gRPC would use them for
    127.0.0.1, and its own home folder."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.lower().endswith("_proxy")}
    environment.update(HOME=str(_scratch), **more)
    environment.pop("XDG_STATE_HOME", None)
    return environment


class Process:
    """A tidepool process whose output is collected as it comes. `stdout` and `stderr` are files that
    it writes to instead, and `launcher` is a command that runs it."""

    def __init__(self, *arguments, environment=None, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 launcher=()):
        self.arguments = [str(argument) for argument in arguments]
        self._popen = subprocess.Popen([*launcher, str(BINARY)] + self.arguments,
                                       stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                       env=clean_environment(**(environment or {})))
        _running.append(self)
        self._chunks = {"stdout": [], "stderr": []}
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True)
                         for name in self._chunks if getattr(self._popen, name) is not None]
        for reader in self._readers:
            reader.start()

    def _read(self, name):
        pipe = getattr(self._popen, name)
        while chunk := os.read(pipe.fileno(), 65536):
            self._chunks[name].append(chunk)

    def _text(self, name):
        return b"".join(self._chunks[name]).decode(errors="replace")

    @property
    def pid(self):
        return self._popen.pid

    @property
    def stdout(self):
        return self._text("stdout")

    @property
    def stderr(self):
        return self._text("stderr")

    def running(self):
        return self._popen.poll() is None

    def signal(self, number):
        self._popen.send_signal(number)

    def wait(self, timeout=STOP_TIMEOUT):
        """Waits until the process has ended and its output was read. Returns the exit code."""
        code = self._popen.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return code

    def kill(self):
        """Sends SIGKILL and waits until the process has ended."""
        if self.running():
            self._popen.kill()
        self.wait()

    def stop(self):
        """Sends SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()


class Server(Process):
    """A process of serve, front or worker on a free port. The constructor waits until its health
    `awaited` is SERVING."""

    def __init__(self, command, *arguments, listen="127.0.0.1:0", awaited="readiness", **more):
        if command != "worker" and "--http" not in arguments:
            arguments += ("--http", "127.0.0.1:0")
        super().__init__(command, *arguments, "--listen", listen, **more)
        # The output of a front may name its workers before its own endpoint.
        others = set(ENDPOINT.findall(" ".join(self.arguments[:-1])))
        self.address = None

        def endpoint():
            whole_lines = self.stdout.rpartition("\n")[0]
            for port in ENDPOINT.findall(whole_lines):
                if port not in others:
                    return f"127.0.0.1:{port}"
            assert self.running(), f"{self.arguments} ended: {self.stderr}"
            return None

        self.address = wait_until(endpoint, lambda: f"{command} prints its endpoint: {self.stderr}",
                                  START_TIMEOUT)
        # The HTTP address has arrived, too, because it is printed in the same write as the
        # endpoint.
        http = re.search(r"HTTP +(127\.0\.0\.1:\d+)", self.stdout)
        self.http_address = http.group(1) if http else None
        # The health of a server with TLS is checked in plain text on its probe port.
        probes = re.search(r"probes +(127\.0\.0\.1:\d+)", self.stdout)
        self.probe_address = probes.group(1) if probes else self.address
        wait_until(lambda: health(self.probe_address, awaited),
                   lambda: f"{command} tells {awaited}: {self.stderr}", START_TIMEOUT)


def serve(*arguments, model=LLAMA, store=":memory:", threads=1, **more):
    return Server("serve", "--model", model, "--store", store, "--threads", threads,
                  *arguments, **more)


def worker(*arguments, model=LLAMA, threads=1, **more):
    return Server("worker", "--model", model, "--threads", threads, *arguments, **more)


def front(workers, *arguments, store=":memory:", **more):
    flags = [flag for one in workers for flag in ("--worker", one.address)]
    return Server("front", *flags, "--store", store, *arguments, **more)


def open_channel(address):
    # Each channel has its own subchannel, so that a broken connection of one test does not cause
    # back-off in another test.
    return grpc.insecure_channel(address, options=[
        ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20),
        # The window stays at 64 KiB, so unread messages are not sent.
        ("grpc.http2.bdp_probe", 0)])


def health(address, service=""):
    """Returns whether grpc.health.v1.Health/Check reports SERVING."""
    name = service.encode()
    request = (b"\x0a" + bytes([len(name)]) + name) if name else b""
    with open_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return check(request, timeout=30) == b"\x08\x01"
        except grpc.RpcError:
            return False


def run_tidepool(*arguments, stdin=b"", timeout=120):
    """Runs a command to its end; returns a CompletedProcess with stdout and stderr as text."""
    result = subprocess.run([str(BINARY)] + [str(argument) for argument in arguments], input=stdin,
                            capture_output=True, timeout=timeout, env=clean_environment())
    result.stdout = result.stdout.decode(errors="replace")
    result.stderr = result.stderr.decode(errors="replace")
    return result


# A server that was started by another program.
Address = collections.namedtuple("Address", "address")
Answer = collections.namedtuple("Answer", "text ids finish usage messages")


class Received:
    """What has arrived from one stream until now. It is not lost if the stream breaks."""

    def __init__(self):
        self.text = ""
        self.ids = []
        self.messages = []

    def take(self, message):
        assert message.position == len(self.ids) or not message.token_ids, (
            f"position {message.position} after {len(self.ids)} tokens")
        self.text += message.text
        self.ids.extend(message.token_ids)
        self.messages.append(message)

    def answer(self):
        assert self.messages, "the stream had no message"
        last = self.messages[-1]
        assert all(not message.finish_reason for message in self.messages[:-1])
        assert last.finish_reason and last.HasField("usage"), "the last message has no end"
        assert last.usage.completion_tokens == len(self.ids), last.usage
        return Answer(self.text, self.ids, inference_pb.FinishReason.Name(last.finish_reason),
                      last.usage, len(self.messages))


def make_request(text=None, ids=None, chat=None, session=None, max_tokens=None, **sampling):
    """Returns a GenerateRequest; `chat` is a list of (role, content)."""
    request = inference_pb.GenerateRequest()
    if text is not None:
        request.text = text
    if ids is not None:
        request.token_ids.ids.extend(ids)
    for role, content in chat or []:
        request.chat.messages.add(role=role, content=content)
    if session is not None:
        request.session_id = session
    if max_tokens is not None:
        request.stopping.max_tokens = max_tokens
    for name, value in sampling.items():
        setattr(request.sampling, name, value)
    return request


class Client:
    """The public services at one address."""

    def __init__(self, server, channel=None):
        self.channel = channel or open_channel(server.address)
        self.inference = inference_grpc.InferenceStub(self.channel)
        self.sessions = sessions_grpc.SessionsStub(self.channel)
        self.admin = admin_grpc.AdminStub(self.channel)

    def close(self):
        self.channel.close()

    def stream(self, timeout=120, **fields):
        return self.inference.Generate(make_request(**fields), timeout=timeout)

    def wide_stream(self, timeout=120, **fields):
        """Like stream, with messages so large that the server soon waits for a client that does
        not read."""
        request = make_request(**fields)
        request.logprobs, request.top_logprobs = True, 20
        return self.inference.Generate(request, timeout=timeout)

    def generate(self, timeout=120, **fields):
        """Reads the whole stream and returns it as one Answer."""
        received = Received()
        for message in self.stream(timeout, **fields):
            received.take(message)
        return received.answer()

    def create_session(self, name):
        return self.sessions.CreateSession(sessions_pb.CreateSessionRequest(session_id=name),
                                           timeout=30)

    def get_session(self, name):
        return self.sessions.GetSession(sessions_pb.GetSessionRequest(session_id=name), timeout=30)

    def delete_session(self, name):
        return self.sessions.DeleteSession(sessions_pb.DeleteSessionRequest(session_id=name),
                                           timeout=30)

    def fork_session(self, name, new_name, position=None):
        return self.sessions.ForkSession(sessions_pb.ForkSessionRequest(
            session_id=name, new_session_id=new_name, position=position), timeout=30)

    def truncate_session(self, name, position):
        return self.sessions.TruncateSession(sessions_pb.TruncateSessionRequest(
            session_id=name, position=position), timeout=30)

    def stats(self):
        return self.admin.GetStats(admin_pb.GetStatsRequest(), timeout=30)

    def worker_stats(self):
        """Returns the stats of the only worker."""
        workers = self.stats().workers
        assert len(workers) == 1 and workers[0].status_code == 0, workers
        return workers[0]

    def wait_idle(self):
        """Waits until the only worker has no more work. Returns its stats."""
        def idle():
            stats = self.worker_stats()
            return stats if stats.sequences_running + stats.sequences_waiting == 0 else None
        return wait_until(idle, "the worker is idle")


def wait_met(attempt, what, attempts=10):
    """Calls attempt() until it returns true, at most `attempts` times. It is for conditions that
    this process can only see if it runs at the right moment. attempt() must assert what must be
    true every time. Prints the number of attempts if it was more than one."""
    for tried in range(1, attempts + 1):
        if attempt():
            if tried > 1:
                print(f"seen the {tried}th time only")
            return
    raise AssertionError(f"not once in {attempts} times: {what() if callable(what) else what}")


def resident_bytes(process):
    with open(f"/proc/{process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stall_of(client):
    """Waits until 30 readings of the stats in a row show a running sequence and the same number of
    generated tokens. Returns that number."""
    first = client.worker_stats()
    for _ in range(30):
        stats = client.worker_stats()
        running = stats.sequences_running + stats.sequences_waiting > 0
        if stats.steps_total != first.steps_total or not running or not stats.steps_total:
            return None
    return first.generated_tokens_total


def failure(call):
    """Returns (name of the status code, message) with which call() fails."""
    try:
        value = call()
        if hasattr(value, "cancel") and hasattr(value, "__iter__"):
            value = list(value)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    raise AssertionError(f"succeeded with {value}")


def take_tokens(stream, received, count):
    """Reads `stream` into `received` until it has `count` tokens."""
    while len(received.ids) < count:
        received.take(next(stream))
