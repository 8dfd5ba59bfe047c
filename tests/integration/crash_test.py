"""kill -9 of `serve` in the middle of a session: no received token is lost."""

import signal
import unittest

import grpc

import harness
from harness import Client, Received


# Tokens of the interrupted turn. Its messages are long, so the turn waits for its client to read.
TOKENS = 2000


class CrashTest(unittest.TestCase):

    def setUp(self):
        self.store = harness.scratch_folder() / "sessions.db"

    def start(self):
        server = harness.serve(store=self.store)
        self.addCleanup(server.kill)
        return server, Client(server)

    def stream_until_killed(self, server, client, count, **turn):
        """Kills the server after `count` tokens of a turn. Returns what the client has received."""
        received = Received()
        stream = client.wide_stream(max_tokens=TOKENS, temperature=1.0, seed=count, **turn)
        with self.assertRaises(grpc.RpcError):
            harness.take_tokens(stream, received, count)
            server.signal(signal.SIGKILL)
            for message in stream:
                received.take(message)
        server.wait()
        self.assertLess(len(received.ids), TOKENS)
        self.assertGreaterEqual(len(received.ids), count)
        return received

    def check_kept(self, session, received, log):
        """Checks that the session contains its log, the input of the turn, and all received tokens."""
        turn = session.turns[-1]
        self.assertEqual(list(session.token_ids)[:len(log)], log)
        self.assertEqual(turn.start, len(log))
        output = list(session.token_ids)[turn.output_start:turn.end]
        self.assertEqual(output[:len(received.ids)], received.ids)
        self.assertEqual(turn.finish_reason, harness.inference_pb.CANCELLED)
        self.assertEqual(turn.end, session.token_count)
        self.assertFalse(session.busy)

    def test_text_turns(self):
        server, client = self.start()
        client.create_session("s")
        client.generate(session="s", text="It began calmly.", max_tokens=30)
        for count in (1, 7, 60, 400):
            log = list(client.get_session("s").token_ids)
            received = self.stream_until_killed(server, client, count, session="s",
                                                text=f" Then came wave {count}")
            server, client = self.start()
            session = client.get_session("s")
            self.check_kept(session, received, log)
            # The next turn sees exactly the log.
            log = list(session.token_ids)
            answer = client.generate(session="s", ids=[33, 34], max_tokens=20)
            self.assertEqual(answer.usage.prompt_tokens, len(log) + 2)
            alone = client.generate(ids=log + [33, 34], max_tokens=20)
            self.assertEqual(answer.ids, alone.ids)

    def test_chat_turns(self):
        server, client = self.start()
        client.create_session("c")
        client.generate(session="c", chat=[("user", "Good morning")], max_tokens=30)
        for count in (3, 150):
            log = list(client.get_session("c").token_ids)
            received = self.stream_until_killed(server, client, count, session="c",
                                                chat=[("user", f"Tell me {count} things")])
            server, client = self.start()
            session = client.get_session("c")
            kept = session.turns[-1]
            # A template may add an end to the interrupted response before this turn's input.
            self.assertEqual(list(session.token_ids)[:len(log)], log)
            output = list(session.token_ids)[kept.output_start:kept.end]
            self.assertEqual(output[:len(received.ids)], received.ids)
            self.assertEqual(kept.finish_reason, harness.inference_pb.CANCELLED)
            self.assertEqual([message.role for message in kept.messages], ["user", "assistant"])
            self.assertTrue(kept.messages[-1].content.startswith(received.text))
            answer = client.generate(session="c", chat=[("user", "Go on")], max_tokens=10)
            after = client.get_session("c")
            self.assertEqual(list(after.token_ids)[:session.token_count], list(session.token_ids))
            self.assertEqual(list(after.token_ids)[-10:], answer.ids)

    def test_finished_turns_and_other_sessions_are_whole(self):
        server, client = self.start()
        for name in ("one", "two", "empty"):
            client.create_session(name)
        client.generate(session="one", text="First", max_tokens=25)
        client.generate(session="two", chat=[("user", "Second")], max_tokens=25)
        before = {name: client.get_session(name) for name in ("one", "two", "empty")}
        # When the client learns that a turn has ended, the turn is already in the store.
        server.kill()
        server, client = self.start()
        for name, session in before.items():
            self.assertEqual(client.get_session(name), session)
        client.delete_session("two")
        server.kill()
        server, client = self.start()
        self.assertEqual(harness.failure(lambda: client.get_session("two"))[0], "NOT_FOUND")

    def test_many_sessions_at_once(self):
        server, client = self.start()
        names = [f"at-once-{number}" for number in range(8)]
        for name in names:
            client.create_session(name)
        streams = [client.wide_stream(session=name, text=f"All of {name}", max_tokens=TOKENS)
                   for name in names]
        heads = [Received() for _ in streams]
        for stream, received in zip(streams, heads):
            harness.take_tokens(stream, received, 5)
        server.signal(signal.SIGKILL)
        for stream, received in zip(streams, heads):
            with self.assertRaises(grpc.RpcError):
                for message in stream:
                    received.take(message)
        server.wait()
        server, client = self.start()
        for name, received in zip(names, heads):
            self.check_kept(client.get_session(name), received, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
