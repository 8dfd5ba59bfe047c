#!/usr/bin/env python3
"""Makes tests/golden/hf: small random models that transformers saves, with reference logits.

    python3 make_hf.py [--out hf] [--only NAME ...] [--first-seed N] [--set KEY=VALUE ...]

The script builds each model with unusual sizes in transformers (float32, eager attention). It
rounds only the parameters to the type of the file. The logits of the rounded model are the
reference. The script tries consecutive seeds. It takes the first seed without near-ties among the
greedy tokens or at a router's top-k boundary. README.md describes the files. --set replaces values
in config.json, to make a model of other sizes: --only phi3 --set hidden_size=80 --out /tmp/hf
"""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch.nn.functional import linear

import golden_common as common
import hf_families

HERE = pathlib.Path(__file__).resolve().parent
TEXT = ("In the harbour of Brannoch, 41 boats wait for the tide: cafe\u0301, rope & net. "
        "\"Are you in?\" she asks.")
TOKENS = 44
GREEDY_STEPS = 16
MIN_GREEDY_MARGIN = 0.02
MIN_ROUTER_MARGIN = 0.005  # of logits
MIN_TOP_K_MARGIN = 0.0005  # of the values that a router of hf_families compares
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = "_ t|h e|i n|_ a|r e|o n|e r|_t he|_ s|a t|_ w|e n"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
             "original_max_position_embeddings": 32}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


@dataclasses.dataclass(frozen=True)
class Spec:
    name: str
    family: str
    dtype: torch.dtype
    n_vocab: int = 275
    shard: str = "1GB"
    regex: str = QWEN2
    config: dict = dataclasses.field(default_factory=dict)


F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
SPECS = (
    Spec("llama_f32", "Llama", F32, regex=LLAMA3,
         config={"hidden_size": 30, "attention_bias": True, "tie_word_embeddings": False}),
    Spec("llama3_rope_bf16", "Llama", BF16, n_vocab=283, shard="60KB", regex=LLAMA3,
         config={"rope_parameters": LLAMA3_ROPE, "num_hidden_layers": 3}),
    Spec("llama_yarn_f16", "Llama", F16, config={"rope_parameters": YARN_ROPE}),
    Spec("mistral_window_bf16", "Mistral", BF16,
         config={"sliding_window": 17, "head_dim": 20, "rope_parameters": LINEAR_ROPE}),
    Spec("mixtral_bf16", "Mixtral", BF16,
         config={"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24,
                 "sliding_window": None}),
    Spec("qwen2_f16", "Qwen2", F16, shard="60KB", config={"tie_word_embeddings": False}),
    Spec("qwen2_moe_bf16", "Qwen2Moe", BF16,
         config=EXPERTS | {"norm_topk_prob": False, "shared_expert_intermediate_size": 40}),
    Spec("qwen3_bf16", "Qwen3", BF16, config={"head_dim": 24}),
    Spec("qwen3_moe_bf16", "Qwen3Moe", BF16, shard="60KB",
         config=EXPERTS | {"norm_topk_prob": True, "head_dim": 20, "tie_word_embeddings": False}),
)


def build_tokenizer(spec):
    """Builds a byte-level BPE with merges, three special tokens and one ordinary added token."""
    text = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    spare = iter(range(256, 512))
    text |= {b: chr(next(spare)) for b in range(256) if b not in text}
    merges = [tuple(pair.replace("_", text[32]).split(" ")) for pair in MERGES.split("|")]
    tokens = [text[b] for b in range(256)] + ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges,
                                     ignore_merges=spec.regex == LLAMA3))
    if spec.regex == QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(spec.regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token in SPECIALS])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return tokenizer


def is_family(spec):
    return isinstance(spec, hf_families.FamilySpec)


def build_model(spec):
    settings = {
        "vocab_size": spec.n_vocab, "hidden_size": 50, "intermediate_size": 56,
        "num_hidden_layers": 2, "num_attention_heads": 5, "num_key_value_heads": 1,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "attn_implementation": "eager", "experts_implementation": "eager",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "bos_token_id": None, "eos_token_id": 270, "pad_token_id": 268,
    } | (hf_families.SMALL if is_family(spec) else {}) | spec.config
    if "norm_eps" in settings:
        settings.pop("rms_norm_eps")
    config = getattr(transformers, spec.family + "Config")
    if is_family(spec) and spec.vision:
        config = config(text_config=settings, vision_config=spec.vision, mm_tokens_per_image=4,
                        attn_implementation="eager")
        name = spec.family + "ForConditionalGeneration"
    else:
        config = config(**settings)
        name = spec.family.removesuffix("Text") + "ForCausalLM"
    return getattr(transformers, name)(config).float().eval()


def randomise(model, seed, spec):
    """Sets random parameters in the type of the file. Norms are not 1 and biases are not 0."""
    rng = np.random.default_rng(seed)
    tied = model.config.tie_word_embeddings
    buffers = [(name, value) for name, value in model.named_buffers() if name.endswith("_bias")]
    for name, parameter in [*model.named_parameters(), *buffers]:
        shape = tuple(parameter.shape)
        values = hf_families.initial_values(name, shape, rng, spec) if is_family(spec) else None
        if values is not None:
            pass
        elif "norm" in name:
            values = rng.uniform(0.6, 1.7, shape)
        elif name.endswith(".bias"):
            values = rng.normal(0.0, 0.5, shape)
        elif name.endswith("embed_tokens.weight"):
            values = rng.normal(0.0, 0.4 if tied else 1.0, shape)
        elif name == "lm_head.weight":
            values = rng.normal(0.0, 3 / np.sqrt(shape[-1]), shape)
        else:
            gain = 2.0 if name.endswith("mlp.gate.weight") else 1.3
            values = rng.normal(0.0, gain / np.sqrt(shape[-1]), shape)
        parameter.copy_(torch.from_numpy(np.asarray(values, np.float32)).to(spec.dtype).float())


