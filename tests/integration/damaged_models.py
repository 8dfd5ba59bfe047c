"""Damaged and hostile GGUF files: contents of keys, tokenizers and numbers; random damage."""

import random
import struct

import gguf_bytes as gguf
from damaged_files import (COMMANDS, EITHER, EVERYONE, LOADERS, MODEL, NOBODY, Refused, case)
from gguf_bytes import BOOL, F32, F64, I32, I64, STRING, U32, U64

INF, NAN = float("inf"), float("nan")
TOKENIZER = COMMANDS


def missing_keys(victim):
    for key, refused in {
            "general.architecture": MODEL, "llama.context_length": MODEL,
            "llama.embedding_length": MODEL, "llama.block_count": MODEL,
            "llama.feed_forward_length": MODEL, "llama.attention.head_count": MODEL,
            "llama.attention.layer_norm_rms_epsilon": MODEL, "llama.expert_used_count": MODEL,
            "tokenizer.ggml.model": TOKENIZER, "tokenizer.ggml.tokens": TOKENIZER,
            "tokenizer.ggml.merges": TOKENIZER,
            "general.name": NOBODY, "llama.rope.freq_base": NOBODY,
            "llama.rope.dimension_count": NOBODY, "llama.vocab_size": NOBODY,
            "tokenizer.ggml.token_type": NOBODY, "tokenizer.ggml.bos_token_id": NOBODY,
            "tokenizer.chat_template": NOBODY,
    }.items():
        yield case(f"without-{key}", victim.copy().remove(key).build(), refused, key)
    # Defaults that contradict the tensors.
    yield case("without-head_count_kv",
               victim.copy().remove("llama.attention.head_count_kv").build(), MODEL,
               "blk.0.attn_k.weight")
    yield case("without-expert_count", victim.copy().remove("llama.expert_count").build(), MODEL,
               "blk.0.ffn_")
    yield case("without-metadata", _without_keys(victim).build(), EVERYONE)


def _without_keys(victim):
    bare = victim.copy()
    bare.entries = {}
    return bare


def wrong_kinds(victim):
    for key, kind, value, refused in (
            ("general.architecture", U32, 1, MODEL), ("general.name", U32, 1, MODEL),
            ("llama.block_count", STRING, "2", MODEL), ("llama.block_count", F32, 2.0, MODEL),
            ("llama.block_count", BOOL, 1, MODEL), ("llama.block_count", I32, -1, MODEL),
            ("llama.block_count", U64, 1 << 63, MODEL), ("llama.context_length", F32, 512.0, MODEL),
            ("llama.attention.layer_norm_rms_epsilon", U32, 1, MODEL),
            ("llama.attention.layer_norm_rms_epsilon", STRING, "1e-5", MODEL),
            ("llama.rope.freq_base", STRING, "10000", MODEL),
            ("llama.attention.causal", U32, 1, MODEL),
            ("general.sampling.temp", STRING, "hot", ("generate",)),
            ("general.sampling.temp", F32, NAN, ("generate",)),
            ("general.sampling.top_k", I64, 1 << 40, ("generate",)),
            ("tokenizer.ggml.model", U32, 1, TOKENIZER), ("tokenizer.ggml.pre", U32, 1, TOKENIZER),
            ("tokenizer.ggml.tokens", STRING, "a", TOKENIZER),
            ("tokenizer.ggml.merges", STRING, "a b", TOKENIZER),
            ("tokenizer.ggml.token_type", U32, 1, TOKENIZER),
            ("tokenizer.ggml.bos_token_id", STRING, "1", TOKENIZER),
            ("tokenizer.ggml.add_bos_token", U32, 1, TOKENIZER),
            ("tokenizer.chat_template", U32, 1, TOKENIZER)):
        name = f"{key}-as-{kind}-{value}"
        named = "general.sampling" if key.startswith("general.sampling") else key
        yield case(name, victim.copy().set(key, kind, value).build(), refused, named)
    for key, kind, values, refused in (
            ("llama.embedding_length", U32, [64], MODEL),
            ("llama.attention.head_count", U32, [4], MODEL),
            ("llama.attention.head_count", U32, [4, 4, 4], MODEL),
            ("llama.attention.head_count", F32, [4, 4], MODEL),
            ("llama.feed_forward_length", U32, [], MODEL),
            ("tokenizer.ggml.tokens", I32, [1, 2, 3], TOKENIZER),
            ("tokenizer.ggml.merges", I32, [1, 2, 3], TOKENIZER),
            ("tokenizer.ggml.token_type", STRING, ["1"] * 288, TOKENIZER)):
        yield case(f"{key}-as-array-{kind}-of-{len(values)}",
                   victim.copy().set_array(key, kind, values).build(), refused, key)


