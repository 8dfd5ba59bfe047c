"""Runs the commands on Hugging Face directories and compares the results with transformers."""

import json
import shutil
import unittest

import numpy

import harness
from command_test_case import CommandTest

HF = harness.TINY.parent / "hf"
MOE = "qwen3_moe_bf16"
NO_TOKENIZER = ("granite", "granitemoeshared", "gpt_oss_mxfp4", "gemma3_vision", "phi3", "glm4_moe")


def golden(name):
    return json.loads((HF / f"{name}.json").read_text())


def tokens(name):
    return ",".join(map(str, golden(name)["ids"]))


def copy_of(name):
    """Returns a writable copy of the model directory, because packing writes into it."""
    folder = harness.scratch_folder() / name
    shutil.copytree(HF / name, folder)
    return folder


class HfCommandTest(CommandTest):

    def logits(self, model, name, *flags):
        out = harness.scratch_folder() / "logits.npy"
        self.run_well("logits", "--model", model, "--exact", "--all", "--tokens", tokens(name), "--out", out, *flags)
        return numpy.load(out)

    def test_experts_on_demand_give_the_same_bits(self):
        model = copy_of(MOE)
        whole = self.logits(model, MOE)
        error = numpy.abs(whole - numpy.load(HF / f"{MOE}.npy"))
        self.assertLess(error.max(), 1e-3)
        self.assertLess(error.mean(), 1e-4)
        self.assertTrue(numpy.array_equal(whole, self.logits(model, MOE, "--expert-memory", "90%")))
        self.assertTrue((model / "model.tidepack").exists())
        self.assertFalse(self.run_json("pack", "--model", model)["written"])

    def test_a_quantised_load_equals_the_quantised_file(self):
        model = copy_of(MOE)
        folder = harness.scratch_folder()
        for kind in ("bf16", "q8_0", "q4_0"):
            out = folder / f"{kind}.gguf"
            self.run_well("quantize", model, out, "--type", kind)
            of_file = self.logits(out, MOE)
            self.assertTrue(numpy.array_equal(self.logits(model, MOE, "--quantize-to", kind), of_file), kind)
            if kind == "bf16":
                self.assertTrue(numpy.array_equal(self.logits(model, MOE), of_file))
        packed = self.logits(model, MOE, "--quantize-to", "q8_0", "--expert-memory", "90%")
        self.assertTrue(numpy.array_equal(packed, self.logits(folder / "q8_0.gguf", MOE)))
        self.assertTrue((model / "model.Q8_0.tidepack").exists())

    def test_a_gguf_of_a_directory_has_its_tokens(self):
        for name in ("llama_f32", "llama3_rope_bf16", "mixtral_bf16", "qwen2_f16"):
            out = harness.scratch_folder() / "out.gguf"
            self.run_well("quantize", HF / name, out, "--type", "f32")
            self.assertTrue(numpy.array_equal(self.logits(out, name), self.logits(HF / name, name)), name)
            text = golden(name)["text"]
            self.assertEqual(self.run_json("tokenize", "--model", out, "--text", text),
                             self.run_json("tokenize", "--model", HF / name, "--text", text))

    def test_text_and_inspect(self):
        name = "qwen3_bf16"
        truth = golden(name)
        self.assertEqual(self.run_json("tokenize", "--model", HF / name, "--text", truth["text"])["token_ids"],
                         truth["text_ids"])
        report = self.run_json("inspect", "--model", HF / name)
        self.assertEqual((report["architecture"], report["format"], report["name"]),
                         ("qwen3", "Hugging Face safetensors", name))
        answer = self.run_json("generate", "--model", HF / name, "--exact", "--tokens", tokens(name), "--max-tokens",
                               16, "--temperature", 0, "--ignore-eos")
        self.assertEqual(answer["token_ids"], truth["greedy"]["ids"])

    def test_a_gguf_of_a_new_family_has_its_logits(self):
        for name in NO_TOKENIZER:
            whole = self.logits(HF / name, name)
            error = numpy.abs(whole - numpy.load(HF / f"{name}.npy"))
            self.assertLess(error.max(), 1e-3, name)
            out = harness.scratch_folder() / "out.gguf"
            self.run_well("quantize", HF / name, out, "--type", "f32")
            self.assertTrue(numpy.array_equal(self.logits(out, name), whole), name)

    def test_a_directory_without_a_tokenizer_takes_token_ids_alone(self):
        name = "olmoe"
        answer = self.run_json("generate", "--model", HF / name, "--exact", "--tokens", tokens(name), "--max-tokens",
                               16, "--temperature", 0, "--ignore-eos")
        self.assertEqual(answer["token_ids"], golden(name)["greedy"]["ids"])
        for command in (("generate", "--prompt", "a"), ("tokenize", "--text", "a")):
            self.refuse(command[0], "--model", HF / name, *command[1:], named=("has no tokenizer",))

    def test_a_multimodal_checkpoint_says_what_it_loads(self):
        report = self.run_json("inspect", "--model", HF / "gemma3_vision")
        self.assertEqual(report["architecture"], "gemma3")
        self.assertIn('text model of "gemma3"', report["format"])

    def test_errors_name_file_and_remedy(self):
        model = copy_of("qwen3_bf16")
        config = model / "config.json"
        text = config.read_text()
        changes = (("qwen3\"", "qwen9\"", ("config.json", "model_type", "qwen9", "expected one of")),
                   ("\"silu\"", "\"relu\"", ("config.json", "hidden_act", "silu")),
                   ("\"vocab_size\": 275", "\"vocab_size\": 3", ("config.json", "vocab_size", "275")),
                   ("}", "", ("config.json", "JSON")))
        for before, after, named in changes:
            config.unlink()
            config.write_text(text.replace(before, after))
            for command in (("logits", "--tokens", "1", "--out", model / "x.npy"), ("inspect",)):
                self.refuse(command[0], "--model", model, *command[1:], named=named)
        config.unlink()
        self.refuse("inspect", "--model", model, named=("config.json", "missing"))
        self.refuse("inspect", "--model", harness.scratch_folder(), named=("config.json", "GGUF"))


class HfServerTest(unittest.TestCase):

    def test_a_directory_without_a_tokenizer_serves_token_ids(self):
        truth = golden("olmoe")
        server = harness.serve("--exact", model=HF / "olmoe")
        self.addCleanup(server.stop)
        client = harness.Client(server)
        self.addCleanup(client.close)
        answer = client.generate(ids=truth["ids"], max_tokens=4, temperature=0)
        self.assertEqual(list(answer.ids), truth["greedy"]["ids"][:len(answer.ids)])
        with self.assertRaisesRegex(Exception, "has no tokenizer"):
            client.generate(text="a", max_tokens=4, temperature=0)

    def test_a_directory_serves(self):
        truth = golden(MOE)
        server = harness.serve("--exact", "--expert-memory", "90%", model=copy_of(MOE))
        self.addCleanup(server.stop)
        client = harness.Client(server)
        self.addCleanup(client.close)
        answer = client.generate(ids=truth["ids"], max_tokens=4, temperature=0)
        self.assertEqual(list(answer.ids), truth["greedy"]["ids"][:len(answer.ids)])
        chat = client.generate(chat=[("user", "Hello")], max_tokens=3, temperature=0)
        # <|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n
        self.assertGreater(chat.usage.prompt_tokens, 10)


if __name__ == "__main__":
    unittest.main()