class RouterMargin:
    """Records the smallest gap between the last chosen and the next expert in all forwards."""

    def __init__(self, model):
        self.smallest = float("inf")
        self._top_k = getattr(model.config, "num_experts_per_tok", 0)
        for name, module in model.named_modules():
            if name.endswith("mlp.gate"):
                module.register_forward_hook(self._observe)

    def _observe(self, module, inputs, _outputs):
        rows = inputs[0].reshape(-1, module.weight.shape[-1])
        top = torch.topk(linear(rows, module.weight), self._top_k + 1, dim=-1).values
        self.smallest = min(self.smallest, float((top[:, -2] - top[:, -1]).min()))


def try_seed(spec, seed, ids):
    model = build_model(spec)
    randomise(model, seed, spec)
    stored = None
    if is_family(spec):
        if spec.mxfp4:
            stored = hf_families.randomise_mxfp4(model, seed)
        router, min_router = hf_families.TopKMargin(), MIN_TOP_K_MARGIN
        with router:
            run = common.greedy(model, ids, GREEDY_STEPS)
            logits = common.all_logits(model, ids)
    else:
        router, min_router = RouterMargin(model), MIN_ROUTER_MARGIN
        run = common.greedy(model, ids, GREEDY_STEPS)
        logits = common.all_logits(model, ids)
    if min(run["margin"]) < MIN_GREEDY_MARGIN or router.smallest < min_router:
        return None
    if not is_family(spec) and max(run["ids"]) >= 268:
        return None
    return model, stored, run, logits


def save(spec, model, stored, tokenizer, folder):
    shutil.rmtree(folder, ignore_errors=True)
    if stored:
        return hf_families.save_mxfp4(model, stored, folder)
    if is_family(spec):
        model.generation_config = transformers.GenerationConfig(eos_token_id=58, pad_token_id=57)
        model.to(spec.dtype).save_pretrained(folder, max_shard_size=spec.shard)
        if spec.fused:
            hf_families.fuse_experts(folder)
        if spec.transposed:
            hf_families.transpose_experts(folder)
        if spec.mtp:
            hf_families.add_mtp(folder, 3)
        if spec.flat:
            hf_families.flatten(folder)
        return None
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHAT_TEMPLATE
    # One model stores its chat template in the old location, tokenizer_config.json.
    fast.save_pretrained(folder, save_jinja_files=spec.name != "qwen2_f16")
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=[270, 268], pad_token_id=268, **SAMPLING)
    return model.to(spec.dtype).save_pretrained(folder, max_shard_size=spec.shard)


def check_saved(spec, folder, ids, logits):
    """Fails unless transformers computes the same logits from the directory."""
    name = spec.family + "ForConditionalGeneration"
    model = getattr(transformers, name).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    if abs(common.all_logits(model.eval(), ids) - logits).max() > 1e-5:
        raise SystemExit(f"{spec.name}: transformers reads another model than it saved")


def make_one(spec, out, first_seed):
    tokenizer, text = None, {}
    if is_family(spec):
        ids = [int(i) for i in np.random.default_rng(741).integers(0, spec.n_vocab - 2, TOKENS)]
    else:
        tokenizer = build_tokenizer(spec)
        text = {"text": TEXT, "text_ids": tokenizer.encode(TEXT).ids, "sampling": SAMPLING}
        ids = text["text_ids"][:TOKENS]
    for seed in range(first_seed, first_seed + 1000):
        found = try_seed(spec, seed, ids)
        if found:
            break
    else:
        raise SystemExit(f"{spec.name}: no seed without near-ties")
    model, stored, run, logits = found
    save(spec, model, stored, tokenizer, out / spec.name)
    if is_family(spec) and spec.transposed:
        check_saved(spec, out / spec.name, ids, logits)
    common.save_npy(out / f"{spec.name}.npy", logits.astype("<f4"))
    common.save_json(out / f"{spec.name}.json", {
        "model": spec.name, "seed": seed, **text, "ids": ids, "logits": f"{spec.name}.npy",
        "greedy": run, "logit_std": round(float(logits.std()), 4),
        "versions": common.versions(("numpy", "torch", "transformers", "tokenizers"))})
    size = sum(path.stat().st_size for path in (out / spec.name).iterdir())
    print(f"{spec.name}: seed {seed}, {size} bytes, logit std {logits.std():.2f}, "
          f"{sorted(p.name for p in (out / spec.name).iterdir())}")


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", default=HERE / "hf", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of models; default: all")
    parser.add_argument("--first-seed", default=0, type=int)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", dest="changes")
    args = parser.parse_args()
    common.setup_torch()
    args.out.mkdir(parents=True, exist_ok=True)
    changes = {key: json.loads(value) for key, value in (c.split("=", 1) for c in args.changes)}
    for spec in SPECS + hf_families.FAMILIES:
        if not args.only or spec.name in args.only:
            spec = dataclasses.replace(spec, config=spec.config | changes)
            make_one(spec, args.out, args.first_seed)


if __name__ == "__main__":
    main()
