"""Clients that stop reading: they stop nobody else, cost little memory, and lose nothing."""

import concurrent.futures
import time
import unittest

import harness
import long_context
from harness import Client, Received, resident_bytes, stall_of, wait_until

READERS = 2
TOKENS = 16_000
CONTEXT = 16_384
MOST_BYTES = 8 << 20  # of the server, for each reader that stopped
TOP_LOGPROBS = 20
# What is made for a client that does not read: the 256 tokens that the front allows, and what fits
# into the window of 64 KiB that the client's own gRPC opens. Of plain text that is many more tokens
# than with logprobs, and all the more where several come as one message; how many depends on the
# machine.
MOST_TOKENS = {True: 2_000, False: TOKENS * 7 // 8}  # by whether there are logprobs
# Bytes of plain text's messages: that window twice, for what waits in front of it is cut into
# messages in another way when it is read.
MOST_UNREAD = 128 << 10


def request_of(number, logprobs):
    request = harness.make_request(text=f"Reader {number}", max_tokens=TOKENS, temperature=1.0,
                                   seed=number)
    request.logprobs = logprobs
    if logprobs:
        request.top_logprobs = TOP_LOGPROBS
    return request


class Reading:
    """A stream that is read when the test wants."""

    def __init__(self, client, number, logprobs):
        self._stream = client.inference.Generate(request_of(number, logprobs), timeout=600)
        self.received = Received()

    def read(self, messages=None):
        for message in self._stream:
            for logprob in message.logprobs:
                assert len(logprob.top) == TOP_LOGPROBS
            # What has been checked need not stay.
            del message.logprobs[:]
            self.received.take(message)
            if messages is not None and len(self.received.messages) >= messages:
                return self.received
        return self.received.answer()

    def bytes_of(self, tokens):
        """Of the messages that begin among the first so many tokens, as gRPC sends them."""
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
        # A connection for each, as clients have that do not know each other.
        clients = [Client(server) for _ in range(READERS)]
        for client in clients:
            self.addCleanup(client.close)
        watcher = Client(server)
        self.addCleanup(watcher.close)

        # All of it read at once: the answers to compare with, and the memory that reading takes.
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            whole = list(pool.map(
                lambda number: Reading(clients[number], number, logprobs).read(), range(READERS)))
        self.assertEqual([len(answer.ids) for answer in whole], [TOKENS] * READERS)
        made = watcher.wait_idle().generated_tokens_total
        before = resident_bytes(server)

        readings = [Reading(client, number, logprobs) for number, client in enumerate(clients)]
        for reading in readings:
            reading.read(messages=1)
        # No step is made while they have no credit: their sequences have left the plan.
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
