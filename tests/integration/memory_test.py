"""Memory of a loaded model: weights, KV cache and little else, even at the peak of loading."""

import os
import pathlib
import struct
import subprocess
import unittest

import harness
from command_test_case import CommandTest

MIB = 1 << 20
# Memory in addition to weights and KV: the program, the tokenizer, activations, and data of which
# loading has two copies.
OVERHEAD = 100 * MIB

U32, F32, STRING, ARRAY = 4, 6, 8, 9
TYPE_F32, TYPE_Q4_K, TYPE_Q6_K = 0, 12, 14
BLOCKS = {TYPE_F32: (1, 4), TYPE_Q4_K: (256, 144), TYPE_Q6_K: (256, 210)}
ALIGNMENT = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    if kind == STRING:
        return text(key) + struct.pack("<I", kind) + text(value)
    return text(key) + struct.pack("<I" + {U32: "I", F32: "f"}[kind], kind, value)


def array(key, kind, values):
    pack = text if kind == STRING else lambda value: struct.pack("<I", value)
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(pack(value) for value in values)


def write_model(path, vocab, hidden, ffn):
    """Writes a llama of one layer. Most bytes are in one Q6_K embedding. Almost all weights are 0,
    and are a hole in the file. Only the embeddings of tokens 1 to 3 and the last norm are not 0, so
    that the outputs are not 0."""
    tokens = [chr(256 + i) if i < 256 else f"t{i}" for i in range(vocab)]
    metadata = [
        entry("general.architecture", STRING, "llama"),
        entry("llama.context_length", U32, 4096),
        entry("llama.embedding_length", U32, hidden),
        entry("llama.block_count", U32, 1),
        entry("llama.feed_forward_length", U32, ffn),
        entry("llama.attention.head_count", U32, hidden // 128),
        entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", U32, [1] * vocab),
        array("tokenizer.ggml.merges", STRING, []),
        entry("tokenizer.ggml.eos_token_id", U32, vocab - 1),
    ]
    tensors = [("token_embd.weight", TYPE_Q6_K, (hidden, vocab)),
               ("output_norm.weight", TYPE_F32, (hidden,)),
               ("blk.0.attn_norm.weight", TYPE_F32, (hidden,)),
               ("blk.0.ffn_norm.weight", TYPE_F32, (hidden,))]
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensors.append((f"blk.0.{name}.weight", TYPE_Q4_K, (hidden, hidden)))
    for name, shape in (("gate", (hidden, ffn)), ("up", (hidden, ffn)), ("down", (ffn, hidden))):
        tensors.append((f"blk.0.ffn_{name}.weight", TYPE_Q4_K, shape))
    infos, offset, offsets = b"", 0, {}
    for name, kind, shape in tensors:
        offsets[name] = offset
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        elements, size = BLOCKS[kind]
        count = 1
        for n in shape:
            count *= n
        offset += -(-count // elements * size // ALIGNMENT) * ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    head += infos
    start = -(-len(head) // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(start + offset)
        for row in (1, 2, 3):  # each value is -32 times a scale of 1 times the block's factor
            block = bytes(192) + b"\x01" * 16 + struct.pack("<e", 0.01 * row)
            file.seek(start + offsets["token_embd.weight"] + row * (hidden // 256) * len(block))
            file.write(block * (hidden // 256))
        file.seek(start + offsets["output_norm.weight"])
        file.write(struct.pack("<f", 1.0) * hidden)
    return offset


def peak_bytes(*arguments):
    """Runs tidepool, which must succeed. Returns its peak resident memory (VmHWM)."""
    with subprocess.Popen([harness.BINARY, *map(str, arguments)], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE) as process:
        errors = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)  # this is the only way to find the peak of one child
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, errors
    return usage.ru_maxrss * 1024


class Memory(unittest.TestCase):
    def check(self, model, weights, kv_bytes_per_token):
        context = 256
        peak = peak_bytes("generate", "-m", model, "--tokens", "1,2,3", "-n", "4", "-c", context,
                          "--temperature", "0", "-t", "2")
        limit = weights + context * kv_bytes_per_token + OVERHEAD
        print(f"{pathlib.Path(model).name}: peak {peak / MIB:.1f} MiB, "
              f"weights {weights / MIB:.1f} MiB, limit {limit / MIB:.1f} MiB")
        self.assertLessEqual(peak, limit)
        self.assertGreater(peak, weights)  # a smaller peak would show that the measurement is wrong

    def test_a_real_model(self):
        # 30 layers, keys and values of 3 heads of 64 in f16.
        self.check(harness.smollm2(), harness.smollm2().stat().st_size, 30 * 2 * 3 * 64 * 2)

    def test_super_blocks_stay_packed_and_a_large_tensor_is_never_held_twice(self):
        path = harness.scratch_folder() / "sparse.gguf"
        weights = write_model(path, vocab=128256, hidden=2048, ffn=4096)
        self.check(path, weights, 2 * 2048 * 2)


class Bench(CommandTest):
    def test_a_kv_that_no_machine_holds_is_refused(self):
        self.refuse("bench", "--model", harness.smollm2(), "-p", "0", "-n", "8192", "-b", "4096",
                    "--kv-type", "f32", code=1, named=("tg8192@4096", "33554432 tokens", "--batch"))


if __name__ == "__main__":
    unittest.main()
