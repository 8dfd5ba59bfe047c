"""A Mixtral with a SentencePiece vocabulary: text to tokens, through the model, and back."""

import json
import unittest

import harness
from harness import run_tidepool

FOLDER = harness.TINY.parent / "tokenizers"
GOLDEN = json.loads((FOLDER / "mixtral_spm_q4_0.json").read_text())


class SentencePieceTest(unittest.TestCase):

    def run_json(self, command, *arguments):
        """Returns stdout as an object. It must be one JSON object."""
        result = run_tidepool(command, "--model", FOLDER / GOLDEN["model"], *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def generate(self, *source, steps):
        return self.run_json("generate", "--exact", *source, "--max-tokens", str(steps))

    def test_tokens_and_back(self):
        for case in GOLDEN["texts"]:
            ids = self.run_json("tokenize", "--text", case["text"])["token_ids"]
            self.assertEqual(ids, case["ids"])
            for front in ([], [GOLDEN["bos_id"]]):
                tokens = ",".join(map(str, front + ids))
                self.assertEqual(self.run_json("detokenize", "--tokens", tokens),
                                 {"text": case["text"]})

    def test_golden_tokens_and_text(self):
        for run in GOLDEN["runs"]:
            answer = self.generate("--tokens", ",".join(map(str, run["ids"])),
                                   steps=len(run["greedy"]))
            self.assertEqual(answer["token_ids"], run["greedy"])
            self.assertEqual(answer["text"], run["text"])

    def test_a_prompt_is_its_tokens_after_bos(self):
        case = GOLDEN["texts"][0]
        ids = [GOLDEN["bos_id"], *case["ids"]]
        by_text = self.generate("--prompt", case["text"], steps=8)
        by_ids = self.generate("--tokens", ",".join(map(str, ids)), steps=8)
        self.assertEqual(by_text["token_ids"], by_ids["token_ids"])
        self.assertEqual(by_text["usage"]["prompt_tokens"], len(ids))

    def test_keep_spaces_keeps_the_leading_space(self):
        server = harness.serve(model=FOLDER / GOLDEN["model"])
        self.addCleanup(server.kill)
        client = harness.Client(server)
        self.addCleanup(client.close)
        case = GOLDEN["texts"][0]
        for keep_spaces, text in ((False, case["text"]), (True, " " + case["text"])):
            request = harness.inference_pb.DetokenizeRequest(token_ids=case["ids"],
                                                             keep_spaces=keep_spaces)
            self.assertEqual(client.inference.Detokenize(request).text, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
