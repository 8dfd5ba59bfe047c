"""Commands that work on model files: bench, quantize, perplexity."""

import json
import unittest

import harness
from command_test_case import CommandTest

MODEL = ("--model", harness.LLAMA)
TEXT = json.loads((harness.TINY / "serving_llama_f32.json").read_text())["prompts"][0]["text"]


class BenchTest(CommandTest):

    def test_json_has_every_field(self):
        report = self.run_json("bench", *MODEL, "-p", "8,40", "-n", "4", "-b", "1,3", "-r", "2",
                               "-t", "2", "-p", "0")
        self.assertEqual([result["test"] for result in report["results"]],
                         ["pp8", "pp40", "tg4", "tg4@3"])
        self.assertEqual(report["threads"], 2)
        self.assertIn("2 threads", report["machine"])
        self.assertGreater(report["probe_bytes_per_s"], 1e8)
        self.assertIn(report["probe_bytes"], [1 << bits for bits in range(26, 31)])
        self.assertEqual(set(report["offload"]),
                         {"expert_hits_total", "expert_misses_total", "weight_bytes"})
        for result in report["results"]:
            speed = result["tokens_per_s"]
            self.assertTrue(0 < speed["min"] <= speed["median"] <= speed["max"], result)
            self.assertGreater(result["bandwidth_share"], 0)
            self.assertGreater(result["peak_rss_bytes"], 1 << 20)
        one, three = (result["bytes_per_token"] for result in report["results"][2:])
        # Each read of the weights serves three sequences, and each sequence has its own KV.
        weights = report["offload"]["weight_bytes"]
        self.assertLess(three, 0.5 * one)
        self.assertTrue(0.5 * weights < one < 1.2 * weights, (one, weights))

    def test_experts_are_counted(self):
        moe = ("--model", harness.TINY / "qwen3moe_f32.gguf")
        report = self.run_json("bench", *moe, "-p", "0", "-n", "5", "-r", "1")
        # 3 of 8 experts in each layer, for 5 tokens.
        self.assertEqual(report["offload"]["expert_hits_total"] % 15, 0)
        self.assertGreater(report["offload"]["expert_hits_total"], 0)

    def test_a_table_for_people(self):
        text = self.run_well("bench", *MODEL, "-p", "8", "-n", "2", "-r", "1").stdout
        self.assertRegex(text, r"(?m)^pp8 +[\d.]+ ")
        self.assertRegex(text, r"memory read at [\d.]+ GB/s, over [\d.]+ [GM]iB")

    def test_refusals(self):
        self.refuse("bench", *MODEL, "-p", "0", "-n", "0", named="nothing to measure")
        self.refuse("bench", *MODEL, "-p", "1000000", named=("pp1000000", "4096"))
        self.refuse("bench", *MODEL, "-b", "0", named=("--batch", "0"))
        self.refuse("bench", named="--model")


class QuantizeTest(CommandTest):

    def test_a_model_of_another_type_serves(self):
        out = harness.scratch_folder() / "q8.gguf"
        report = self.run_json("quantize", harness.LLAMA, out, "--type", "q8_0", "-t", "2")
        self.assertEqual(report["type"], "Q8_0")
        self.assertEqual(report["fallbacks"], [])
        self.assertEqual(report["bytes_out"], out.stat().st_size)
        self.assertLess(report["bytes_out"], 0.5 * report["bytes_in"])
        types = self.run_json("inspect", "--model", out)["types"]
        self.assertEqual(set(types), {"F32", "Q8_0"})
        self.run_well("generate", "--model", out, "--prompt", "tide", "--max-tokens", "4")
        # The result is the same with flags in place of positional arguments, and with weights that
        # are already quantised.
        again = harness.scratch_folder() / "f32.gguf"
        result = self.run_well("quantize", "--out", again, "--model", out, "--type", "F32")
        self.assertIn("quantised already", result.stderr)
        self.assertIn("F32", result.stdout)

    def test_blocks_that_do_not_fit_are_reported(self):
        out = harness.scratch_folder() / "q4.gguf"
        text = self.run_well("quantize", harness.LLAMA, out, "--type", "Q4_K").stdout
        self.assertRegex(text, r"\d+ of them \(the first is \S+\) are Q5_0")

    def test_refusals(self):
        folder = harness.scratch_folder()
        out = folder / "out.gguf"
        out.write_text("precious")
        self.refuse("quantize", harness.LLAMA, out, "--type", "Q8_0", named=(str(out), "--force"))
        self.assertEqual(out.read_text(), "precious")
        self.run_well("quantize", harness.LLAMA, out, "--type", "Q8_0", "--force")
        before = out.read_bytes()
        self.refuse("quantize", out, out, "--type", "F16", "--force", named="the model that is read")
        self.assertEqual(out.read_bytes(), before)
        self.refuse("quantize", harness.LLAMA, folder / "a", "--type", "Q9", named=("Q9", "Q4_K"))
        self.refuse("quantize", harness.LLAMA, folder / "a", named="--type")
        self.refuse("quantize", harness.LLAMA, "--type", "Q8_0", named="file to write")
        self.refuse("quantize", harness.LLAMA, folder / "a", "b", "--type", "F16", named="b")
        self.refuse("quantize", folder / "none", folder / "a", "--type", "F16", named="none")
        self.refuse("quantize", harness.LLAMA, folder / "none" / "a", "--type", "F16",
                    named="none/a")
        self.assertEqual([path.name for path in folder.iterdir()], ["out.gguf"])


class PerplexityTest(CommandTest):

    def test_chunks_and_their_second_halves(self):
        text = harness.scratch_folder() / "text.txt"
        text.write_text(TEXT * 9)
        arguments = ("perplexity", *MODEL, "--file", text, "--context", "16")
        report = self.run_json(*arguments, "--chunks", "3")
        self.assertEqual((report["chunks"], report["tokens_scored"]), (3, 3 * 7))
        self.assertGreater(report["perplexity"], 1)
        self.assertGreater(report["standard_error"], 0)
        self.assertGreater(self.run_json(*arguments)["chunks"], 3)
        self.assertRegex(self.run_well(*arguments).stdout, r"^perplexity [\d.]+ \+/- [\d.]+ over")

    def test_refusals(self):
        text = harness.scratch_folder() / "short.txt"
        text.write_text("few words")
        self.refuse("perplexity", *MODEL, "--file", text, named=("tokens", "1024"))
        self.refuse("perplexity", *MODEL, named="--file")
        self.refuse("perplexity", *MODEL, "--file", text, "--context", "100000", named="100000")


if __name__ == "__main__":
    unittest.main(verbosity=2)
