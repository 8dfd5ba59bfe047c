#!/usr/bin/env python3
"""Writes the demo MoE: SmolLM2-135M-Instruct with its FFNs as a shared expert and routed ones.

A real small MoE made on the spot, from the dense model's GGUF file and the committed routing.npz
(calibrate.py found it). Architecture qwen2moe, which llama.cpp loads too; what that asks for:
 - A token's routing weight is a softmax over all experts, not renormalised. Router logits are made so
   small that each weight is 1 / experts, and the down projection is multiplied by their number.
 - The shared expert is multiplied by sigmoid(x . g). A g of nearly zero gives 1/2 (of zeros NaN
   in llama.cpp, which computes it as silu(g) / g), and the down projection is doubled.
 - RoPE turns halves of a head, where a llama file stores pairs side by side: rows of Q and K change
   places. Their biases are zeros; the embedding is written again as the output head.
Gate and up projections keep their bits, as whole rows change places; down projections change columns
and are quantised again, to Q8_0.
"""

import argparse
import hashlib
import os
import pathlib
import sys
import time

import gguf
import numpy as np

import routing_data

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
F32 = gguf.GGMLQuantizationType.F32
ROUTER_FACTOR = 0.01  # how small router logits are made
SHARED_GATE = 1e-8
# Of a llama file's metadata, what the new file has under its own name or in another way.
OWN_KEYS = ("general.architecture", "general.file_type", "general.quantization_version")
STAMP_KEY = "tidepool.demo_moe.made_of"
STAMP_WITHIN = 4096  # bytes at the file's beginning


class Stop(Exception):
    """What went wrong, in one line."""


def say(text):
    print(f"make_demo_moe: {text}", file=sys.stderr, flush=True)


