"""Sessions on a real Redis server: several fronts, and a server that dies while they use it."""

import signal
import unittest

import harness
from harness import Client, Received, failure
from redis_server import Redis


class RedisTest(unittest.TestCase):

    def redis(self, **settings):
        redis = Redis(**settings)
        self.addCleanup(redis.kill)
        return redis

    def started(self, server):
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def test_two_fronts_share_their_sessions(self):
        redis = self.redis()
        worker, _ = self.started(harness.worker())
        one, first = self.started(harness.front([worker], store=redis.url))
        two, second = self.started(harness.front([worker], store=redis.url))
        first.create_session("shared")
        self.assertEqual(failure(lambda: second.create_session("shared"))[0], "ALREADY_EXISTS")
        first.generate(session="shared", chat=[("user", "Is it lit?")], max_tokens=30)
        second.generate(session="shared", chat=[("user", "And now?")], max_tokens=30)
        whole = first.get_session("shared")
        self.assertEqual(whole.turn_count, 2)
        self.assertEqual(second.get_session("shared"), whole)
        # A session has only one turn at a time over all fronts.
        stream = first.wide_stream(session="shared", chat=[("user", "At length")], max_tokens=3000)
        received = Received()
        harness.take_tokens(stream, received, 1)
        code, _ = failure(lambda: second.stream(session="shared", chat=[("user", "b")], max_tokens=2))
        self.assertEqual(code, "ABORTED")
        self.assertEqual(failure(lambda: second.truncate_session("shared", 0))[0], "ABORTED")
        stream.cancel()
        harness.wait_until(lambda: not second.get_session("shared").busy, "the turn has ended")
        second.truncate_session("shared", whole.turns[1].start)
        again = first.generate(session="shared", chat=[("user", "And now?")], max_tokens=30)
        self.assertEqual(list(first.get_session("shared").token_ids), list(whole.token_ids))
        # If a front is killed, another one takes over its sessions.
        one.kill()
        self.assertEqual(second.get_session("shared").turns[1].messages[-1].content, again.text)
        self.assertEqual(second.generate(session="shared", chat=[("user", "So")],
                                         max_tokens=3).usage.completion_tokens, 3)

    def test_two_fronts_send_a_session_to_the_same_worker(self):
        redis = self.redis()
        names = ("left", "middle", "right")
        workers = [self.started(harness.worker("--name", name))[0] for name in names]
        fronts = [self.started(harness.front(workers, store=redis.url))[1] for _ in range(2)]
        for client in fronts:
            harness.wait_until(lambda: sorted(one.worker_id for one in client.stats().workers) ==
                               sorted(names), "every front knows every worker")

        def finished():
            return {one.worker_id: one.requests_finished_total for one in fronts[0].stats().workers}

        homes, moved = [], []
        for number in range(12):
            session = f"session-{number}"
            fronts[0].create_session(session)
            for turn in range(3):
                before = finished()
                answer = fronts[turn % 2].generate(session=session, text=f"{number}: Is it lit? " * 8,
                                                   max_tokens=20)
                (here,) = harness.wait_until(
                    lambda: [name for name, count in finished().items() if count > before[name]],
                    "a worker has finished the turn")
                if turn == 0:
                    homes.append(here)
                elif here == homes[-1]:
                    self.assertGreater(answer.usage.cached_tokens, 0, f"{session}, turn {turn}")
                else:
                    moved.append(f"{session}, turn {turn}: {homes[-1]} -> {here}")
        # At most 4 of the 24 turns may move. On a busy machine, a worker that cannot report its state for
        # a second gets no turns.
        self.assertLessEqual(len(moved), 4, moved)
        self.assertEqual(set(homes), set(names), "sessions are spread")

    def test_another_request_of_the_same_id_at_another_front(self):
        redis = self.redis()
        worker, _ = self.started(harness.worker())
        _, first = self.started(harness.front([worker], store=redis.url))
        _, second = self.started(harness.front([worker], store=redis.url))
        for name in ("undisturbed", "disturbed"):
            first.create_session(name)

        def request(name, **sampling):
            one = harness.make_request(session=name, text="A long story", max_tokens=600,
                                       **sampling)
            one.request_id = f"turn-of-{name}"
            return one

        def check_refused():
            code, message = failure(lambda: second.inference.Generate(
                request("disturbed", temperature=0.7), timeout=60))
            self.assertEqual(code, "ALREADY_EXISTS", message)
            self.assertIn("turn-of-disturbed", message)

        wanted, received = Received(), Received()
        for message in first.inference.Generate(request("undisturbed"), timeout=60):
            wanted.take(message)
        stream = first.inference.Generate(request("disturbed"), timeout=60)
        harness.take_tokens(stream, received, 1)
        check_refused()
        for message in stream:
            received.take(message)
        self.assertEqual((received.ids, received.text), (wanted.ids, wanted.text))
        check_refused()
        # The second front returns the same response to the same request.
        again = Received()
        for message in second.inference.Generate(request("disturbed"), timeout=60):
            again.take(message)
        self.assertEqual(again.ids, wanted.ids)

    def test_a_front_dies_and_its_client_continues_at_another(self):
        redis = self.redis()
        worker, _ = self.started(harness.worker())
        fronts = [self.started(harness.front([worker], store=redis.url)) for _ in range(2)]
        for name in ("undisturbed", "disturbed"):
            fronts[0][1].create_session(name)

        def request(name, received):
            one = harness.make_request(session=name, text="A long story", max_tokens=400,
                                       temperature=1.0)
            one.request_id, one.resume_after = "the-turn", len(received.ids)
            return one

        wanted, received = Received(), Received()
        for message in fronts[0][1].inference.Generate(request("undisturbed", wanted), timeout=60):
            wanted.take(message)
        for number, count in enumerate((60, 61, 150)):
            front, client = fronts[number % 2]
            stream = client.inference.Generate(request("disturbed", received), timeout=60)
            harness.take_tokens(stream, received, count)
            if number == 1:
                stream.cancel()  # the front still runs, and continues without its client
                continue
            front.kill()
            fronts[number % 2] = self.started(harness.front([worker], store=redis.url))
        for message in fronts[1][1].inference.Generate(request("disturbed", received), timeout=60):
            received.take(message)
        self.assertEqual(received.ids, wanted.ids)
        self.assertEqual(received.text, wanted.text)
        sessions = [fronts[0][1].get_session(name) for name in ("undisturbed", "disturbed")]
        self.assertEqual(list(sessions[1].token_ids), list(sessions[0].token_ids))
        self.assertEqual(sessions[1].turn_count, 1)

    def test_streams_continue_when_redis_comes_back(self):
        redis = self.redis(appendfsync="always")
        _, client = self.started(harness.serve(store=redis.url))
        for name in ("undisturbed", "disturbed"):
            client.create_session(name)
        wanted = client.generate(session="undisturbed", text="A long story", max_tokens=1500)
        for kill in (signal.SIGKILL, signal.SIGSTOP):
            stream = client.stream(session="disturbed", text="A long story", max_tokens=1500)
            received = Received()
            harness.take_tokens(stream, received, 20)
            redis.process.send_signal(kill)
            if kill == signal.SIGKILL:
                redis.process.wait()
                code, message = failure(lambda: client.create_session("meanwhile"))
                self.assertEqual(code, "UNAVAILABLE", message)
                redis.start()
            else:
                redis.process.send_signal(signal.SIGCONT)
            for message in stream:
                received.take(message)
            self.assertEqual(received.ids, wanted.ids)
            self.assertEqual(received.text, wanted.text)
            self.assertEqual(list(client.get_session("disturbed").token_ids),
                             list(client.get_session("undisturbed").token_ids))
            client.truncate_session("disturbed", 0)

    def test_a_cut_transaction_can_be_removed(self):
        """docs/sessions.md names redis-check-aof for this."""
        redis = self.redis(appendfsync="always")
        server, client = self.started(harness.serve(store=redis.url))
        client.create_session("cut")
        client.generate(session="cut", text="A story", max_tokens=20)
        server.kill()
        redis.kill()
        file = next(redis.folder.glob("appendonlydir/*.incr.aof"), redis.folder / "appendonly.aof")
        content = file.read_bytes()
        file.write_bytes(content[:content.rindex(b"seal") + 2])  # as the kill could have left it
        redis.repair()
        logs = []
        for name in ("one", "two"):
            redis.start()
            server, client = self.started(harness.serve(store=redis.url))
            client.create_session(name)
            logs.append(list(client.get_session("cut").token_ids))
            server.kill()
            redis.kill()
            redis.repair()
        self.assertEqual(logs[1], logs[0])

    def test_unsafe_servers_and_passwords(self):
        redis = self.redis(appendonly="no", requirepass="tide-secret")
        url = f"redis://:tide-secret@127.0.0.1:{redis.port}"
        refused = harness.run_tidepool("serve", "--model", harness.LLAMA, "--store", url,
                                       "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("appendonly", refused.stderr)
        self.assertIn("--store-unsafe", refused.stderr)
        self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
        server, client = self.started(harness.serve("--store-unsafe", store=url))
        client.create_session("s")
        for text in (refused.stdout, refused.stderr, server.stdout, server.stderr):
            self.assertNotIn("tide-secret", text)
        wrong = harness.run_tidepool("sessions", "verify", "--store", f"{url}/tide-secret")
        self.assertEqual(wrong.returncode, 2)
        self.assertNotIn("tide-secret", wrong.stderr)

    def test_a_password_from_a_file(self):
        redis = self.redis(requirepass="tide secret: @/%")
        folder = harness.scratch_folder()
        right, wrong, two = folder / "right", folder / "wrong", folder / "two"
        right.write_text("tide secret: @/%\n")
        wrong.write_text("tide-guess\n")
        two.write_text("tide secret: @/%\nand more\n")
        server, client = self.started(
            harness.serve("--store-password-file", right, store=redis.url))
        client.create_session("s")
        self.assertNotIn("tide secret", server.stdout + server.stderr)

        def verify(store, file):
            result = harness.run_tidepool("sessions", "verify", "--store", store,
                                          "--store-password-file", file)
            self.assertNotIn("tide secret", result.stderr)
            self.assertNotIn("tide-guess", result.stderr)
            return result

        self.assertEqual(verify(redis.url, right).returncode, 0)
        self.assertEqual(verify(redis.url, wrong).returncode, 1)
        for store, file, named in (
                (redis.url, two, str(two)), (redis.url, folder / "none", "none"),
                (f"redis://:tide-guess@127.0.0.1:{redis.port}", right, "leave one out"),
                (folder / "file.db", right, "redis://")):
            refused = verify(store, file)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(named, refused.stderr)

    def test_sessions_move_between_the_stores(self):
        redis = self.redis()
        file = harness.scratch_folder() / "sessions.db"
        server, client = self.started(harness.serve(store=redis.url))
        client.create_session("talk")
        client.generate(session="talk", chat=[("user", "Is it lit?")], max_tokens=30)
        before = client.get_session("talk")
        export = harness.run_tidepool("sessions", "export", "--store", redis.url)
        self.assertEqual(export.returncode, 0, export.stderr)
        self.assertEqual(server.stop(), 0)
        result = harness.run_tidepool("sessions", "import", "--store", file,
                                      stdin=export.stdout.encode())
        self.assertEqual(result.returncode, 0, result.stderr)
        again = harness.run_tidepool("sessions", "export", "--store", file)
        self.assertEqual(again.stdout, export.stdout)
        _, client = self.started(harness.serve(store=file))
        self.assertEqual(client.get_session("talk"), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