# Values of keys under "llama." that contradict the format, other keys or the tensors. If the error
# names another key or a tensor, its name follows the value; otherwise None does.
CONTRADICTIONS = {
    "attention.head_count": ((0, None), (3, "llama.attention."), (5, "llama.attention."),
                             (8, "llama.rope.dimension_count"), (4096, "llama.attention."),
                             (4097, None), ((1 << 32) - 1, None)),
    "attention.head_count_kv": ((0, None), (1, "blk.0.attn_k.weight"), (3, None), (8, None),
                                (1 << 31, None)),
    "embedding_length": ((0, None), (32, "llama.rope.dimension_count"),
                         (63, "llama.attention."), (1 << 20, "llama.attention."), (1 << 31, None)),
    "block_count": ((0, None), (1, "blk.1."), (3, "blk.2."), (4096, "blk.2."), (100000, None)),
    "context_length": ((0, None), ((1 << 30) + 1, None), ((1 << 32) - 1, None)),
    "attention.key_length": ((0, None), (15, "llama."), (17, "blk.0.attn_q.weight"),
                             (32, "blk.0.attn_q.weight"), (4097, None)),
    "attention.value_length": ((0, None), (8, None), (4097, None)),
    "rope.dimension_count": ((0, None), (15, None), (18, None), (1 << 31, None)),
    "expert_count": ((0, "blk.0.ffn_"), (7, "blk.0.ffn_"), (9, "blk.0.ffn_"), (4097, None),
                     ((1 << 32) - 1, None)),
    "expert_used_count": ((0, None), (9, None), ((1 << 32) - 1, None)),
    "feed_forward_length": ((0, None), (32, "blk.0.ffn_"), (1 << 21, None)),
    "expert_feed_forward_length": ((32, "blk.0.ffn_"), (1 << 31, None)),
    "expert_shared_feed_forward_length": ((64, None),),
    "leading_dense_block_count": ((1, "blk.0.ffn_"), (3, None)),
    "attention.sliding_window": ((1 << 31, None),),
    "vocab_size": ((0, None),),
}
BAD_NUMBERS = {
    "attention.layer_norm_rms_epsilon": (0.0, -1e-5, 1.0, INF, NAN),
    "rope.freq_base": (0.0, 1.0, -1e4, INF, NAN),
    "rope.scaling.factor": (-1.0, INF, NAN, 1e-300),
    "rope.scale_linear": (-1.0, NAN),
    "rope.scaling.attn_factor": (0.0, -1.0, INF, NAN, 1e300),
}


