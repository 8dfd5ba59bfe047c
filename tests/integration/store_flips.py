"""Damages session stores and exports, by a seed, and checks that no damage is silent.

    store_flips.py [--cases N] [--seed SEED] [--kind KIND,...] [--only NUMBER] [--keep FOLDER]

KIND is file (a checkpointed SQLite file), wal (a file with its write-ahead log, after kill -9),
export (of `tidepool sessions export`), rdb or aof (the files of a Redis server, including the
manifest). Each case damages one copy. Most cases flip a bit; the others zero a page, cut the file,
or overwrite 40 bytes. Then servers and `tidepool sessions` read every session. A case is

    refused     a start or an import fails, or DATA_LOSS names the session;
    no effect   every session is byte-equal;
    SILENT      anything else: other content, a session that is missing without a message, another
                status, a crash.

Prints the seed and the counts; exits with 1 if a case is SILENT. TIDEPOOL_BINARY is the program.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time

import grpc

import harness
import redis_server
from harness import Client
from seeded_damage import Damage, load, put

SESSIONS = 12
KINDS = ("file", "wal", "export", "rdb", "aof")
REFUSED, NO_EFFECT, SILENT = "refused", "no effect", "SILENT"
# With these settings, Redis does not write to its files while it starts and while sessions are
# read.
REDIS = {"rdb": {"appendonly": "no", "save": ""},
         "aof": {"aof-load-truncated": "no", "auto-aof-rewrite-percentage": "0"}}


# What commands report about the whole store or the whole export.
WHOLE_STORE = ("sessions are lost", "transactions are lost", "sessions, expected",
               "the file is damaged", "not all of its sessions can be read",
               "its schema is damaged", "the file is truncated", "sessions, but",
               "changes are lost", "changes of the sessions in database")


class Silent(AssertionError):
    """The damage that was not reported."""


def session_name(number):
    return f"session-{number}"


def request_of(number, turn):
    """Returns the request of a turn. Sampling is greedy, so only one response is possible. If the
    request is sent again, the server returns the same response."""
    name = session_name(number)
    text = f"Turn {turn} of {name}: \"ebb\" and flow, früh & spät. " + "Is it lit? " * (number % 4)
    fields = {"chat": [("user", text)]} if number % 2 else {"text": text}
    request = harness.make_request(session=name, max_tokens=8 + 7 * turn, **fields)
    request.request_id = f"request-{number}-{turn}"
    return request


def take_turn(client, number, turn):
    received = harness.Received()
    for message in client.inference.Generate(request_of(number, turn), timeout=60):
        received.take(message)
    return received.ids


def fill(client, turns):
    for number in range(SESSIONS):
        if turns[0] == 0:
            client.create_session(session_name(number))
        for turn in turns:
            take_turn(client, number, turn)


class Expected:
    """What an undamaged store contains."""

    def __init__(self, client):
        self.sessions = {}
        self.listed = {}
        for one in list_sessions(client):
            assert not one.damage, one
            self.listed[one.session_id] = one
            self.sessions[one.session_id] = client.get_session(one.session_id)
        assert len(self.sessions) == SESSIONS, self.sessions.keys()
        self.lines = {}  # the line of each session in the export

    def take_export(self, text):
        for line in text.splitlines()[1:-1]:
            self.lines[json.loads(line)["session_id"]] = line
        assert self.lines.keys() == self.sessions.keys()


def list_sessions(client, page_size=5):
    listed, token = [], ""
    while True:
        page = client.sessions.ListSessions(
            harness.sessions_pb.ListSessionsRequest(page_size=page_size, page_token=token),
            timeout=60)
        listed += page.sessions
        token = page.next_page_token
        if not token:
            return listed


def names(message, session):
    """Returns whether a message names the session. A longer name that begins with its name does not count."""
    return f"'{session}'" in message


def starts(redis):
    """Returns whether Redis is still loading its files. It accepts connections before it is ready."""
    with contextlib.suppress(AssertionError):
        redis.start()

    def loaded():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", redis.port)) as one:
            one.sendall(b"PING\r\n")
            return one.recv(100).startswith(b"+PONG")
        return False

    harness.wait_until(lambda: loaded() or redis.process.poll() is not None, "Redis loads its files")
    return redis.process.poll() is None


def witness_of(redis):
    """Returns the file in which a front remembers the store of this Redis."""
    home = pathlib.Path(harness.clean_environment()["HOME"])
    return home / ".local/state/tidepool" / f"redis-127.0.0.1-{redis.port}-0-commits"


class Reading:
    """A damaged store, as clients of a server see it. `lost`: the store may have only an older
    state of a session. This is accepted if the server's log reports damage at the start."""

    def __init__(self, server, client, expected, lost):
        self.server, self.client, self.expected, self.older = server, client, expected, lost
        self.noticed = self.log_reports()
        self.said = ""

    @property
    def lost(self):
        """Returns whether an older state is accepted. A Redis server that has lost changes reports it."""
        return self.older or (self.told and "changes are lost" in self.server.stderr)

    def log_reports(self):
        return "session store" in self.server.stderr

    @property
    def told(self):
        """Does the same as log_reports, after waiting for the log."""
        with contextlib.suppress(AssertionError):
            return harness.wait_until(self.log_reports, "the log reports damage", timeout=5)
        return False

    def call(self, what, call):
        """Returns the result of the call, or None if it ends with DATA_LOSS."""
        try:
            return call()
        except grpc.RpcError as error:
            code, message = error.code().name, error.details()
        self.said = f"{what}: {code}: {message}"
        if code == "NOT_FOUND" and self.told:
            return None
        if code != "DATA_LOSS":
            raise Silent(f"{what} ended with {code}: {message}")
        if what != "ListSessions" and not names(message, what.split()[1]):
            raise Silent(f"{what}: DATA_LOSS does not name it: {message}")
        self.noticed = True
        return None

    def check_list(self):
        listed = self.call("ListSessions", lambda: list_sessions(self.client))
        if listed is None:
            return
        found = [one.session_id for one in listed]
        for name, whole in self.expected.listed.items():
            if found.count(name) > 1:
                raise Silent(f"{name} is listed {found.count(name)} times")
            if name not in found and not any(one.damage for one in listed) and not self.told:
                raise Silent(f"{name} is not listed")
        for one in listed:
            if one.damage:
                self.noticed = True
                if not names(one.damage, one.session_id):
                    raise Silent(f"{one.session_id}: its damage does not name it: {one.damage}")
            elif one != self.expected.listed.get(one.session_id):
                if not (self.lost and self.told):
                    raise Silent(f"{one.session_id} is listed otherwise: {one}")

    def check_session(self, name):
        """Returns whether the session is undamaged."""
        session = self.call(f"GetSession {name}", lambda: self.client.get_session(name))
        whole = self.expected.sessions[name]
        if session is None or session == whole:
            return session is not None
        tokens = list(session.token_ids)
        if self.lost and self.told and tokens == list(whole.token_ids)[:len(tokens)]:
            return True
        raise Silent(f"{name} has other content: {session}")

    def check_turn(self, number, turn, ids):
        """Sends the same request again, and checks that it returns what is in the log."""
        name = session_name(number)
        again = self.call(f"Generate {name}", lambda: take_turn(self.client, number, turn))
        if again is not None and again != ids:
            raise Silent(f"{name}, turn {turn}: {again}, expected {ids}")

    def check(self, number, turn, ids):
        self.check_list()
        whole = {name: self.check_session(name) for name in self.expected.sessions}
        self.check_turn(number, turn, ids)
        for name, fine in whole.items():
            if fine:
                continue
            # Damage to one session must not affect another session.
            self.call(f"DeleteSession {name}", lambda: self.client.delete_session(name))
        for name, fine in whole.items():
            if fine and not self.check_session(name):
                raise Silent(f"{name} was whole until others were deleted: {self.said}")


