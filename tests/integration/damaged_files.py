"""Damaged and hostile GGUF files, made from a valid one, and the expected result of each command.

This file has damage to the structure; damaged_models.py has damage to the contents. A Case says for
each command whether it must refuse the file (and what the error must name), must succeed, or may do
either.
"""

import collections
import struct

import gguf_bytes as gguf
from gguf_bytes import I32, STRING, U32, U64

# Commands, ordered by how much of a file they read.
COMMANDS = ("tokenize", "inspect", "generate", "logits")

FINE = "fine"  # exit code 0
EITHER = "either"  # FINE and Refused(()) are both accepted
# If the exit code is 2, the error also names the file. Exit code 1 is for faults that are only
# detected by computing.
Refused = collections.namedtuple("Refused", "named code", defaults=(2,))

# `files`: name and content of each file; the first one is opened. `outcomes`: the expected outcome of
# each command.
Case = collections.namedtuple("Case", "name files outcomes")


def case(name, content, refused=COMMANDS, named=(), otherwise=FINE):
    """The commands in `refused` must fail with an error that contains `named`. All others must have
    the outcome `otherwise`."""
    files = content if isinstance(content, dict) else {"damaged.gguf": content}
    wanted = (named,) if isinstance(named, str) else tuple(named)
    outcomes = {command: Refused(wanted) if command in refused else otherwise
                for command in COMMANDS}
    return Case(name, files, outcomes)


# The commands that must refuse a file. EVERYONE: the file is broken. MODEL: the model is
# contradictory. LOADERS: the model is valid but unsupported, so inspect describes it; or numbers
# are bad, which only commands that read weights notice.
EVERYONE = COMMANDS
MODEL = ("inspect", "generate", "logits")
LOADERS = ("generate", "logits")
NOBODY = ()


def u64(value):
    return struct.pack("<Q", value)


def u32(value):
    return struct.pack("<I", value)


HUGE = ((1 << 64) - 1, 1 << 63, 1 << 32)
PARTS = ("victim-00001-of-00002.gguf", "victim-00002-of-00002.gguf")


def truncations(victim):
    whole = victim.build()
    marks = victim.marks
    places = {
        "empty": 0, "in-magic": 3, "after-magic": 4, "after-version": 8, "after-tensor-count": 16,
        "after-header": 24, "in-key-length": 28,
        "in-key": marks["general.name.key"] + 3,
        "in-value-type": marks["general.name.type"] + 1,
        "in-string-length": marks["general.name.value"] + 4,
        "in-string": marks["general.name.value"] + 10,
        "in-number": marks["llama.block_count.value"] + 2,
        "in-array-type": marks["tokenizer.ggml.tokens.value"] + 2,
        "in-array-length": marks["tokenizer.ggml.tokens.value"] + 7,
        "in-string-array": marks["tokenizer.ggml.tokens.value"] + 501,
        "in-number-array": marks["tokenizer.ggml.token_type.value"] + 501,
        "after-metadata": marks["infos"],
        "in-tensor-name": marks["blk.0.attn_q.weight.name"] + 5,
        "in-dim-count": marks["blk.0.attn_q.weight.n_dims"] + 1,
        "in-dims": marks["blk.0.attn_q.weight.dims"] + 9,
        "in-tensor-type": marks["blk.0.attn_q.weight.type"] + 2,
        "in-offset": marks["blk.0.attn_q.weight.offset"] + 4,
        "after-infos": marks["padding"],
        "before-data": marks["data"],
        "in-first-tensor": marks["data"] + 1,
        "in-middle-tensor": marks["blk.1.attn_q.weight.data"] + 7,
        "before-last-tensor": marks["output.weight.data"],
        "before-last-byte": len(whole) - 1,
    }
    for place, size in places.items():
        yield case(f"cut-{place}", whole[:size])


