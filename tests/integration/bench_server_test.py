"""`tidepool bench --server`: what it sends, what it counts, and what it refuses."""

import unittest

import harness
from command_test_case import CommandTest
from harness import Client

# The tiny model generates several tokens per message, so a response must be long to have several
# messages.
TOKENS = 100
SHORT = ("-p", "24", "-n", TOKENS, "--duration", "2s", "--warm-up", "200ms")
SECTIONS = {"server", "model", "load", "seconds", "requests", "goodput", "first_token_s",
            "inter_token_s", "sent_late_s", "tokens_per_message", "prompt_tokens", "cached_tokens",
            "client_cpu_share"}


class BenchServerTest(CommandTest):

    def serve(self, *arguments):
        server = harness.serve(*arguments)
        self.addCleanup(server.kill)
        return server

    def load(self, server, *arguments):
        return self.run_json("bench", "--server", server.address, *arguments)

    def test_callers_keep_a_server_busy(self):
        server = self.serve()
        report = self.load(server, *SHORT, "--concurrency", "4")
        self.assertEqual(set(report), SECTIONS)
        self.assertEqual(report["load"]["concurrency"], 4)
        self.assertIsNone(report["load"]["rate"])
        requests = report["requests"]
        self.assertGreater(requests["sent"], 0)
        self.assertEqual(requests["accepted"], requests["sent"])
        self.assertEqual(requests["completed"], requests["sent"])
        self.assertEqual((requests["refused"], requests["broken"]), ({}, {}))
        self.assertEqual(report["prompt_tokens"], 24 * requests["completed"])
        # Up to four responses may be running at the begin and at the end of the window.
        goodput = report["goodput"]
        self.assertAlmostEqual(goodput["tokens_per_s"], TOKENS * goodput["requests_per_s"],
                               delta=4 * TOKENS)
        for latency in ("first_token_s", "inter_token_s"):
            self.assertTrue(0 < report[latency]["p50"] <= report[latency]["p90"]
                            <= report[latency]["p99"] <= report[latency]["max"], report[latency])
        client = Client(server)
        self.addCleanup(client.close)
        stats = client.wait_idle()
        self.assertEqual(stats.requests_cancelled_total, 0)
        # Warm-up requests are served but not counted.
        self.assertGreaterEqual(stats.requests_finished_total, requests["sent"])

    def test_a_rate_past_capacity_is_refused_and_counted(self):
        server = self.serve("--max-sequences", "1", "--max-queued", "1")
        flags = ("-p", "24", "-n", "2000", "--rate", "60", "--duration", "1s", "--warm-up", "0")
        report = self.load(server, *flags)
        requests = report["requests"]
        refused = requests["refused"]["RESOURCE_EXHAUSTED"]
        self.assertGreater(refused, 0)
        self.assertEqual(requests["accepted"] + refused, requests["sent"])
        self.assertEqual(requests["retries"], 0)
        self.assertAlmostEqual(requests["sent"], 60, delta=40)
        # If the seed is the same, requests are sent at the same times.
        again = self.load(server, *flags, "--retries", "1")
        self.assertEqual(again["requests"]["sent"], requests["sent"])

    def test_shared_prompts_and_priorities(self):
        server = self.serve()
        report = self.load(server, "-p", "200,240", "-n", "4", "--shared-prompt-tokens", "160",
                           "--duration", "1s", "--warm-up", "2s", "--concurrency", "2",
                           "--priority", "0,5")
        # Only whole blocks of the shared prefix are cached.
        completed = report["requests"]["completed"]
        self.assertTrue(128 * completed <= report["cached_tokens"] <= 160 * completed, report)
        self.assertEqual([one["priority"] for one in report["priorities"]], [0, 5])
        self.assertEqual(sum(one["requests"]["sent"] for one in report["priorities"]),
                         report["requests"]["sent"])

    def test_a_table_for_people(self):
        text = self.run_well("bench", "--server", self.serve().address, *SHORT, "--rate", "20",
                             "--priority", "1").stdout
        self.assertRegex(text, r"(?m)^  goodput +[\d.]+ requests/s, [\d.]+ tokens/s")
        self.assertRegex(text, r"(?m)^  inter-token +p50 +[\d.]+ ms")
        self.assertRegex(text, r"(?m)^priority 1$")

    def test_refusals(self):
        server = self.serve()
        ask = ("bench", "--server", server.address)
        self.refuse(*ask, named=("--rate", "--concurrency"))
        self.refuse(*ask, "--rate", "-1", named="greater than 0 and at most 1000000 (got -1)")
        self.refuse(*ask, "--rate", "1", "--model", harness.LLAMA, named="--model")
        self.refuse(*ask, "--rate", "1", "-p", "4000", "-n", "200", named=("4200", "4096"))
        self.refuse(*ask, "--rate", "1", "-p", "8,100", "--shared-prompt-tokens", "8",
                    named=("--shared-prompt-tokens", "8"))
        self.refuse("bench", "--model", harness.LLAMA, "--rate", "1", named="--server")
        nobody = f"127.0.0.1:{harness.free_port()}"
        self.refuse("bench", "--server", nobody, "--rate", "1", named=nobody, code=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
