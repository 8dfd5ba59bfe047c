#!/usr/bin/env python3
"""Writes the demo MoE: SmolLM2-135M-Instruct with its FFNs split into a shared expert and routed
ones.

Inputs are the dense model's GGUF file and the committed routing.npz, which calibrate.py wrote. The
architecture is qwen2moe, which llama.cpp supports too. It has these requirements:
 - Routing weights are a softmax over all experts, not renormalised. So router logits are scaled down until
   each weight is about 1 / experts, and the down projection is multiplied by the number of experts.
 - The shared expert is multiplied by sigmoid(x . g). A g of nearly zero gives 1/2, and the down projection
   is doubled. (A g of zeros gives NaN in llama.cpp, which computes silu(g) / g.)
 - RoPE rotates halves of a head, but a llama file stores interleaved pairs. So the rows of Q and K are
   reordered.
 - Biases of Q, K and V are required; they are zeros. The embedding is written again as the output head.
Gate and up projections keep their bits, because whole rows are moved. Down projections are reordered by
column and quantised again, to Q8_0.
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
ROUTER_FACTOR = 0.01  # scale of router logits
SHARED_GATE = 1e-8
# Metadata of the llama file that is not copied, because the new file sets it differently.
OWN_KEYS = ("general.architecture", "general.file_type", "general.quantization_version")
STAMP_KEY = "tidepool.demo_moe.made_of"
STAMP_WITHIN = 4096  # bytes at the start of the file


class Stop(Exception):
    """An error, described in one line."""


def say(text):
    print(f"make_demo_moe: {text}", file=sys.stderr, flush=True)


def read_model(path, sha256):
    """Opens the GGUF file after checking that the routing belongs to it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Stop(f"{path}: {error.strerror}; run tools/setup to fetch the model") from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise Stop(f"{path}: sha256 is {found[:16]}..., but the routing needs a file with "
                   f"{sha256[:16]}...; remove the file and run tools/setup")
    del content
    return gguf.GGUFReader(path)


def halves(rows, heads):
    """Reorders rows of Q or K from interleaved pairs (GGUF's llama) to halves of a head (qwen2moe)."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


class Writer:
    """Collects the tensors of the new file in memory, in order, and writes them."""

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
        """`data` is float32, or the bytes of quantised rows."""
        self.gguf.add_tensor(name, data, raw_dtype=kind)

    def add_down(self, name, values):
        """`values` is float32 [..., hidden, width]."""
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
                   f"{routing.neurons.shape[1]} neurons, but the model has {expected[0]} of {expected[1]}")
    if routing.shared % 32 or routing.width % 32:
        raise Stop(f"experts of {routing.shared} and {routing.width} neurons: Q8_0 needs multiples "
                   "of 32; run calibrate.py again")


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
    """A digest of all inputs. A file with the same stamp is up to date."""
    digest = hashlib.sha256()
    for path in (args.routing, HERE / "make.py", HERE / "routing_data.py"):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{digest.hexdigest()}-top-{args.top_k or routing.top_k}-{args.down_type}"


def is_current(path, stamp):
    try:
        with open(path, "rb") as file:
            return stamp.encode() in file.read(STAMP_WITHIN)
    except OSError:  # missing or unreadable: build() reports errors
        return False


def make(args):
    try:
        routing = routing_data.load(args.routing)
    except ValueError as error:
        raise Stop(str(error)) from None
    if args.top_k is not None and not 1 <= args.top_k <= routing.experts:
        raise Stop(f"--top-k must be from 1 to {routing.experts} (got {args.top_k})")
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
                        help="the dense model (default: the one that tools/setup fetches)")
    parser.add_argument("--routing", type=pathlib.Path, metavar="FILE", default=HERE / "routing.npz")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        default=models / "SmolLM2-135M-Instruct-MoE.Q4_1.gguf")
    parser.add_argument("--top-k", type=int, metavar="N",
                        help="experts that a token uses (default: as calibrated; more give better "
                        "answers)")
    parser.add_argument("--down-type", choices=("Q8_0", "F16", "F32"), default="Q8_0",
                        help="type of the down projections (default: %(default)s)")
    parser.add_argument("--force", action="store_true",
                        help="write --out even if it is up to date")
    return parser.parse_args()


def main():
    try:
        make(parse_arguments())
    except Stop as error:
        say(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