class Campaign:
    """The undamaged stores, and the cases that are made from them."""

    def __init__(self, seed, keep=None):
        self.seed, self.keep = seed, keep
        self.folder = harness.scratch_folder()
        self.store = self.folder / "store" / "sessions.db"
        self.target = self.folder / "target" / "sessions.db"
        self.worker = harness.worker()
        self.files, self.expected, self.ids = {}, {}, {}
        self.redis, self.witness = {}, {}
        self.counts = collections.defaultdict(collections.Counter)

    def server(self, store, *flags):
        return harness.front([self.worker], *flags, store=store)

    def take(self, kind, client):
        self.expected[kind] = Expected(client)
        self.ids[kind] = {number: take_turn(client, number, 1) for number in range(SESSIONS)}

    def make_files(self):
        """Makes the cases of file, wal and export."""
        server = self.server(self.store)
        client = Client(server)
        fill(client, (0, 1))
        assert server.stop() == 0
        server = self.server(self.store)
        client = Client(server)
        fill(client, (2, 3))
        self.take("wal", client)
        self.files["wal"] = load(self.store.parent)
        assert server.stop() == 0
        self.files["file"] = load(self.store.parent)
        export = self.export(self.store)
        assert export.returncode == 0, export.stderr
        self.files["export"] = {"sessions.jsonl": export.stdout.encode()}
        self.expected["wal"].take_export(export.stdout)
        for kind in ("file", "export"):
            self.expected[kind], self.ids[kind] = self.expected["wal"], self.ids["wal"]

    def make_redis(self, kind):
        redis = redis_server.Redis(**REDIS[kind])
        self.redis[kind] = redis
        server = self.server(redis.url, "--store-unsafe")
        client = Client(server)
        fill(client, (0, 1, 2, 3))
        self.take(kind, client)
        assert server.stop() == 0
        export = self.export(redis.url)
        assert export.returncode == 0, export.stderr
        self.expected[kind].take_export(export.stdout)
        stop = ["/usr/bin/redis-cli", "-p", str(redis.port), "shutdown"]
        subprocess.run(stop + (["save"] if kind == "rdb" else ["nosave"]), check=True)
        redis.process.wait()
        self.files[kind] = load(redis.folder)
        self.witness[kind] = witness_of(redis).read_bytes()

    def make(self, kind):
        if kind in self.files:
            return
        if kind in REDIS:
            self.make_redis(kind)
        else:
            self.make_files()

    @staticmethod
    def sessions(action, store, *flags):
        unsafe = ("--store-unsafe",) if str(store).startswith("redis") else ()
        return subprocess.run(
            [str(harness.BINARY), "sessions", action, "--store", str(store), *unsafe, *flags],
            capture_output=True, timeout=120, env=harness.clean_environment(), check=False)

    def export(self, store):
        """Runs a command, whose output must be valid UTF-8."""
        result = self.sessions("export", store)
        with contextlib.suppress(UnicodeDecodeError):
            result.stdout = result.stdout.decode()
            result.stderr = result.stderr.decode()
            return result
        raise Silent(f"export writes what is not UTF-8: {result}")

    def target_of(self, kind, rng):
        """Returns the file to damage."""
        if kind == "wal":
            return rng.choice(["sessions.db-wal"] * 6 + ["sessions.db"] * 3 + ["sessions.db-commits"])
        if kind == "aof":
            part = rng.choice([".incr."] * 4 + [".manifest"])
            return next(name for name in self.files[kind] if part in name)
        return {"file": "sessions.db", "export": "sessions.jsonl", "rdb": "dump.rdb"}[kind]

    def run(self, kind, number):
        """Runs one case. Prints the damage that was not reported."""
        rng = random.Random(f"{self.seed} {kind} {number}")
        name = self.target_of(kind, rng)
        damage = Damage(rng, len(self.files[kind][name]))
        damaged = dict(self.files[kind])
        damaged[name] = damage.apply(damaged[name])
        try:
            check = self.check_redis if kind in REDIS else (
                self.check_import if kind == "export" else self.check_file)
            outcome = check(kind, damaged, rng)
        except Silent as silent:
            outcome = SILENT
            if self.keep is not None:
                put(self.keep / f"{kind}-{number}", damaged)
            print(f"SILENT: seed {self.seed}, {kind} {number}, {name}: {damage}: {silent}",
                  flush=True)
        self.counts[kind][outcome] += 1
        self.counts[kind]["bits"] += damage.what == "bit"
        return outcome

    def check_file(self, kind, files, rng):
        put(self.store.parent, files)
        noticed = self.check_server(kind, self.store, rng)
        noticed |= self.check_export(kind, self.store, lambda: put(self.store.parent, files))
        return REFUSED if noticed else NO_EFFECT

    def check_redis(self, kind, files, rng):
        redis = self.redis[kind]
        put(redis.folder, files)
        # Earlier cases have changed the store, so the witness file is restored.
        witness_of(redis).write_bytes(self.witness[kind])
        if not starts(redis):
            return REFUSED
        try:
            noticed = self.check_export(kind, redis.url)
            noticed |= self.check_server(kind, redis.url, rng)
        finally:
            redis.kill()
        return REFUSED if noticed else NO_EFFECT

    def check_server(self, kind, store, rng):
        """Returns whether the damage was noticed."""
        number = rng.randrange(SESSIONS)
        unsafe = ("--store-unsafe",) if kind in REDIS else ()
        try:
            server = self.server(store, *unsafe)
        except AssertionError as error:
            if str(store) not in str(error) or "ended" not in str(error):
                raise Silent(f"the start failed without a word: {error}") from error
            return True
        client = Client(server)
        try:
            reading = Reading(server, client, self.expected[kind], lost=kind == "wal")
            reading.check(number, 1, self.ids[kind][number])
            if not server.running():
                raise Silent(f"the server ended: {server.stderr}")
            return reading.noticed or reading.log_reports()
        finally:
            client.close()
            server.kill()

    def check_export(self, kind, store, damage=lambda: None):
        """Returns whether `sessions export` and `sessions verify` notice what damage() does."""
        damage()
        verified = self.sessions("verify", store, "--json")
        damage()
        result = self.export(store)
        for one in (verified, result):
            if one.returncode not in (0, 1):
                raise Silent(f"{one.args[1:3]} ended with {one.returncode}: {one.stderr}")
        if verified.returncode != result.returncode:
            raise Silent(f"verify ended with {verified.returncode}: {verified.stderr}, "
                         f"export with {result.returncode}: {result.stderr}")
        if verified.stdout:
            json.loads(verified.stdout.decode())
        self.check_lines(kind, result)
        return result.returncode == 1

    def check_lines(self, kind, result, lost=None):
        """Checks that the export contains every session, or that the command has reported why not."""
        said = result.stderr
        expected = self.expected[kind].lines
        lost = kind == "wal" if lost is None else lost
        found = {}
        for line in result.stdout.splitlines()[1:-1]:
            found[json.loads(line)["session_id"]] = line
        for number, (name, line) in enumerate(expected.items(), start=2):
            if name not in found:
                # If the name is damaged, the import can report only the number of the line.
                words = (f"'{name}'", f" {name}: ", f"line {number}", *WHOLE_STORE)
                if not any(one in said for one in words):
                    raise Silent(f"the export leaves out {name}: {said}")
            elif found[name] != line and not (lost and said) and "changes are lost" not in said:
                raise Silent(f"the export has {found[name]}, expected {line}")
        for name in found:
            if name not in expected:
                raise Silent(f"the export has {name}")
        if result.returncode == 0 and len(found) != len(expected):
            raise Silent(f"the export ended with 0: {said}")

    def check_import(self, kind, files, _rng):
        put(self.folder / "export", files)
        shutil.rmtree(self.target.parent, ignore_errors=True)
        self.target.parent.mkdir()
        imported = self.sessions("import", self.target, "--file",
                                 str(self.folder / "export" / "sessions.jsonl"))
        said = imported.stderr.decode()
        if imported.returncode not in (0, 1, 2) or (imported.returncode and not said):
            raise Silent(f"import ended with {imported.returncode}: {said}")
        if imported.returncode == 2:
            return REFUSED
        result = self.export(self.target)
        if result.returncode != 0:
            raise Silent(f"the imported store is not whole: {result.stderr}")
        result.stderr, result.returncode = said, imported.returncode
        self.check_lines(kind, result)
        return REFUSED if imported.returncode else NO_EFFECT

    def report(self):
        """Returns whether all damage was reported."""
        for kind, counts in self.counts.items():
            cases = counts[REFUSED] + counts[NO_EFFECT] + counts[SILENT]
            print(f"{kind}: {cases} cases ({counts['bits']} flipped bits): "
                  f"{counts[REFUSED]} refused, {counts[NO_EFFECT]} no effect, "
                  f"{counts[SILENT]} SILENT", flush=True)
        return not any(counts[SILENT] for counts in self.counts.values())


def run(cases, seed, kinds=KINDS, only=None, keep=None):
    """Returns whether all damage was reported. Files of the other cases are copied to the folder `keep`."""
    print(f"seed {seed}, {cases} cases of each of {', '.join(kinds)}", flush=True)
    campaign = Campaign(seed, keep)
    for kind in kinds:
        campaign.make(kind)
        began = time.monotonic()
        for number in range(cases) if only is None else [only]:
            campaign.run(kind, number)
        print(f"{kind}: {time.monotonic() - began:.1f} s", flush=True)
    return campaign.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100, help="cases of each kind (default: 100)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--kind", default=",".join(KINDS))
    parser.add_argument("--only", type=int, help="the one case to run, by its number")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the files of SILENT cases")
    arguments = parser.parse_args()
    fine = run(arguments.cases, arguments.seed, arguments.kind.split(","), arguments.only,
               arguments.keep)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
