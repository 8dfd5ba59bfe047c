"""Makes the demo MoE as tools/make_demo_moe does, and runs it.

If all experts are chosen with equal weights, and down projections are float32, the converted model
must equal the dense one.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import gguf
import numpy as np

TOOLS = pathlib.Path("tools/demo_moe").resolve()
sys.path.insert(0, str(TOOLS))
import make  # noqa: E402
import routing_data  # noqa: E402

MODEL = pathlib.Path(os.environ["TIDEPOOL_TEST_MODEL"]).resolve()
TIDEPOOL = pathlib.Path(os.environ["TIDEPOOL_BINARY"]).resolve()
LAYERS, NEURONS, HIDDEN = 30, 1536, 576
IDS = "1,4093,198,504,6376,314,260,1234,77,2000,282,471,216,34,905,2"


class DemoMoeTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.committed = routing_data.load(TOOLS / "routing.npz")

    def make(self, *arguments):
        return subprocess.run([sys.executable, str(TOOLS / "make.py"), "--model", str(MODEL), *arguments],
                              capture_output=True, text=True, timeout=300)

    def make_well(self, name, *arguments):
        out = self.folder / name
        result = self.make("--out", str(out), *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out

    def refuse(self, named, *arguments):
        """Checks that the command fails with one line on stderr that contains `named`, and writes
        no file."""
        out = self.folder / "refused.gguf"
        result = self.make("--out", str(out), *arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(named, result.stderr)
        self.assertEqual([path.name for path in self.folder.glob("refused*")], [])

    def run_tidepool(self, *arguments):
        result = subprocess.run([str(TIDEPOOL), *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def logits(self, model, *flags):
        out = self.folder / "logits.npy"
        self.run_tidepool("logits", "--model", str(model), "--tokens", IDS, "--all", "--out", str(out),
                          *flags)
        return np.load(out)

    def plain_routing(self):
        """Returns a routing with the neurons in some order, and with equal experts."""
        routing = routing_data.load(TOOLS / "routing.npz")
        shuffled = np.random.default_rng(5)
        routing.neurons = np.stack([shuffled.permutation(NEURONS) for _ in range(LAYERS)])
        routing.router[:], routing.neuron_scale[:] = 0, 1
        routing.top_k = routing.experts
        path = self.folder / "plain.npz"
        routing_data.save(path, routing)
        return path

    def test_with_all_experts_alike_it_is_the_dense_model(self):
        routing = str(self.plain_routing())
        dense = self.logits(MODEL, "--exact")
        quantised = self.make_well("plain.gguf", "--routing", routing)
        difference = np.abs(self.logits(quantised, "--exact") - dense)
        # This difference comes from quantising the down projections again. The logits have a
        # standard deviation of 6.
        self.assertLess(difference.mean(), 0.4)
        quantised.unlink()
        exact = self.make_well("exact.gguf", "--routing", routing, "--down-type", "F32")
        difference = np.abs(self.logits(exact, "--exact") - dense)
        self.assertLess(difference.max(), 2e-2)
        self.assertLess(difference.mean(), 1e-3)
        exact.unlink()

    def test_the_committed_routing_makes_a_model_that_answers(self):
        out = self.make_well("demo.gguf")
        self.assertIn("is up to date", self.make("--out", str(out)).stderr)
        shape = json.loads(self.run_tidepool("inspect", "--model", str(out), "--json"))
        self.assertIn("qwen2moe", json.dumps(shape))
        text = str(pathlib.Path("tests/golden/perplexity.txt").resolve())
        found = {
            name: json.loads(self.run_tidepool("perplexity", "--model", str(model), "--file", text,
                                               "--chunks", "2", "--json"))["perplexity"]
            for name, model in (("dense", MODEL), ("moe", out))}
        # A quarter of the FFN is skipped for each token. Wrong routing would give thousands.
        self.assertLess(found["moe"], 4 * found["dense"], found)
        self.assertGreater(found["moe"], found["dense"], found)
        out.unlink()

    def test_more_experts_are_nearer_to_the_dense_model(self):
        dense = self.logits(MODEL)
        away = []
        experts = self.committed.experts
        for top_k in (experts // 8, experts // 2, experts):
            model = self.make_well("more.gguf", "--top-k", str(top_k), "--force")
            away.append(float(np.abs(self.logits(model) - dense).mean()))
        self.assertGreater(away[0], 1.2 * away[1])
        self.assertGreater(away[1], 1.2 * away[2])

    def test_rows_of_gate_and_up_keep_their_bits(self):
        out = self.make_well("bits.gguf")
        tensors = lambda path: {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
        dense, moe = tensors(MODEL), tensors(out)
        for layer in (0, 17, LAYERS - 1):
            for part in ("gate", "up"):
                name = f"blk.{layer}.ffn_{part}"
                rows = np.concatenate([moe[f"{name}_shexp.weight"],
                                       *moe[f"{name}_exps.weight"]])
                self.assertTrue(np.array_equal(
                    rows, dense[f"{name}.weight"][self.committed.neurons[layer]]), name)

    def test_wrong_inputs_are_named(self):
        experts = self.committed.experts
        self.refuse(f"--top-k must be from 1 to {experts} (got {experts + 1})", "--top-k", str(experts + 1))
        other = self.folder / "other.gguf"
        other.write_bytes(MODEL.read_bytes()[:1000])
        self.refuse("other.gguf: sha256 is", "--model", str(other))
        self.refuse("absent.gguf: No such file", "--model", str(self.folder / "absent.gguf"))
        self.refuse("absent.npz: no such file", "--routing", str(self.folder / "absent.npz"))
        cut = self.folder / "cut.npz"
        cut.write_bytes((TOOLS / "routing.npz").read_bytes()[:-3000])
        self.refuse("cut.npz: not routing data", "--routing", str(cut))
        twice = routing_data.load(TOOLS / "routing.npz")
        twice.neurons[3, 0] = twice.neurons[3, 1]
        routing_data.save(self.folder / "twice.npz", twice)
        self.refuse("twice.npz: the neurons of a layer are not a permutation", "--routing",
                    str(self.folder / "twice.npz"))

    def test_a_folder_in_the_way_is_named(self):
        folder = self.folder / "folder.gguf"
        folder.mkdir()
        result = self.make("--out", str(folder))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("folder.gguf", result.stderr.splitlines()[-1])
        self.assertEqual(list(self.folder.glob("*.part*")), [])
        shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