def headers(victim):
    whole = victim.build()
    for name, start in {"ggml": b"GGML", "ggjt": b"tjgg", "reversed": b"FUGG", "zip": b"PK\3\4",
                        "gzip": b"\x1f\x8b\x08\x00", "zeros": bytes(4), "lower": b"gguf"}.items():
        yield case(f"magic-{name}", start + whole[4:], named="not a GGUF file")
    yield case("safetensors", u64(200) + b'{"a":{"dtype":"F32"}}' + bytes(5000), named="header")
    yield case("text", b"It was a quiet night in the harbour.\n" * 200, named="header")
    for version in (0, 1, 4, 99, 3 << 24, (1 << 32) - 1):
        yield case(f"version-{version}", victim.patched("version", u32(version)), named="header")
    tensors, keys = len(victim.tensors), len(victim.entries)
    for count in (*HUGE, 1 << 20, tensors + 1, tensors - 1, 0):
        yield case(f"tensors-{count}", victim.patched("n_tensors", u64(count)))
    for count in (*HUGE, 1 << 16, keys + 1, keys - 1, 0):
        yield case(f"keys-{count}", victim.patched("n_kv", u64(count)))
    yield case("two-in-one", whole + whole, named="output.weight")


def metadata(victim):
    tokens = "tokenizer.ggml.tokens"
    for size in (*HUGE, 1 << 20, 0):
        yield case(f"key-of-{size}", victim.patched("llama.block_count.length", u64(size)))
    for size in (*HUGE, 1 << 20):
        yield case(f"string-of-{size}", victim.patched("general.name.value", u64(size)),
                   named="general.name")
        yield case(f"string-in-array-of-{size}", victim.patched(f"{tokens}.value", u64(size), 12),
                   named=tokens)
    for count in (*HUGE, 1 << 61, 1 << 30, 289, 287):
        yield case(f"array-of-{count}", victim.patched(f"{tokens}.value", u64(count), 4))
    for kind in (9, 13, 255, (1 << 32) - 1):
        yield case(f"element-type-{kind}", victim.patched(f"{tokens}.value", u32(kind)),
                   named=tokens)
    for kind in (9, 13, (1 << 32) - 1):
        yield case(f"value-type-{kind}", victim.patched("general.name.type", u32(kind)),
                   named="general.name")
    yield case("bool-of-2", victim.patched("tokenizer.ggml.add_bos_token.value", b"\2"),
               named="tokenizer.ggml.add_bos_token")
    twice = victim.copy().set("general.namf", STRING, "x")
    yield case("key-twice", twice.patched("general.namf.key", b"general.name"),
               named="general.name")
    for value in (0, 3, 48, 1 << 31):
        yield case(f"alignment-{value}", victim.copy().set("general.alignment", U32, value).build(),
                   named="general.alignment")
    yield case("alignment-u64", victim.copy().set("general.alignment", U64, 32).build(),
               named="general.alignment")
    # Unusual but harmless.
    for name, key, value in (
            ("key-of-two-lines", "a\nb\x1b[2J", "x"), ("key-not-utf8", b"\xff\xfe", "x"),
            ("value-not-utf8", "general.name", b"\xff\xfe\x80"),
            ("value-of-two-lines", "general.name", "a\nb\x1b[2Jc"),
            ("value-with-nul", "general.name", "a\0b"), ("value-empty", "general.name", ""),
            ("value-of-a-mebibyte", "general.description", "x" * (1 << 20))):
        yield case(name, victim.copy().set(key, STRING, value).build(), NOBODY)