def contradictions(victim):
    for suffix, values in CONTRADICTIONS.items():
        key = f"llama.{suffix}"
        for value, named in values:
            # The tokenizer overrides vocab_size. The two other keys belong to unsupported designs.
            refused = {"vocab_size": NOBODY, "expert_shared_feed_forward_length": LOADERS}.get(
                suffix, MODEL)
            if (suffix, value) == ("attention.value_length", 8):
                refused = LOADERS
            yield case(f"{suffix}-{value}", victim.copy().set(key, U32, value).build(), refused,
                       named or key)
    for suffix, values in BAD_NUMBERS.items():
        key = f"llama.{suffix}"
        for value in values:
            yield case(f"{suffix}-{value}", victim.copy().set(key, F64, value).build(), MODEL, key)
    for suffix, value in {"yarn_beta_fast": NAN, "yarn_beta_slow": -1.0, "yarn_attn_factor": 1e300,
                          "yarn_ext_factor": 7.0}.items():
        yarn = victim.copy().set("llama.rope.scaling.type", STRING, "yarn")
        yarn.set("llama.rope.scaling.factor", F32, 4.0)
        key = f"llama.rope.scaling.{suffix}"
        unserved = suffix == "yarn_ext_factor"
        yield case(f"{suffix}-{value}", yarn.set(key, F64, value).build(),
                   LOADERS if unserved else MODEL, key)
    # Valid models of another kind: inspect describes them.
    for key, kind, value in (
            ("general.architecture", STRING, "banana"), ("general.architecture", STRING, ""),
            ("llama.rope.scaling.type", STRING, "banana"), ("llama.rope.scaling.type", STRING, ""),
            ("llama.attn_logit_softcapping", F32, 30.0), ("llama.attention.causal", BOOL, 0),
            ("llama.expert_gating_func", U32, 4)):
        yield case(f"{key}-{value}", victim.copy().set(key, kind, value).build(), LOADERS, key)
    # Values at the limits are valid: no command allocates memory because of such a number alone.
    for key, kind, value in (
            ("llama.context_length", U32, 1 << 30), ("llama.expert_used_count", U32, 8),
            ("llama.attention.sliding_window", U32, 1), ("llama.rope.freq_base", F64, 1e308),
            ("llama.rope.scaling.factor", F64, 1e300), ("llama.rope.dimension_count", U32, 2),
            ("llama.attention.layer_norm_rms_epsilon", F64, 0.5)):
        yield case(f"edge-{key}-{value}", victim.copy().set(key, kind, value).build(), NOBODY)


def tokenizers(victim):
    tokens = victim.strings("tokenizer.ggml.tokens")
    merges = victim.strings("tokenizer.ggml.merges")

    def changed(name, key, kind, values, refused=TOKENIZER, named=None):
        return case(name, victim.copy().set_array(f"tokenizer.ggml.{key}", kind, values).build(),
                    refused, named or f"tokenizer.ggml.{key}")

    for count in (0, 1, 287, 289):
        yield changed(f"token-types-{count}", "token_type", I32, [1] * count)
    for value in (0, 7, -1, (1 << 31) - 1):
        yield changed(f"token-type-{value}", "token_type", I32, [1] * 287 + [value])
    for count in (1, 287, 289):
        yield changed(f"scores-{count}", "scores", F32, [0.0] * count)
    yield changed("tokens-none", "tokens", STRING, [], named="tokenizer.ggml.")
    yield changed("tokens-fewer", "tokens", STRING, tokens[:200], named="tokenizer.ggml.")
    grown = victim.copy().set_array("tokenizer.ggml.tokens", STRING, tokens + [b"one more", b"and another"])
    yield case("tokens-more", grown.remove("tokenizer.ggml.token_type").build(), MODEL,
               "token_embd.weight")
    yield changed("tokens-all-equal", "tokens", STRING, [b"a"] * 288)
    yield changed("tokens-empty", "tokens", STRING, tokens[:100] + [b""] * 188, NOBODY)
    yield changed("tokens-not-utf8", "tokens", STRING, tokens[:100] + [b"\xff\xc3"] * 188)
    yield changed("token-of-a-mebibyte", "tokens", STRING, tokens[:-1] + [b"a" * (1 << 20)])
    for kind, value in ((U32, 288), (U32, 1 << 31), (I32, -2), (U32, (1 << 32) - 2),
                        (U64, 1 << 62)):
        for name in ("bos", "eos", "eot", "padding"):
            key = f"tokenizer.ggml.{name}_token_id"
            yield case(f"{name}-{value}", victim.copy().set(key, kind, value).build(), TOKENIZER,
                       key)
    yield case("bos-none", victim.copy().set("tokenizer.ggml.bos_token_id", U32,
                                             (1 << 32) - 1).build(), NOBODY)
    added = victim.copy().remove("tokenizer.ggml.bos_token_id")
    yield case("bos-added-without-one", added.set("tokenizer.ggml.add_bos_token", BOOL, 1).build(),
               TOKENIZER, "tokenizer.ggml.add_bos_token")
    for name, merge in {"empty": b"", "one-word": b"abc", "blank": b" ", "no-left": b" a",
                        "no-right": b"a ", "not-utf8": b"\xff \xfe", "plain-space": b"a b c",
                        "foreign": "\u4e2d \u6587", "two-lines": b"a\nb\x1b[2J"}.items():
        yield changed(f"merge-{name}", "merges", STRING, merges[:-1] + [merge])
    for key in ("model", "pre"):
        yield case(f"{key}-of-a-mebibyte",
                   victim.copy().set(f"tokenizer.ggml.{key}", STRING, "x" * (1 << 20)).build(),
                   ("tokenize", *LOADERS), f"tokenizer.ggml.{key}")
    yield changed("merge-of-a-mebibyte", "merges", STRING, merges[:-1] + [b"x" * (1 << 20)])
    # These merges are harmless, so no command refuses them. If a merge's parts or result are not
    # tokens, it is never reached or is split again; published files have such merges. Merges cannot
    # loop either: each joins two neighbours to one symbol, so a text of n bytes needs at most n - 1
    # merges.
    yield changed("merges-dangling", "merges", STRING, [b"zq qz", b"zqqz zqqz"], NOBODY)
    yield changed("merges-in-a-ring", "merges", STRING, [b"a a", b"aa a", b"a aa", b"aa aa"],
                  NOBODY)
    yield changed("merges-twice", "merges", STRING, merges + merges)
    for key, value in (("model", "banana"), ("model", ""), ("pre", "banana"),
                       ("pre", "a\nb\x1b[2J")):
        # inspect describes an unknown tokenizer.
        yield case(f"{key}-{value[:6]!r}",
                   victim.copy().set(f"tokenizer.ggml.{key}", STRING, value).build(),
                   ("tokenize", *LOADERS), f"tokenizer.ggml.{key}")
    yield from _templates(victim)


