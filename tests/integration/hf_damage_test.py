"""Seeded damage of each file of Hugging Face directories, with each command that reads it: a one-line
refusal with exit code 2 or a normal end, but never a signal, a hang, or excessive memory.

    hf_damage_test.py [CASES]

CASES: number of cases for each file. TIDEPOOL_TEST_SEED gives a seed other than the default.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import resource
import struct
import sys
import tempfile
import unittest

import damaged_files
import harness
import seeded_damage
from damaged_runs import ADDRESS_BYTES, SCRATCH, Outcome, complaints

CASES = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 25
SEED = int(os.environ.get("TIDEPOOL_TEST_SEED", 20261126))
GOLDEN = harness.TINY.parent
SHARDED = GOLDEN / "hf" / "llama3_rope_bf16"
SHARD = "model-00001-of-00002.safetensors"
# Vocabulary of the SentencePiece model.
PIECES = 2000

HOSTILE = (None, True, -1, 0, 1, 7, 1 << 24, (1 << 24) - 1, 1e308, -0.5, (1 << 63), (1 << 64) - 1, "", "x", "\x1b[31m\x00", "y" * 5000, [], {},
           [[]], [1, "a", None], {"a": {"b": []}})


def paths_of(value, path=()):
    """Returns the path of every value below `value`."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from paths_of(child, (*path, key))


def damage_json(rng, text):
    """Replaces or removes one value."""
    whole = json.loads(text)
    *parents, last = rng.choice(list(paths_of(whole)))
    parent = whole
    for key in parents:
        parent = parent[key]
    if rng.random() < 0.2:
        del parent[last]
    else:
        parent[last] = rng.choice(HOSTILE)
    return json.dumps(whole).encode()


def header_of(content):
    size, = struct.unpack_from("<Q", content)
    return content[8:8 + size], content[8 + size:]


def damage_header(rng, content):
    """Damages the header of a safetensors file; its length is right in half of the cases."""
    header, data = header_of(content)
    if rng.random() < 0.5:
        begin = seeded_damage.Damage(rng, 8 + len(header)).apply(content[:8 + len(header)])
        return begin + data
    damaged = damage_json(rng, header)
    return struct.pack("<Q", len(damaged)) + damaged + data


def damage_text(rng, content):
    """Damages a JSON file: its bytes, or a value."""
    if rng.random() < 0.5:
        return seeded_damage.Damage(rng, len(content)).apply(content)
    return damage_json(rng, content)


def damage_bytes(rng, content):
    return seeded_damage.Damage(rng, len(content)).apply(content)


def with_sentencepiece():
    """Returns the files of a directory whose tokenizer is a SentencePiece model."""
    files = seeded_damage.load(GOLDEN / "hf" / "llama_f32")
    # These files name tokens of the tokenizer that is replaced.
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        del files[name]
    config = json.loads(files["config.json"])
    config.update(vocab_size=PIECES, eos_token_id=2)
    files["config.json"] = json.dumps(config).encode()
    header, data = header_of(files["model.safetensors"])
    tensors = json.loads(header)
    tensors.pop("__metadata__")
    blob = b""
    for name, info in tensors.items():
        begin, end = info["data_offsets"]
        values = data[begin:end]
        if name in ("lm_head.weight", "model.embed_tokens.weight"):
            rows, width = info["shape"]
            values = (values * (PIECES // rows + 1))[:PIECES * width * 4]
            info["shape"] = [PIECES, width]
        info["data_offsets"] = [len(blob), len(blob) + len(values)]
        blob += values
    header = json.dumps(tensors).encode()
    files["model.safetensors"] = struct.pack("<Q", len(header)) + header + blob
    files["tokenizer.model"] = (GOLDEN / "tokenizers" / "spm_llama.model").read_bytes()
    return files


def run_case(files, name, damage, seed):
    """Runs one case with all commands. Returns (faults, whether it was refused)."""
    content = damage(random.Random(seed), files[name])
    wrong, refused = [], False
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        folder = pathlib.Path(scratch) / "model"
        seeded_damage.put(folder, {**files, name: content})
        for command in ("logits", "tokenize", "generate", "inspect"):
            outcome = Outcome(command, folder)
            refused |= outcome.code != 0
            wrong += [f"{name}: seed {seed}: {command}: {complaint}: {outcome.err[:400]!r}"
                      for complaint in complaints(outcome, damaged_files.EITHER, str(folder))]
    return wrong, refused


class HfDamageTest(unittest.TestCase):

    def check(self, files, name, damage):
        print(f"{name}: seed {SEED}, {CASES} cases", flush=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = [pool.submit(run_case, files, name, damage, f"{SEED}.{case}") for case in range(CASES)]
            results = [run.result() for run in runs]
        wrong = [line for lines, _ in results for line in lines]
        self.assertEqual(wrong, [], "\n".join(["", *wrong]))
        self.assertGreater(sum(refused for _, refused in results), 0, "no damage was noticed")

    def test_the_directories_are_sound(self):
        for files in (seeded_damage.load(SHARDED), with_sentencepiece()):
            wrong, refused = run_case(files, "config.json", lambda rng, content: content, 0)
            self.assertEqual((wrong, refused), ([], False))

    def test_safetensors(self):
        self.check(seeded_damage.load(SHARDED), SHARD, damage_header)

    def test_index(self):
        self.check(seeded_damage.load(SHARDED), "model.safetensors.index.json", damage_text)

    def test_config(self):
        self.check(seeded_damage.load(SHARDED), "config.json", damage_text)

    def test_generation_config(self):
        self.check(seeded_damage.load(SHARDED), "generation_config.json", damage_text)

    def test_tokenizer_json(self):
        self.check(seeded_damage.load(SHARDED), "tokenizer.json", damage_text)

    def test_tokenizer_config(self):
        self.check(seeded_damage.load(SHARDED), "tokenizer_config.json", damage_text)

    def test_sentencepiece(self):
        self.check(with_sentencepiece(), "tokenizer.model", damage_bytes)


if __name__ == "__main__":
    if not harness.SANITIZED:
        # If a file makes a command allocate too much, only that command ends, not the machine.
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    unittest.main(verbosity=2)
