"""Sessions of one server: turns find their KV, kinds do not mix, and the log is correct."""

import unittest

import harness
from harness import Client, failure, sessions_pb


def reusable(stats, tokens):
    """Returns the number of a finished sequence's tokens that are in full KV blocks. The KV of the
    last token is never computed."""
    block = stats.kv_block_tokens
    return (tokens - 1) // block * block


class SessionsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.serve()
        cls.addClassCleanup(cls.server.kill)
        cls.client = Client(cls.server)
        cls.addClassCleanup(cls.client.close)

    def tokenize(self, text):
        request = harness.inference_pb.TokenizeRequest(text=text)
        return list(self.client.inference.Tokenize(request).token_ids)

    def test_token_turns_append_to_one_log(self):
        self.client.create_session("tokens")
        log = []
        for turn, text in enumerate(["One boat left early.", " Two came", " back by night, wet."]):
            answer = self.client.generate(text=text, session="tokens", max_tokens=60)
            prompt = log + self.tokenize(text)
            self.assertEqual(answer.usage.prompt_tokens, len(prompt))
            if turn > 0:
                self.assertGreaterEqual(answer.usage.cached_tokens,
                                        reusable(self.client.worker_stats(), len(log)))
            alone = self.client.generate(ids=prompt, max_tokens=60)
            self.assertEqual(answer.ids, alone.ids)
            session = self.client.get_session("tokens")
            log = prompt + answer.ids
            self.assertEqual(list(session.token_ids), log)
            self.assertEqual(session.token_count, len(log))
            last = session.turns[turn]
            self.assertEqual((last.start, last.output_start, last.end),
                             (len(prompt) - len(self.tokenize(text)), len(prompt), len(log)))
            self.assertEqual(last.finish_reason, harness.inference_pb.LENGTH)
        self.assertEqual((session.kind, session.turn_count, session.busy),
                         (sessions_pb.TOKENS, 3, False))

    def test_chat_turns_send_only_new_messages(self):
        self.client.create_session("chat")
        first = self.client.generate(session="chat", max_tokens=50, chat=[
            ("system", "You keep the light."), ("user", "Is it lit?")])
        before = self.client.get_session("chat")
        second = self.client.generate(session="chat", max_tokens=50, chat=[("user", "And now?")])
        after = self.client.get_session("chat")
        kept = len(before.token_ids)
        self.assertEqual(list(after.token_ids)[:kept], list(before.token_ids))
        self.assertEqual(list(before.token_ids)[-50:], first.ids)
        self.assertEqual(list(after.token_ids)[-50:], second.ids)
        self.assertGreaterEqual(second.usage.cached_tokens,
                                reusable(self.client.worker_stats(), kept))
        turn_text = self.client.inference.Detokenize(harness.inference_pb.DetokenizeRequest(
            token_ids=after.token_ids[kept:after.turns[1].output_start])).text
        self.assertEqual(turn_text.replace("<|im_start|>", "").replace("<|im_end|>", ""),
                         "\nuser\nAnd now?\nassistant\n")
        self.assertEqual(after.kind, sessions_pb.CHAT)
        self.assertEqual([(message.role, message.content) for message in after.turns[0].messages],
                         [("system", "You keep the light."), ("user", "Is it lit?"),
                          ("assistant", first.text)])
        self.assertEqual(after.turns[1].messages[-1].content, second.text)

    def test_kinds_do_not_mix(self):
        self.client.create_session("was-chat")
        self.client.create_session("was-tokens")
        self.client.generate(session="was-chat", chat=[("user", "a")], max_tokens=2)
        self.client.generate(session="was-tokens", text="a", max_tokens=2)
        for name, fields in (("was-chat", {"text": "b"}), ("was-chat", {"ids": [98]}),
                             ("was-tokens", {"chat": [("user", "b")]})):
            before = self.client.get_session(name)
            code, message = failure(
                lambda: self.client.stream(session=name, max_tokens=2, **fields))
            self.assertEqual(code, "FAILED_PRECONDITION", message)
            self.assertEqual(self.client.get_session(name), before)

    def test_a_busy_session_refuses_a_second_turn(self):
        self.client.create_session("busy")
        # The stream's messages are long, so it cannot end before it is read.
        stream = self.client.wide_stream(session="busy", text="A long turn", max_tokens=3900)
        received = harness.Received()
        harness.take_tokens(stream, received, 1)
        code, message = failure(lambda: self.client.stream(session="busy", text="b", max_tokens=2))
        self.assertEqual(code, "ABORTED", message)
        self.assertEqual(failure(lambda: self.client.delete_session("busy"))[0], "ABORTED")
        self.assertTrue(self.client.get_session("busy").busy)
        stream.cancel()
        for message in self.rest_of(stream):
            received.take(message)
        harness.wait_until(lambda: not self.client.get_session("busy").busy, "the turn has ended")
        session = self.client.get_session("busy")
        turn = session.turns[0]
        self.assertEqual(turn.finish_reason, harness.inference_pb.CANCELLED)
        kept = list(session.token_ids)[turn.output_start:turn.end]
        self.assertEqual(kept[:len(received.ids)], received.ids)
        self.assertLess(len(kept), 3900)
        # The turn continues after the part of the log that was kept.
        answer = self.client.generate(session="busy", text=" and a short one", max_tokens=5)
        alone = self.client.generate(
            ids=list(session.token_ids) + self.tokenize(" and a short one"), max_tokens=5)
        self.assertEqual(answer.ids, alone.ids)

    @staticmethod
    def rest_of(stream):
        try:
            yield from stream
        except harness.grpc.RpcError:
            return

    def test_a_chat_that_went_back_answers_as_before(self):
        self.client.create_session("back")
        self.client.generate(session="back", max_tokens=40, chat=[("user", "Is it lit?")])
        second = self.client.generate(session="back", max_tokens=40, chat=[("user", "And now?")])
        whole = self.client.get_session("back")
        self.client.fork_session("back", "branch", whole.turns[1].start)
        self.client.truncate_session("back", whole.turns[1].start)
        for name in ("back", "branch"):
            again = self.client.generate(session=name, max_tokens=40, chat=[("user", "And now?")])
            self.assertEqual(again.ids, second.ids)
            self.assertEqual(list(self.client.get_session(name).token_ids), list(whole.token_ids))

    def test_an_answer_cut_at_any_token_keeps_the_text_of_its_tokens(self):
        self.client.create_session("cut")
        answer = self.client.generate(session="cut", max_tokens=12, chat=[("user", "Is it lit?")])
        begin = self.client.get_session("cut").turns[0].output_start
        for kept in range(1, 13):
            name = f"cut-{kept}"
            self.client.fork_session("cut", name, begin + kept)
            turn = self.client.get_session(name).turns[0]
            text = self.client.inference.Detokenize(
                harness.inference_pb.DetokenizeRequest(token_ids=answer.ids[:kept])).text
            self.assertTrue(answer.text.startswith(turn.messages[-1].content))
            self.assertEqual(turn.messages[-1].content.strip(), text.strip())
            # The next turn continues after those tokens.
            self.client.generate(session=name, max_tokens=2, chat=[("user", "More")])
            after = self.client.get_session(name)
            self.assertEqual(after.turns[1].start, begin + kept)
        code, message = failure(lambda: self.client.truncate_session("cut", begin))
        self.assertEqual(code, "INVALID_ARGUMENT")
        self.assertIn(f"{begin + 1} to {begin + 12}", message)

    def test_deleted_sessions_are_gone(self):
        self.client.create_session("gone")
        self.client.generate(session="gone", text="a", max_tokens=2)
        self.client.delete_session("gone")
        for call in (lambda: self.client.get_session("gone"),
                     lambda: self.client.delete_session("gone"),
                     lambda: self.client.stream(session="gone", text="a", max_tokens=2)):
            self.assertEqual(failure(call)[0], "NOT_FOUND")
        self.assertEqual(self.client.create_session("gone").turn_count, 0)
        self.assertEqual(list(self.client.get_session("gone").token_ids), [])

    def test_names(self):
        drawn = self.client.sessions.CreateSession(sessions_pb.CreateSessionRequest())
        self.assertTrue(self.client.get_session(drawn.session_id).HasField("create_time"))
        self.client.create_session("taken")
        self.assertEqual(failure(lambda: self.client.create_session("taken"))[0], "ALREADY_EXISTS")
        for name in ("", "with space", "slash/", "é", "x" * 129):
            code, message = failure(lambda: self.client.create_session(name))
            self.assertEqual(code, "INVALID_ARGUMENT", name)
            self.assertIn("session_id", message)
        self.client.create_session("x" * 128)
        unknown = sessions_pb.CreateSessionRequest(session_id="m", model="no-such-model")
        code, _ = failure(lambda: self.client.sessions.CreateSession(unknown))
        self.assertEqual(code, "NOT_FOUND")

    def test_both_halves_of_a_restart(self):
        store = harness.scratch_folder() / "sessions.db"
        server = harness.serve(store=store)
        self.addCleanup(server.kill)
        client = Client(server)
        client.create_session("kept")
        client.generate(session="kept", chat=[("user", "Remember me")], max_tokens=30)
        before = client.get_session("kept")
        self.assertEqual(server.stop(), 0)
        again = harness.serve(store=store)
        self.addCleanup(again.kill)
        client = Client(again)
        self.assertEqual(client.get_session("kept"), before)
        answer = client.generate(session="kept", chat=[("user", "Who am I?")], max_tokens=30)
        self.assertGreater(answer.usage.prompt_tokens, before.token_count)
        self.assertEqual(client.get_session("kept").turn_count, 2)

    def test_a_full_session_is_refused_and_kept(self):
        server = harness.serve("--context", "96")
        self.addCleanup(server.kill)
        client = Client(server)
        client.create_session("full")
        answer = client.generate(session="full", ids=[65] * 60)
        self.assertEqual((answer.finish, answer.usage.completion_tokens), ("LENGTH", 36))
        before = client.get_session("full")
        code, message = failure(lambda: client.stream(session="full", text="more", max_tokens=2))
        self.assertEqual(code, "FAILED_PRECONDITION", message)
        self.assertIn("96", message)
        self.assertIn("TruncateSession", message)
        self.assertEqual(client.get_session("full"), before)
        client.truncate_session("full", 80)
        self.assertEqual(client.generate(session="full", text="more", max_tokens=2).finish, "LENGTH")


class ListTest(unittest.TestCase):

    def test_pages_newest_first(self):
        server = harness.serve()
        self.addCleanup(server.kill)
        client = Client(server)
        names = [f"page-{number}" for number in range(7)]
        for name in names:
            client.create_session(name)
            client.generate(session=name, text="a", max_tokens=2)

        def page(size, token=""):
            return client.sessions.ListSessions(
                sessions_pb.ListSessionsRequest(page_size=size, page_token=token))

        seen, token, sizes = [], "", []
        while True:
            answer = page(3, token)
            sizes.append(len(answer.sessions))
            seen += [session.session_id for session in answer.sessions]
            self.assertTrue(all(not session.token_ids and not session.turns
                                for session in answer.sessions))
            token = answer.next_page_token
            if not token:
                break
        self.assertEqual((seen, sizes), (names[::-1], [3, 3, 1]))
        self.assertEqual([session.session_id for session in page(0).sessions], seen)
        self.assertEqual(client.stats().front.sessions, 7)
        for size, token in ((-1, ""), (1001, ""), (3, "not one of ours")):
            self.assertEqual(failure(lambda: page(size, token))[0], "INVALID_ARGUMENT")


if __name__ == "__main__":
    unittest.main(verbosity=2)