def _templates(victim):
    """Only chats use templates, so no other command may refuse a bad one."""
    for name, template in {
            "broken": "{% if %}", "deep": "{{" + "(" * 5000 + ")" * 5000 + "}}",
            "not-utf8": b"\xff\xfe{{ a }}", "of-a-mebibyte": "{{ a }}" * 150000}.items():
        yield case(f"template-{name}",
                   victim.copy().set("tokenizer.chat_template", STRING, template).build(), NOBODY)


# Chat templates that must not harm a chat: name -> (template, whether it is refused).
_NEST = ("{%% set ns = namespace(a=[], b=[]) %%}{%% for i in range(200000) %%}"
         "{%% set ns.a = [ns.a] %%}{%% set ns.b = [ns.b] %%}{%% endfor %%}%s")
_MEGABYTES = "{%% set s = ('a' * 1000) * 8000 %%}{%% set t = ('a' * 1000) * 4000 ~ 'b' %%}%s"
_OFTEN = "%s{%% for i in range(100000) %%}{%% for j in range(100000) %%}%s{%% endfor %%}{%% endfor %%}"
CHAT_TEMPLATES = {
    # Without a limit on its cost, each template would fill the memory, or take time in proportion
    # to the product of two sizes.
    "search": (_OFTEN % (_MEGABYTES % "", "{% set x = t in s %}"), True),
    "search-from-right": (_OFTEN % (_MEGABYTES % "", "{% set x = s.rfind('b' ~ t) %}"), True),
    "replace-what-is-not-there": (_OFTEN % (_MEGABYTES % "", "{% set x = s.replace(t, '') %}"), True),
    "strip-many-characters": (_MEGABYTES % "{{ s.strip(('b' * 1000) * 1000 ~ 'a') }}", True),
    "split-into-letters": (_MEGABYTES % "{{ (s * 3).split('a') | length }}", True),
    "words-from-right": ("{{ (('a ' * 1000) * 3000).rsplit(none, 1500000) | length }}", True),
    "characters-by-index": (_OFTEN % ("{% set xs = [('a' * 1000) * 1000] * 50000 %}",
                                      "{% set x = xs | map(attribute=0) | list %}"), True),
    "copied-key": (_OFTEN % ("{% set d = {('a' * 1000) * 8000: 1} %}", "{% set x = dict(d) %}"), True),
    "cycler": (_OFTEN % ("{% set c = cycler(*range(100000)) %}", "{% set x = c %}"), True),
    "many-parameters": (_OFTEN % ("{% macro f(" + ",".join(f"v{i}" for i in range(30000)) + ") %}{% endmacro %}",
                                  "{{ f() }}"), True),
    "many-variables": (_OFTEN % ("".join(f"{{% set v{i} = 1 %}}" for i in range(30000)),
                                 "{% if v29999 %}{% endif %}"), True),
    "loops": ("{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}",
              True),
    "recursion": ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", True),
    "long-text": ("{{ 'x' * 2000000000 }}", True),
    "doubling-text": ("{% set ns = namespace(a='x') %}{% for i in range(60) %}"
                      "{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a }}", True),
    "doubling-list": ("{% set ns = namespace(a=[1]) %}{% for i in range(60) %}"
                      "{% set ns.a = ns.a + ns.a %}{% endfor %}{{ ns.a }}", True),
    "nested-and-printed": (_NEST % "{{ ns.a }}", True),
    "nested-and-dumped": (_NEST % "{{ ns.a | tojson }}", True),
    "nested-and-compared": (_NEST % "{{ ns.a == ns.b }}", True),
    "nested-and-dropped": (_NEST % "x", True),
    "power": ("{{ 9 ** 999999999 }}", True),
    "zero": ("{{ 1 // 0 }}", True),
    "overflow": ("{{ (-9223372036854775807 - 1) // -1 }}", True),
    "raised": ("{{ raise_exception('a\nb') }}", True),
    "broken": ("{% if %}", True),
    "deep": ("{{" + "(" * 5000 + ")" * 5000 + "}}", True),
    "not-utf8": (b"\xff\xfe{{ messages[0].content }}", True),
    "endless-range": ("{{ range(0, 9223372036854775807) | list | length }}", True),
    "far-slice": ("{{ 'abc'[9223372036854775807:-9223372036854775807:-1] }}", False),
    "far-range": ("a{{ range(9223372036854775807, -9223372036854775807, -9223372036854775807)"
                  " | list | length }}", False),
    "grown-by-replacing": ("{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", True),
}


