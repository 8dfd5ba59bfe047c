"""The session store's flags and limits, and `tidepool sessions`."""

import contextlib
import json
import pathlib
import re
import unittest
import urllib.error
import urllib.request

import grpc

import harness
from harness import Client, failure, run_tidepool


def without_hashes(export):
    """Returns an export without hashes, like those of older programs, so that its lines can be changed."""
    return re.sub(r',"hash":"[0-9a-f]{32}"', "", export)


class StoreTest(unittest.TestCase):

    def setUp(self):
        self.folder = harness.scratch_folder()
        self.store = self.folder / "sessions.db"

    def serve(self, *arguments):
        server = harness.serve(*arguments, store=self.store)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def fill(self):
        """Creates a store with a few sessions, and returns its export."""
        server, client = self.serve()
        for name in ("tokens", "chat", "empty"):
            client.create_session(name)
        client.generate(session="tokens", text="A line", max_tokens=20)
        for text in ("Hi", "Quotes \" and\nlines, ä"):
            client.generate(session="chat", chat=[("user", text)], max_tokens=20)
        self.assertEqual(server.stop(), 0)
        result = run_tidepool("sessions", "export", "--store", self.store)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_second_front_is_refused(self):
        self.serve()
        ports = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        for command in (("serve", "--model", harness.LLAMA, *ports),
                        ("front", "--worker", "127.0.0.1:1", *ports),
                        ("sessions", "verify")):
            result = run_tidepool(*command, "--store", self.store)
            self.assertEqual(result.returncode, 1, command)
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn("another process", result.stderr)
            self.assertIn(str(self.store), result.stderr)
        # Errors that do not depend on the machine are reported first.
        result = run_tidepool("serve", "--model", self.folder / "none.gguf", "--store", self.store)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("none.gguf", result.stderr)

    def test_only_its_owner_reads_it(self):
        folder = self.folder / "made"
        server = harness.serve(store=folder / "sessions.db")
        client = harness.Client(server)
        client.create_session("a")
        client.close()
        server.kill()
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        for file in folder.iterdir():
            self.assertEqual(file.stat().st_mode & 0o777, 0o600, file.name)

    def test_power_durability_is_kept_over_kill(self):
        server, client = self.serve("--durability", "power")
        client.create_session("s")
        ids = client.generate(session="s", text="A", max_tokens=10).ids
        server.kill()
        _, client = self.serve("--durability", "process")
        self.assertEqual(list(client.get_session("s").token_ids)[-10:], ids)

    def test_quotas(self):
        _, client = self.serve("--max-sessions", "2", "--max-session-tokens", "50")
        client.create_session("one")
        client.create_session("two")
        for call in (lambda: client.create_session("three"),
                     lambda: client.fork_session("one", "three")):
            code, message = failure(call)
            self.assertEqual(code, "RESOURCE_EXHAUSTED")
            self.assertIn("--max-sessions", message)
        client.delete_session("two")
        client.create_session("three")
        # The limit on session tokens works like the end of the context.
        answer = client.generate(session="one", ids=[65] * 30)
        self.assertEqual((answer.finish, len(answer.ids)), ("LENGTH", 20))
        code, message = failure(lambda: client.stream(session="one", ids=[65], max_tokens=1))
        self.assertEqual(code, "FAILED_PRECONDITION")
        for part in ("50", "--max-session-tokens", "TruncateSession"):
            self.assertIn(part, message)
        client.truncate_session("one", 40)
        self.assertEqual(len(client.generate(session="one", ids=[65]).ids), 9)

    def test_old_sessions_expire(self):
        _, client = self.serve("--session-ttl", "1s")
        client.create_session("old")

        def gone():
            try:
                client.get_session("old")
            except harness.grpc.RpcError as error:
                return error.code() == harness.grpc.StatusCode.NOT_FOUND
            return False
        harness.wait_until(gone, "the old session is deleted", 30)

    def test_exports_come_back_as_they_were(self):
        export = self.fill()
        lines = [json.loads(line) for line in export.splitlines()]
        self.assertEqual(lines[0], {"format": "tidepool-sessions", "version": 1})
        self.assertEqual(lines[-1], {"end": True, "sessions": 3})
        self.assertEqual([line["session_id"] for line in lines[1:-1]], ["empty", "chat", "tokens"])
        self.assertEqual(lines[2]["turns"][1]["messages"],
                         [{"role": "user", "content": "Quotes \" and\nlines, ä"}])
        file = self.folder / "export.jsonl"
        result = run_tidepool("sessions", "export", "--store", self.store, "--out", file, "--json")
        self.assertEqual(json.loads(result.stdout)["sessions"], 3)
        self.assertEqual(file.read_text(), export)
        self.assertEqual(file.stat().st_mode & 0o077, 0)
        self.assertEqual(run_tidepool("sessions", "export", "--store", self.store, "--out",
                                      file).returncode, 2)

        moved = self.folder / "moved.db"
        for unchanged in (0, 3):
            result = run_tidepool("sessions", "import", "--store", moved, "--file", file, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual((report["sessions"], report["unchanged"]), (3 - unchanged, unchanged))
        again = run_tidepool("sessions", "export", "--store", moved).stdout.splitlines()
        self.assertEqual(sorted(again), sorted(export.splitlines()))

    def test_conflicts_are_reported_and_left_alone(self):
        export = self.fill()
        other = re.sub(r'"answer":"', '"answer":"not ', without_hashes(export))
        result = run_tidepool("sessions", "import", "--store", self.store, stdin=other.encode())
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("chat: the store has another session with this id", result.stderr)
        self.assertIn("2 faults; all undamaged new sessions were imported", result.stderr)
        self.assertEqual(run_tidepool("sessions", "export", "--store", self.store).stdout, export)

    def test_imports_that_are_wrong_name_the_line(self):
        head, first, *rest = self.fill().splitlines(keepends=True)
        cases = [
            (head + first, "line 3: the file is truncated"),
            (head + without_hashes(first).replace('"kind":"NEW"', '"kind":"CHAT"') + "".join(rest),
             "line 2, session 'empty': its kind does not fit"),
            (head + first[:-20] + "\n" + "".join(rest),
             "line 2, session 'empty': it is not a JSON object"),
            (head + "".join(rest), "line 4: it states 3 sessions"),
        ]
        for number, (text, wanted) in enumerate(cases):
            target = self.folder / f"target{number}.db"
            result = run_tidepool("sessions", "import", "--store", target, stdin=text.encode())
            self.assertEqual(result.returncode, 1, text)
            self.assertIn(wanted, result.stderr)
            self.assertIn("1 fault; all undamaged new sessions were imported", result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 2, result.stderr)
        for text, wanted in (("", "not an export of sessions"), ("garbage\n", "not an export of sessions"),
                             (head.replace("1", "9"), "version is 9")):
            result = run_tidepool("sessions", "import", "--store", target, stdin=text.encode())
            self.assertEqual(result.returncode, 2, text)
            self.assertIn(wanted, result.stderr)

    def test_a_damaged_line_of_an_export_costs_that_session_alone(self):
        export = self.fill()
        target = self.folder / "target.db"
        result = run_tidepool("sessions", "import", "--store", target,
                              stdin=export.replace('"kind":"CHAT"', '"kind":"CHAR"').encode())
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stderr, "line 3, session 'chat': it does not match its hash")
        again = run_tidepool("sessions", "export", "--store", target).stdout.splitlines()
        self.assertEqual({json.loads(line)["session_id"] for line in again[1:-1]},
                         {"empty", "tokens"})

    def test_a_file_that_is_taken_away_ends_readiness(self):
        server, client = self.serve()
        client.create_session("s")
        readyz = f"http://{server.http_address}/readyz"

        def ready():
            with contextlib.suppress(urllib.error.HTTPError), \
                    urllib.request.urlopen(readyz, timeout=30) as answer:
                return answer.status == 200
            return False

        self.assertTrue(ready())
        away = self.folder / "away.db"
        self.store.rename(away)
        harness.wait_until(lambda: not ready(), "/readyz tells")
        harness.wait_until(lambda: not harness.health(server.address, "tidepool.v1.Inference"),
                           "health tells")
        self.assertTrue(harness.health(server.address, "liveness"))
        with self.assertRaises(grpc.RpcError) as raised:
            client.create_session("t")
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn(f"{self.store} was deleted, renamed or replaced",
                      raised.exception.details())
        self.assertIn("was deleted, renamed or replaced", server.stderr)
        away.rename(self.store)
        harness.wait_until(ready, "/readyz reports that it is back")
        client.create_session("t")
        self.assertEqual(server.stop(), 0)
        result = run_tidepool("sessions", "verify", "--store", self.store)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_lost_transactions_are_reported_at_the_start(self):
        server, client = self.serve()
        for name in ("a", "b", "c"):
            client.create_session(name)
        server.kill()
        log = pathlib.Path(f"{self.store}-wal")
        damaged = bytearray(log.read_bytes())
        damaged[len(damaged) // 2:len(damaged) // 2 + 40] = bytes(40)
        log.write_bytes(damaged)
        for _ in range(2):
            server, client = self.serve()
            harness.wait_until(lambda: "transactions are lost (it had 3 sessions then)" in
                               server.stderr, "the start tells it")
            self.assertEqual(server.stop(), 0)
        result = run_tidepool("sessions", "verify", "--store", self.store)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("transactions are lost", result.stderr)

    def test_damage_is_named(self):
        self.fill()
        result = run_tidepool("sessions", "verify", "--store", self.store)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 sessions", result.stdout)
        import sqlite3
        for damage in ("UPDATE chunks SET tokens = x'01000000' WHERE session = 1 AND start = 0",
                       "UPDATE turns SET start = 7000 WHERE session = 2 AND turn = 1",
                       "INSERT INTO chunks VALUES (99, 0, x'', '', x'')"):
            with sqlite3.connect(self.store) as database:
                database.execute(damage)
            database.close()
        result = run_tidepool("sessions", "verify", "--store", self.store, "--json")
        self.assertEqual(result.returncode, 1)
        report = json.loads(result.stdout)
        self.assertEqual(report["faults"], 3)
        for part in ("'tokens' is damaged", "'chat' is damaged in the session store: turn 1 ", "belong to no session"):
            self.assertTrue(any(part in fault for fault in report["named"]), report)

    def test_a_damaged_row_is_one_fault(self):
        self.fill()
        import sqlite3
        with sqlite3.connect(self.store) as database:
            database.execute("UPDATE sessions SET epoch = epoch + 1 WHERE session_id = 'chat'")
        database.close()
        result = run_tidepool("sessions", "verify", "--store", self.store, "--json")
        self.assertEqual(result.returncode, 1)
        report = json.loads(result.stdout)
        self.assertEqual(report["faults"], 1, report)
        self.assertIn("session 'chat' is damaged", report["named"][0])

    def root_page(self, name):
        import sqlite3
        with sqlite3.connect(self.store) as database:
            (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?",
                                       (name,)).fetchone()
        database.close()
        return root

    def zero_page(self, page):
        damaged = bytearray(self.store.read_bytes())
        damaged[(page - 1) * 4096:page * 4096] = bytes(4096)
        self.store.write_bytes(damaged)

    def test_a_store_that_does_not_open_is_exported(self):
        exported = self.fill()
        self.zero_page(self.root_page("sessions_by_principal"))
        server = harness.Process("serve", "--model", harness.LLAMA, "--store", self.store,
                                 "--listen", "127.0.0.1:0", "--http", "off")
        self.assertEqual(server.wait(), 1, server.stderr)
        self.assertIn("tidepool sessions export", server.stderr)
        result = run_tidepool("sessions", "export", "--store", self.store)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout, exported)
        self.assertIn("the file is damaged", result.stderr)

    def test_an_unreadable_page_names_its_sessions(self):
        self.fill()
        self.zero_page(self.root_page("chunks"))
        result = run_tidepool("sessions", "verify", "--store", self.store)
        self.assertEqual(result.returncode, 1, result.stderr)
        for name in ("tokens", "chat"):
            self.assertIn(f"session '{name}' is damaged", result.stderr)
        result = run_tidepool("sessions", "export", "--store", self.store)
        self.assertEqual(result.returncode, 1, result.stderr)
        for name in ("tokens", "chat"):
            self.assertIn(f"session '{name}' is damaged", result.stderr)

    def test_commands_that_are_wrong(self):
        for arguments, wanted in (
                (("sessions",), "export, import or verify"),
                (("sessions", "explode"), "export, import or verify"),
                (("sessions", "verify", "--store", self.folder / "none.db"), "does not exist"),
                (("sessions", "export", "--store", "redis://h:x"), "port"),
                (("sessions", "import", "--store", self.store, "--file", "/no/such"), "/no/such")):
            result = run_tidepool(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(wanted, result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