def read_model(path, sha256):
    """The open GGUF file, once it is known to be the one the routing belongs to."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Stop(f"{path}: {error.strerror}; tools/setup fetches the model") from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise Stop(f"{path}: sha256 {found[:16]}..., but the routing belongs to a file of "
                   f"{sha256[:16]}...; remove it, and tools/setup fetches the right one")
    del content
    return gguf.GGUFReader(path)


def halves(rows, heads):
    """Rows of Q or K in pairs side by side (GGUF's llama) > in halves of a head (qwen2moe)."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


class Writer:
    """The new file's tensors, in order; all are small enough to be held until they are written."""

    def __init__(self, path, fields, routing, args):
        self.gguf = gguf.GGUFWriter(path, "qwen2moe")
        self.fields = fields
        self.routing = routing
        self.top_k = args.top_k or routing.top_k
        self.down_type = gguf.GGMLQuantizationType[args.down_type]

    def add_metadata(self, stamp):
        self.gguf.add_string(STAMP_KEY, stamp)
        key = lambda name: self.fields["llama." + name].contents()
        arch = "qwen2moe."
        for name in ("block_count", "context_length", "embedding_length", "feed_forward_length",
                     "attention.head_count", "attention.head_count_kv", "rope.dimension_count",
                     "vocab_size"):
            self.gguf.add_uint32(arch + name, key(name))
        for name in ("rope.freq_base", "attention.layer_norm_rms_epsilon"):
            self.gguf.add_float32(arch + name, key(name))
        for name, value in (("expert_count", self.routing.experts),
                            ("expert_used_count", self.top_k),
                            ("expert_feed_forward_length", self.routing.width),
                            ("expert_shared_feed_forward_length", self.routing.shared)):
            self.gguf.add_uint32(arch + name, value)
        self.gguf.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
        self.gguf.add_quantization_version(2)
        for name, field in self.fields.items():
            if name.startswith(("GGUF.", "llama.")) or name in OWN_KEYS:
                continue
            kind = field.types[0]
            value = field.contents()
            if name in ("general.name", "general.basename"):
                value += " MoE" if name == "general.name" else "-moe"
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            self.gguf.add_key_value(name, value, kind, inner)

    def add(self, name, data, kind=F32):
        """`data`: float32, or the bytes of quantised rows."""
        self.gguf.add_tensor(name, data, raw_dtype=kind)

    def add_down(self, name, values):
        """`values` float32 [..., hidden, width]."""
        kind = self.down_type
        self.add(name, gguf.quants.quantize(np.ascontiguousarray(values), kind), kind)

    def add_layer(self, tensors, index):
        prefix = f"blk.{index}."
        part = lambda name: tensors[f"{prefix}{name}.weight"]
        for name in ("attn_norm", "ffn_norm", "attn_v", "attn_output"):
            self.add(f"{prefix}{name}.weight", part(name).data, part(name).tensor_type)
        for name, count in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
            heads = self.fields["llama.attention." + count].contents()
            self.add(f"{prefix}{name}.weight", halves(part(name).data, heads),
                     part(name).tensor_type)
        for name in ("attn_q", "attn_k", "attn_v"):
            self.add(f"{prefix}{name}.bias", np.zeros(int(part(name).shape[1]), np.float32))
        self.add_experts(prefix, part, index)

    def add_experts(self, prefix, part, index):
        routing = self.routing
        shared, routed = np.split(routing.neurons[index], [routing.shared])
        own = routed.reshape(routing.experts, routing.width)
        for name in ("gate", "up"):
            rows = part("ffn_" + name)
            self.add(f"{prefix}ffn_{name}_shexp.weight", rows.data[shared], rows.tensor_type)
            self.add(f"{prefix}ffn_{name}_exps.weight", rows.data[own], rows.tensor_type)
        down = gguf.quants.dequantize(part("ffn_down").data, part("ffn_down").tensor_type)
        down = down[:, routing.neurons[index]] * routing.neuron_scale[index]
        shared_down, routed_down = np.split(down, [routing.shared], axis=1)
        self.add_down(f"{prefix}ffn_down_shexp.weight", 2 * shared_down)
        experts_down = routed_down.reshape(-1, routing.experts, routing.width).transpose(1, 0, 2)
        self.add_down(f"{prefix}ffn_down_exps.weight", routing.experts * experts_down)
        self.add(f"{prefix}ffn_gate_inp.weight",
                 (ROUTER_FACTOR * routing.router[index]).astype(np.float32))
        self.add(f"{prefix}ffn_gate_inp_shexp.weight",
                 np.full(down.shape[0], SHARED_GATE, np.float32))

    def write(self):
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()


def check_shapes(routing, tensors, layers):
    expected = (layers, int(tensors["blk.0.ffn_gate.weight"].shape[1]))
    hidden = int(tensors["blk.0.ffn_gate.weight"].shape[0])
    if routing.neurons.shape != expected or routing.router.shape[2] != hidden:
        raise Stop(f"the routing is for {routing.neurons.shape[0]} layers of "
                   f"{routing.neurons.shape[1]} neurons, the model has {expected[0]} of {expected[1]}")
    if routing.shared % 32 or routing.width % 32:
        raise Stop(f"experts of {routing.shared} and {routing.width} neurons: Q8_0 needs multiples "
                   "of 32; calibrate again")


def build(args, routing, stamp, target):
    reader = read_model(args.model, routing.model_sha256)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    layers = reader.fields["llama.block_count"].contents()
    check_shapes(routing, tensors, layers)
    writer = Writer(target, reader.fields, routing, args)
    writer.add_metadata(stamp)
    embedding = tensors["token_embd.weight"]
    for name in ("token_embd.weight", "output.weight"):
        writer.add(name, embedding.data, embedding.tensor_type)
    writer.add("output_norm.weight", tensors["output_norm.weight"].data)
    for index in range(layers):
        if index % 10 == 0:
            say(f"layers {index} to {min(index + 10, layers) - 1} of {layers}")
        writer.add_layer(tensors, index)
    say("writing")
    writer.write()


def stamp_of(args, routing):
    """What the file is made of: one that has the same stamp needs no making again."""
    digest = hashlib.sha256()
    for path in (args.routing, HERE / "make.py", HERE / "routing_data.py"):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{digest.hexdigest()}-top-{args.top_k or routing.top_k}-{args.down_type}"


def is_current(path, stamp):
    try:
        with open(path, "rb") as file:
            return stamp.encode() in file.read(STAMP_WITHIN)
    except OSError:  # not there, or nothing to read: making it will tell
        return False


def make(args):
    try:
        routing = routing_data.load(args.routing)
    except ValueError as error:
        raise Stop(str(error)) from None
    if args.top_k is not None and not 1 <= args.top_k <= routing.experts:
        raise Stop(f"--top-k {args.top_k}: a number from 1 to {routing.experts} was expected")
    stamp = stamp_of(args, routing)
    if is_current(args.out, stamp) and not args.force:
        say(f"{args.out} is up to date")
        return
    started = time.monotonic()
    part = args.out.with_name(f"{args.out.name}.part{os.getpid()}")
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        build(args, routing, stamp, part)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, args.out)
    except OSError as error:
        raise Stop(f"{error.filename or args.out}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    say(f"{args.out}: {args.out.stat().st_size / 1e6:.0f} MB, {routing.experts} experts in each layer, "
        f"{args.top_k or routing.top_k} used, in {time.monotonic() - started:.1f} s")


def parse_arguments():
    models = ROOT / ".cache/models"
    parser = argparse.ArgumentParser(
        prog="make_demo_moe", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, metavar="FILE",
                        default=models / "SmolLM2-135M-Instruct.Q4_1.gguf",
                        help="the dense model, as tools/setup fetches it")
    parser.add_argument("--routing", type=pathlib.Path, metavar="FILE", default=HERE / "routing.npz")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        default=models / "SmolLM2-135M-Instruct-MoE.Q4_1.gguf")
    parser.add_argument("--top-k", type=int, metavar="N",
                        help="experts a token uses (default: those of the calibration; answers get "
                        "better with more)")
    parser.add_argument("--down-type", choices=("Q8_0", "F16", "F32"), default="Q8_0",
                        help="of the down projections")
    parser.add_argument("--force", action="store_true",
                        help="also where --out is there and up to date")
    return parser.parse_args()


def main():
    try:
        make(parse_arguments())
    except Stop as error:
        say(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