# Quantised types: id -> offsets of a block's f16 scales.
F16_AT = {2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 10: (80, 82), 11: (108,), 12: (0, 2),
          13: (0, 2), 14: (208,), 20: (0,), 23: (0,)}
F16_BAD = {"nan": b"\x00\x7e", "inf": b"\x00\x7c", "minus-inf": b"\x00\xfc"}
# Bad values of float types, and of the scale of MXFP4: a power of two, for which 255 is NaN.
PLAIN_BAD = {0: (b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"), 1: (b"\x00\x7e", b"\x00\xfc"),
             30: (b"\xc0\x7f", b"\x80\xff"), 28: (struct.pack("<d", NAN), struct.pack("<d", -INF)),
             39: (b"\xff",)}
WIDTH = 256


def wide_model(victim, kind):
    """Returns a model with one layer of width 256 and zeros as weights. attn_q.weight has type
    `kind`; zeros are valid in each type."""
    wide = victim.copy()
    for suffix, value in {"embedding_length": WIDTH, "block_count": 1, "feed_forward_length": 32,
                          "expert_count": 0, "attention.head_count": 2,
                          "attention.head_count_kv": 2, "rope.dimension_count": 128}.items():
        wide.set(f"llama.{suffix}", U32, value)
    wide.tensors = [
        gguf.Tensor(name, 0 if len(dims) == 1 else 1, dims) for name, dims in {
            "token_embd.weight": [WIDTH, 288], "output_norm.weight": [WIDTH],
            "blk.0.attn_norm.weight": [WIDTH], "blk.0.attn_q.weight": [WIDTH, WIDTH],
            "blk.0.attn_k.weight": [WIDTH, WIDTH], "blk.0.attn_v.weight": [WIDTH, WIDTH],
            "blk.0.attn_output.weight": [WIDTH, WIDTH], "blk.0.ffn_norm.weight": [WIDTH],
            "blk.0.ffn_gate.weight": [WIDTH, 32], "blk.0.ffn_up.weight": [WIDTH, 32],
            "blk.0.ffn_down.weight": [32, WIDTH]}.items()]
    query = wide.tensor("blk.0.attn_q.weight")
    query.kind, query.data = kind, bytes(gguf.data_bytes(kind, query.dims))
    return wide


def all_zeros(wide, kind):
    """The file is valid, but the output of such a model has no meaning, so commands that compute
    must fail."""
    zeros = case(f"zeros-{kind}", wide.build(), NOBODY)
    zeros.outcomes.update({command: Refused(("embedding is 0", "all logits are equal"), 1)
                           for command in LOADERS})
    return zeros


def bad_numbers(victim):
    name = "blk.0.attn_q.weight"
    for kind, places in F16_AT.items():
        wide = wide_model(victim, kind)
        yield all_zeros(wide, kind)
        block = gguf.BLOCKS[kind][1]
        blocks = len(wide.tensor(name).data) // block
        for at in places:
            for word, raw in F16_BAD.items():
                where = blocks // 2 * block + at
                yield case(f"{word}-in-{kind}-at-{at}", wide.patched(f"{name}.data", raw, where),
                           LOADERS, name)
    for kind, values in PLAIN_BAD.items():
        wide = wide_model(victim, kind)
        yield all_zeros(wide, kind)
        for value in values:
            where = len(wide.tensor(name).data) - gguf.BLOCKS[kind][1]
            yield case(f"number-{value.hex()}-in-{kind}",
                       wide.patched(f"{name}.data", value, where), LOADERS, name)
    for other, refused in {"output_norm.weight": MODEL, "blk.1.attn_norm.weight": MODEL,
                           "blk.0.ffn_gate_inp.weight": LOADERS}.items():
        yield case(f"nan-in-{other}", victim.patched(f"{other}.data", PLAIN_BAD[0][0], 4), refused,
                   other)
    # The weights are finite, but their sums are not: the result must not be returned as a response.
    huge = struct.pack("<f", 3e38) * 64
    broken = case("overflow", victim.patched("output_norm.weight.data", huge), NOBODY)
    broken.outcomes.update({command: Refused(("logit",), 1) for command in LOADERS})
    yield broken
    for other in ("token_embd.weight", "output.weight", "blk.1.ffn_down_exps.weight"):
        yield case(f"nan-in-{other}", victim.patched(f"{other}.data", F16_BAD["nan"], 18 * 5),
                   LOADERS, other)


def random_damage(victim, seed=20240817):
    """Random bit flips and splices in the part of the file before the weights. Flipped bits of
    weights would be harmless."""
    rng = random.Random(seed)
    whole = victim.build()
    infos, data = victim.marks["infos"], victim.marks["data"]
    for number in range(70):
        content = bytearray(whole)
        begin, end = ((0, 24), (24, infos), (infos, data))[min(number % 4, 2)]
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
        yield case(f"flips-{number}", bytes(content), NOBODY, otherwise=EITHER)
    for number in range(50):
        at, size = rng.randrange(data), rng.randint(1, 64)
        source = rng.randrange(data)
        inserted = (b"", rng.randbytes(size), whole[source:source + size])[number % 3]
        content = whole[:at] + inserted + whole[at + rng.choice((0, size)):]
        yield case(f"splice-{number}", content, NOBODY, otherwise=EITHER)
    names = [tensor.name for tensor in victim.tensors if tensor.kind == 2]
    for number in range(10):
        name = rng.choice(names)
        block = rng.randrange(len(victim.tensor(name).data) // 18)
        raw = rng.randbytes(16)
        yield case(f"weights-{number}", victim.patched(f"{name}.data", raw, block * 18 + 2), NOBODY)


def model_cases(victim):
    """`victim`: see structure_cases."""
    for group in (missing_keys, wrong_kinds, contradictions, tokenizers, bad_numbers):
        yield from group(victim)
