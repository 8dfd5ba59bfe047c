"""Runs the commands on Hugging Face directories and compares the results with transformers."""

import json
import shutil
import unittest

import numpy

import harness
from command_test_case import CommandTest

HF = harness.TINY.parent / "hf"
MOE = "qwen3_moe_bf16"
NO_TOKENIZER = ("granite", "granitemoeshared", "gpt_oss_mxfp4", "gemma3_vision", "phi3", "glm4_moe", "qwen3_next",
                "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_vl_moe", "qwen3_vl_moe_saved", "lfm2_moe")


def golden(name):
    return json.loads((HF / f"{name}.json").read_text())


def tokens(name):
    return ",".join(map(str, golden(name)["ids"]))


def fill_tensor(folder, name, pair):
    """Writes the two bytes `pair` over a whole BF16 tensor of a directory with one file."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:start])[name]["data_offsets"]
    data[start + begin:start + end] = pair * ((end - begin) // 2)
    path.write_bytes(data)


def change_tensors(folder, change):
    """Replaces each BF16 tensor of a directory with one file by change(name, array): uint16 for BF16, uint32 for F32,
    None for no tensor."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header, data = {}, b""
    for name, entry in json.loads(content[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = numpy.frombuffer(content[start + begin:start + end], numpy.uint16).reshape(entry["shape"])
        array = change(name, array)
        if array is None:
            continue
        kind = {2: "BF16", 4: "F32"}[array.itemsize]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.unlink()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def transpose(*endings):
    """Returns a change that transposes the matrices of the tensors whose names have one of these
    endings."""
    return lambda name, array: array.swapaxes(1, 2).copy() if name.endswith(endings) else array


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

    def dump(self, model, name, *flags):
        """Returns the outputs by part."""
        folder = harness.scratch_folder() / "dump"
        self.run_well("logits", "--model", model, "--exact", "--all", "--tokens", tokens(name), "--dump", folder,
                      *flags)
        return {path.stem: numpy.load(path) for path in folder.iterdir()}

    def test_a_dump_has_the_hidden_states_of_transformers(self):
        for name in ("gemma3_text", MOE):
            with self.subTest(name):
                model = copy_of(name)
                states = numpy.load(HF / f"{name}.hidden.npy")
                layers = len(states) - 1
                parts = ["embedding", *(f"layer.{layer}" for layer in range(layers - 1)), "norm"]
                whole = self.dump(model, name)
                self.assertEqual(set(whole), {*parts, f"layer.{layers - 1}",
                                              *(f"layer.{layer}.attention" for layer in range(layers))})
                for part, state in zip(parts, states, strict=True):
                    self.assertEqual((whole[part].shape, whole[part].dtype.str), (state.shape, "<f4"), part)
                    self.assertLess(numpy.abs(whole[part] - state).max(), 1e-3, part)
                for flags in (["--chunk", "1"], ["--chunk", "7", "--expert-memory", "90%"]):
                    other = self.dump(model, name, *(flags if name == MOE else flags[:2]))
                    self.assertEqual(set(whole), set(other))
                    for part, rows in whole.items():
                        self.assertTrue(numpy.array_equal(rows, other[part]), f"{part} {flags}")

    def test_a_dump_of_a_broken_model_ends_with_the_layer_that_is_broken(self):
        name = "gemma3_text"
        model = copy_of(name)
        fill_tensor(model, "model.layers.2.post_feedforward_layernorm.weight", b"\x7f\x7f")
        folder = harness.scratch_folder() / "dump"
        self.refuse("logits", "--model", model, "--tokens", tokens(name), "--dump", folder, code=1,
                    named=("layer 2", "infinity", f"the outputs of the layers up to there are in {folder}"))
        self.assertEqual({path.stem for path in folder.iterdir()},
                         {"embedding", *(f"layer.{layer}{part}" for layer in range(3) for part in ("", ".attention"))})
        self.assertTrue(numpy.isfinite(numpy.load(folder / "layer.2.attention.npy")).all())
        self.assertTrue(numpy.isinf(numpy.load(folder / "layer.2.npy")).any())

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

    def test_a_directory_with_wrong_shapes_is_not_quantised(self):
        cases = (("llama_f32", {"intermediate_size": 57}, "mlp.down_proj.weight: shape [30, 56], expected [30, 57]"),
                 ("qwen3_bf16", {"hidden_size": 52}, "embed_tokens.weight: shape [275, 50], expected [275, 52]"),
                 ("qwen3_moe_bf16", {"moe_intermediate_size": 26},
                  "experts.0.gate_proj.weight: shape [24, 50], expected [26, 50]"),
                 ("olmoe", {"num_attention_heads": 1, "num_key_value_heads": 1},
                  "layers.0.self_attn.k_norm.weight: shape [8], expected [40]"),
                 ("deepseek_v3", {"num_experts_per_tok": 5}, "num_experts_per_tok: 5, expected at most 4"))
        for name, edits, error in cases:
            model = copy_of(name)
            config = model / "config.json"
            changed = json.loads(config.read_text()) | edits
            config.unlink()
            config.write_text(json.dumps(changed))
            self.refuse("logits", "--model", model, "--tokens", "1", "--out", model / "x.npy", named=error)
            out = harness.scratch_folder() / "out.gguf"
            self.refuse("quantize", model, out, "--type", "f32", named=error)
            self.assertFalse(out.exists(), name)
            out.write_text("an older file")
            self.refuse("quantize", model, out, "--type", "f32", "--force", named=error)
            self.assertEqual([path.name for path in out.parent.iterdir()], ["out.gguf"])
            self.assertEqual(out.read_text(), "an older file")

    def test_a_directory_without_a_tokenizer_takes_token_ids_alone(self):
        name = "olmoe"
        answer = self.run_json("generate", "--model", HF / name, "--exact", "--tokens", tokens(name), "--max-tokens",
                               16, "--temperature", 0, "--ignore-eos")
        self.assertEqual(answer["token_ids"], golden(name)["greedy"]["ids"])
        for command in (("generate", "--prompt", "a"), ("tokenize", "--text", "a")):
            self.refuse(command[0], "--model", HF / name, *command[1:], named=("has no tokenizer",))

    def test_a_multimodal_checkpoint_reports_the_loaded_parts(self):
        report = self.run_json("inspect", "--model", HF / "gemma3_vision")
        self.assertEqual(report["architecture"], "gemma3")
        self.assertIn('text model of "gemma3"', report["format"])

    def test_a_hybrid_says_which_layers_are_recurrent_and_which_are_not_used(self):
        out = harness.scratch_folder() / "out.gguf"
        self.run_well("quantize", HF / "qwen3_5", out, "--type", "f32")
        for model in (HF / "qwen3_5", out):
            report = self.run_json("inspect", "--model", model)
            self.assertEqual([report[key] for key in ("layers", "recurrent_layers", "unused_draft_layers", "heads",
                                                      "kv_heads", "head_dim")], [3, 2, 1, 5, 1, 12])
            text = self.run_well("inspect", "--model", model).stdout
            self.assertRegex(text, r"unused draft layers +1\n")

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


class ExpertLayoutTest(CommandTest):
    """Qwen3-VL-MoE: a directory may have the experts' matrices or their transposes."""

    GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"

    def logits(self, model, *flags):
        out = harness.scratch_folder() / "logits.npy"
        self.run_well("logits", "--model", model, "--exact", "--all", "--tokens", tokens("qwen3_vl_moe"), "--out", out,
                      *flags)
        return numpy.load(out)

    def refuse_changed(self, name, change, *named):
        model = copy_of(name)
        change_tensors(model, change)
        for command in (("inspect", "--model", model), ("quantize", model, model / "out.gguf", "--type", "f32")):
            self.refuse(*command, named=named)

    def test_both_layouts_give_the_same_bits(self):
        name = "qwen3_vl_moe"
        whole = self.logits(HF / name)
        for endings in ((self.GATE_UP, self.DOWN), (self.GATE_UP,), (self.DOWN,)):
            model = copy_of(name)
            change_tensors(model, transpose(*endings))
            self.assertTrue(numpy.array_equal(self.logits(model), whole), endings)
            self.assertTrue(numpy.array_equal(self.logits(model, "--expert-memory", "90%"), whole), endings)

    def test_both_layouts_may_have_float32(self):
        for name in ("qwen3_vl_moe", "qwen3_vl_moe_saved"):
            model = copy_of(name)
            change_tensors(model, lambda name, array: array.astype(numpy.uint32) << 16)
            error = numpy.abs(self.logits(model) - numpy.load(HF / f"{name}.npy"))
            self.assertLess(error.max(), 1e-3, name)

    def test_a_layout_that_shapes_do_not_determine_is_refused(self):
        name = "qwen3_vl_moe_saved"
        self.refuse_changed(name, transpose(self.GATE_UP, self.DOWN), f"layers.1.{self.GATE_UP}", "[6, 24, 24]",
                            f"layers.1.{self.DOWN} has the shape [6, 12, 24]", "[experts, outputs, inputs]")

    def test_damage_is_refused_with_the_name_of_the_tensor(self):
        for name in ("qwen3_vl_moe", "qwen3_vl_moe_saved"):
            for ending in (self.GATE_UP, self.DOWN):
                tensor = f"model.language_model.layers.1.{ending}"
                change = lambda name, array: None if name == tensor else array
                self.refuse_changed(name, change, f"{tensor}: missing")
                for cut in (numpy.s_[:5], numpy.s_[:, 1:], numpy.s_[:, :, 1:], numpy.s_[0]):
                    change = lambda name, array: array[cut] if name == tensor else array
                    self.refuse_changed(name, change, f"{tensor}: shape [")


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
