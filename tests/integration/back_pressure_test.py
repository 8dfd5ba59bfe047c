"""Clients that stop reading do not block other clients, cost little memory, and lose nothing."""

import concurrent.futures
import time
import unittest

import harness
import long_context
from harness import Client, Received, resident_bytes, stall_of, wait_until

READERS = 2
TOKENS = 16_000
CONTEXT = 16_384
MOST_BYTES = 8 << 20  # additional memory of the server for each client that stops reading
TOP_LOGPROBS = 20
# Maximum number of tokens that are generated for a client that does not read. These are the 256
# tokens that the front allows, and those that fit into the 64 KiB window of the client's gRPC.
# Plain text needs fewer bytes per token than logprobs, especially if a message has several tokens.
# The number of tokens in a message depends on the machine.
MOST_TOKENS = {True: 2_000, False: TOKENS * 7 // 8}  # the key says whether there are logprobs
# Maximum bytes of unread messages without logprobs. It is twice the window, because waiting tokens
# are divided into other messages when the client reads them.
MOST_UNREAD = 128 << 10


def request_of(number, logprobs):
    request = harness.make_request(text=f"Reader {number}", max_tokens=TOKENS, temperature=1.0,
                                   seed=number)
    request.logprobs = logprobs
    if logprobs:
        request.top_logprobs = TOP_LOGPROBS
    return request


class Reading:
    """A stream that the test reads when it wants."""

    def __init__(self, client, number, logprobs):
        self._stream = client.inference.Generate(request_of(number, logprobs), timeout=600)
        self.received = Received()

    def read(self, messages=None):
        for message in self._stream:
            for logprob in message.logprobs:
                assert len(logprob.top) == TOP_LOGPROBS
            # Free the tokens that were already compared.
            del message.logprobs[:]
            self.received.take(message)
            if messages is not None and len(self.received.messages) >= messages:
                return self.received
        return self.received.answer()

    def bytes_of(self, tokens):
        """Bytes of the messages that begin among the first `tokens` tokens, as gRPC sends them."""
        prefix = 5
        return sum(message.ByteSize() + prefix for message in self.received.messages
                   if message.position < tokens)


class BackPressureTest(unittest.TestCase):

    def test_readers_of_logprobs_that_stop(self):
        self.check_readers_that_stop(logprobs=True)

    def test_readers_of_text_that_stop(self):
        self.check_readers_that_stop(logprobs=False)

    def check_readers_that_stop(self, logprobs):
        model = long_context.write(harness.scratch_folder() / "long.gguf", CONTEXT)
        server = harness.serve(model=model, threads=2)
        self.addCleanup(server.kill)
        # Each client has its own connection, like independent clients.
        clients = [Client(server) for _ in range(READERS)]
        for client in clients:
            self.addCleanup(client.close)
        watcher = Client(server)
        self.addCleanup(watcher.close)

        # All clients read at the same time. This gives the reference responses, and the server
        # allocates the memory for reading.
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            whole = list(pool.map(
                lambda number: Reading(clients[number], number, logprobs).read(), range(READERS)))
        self.assertEqual([len(answer.ids) for answer in whole], [TOKENS] * READERS)
        made = watcher.wait_idle().generated_tokens_total
        before = resident_bytes(server)

        readings = [Reading(client, number, logprobs) for number, client in enumerate(clients)]
        for reading in readings:
            reading.read(messages=1)
        # Without credit the sequences are not planned, so no steps run.
        stalled = wait_until(lambda: stall_of(watcher), "the streams are held back", timeout=120)
        for_each = (stalled - made) // READERS
        grown = (resident_bytes(server) - before) / READERS
        print(f"with{'' if logprobs else 'out'} logprobs: stopped after {for_each} of {TOKENS} "
              f"tokens; {grown / 2**20:.1f} MiB for each")
        self.assertLess(for_each, MOST_TOKENS[logprobs])
        if not harness.SANITIZED:
            self.assertLess(grown, MOST_BYTES)

        begun = time.monotonic()
        other = watcher.generate(text="Somebody else", max_tokens=200)
        print(f"somebody else's 200 tokens meanwhile: {time.monotonic() - begun:.2f} s")
        self.assertEqual(len(other.ids), 200)

        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            resumed = list(pool.map(lambda reading: reading.read(), readings))
        for answer, expected in zip(resumed, whole):
            self.assertEqual(answer.ids, expected.ids)
            self.assertEqual(answer.text, expected.text)
            self.assertEqual(answer.finish, "LENGTH")
        if not logprobs:
            unread = sum(reading.bytes_of(for_each) for reading in readings) // READERS
            print(f"in {unread} bytes of messages")
            self.assertLess(unread, MOST_UNREAD)
        stats = watcher.wait_idle()
        self.assertEqual(stats.kv_blocks_free, stats.kv_blocks_total)


if __name__ == "__main__":
    unittest.main(verbosity=2)