def tensors(victim):
    key = "blk.0.attn_k.weight"

    def changed(name, change, *named, tensor=key, refused=EVERYONE):
        copy = victim.copy()
        change(copy.tensor(tensor))
        return case(name, copy.build(), refused, named or tensor)

    def set_to(**fields):
        return lambda tensor: vars(tensor).update(fields)

    for offset in (1, 16, (1 << 64) - 32, 1 << 40, 160000):
        yield changed(f"offset-{offset}", set_to(offset=offset))
    yield changed("overlap-first", set_to(offset=0), "overlaps")
    victim.build()
    end = victim.marks[f"{key}.data"] - victim.marks["data"]
    yield changed("overlap-by-a-block", set_to(offset=end - victim.alignment), "overlaps")
    for dims in ([], [0, 32], [64, 0], [1 << 63, 2], [1 << 32, 1 << 32], [1 << 48, 1 << 20],
                 [63, 32], [64, 32, 1, 1, 1], [64, 1 << 30]):
        yield changed(f"dims-{'x'.join(map(str, dims)) or 'none'}", set_to(dims=dims))
    for dims in ([32, 64], [64, 31], [64, 16, 2], [2048]):
        yield changed(f"dims-{'x'.join(map(str, dims))}", set_to(dims=dims), refused=MODEL)
    yield case("dims-4294967295-of-them", victim.patched(f"{key}.n_dims", u32((1 << 32) - 1)),
               named=key)
    for kind in (4, 5, 31, 32, 33, 36, 37, 38, 43, 255, (1 << 31), (1 << 32) - 1):
        yield changed(f"type-{kind}", set_to(kind=kind))
    yield changed("type-Q4_K", set_to(kind=12))  # 64 is not a multiple of 256, the block size
    yield changed("norm-of-integers", set_to(kind=26), tensor="output_norm.weight", refused=MODEL)
    yield changed("norm-of-Q4_0", set_to(kind=2), tensor="output_norm.weight",
                  refused=MODEL)
    yield changed("type-Q8_1", set_to(kind=9, data=bytes(2304)), refused=MODEL)
    yield changed("name-twice", set_to(name="blk.1.attn_k.weight"), "blk.1.attn_k.weight")
    yield changed("name-empty", set_to(name=""), "tensor 2")
    yield changed("name-of-64", set_to(name="x" * 64), "tensor 2")
    yield changed("name-of-two-lines", set_to(name="a\nb\x1b[2J"), key, refused=MODEL)
    yield changed("name-not-utf8", set_to(name=b"\xff\xfe"), key, refused=MODEL)
    for tensor in ("token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight",
                   "blk.1.attn_q.weight", "blk.1.attn_output.weight", "blk.0.ffn_gate_inp.weight",
                   "blk.1.ffn_down_exps.weight"):
        copy = victim.copy()
        copy.take(tensor)
        yield case(f"without-{tensor}", copy.build(), MODEL, tensor)
    tied = victim.copy()
    tied.take("output.weight")
    yield case("without-output.weight", tied.build(), NOBODY)
    for name, extra in {
            "tensor-too-many": gguf.Tensor("blk.2.attn_q.weight", 2, [64, 64]),
            "tensor-unknown": gguf.Tensor("barnacle", 0, [4]),
            "bias-too-short": gguf.Tensor("blk.0.attn_q.bias", 0, [63]),
            "rope-freqs-too-long": gguf.Tensor("rope_freqs.weight", 0, [9]),
            "rope-freqs-zero": gguf.Tensor("rope_freqs.weight", 0, [8]),
    }.items():
        copy = victim.copy()
        copy.tensors.append(extra)
        yield case(name, copy.build(), MODEL, extra.name)
    shuffled = victim.copy()
    shuffled.tensors.reverse()
    yield case("tensors-in-reverse", shuffled.build(), NOBODY)


def splits(victim):
    """A checkpoint in two files, and faults between them."""
    def part(number, tensors, count=2, total=len(victim.tensors)):
        piece = victim.copy() if number == 0 else gguf.Checkpoint()
        piece.tensors = tensors
        piece.set("split.no", gguf.U16, number).set("split.count", gguf.U16, count)
        return piece.set("split.tensors.count", I32, total)

    half = len(victim.tensors) // 2
    first = part(0, victim.tensors[:half]).build()
    second = part(1, victim.tensors[half:]).build()
    yield case("split-whole", {PARTS[0]: first, PARTS[1]: second}, NOBODY)
    yield case("split-in-reverse", {PARTS[1]: second, PARTS[0]: first}, NOBODY)
    yield case("split-part-missing", {PARTS[0]: first}, named=PARTS[1])
    yield case("split-part-cut", {PARTS[0]: first, PARTS[1]: second[:-5000]}, named=PARTS[1])
    yield case("split-part-twice", {PARTS[0]: first, PARTS[1]: first}, named="split.no")
    yield case("split-tensor-twice",
               {PARTS[0]: part(0, victim.tensors[:half + 1]).build(), PARTS[1]: second},
               named=victim.tensors[half].name)
    yield case("split-tensors-miscounted",
               {PARTS[0]: part(0, victim.tensors[:half], total=99).build(), PARTS[1]: second},
               named="split.tensors.count")
    for count in (3, 0xffff):
        yield case(f"split-of-{count}",
                   {PARTS[0]: part(0, victim.tensors[:half], count).build(), PARTS[1]: second},
                   named=f"of-{count:05}")
    yield case("split-renamed", {"renamed.gguf": first}, named="split.count")


def structure_cases(victim):
    """`victim` is a Checkpoint of architecture llama with experts and tensors in Q4_0."""
    for group in (truncations, headers, metadata, tensors, splits):
        yield from group(victim)
