"""Requests with a request_id: a client resumes its request after it has lost its connection or its
front."""

import itertools
import signal
import unittest

import grpc

import harness
from harness import Client, Received, failure

PROMPT = "Tell it at length"
TOKENS = 300


def named(request_id, resume_after=None, **fields):
    request = harness.make_request(**fields)
    request.request_id = request_id
    if resume_after is not None:
        request.resume_after = resume_after
    return request


class RequestTest(unittest.TestCase):

    def started(self, server):
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        return server, client

    def serve(self, *arguments, **more):
        return self.started(harness.serve(*arguments, **more))

    def read(self, client, request, received, count=None):
        """Resumes and reads to the end, or until `received` has `count` tokens; returns the
        stream."""
        stream = client.inference.Generate(request, timeout=120)
        for message in stream:
            received.take(message)
            if count is not None and len(received.ids) >= count:
                break
        return stream

    def come_back(self, client, received, request_id, **fields):
        self.read(client, named(request_id, resume_after=len(received.ids), **fields), received)

    def assert_same(self, received, wanted):
        self.assertEqual(received.ids, wanted.ids)
        self.assertEqual(received.text, wanted.text)
        self.assertEqual(received.messages[-1].finish_reason, wanted.messages[-1].finish_reason)

    def test_a_client_that_was_cut_off_reads_on(self):
        _, client = self.serve()
        fields = {"text": PROMPT, "max_tokens": TOKENS, "temperature": 1.0, "seed": 7}
        wanted = Received()
        self.read(client, named("undisturbed", **fields), wanted)
        before = client.wait_idle().prompt_tokens_total
        received = Received()
        for count in (1, 40, 41, 120):
            request = named("cut", resume_after=len(received.ids), **fields)
            self.read(client, request, received, count).cancel()
        self.come_back(client, received, "cut", **fields)
        self.assert_same(received, wanted)
        # The response was computed only once. Reading it again computes nothing.
        again = Received()
        self.read(client, named("cut", **fields), again)
        self.assert_same(again, wanted)
        whole = client.inference.Complete(named("cut", **fields), timeout=60)
        self.assertEqual(list(whole.completions[0].token_ids), wanted.ids)
        prompt = wanted.messages[-1].usage.prompt_tokens
        self.assertLessEqual(client.wait_idle().prompt_tokens_total - before, prompt)

    def test_logprobs_come_back_too(self):
        _, client = self.serve()
        def request(request_id, resume_after=None):
            one = named(request_id, resume_after, text=PROMPT, max_tokens=40)
            one.logprobs, one.top_logprobs = True, 2
            return one
        wanted, received = Received(), Received()
        self.read(client, request("a"), wanted)
        self.read(client, request("b"), received, 10).cancel()
        self.read(client, request("b", len(received.ids)), received)
        self.assertEqual([entry for message in received.messages for entry in message.logprobs],
                         [entry for message in wanted.messages for entry in message.logprobs])

    def test_another_request_of_the_same_id_is_refused(self):
        _, client = self.serve()
        request = named("one", text=PROMPT, max_tokens=20)
        self.read(client, request, Received())
        for change in ({"text": "Another"}, {"max_tokens": 21}, {"temperature": 0.5},
                       {"session": "s"}):
            other = named("one", **{"text": PROMPT, "max_tokens": 20, **change})
            code, message = failure(lambda: client.inference.Generate(other, timeout=60))
            self.assertEqual(code, "ALREADY_EXISTS", message)
            self.assertIn("'one'", message)
        self.assertEqual(failure(lambda: client.inference.Generate(
            named("one", 21, text=PROMPT, max_tokens=20), timeout=60))[0], "INVALID_ARGUMENT")

    def test_a_stream_whose_client_does_not_return_ends(self):
        _, client = self.serve("--orphan-ttl", "300ms", "--request-ttl", "1s")
        numbers = itertools.count()

        def ends_early():
            before = client.wait_idle().generated_tokens_total
            request = named(f"orphan-{next(numbers)}", text=PROMPT, max_tokens=3900)
            self.read(client, request, Received(), 3).cancel()
            return client.wait_idle().generated_tokens_total - before < 3900
        # On a busy machine, a whole response may be generated before this client has left.
        harness.wait_met(ends_early, "nobody's answer is ended")
        # Kept responses expire, and the id can be used again.
        self.read(client, named("kept", text=PROMPT, max_tokens=3), Received())
        other = named("kept", text="Another", max_tokens=3)

        def accepted():
            try:
                return client.inference.Complete(other, timeout=60)
            except grpc.RpcError as error:
                self.assertEqual(error.code(), grpc.StatusCode.ALREADY_EXISTS)
                return None
        harness.wait_until(accepted, "the request_id is free again")

    def test_the_front_dies_and_a_response_continues(self):
        # Without a session, no part of the response survives its front. But the same seed gives the
        # same response.
        worker, _ = self.started(harness.worker())
        front, client = self.started(harness.front([worker]))
        for fields in ({"seed": 5}, {}):
            fields = {"text": PROMPT, "max_tokens": TOKENS, "temperature": 1.0, **fields}
            wanted, received = Received(), Received()
            self.read(client, named("mine", **fields), wanted)
            front.kill()
            front, client = self.started(harness.front([worker]))
            self.read(client, named("mine", **fields), received, 100)
            front.kill()
            front, client = self.started(harness.front([worker]))
            self.come_back(client, received, "mine", **fields)
            self.assert_same(received, wanted)
            front.kill()
            front, client = self.started(harness.front([worker]))

    def test_the_server_dies_and_a_session_continues(self):
        store = harness.scratch_folder() / "sessions.db"
        server, client = self.serve(store=store)
        for kind in ("chat", "text"):
            names = (f"undisturbed-{kind}", f"disturbed-{kind}")
            content = [("user", PROMPT)] if kind == "chat" else PROMPT
            fields = {kind: content, "max_tokens": TOKENS, "temperature": 1.0, "seed": 3}
            for name in names:
                client.create_session(name)
                client.generate(session=name, max_tokens=5, **{kind: content})
            wanted, received = Received(), Received()
            self.read(client, named(f"a-{kind}", session=names[0], **fields), wanted)
            for count in (1, 30, 150):
                request = named(f"b-{kind}", len(received.ids), session=names[1], **fields)
                self.read(client, request, received, count)
                server.signal(signal.SIGKILL)
                server.wait()
                server, client = self.serve(store=store)
            self.come_back(client, received, f"b-{kind}", session=names[1], **fields)
            self.assert_same(received, wanted)
            whole, other = (client.get_session(name) for name in names)
            self.assertEqual(list(other.token_ids), list(whole.token_ids))
            self.assertEqual([turn.messages for turn in other.turns],
                             [turn.messages for turn in whole.turns])
            self.assertEqual(len(other.turns), 2)
            # The turn has ended. After a restart, its response is read from the session's log.
            server.signal(signal.SIGKILL)
            server.wait()
            server, client = self.serve(store=store)
            middle = wanted.messages[len(wanted.messages) // 3].position
            for after in (0, middle, TOKENS):
                again = Received()
                again.ids = wanted.ids[:after]
                self.come_back(client, again, f"b-{kind}", session=names[1], **fields)
                self.assertEqual(again.ids, wanted.ids)
                self.assertEqual(again.text, "".join(
                    message.text for message in wanted.messages if message.position >= after))
            self.assertEqual(client.get_session(names[1]).turn_count, 2)
            code, message = failure(lambda: client.inference.Generate(
                named(f"b-{kind}", session=names[1], **{**fields, kind: (
                    [("user", "No")] if kind == "chat" else "No")}), timeout=60))
            self.assertEqual(code, "ALREADY_EXISTS", message)


if __name__ == "__main__":
    unittest.main(verbosity=2)
