"""Evaluation with third-party tools: lm-eval scores the server like transformers, and the scores of
a prompt's tokens survive the death of a worker."""

import json
import os
import pathlib
import tempfile
import unittest

# Nothing is downloaded, because tasks and data are in the folder of this test.
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", NO_PROXY="*",
                  HF_HOME=tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))

import lm_eval
from lm_eval.tasks import TaskManager

import harness
from harness import Client

FOLDER = pathlib.Path("tests/golden/lm_eval")
TOLERANCE = 1e-3


class LmEvalTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server("serve", "--model", harness.smollm2(), "--exact")
        cls.addClassCleanup(cls.server.kill)
        client = Client(cls.server)
        cls.model = client.inference.ListModels(
            harness.inference_pb.ListModelsRequest(), timeout=30).models[0].name
        client.close()
        cls.golden = json.loads((FOLDER / "golden.json").read_text())["samples"]

    def evaluate(self, task, **arguments):
        results = lm_eval.simple_evaluate(
            model="local-completions", tasks=[task], bootstrap_iters=0,
            model_args={"model": self.model, "base_url": f"http://{self.server.http_address}/v1/completions",
                        "tokenizer_backend": "remote", "max_retries": 1, **arguments},
            task_manager=TaskManager(include_path=str(FOLDER), include_defaults=False))
        return results["results"][task], results["samples"][task]

    def test_loglikelihoods_are_those_of_transformers(self):
        for arguments in ({}, {"batch_size": 4}):
            with self.subTest(arguments):
                scores, samples = self.evaluate("tidepool_choice", **arguments)
                self.assertEqual(len(samples), len(self.golden["tidepool_choice"]))
                for sample, golden in zip(samples, self.golden["tidepool_choice"]):
                    for response, expected, greedy in zip(sample["resps"], golden["loglikelihoods"],
                                                          golden["greedy"], strict=True):
                        self.assertAlmostEqual(float(response[0][0]), expected, delta=TOLERANCE)
                        self.assertEqual(bool(response[0][1]), greedy)
                    self.assertEqual(sample["acc"], golden["acc"])
                expected = [golden["acc"] for golden in self.golden["tidepool_choice"]]
                self.assertAlmostEqual(scores["acc,none"], sum(expected) / len(expected), delta=1e-9)

    def test_generations_are_those_of_transformers(self):
        scores, samples = self.evaluate("tidepool_until")
        texts = [sample["resps"][0][0] for sample in samples]
        self.assertEqual(texts, [golden["text"] for golden in self.golden["tidepool_until"]])
        expected = [golden["exact_match"] for golden in self.golden["tidepool_until"]]
        self.assertAlmostEqual(scores["exact_match,none"], sum(expected) / len(expected), delta=1e-9)


class WorkersTest(unittest.TestCase):
    """A front returns the scores of prompts although one of its workers is killed."""

    def score(self, client, request, on_first=None):
        """Returns (tokens, logprobs, ranks, output tokens) of a stream."""
        tokens, logprobs, ranks, output = [], [], [], []
        for message in client.inference.Generate(request, timeout=120):
            for entry in message.prompt_logprobs:
                tokens.append(entry.token_id)
                logprobs.append(entry.logprob)
                ranks.append(entry.rank)
            if tokens and on_first:
                on_first()
                on_first = None
            output.extend(message.token_ids)
        return tokens, logprobs, ranks, output

    def test_a_killed_worker_is_not_seen(self):
        workers = [harness.worker("--name", name) for name in ("a", "b")]
        server = harness.front(workers)
        self.addCleanup(server.kill)
        client = Client(server)
        self.addCleanup(client.close)
        ids = [65 + at * at % 50 for at in range(1500)]
        request = harness.make_request(max_tokens=3, ids=ids)
        request.prompt_logprobs = 2
        calm = self.score(client, request)
        self.assertEqual(calm[0], ids)
        self.assertEqual(calm[2][0], 0)
        self.assertTrue(all(rank > 0 for rank in calm[2][1:]))

        def kill_the_busy_one():
            busy, = [stats.worker_id for stats in client.stats().workers if stats.sequences_running]
            workers["ab".index(busy)].kill()

        self.assertEqual(self.score(client, request, kill_the_busy_one), calm)
        self.assertEqual(client.stats().front.failovers_total, 1)


if __name__ == "__main__":
    unittest.main()
