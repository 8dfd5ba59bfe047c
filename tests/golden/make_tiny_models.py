#!/usr/bin/env python3
"""Makes tests/golden/tiny: seeded random models of every family as GGUF, with reference logits.

    python3 make_tiny_models.py [--out tiny] [--only NAME ...]

Each model is built in transformers (float32, eager attention). Its matrices are rounded to the
weight type of the file. The rounded model is the reference, and tiny_export.py writes the file. The
script tries consecutive seeds and takes the first one without near-ties (among greedy tokens and at
the edge of a router's top-K) and without control tokens in greedy runs. The runs of a serving model
must also be varied. README.md describes every file.
"""

import dataclasses
import pathlib

import numpy as np
import torch
import transformers
from torch.nn.functional import linear

import golden_common as common
import tiny_export

HERE = pathlib.Path(__file__).resolve().parent
TEXT = ("In the harbour of Brannoch, 41 boats wait for the tide: café, rope & net. "
        "\"Are you in?\" she asks.")
TEXT_TOKENS = 40
GREEDY_STEPS = 24
MIN_GREEDY_MARGIN = 0.02
MIN_ROUTER_MARGIN = 0.005
MIN_SERVING_VARIETY = 15  # different tokens in a greedy run
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@dataclasses.dataclass(frozen=True)
class Spec:
    """One model. `serving` keeps its output printable and endless (see make_endless)."""

    name: str
    family: str
    ftype: str = "f32"
    n_vocab: int = 288
    n_merges: int = 29
    serving: bool = False
    config: dict = dataclasses.field(default_factory=dict)


MOE = {"num_hidden_layers": 2}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
# Blocks of 256 need this hidden size; heads of 16 keep the files small.
QUANTS = {"num_hidden_layers": 2, "hidden_size": 256, "head_dim": 16, "intermediate_size": 96,
          "tie_word_embeddings": False}
SERVE = {"max_position_embeddings": 4096, "tie_word_embeddings": False}
SPECS = (
    Spec("llama_f32", "Llama", n_vocab=283, n_merges=24, config={"tie_word_embeddings": False}),
    Spec("llama3_rope_f16", "Llama", "f16", config={"rope_parameters": LLAMA3_ROPE}),
    Spec("mistral_bf16", "Mistral", "bf16", n_vocab=301, n_merges=42,
         config={"sliding_window": None}),
    Spec("mixtral_f32", "Mixtral", n_vocab=261, n_merges=2, config=MOE | {
        "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 32}),
    Spec("mixtral_q4_0", "Mixtral", "q4_0", config=MOE | {
        "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 64,
        "tie_word_embeddings": False}),
    Spec("qwen2_f32", "Qwen2", n_vocab=320, n_merges=40, config={"num_hidden_layers": 2}),
    Spec("qwen2_q8_0", "Qwen2", "q8_0", config={"tie_word_embeddings": False}),
    Spec("qwen3_f32", "Qwen3", config={"num_hidden_layers": 2, "head_dim": 32}),
    Spec("qwen2moe_f32", "Qwen2Moe", n_vocab=270, n_merges=11, config=MOE | EXPERTS | {
        "norm_topk_prob": False, "shared_expert_intermediate_size": 64,
        "tie_word_embeddings": False}),
    Spec("qwen3moe_f32", "Qwen3Moe", n_vocab=283, n_merges=24, config=MOE | EXPERTS | {
        "norm_topk_prob": True, "head_dim": 32}),
    Spec("qwen3moe_q4_1", "Qwen3Moe", "q4_1", config=MOE | EXPERTS | {
        "norm_topk_prob": True, "head_dim": 32, "num_experts_per_tok": 2,
        "tie_word_embeddings": False}),
    Spec("llama_quants", "Llama", "quants", config=QUANTS),
    Spec("qwen3moe_quants", "Qwen3Moe", "quants", config=EXPERTS | QUANTS | {
        "norm_topk_prob": True, "head_dim": 32}),
    Spec("serving_llama_f32", "Llama", n_vocab=300, n_merges=41, serving=True, config=SERVE),
    Spec("serving_qwen3moe_f16", "Qwen3Moe", "f16", n_vocab=300, n_merges=41, serving=True,
         config=MOE | EXPERTS | SERVE | {"norm_topk_prob": True, "head_dim": 32}),
)


def build_model(spec):
    """Returns a freshly made, not yet initialised, transformers model of the spec."""
    settings = {
        "vocab_size": spec.n_vocab, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5 if spec.family in ("Llama", "Mistral", "Mixtral") else 1e-6,
        "tie_word_embeddings": True, "attn_implementation": "eager",
        "experts_implementation": "eager",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    } | spec.config
    config = getattr(transformers, spec.family + "Config")(**settings)
    return getattr(transformers, spec.family + "ForCausalLM")(config).float().eval()


def random_state(model, seed):
    """float32 weights by name, scaled so that attention is peaked and logits spread over +-10."""
    rng = np.random.default_rng(seed)
    tied = model.config.tie_word_embeddings
    state = {}
    for name, parameter in model.state_dict().items():
        shape = tuple(parameter.shape)
        fan_in = shape[-1]
        if name.endswith("_norm.weight"):
            values = rng.uniform(0.8, 2.0, shape)
        elif "norm" in name:
            values = rng.uniform(0.5, 1.5, shape)
        elif name.endswith(".bias"):
            values = rng.normal(0.0, 0.5, shape)
        elif name == "model.embed_tokens.weight":
            values = rng.normal(0.0, 0.4 if tied else 1.0, shape)
        elif name == "lm_head.weight":
            values = (state["model.embed_tokens.weight"] if tied else
                      rng.normal(0.0, 3 / np.sqrt(fan_in), shape))
        else:
            gain = 2.0 if name.endswith("mlp.gate.weight") else 1.3
            values = rng.normal(0.0, gain / np.sqrt(fan_in), shape)
        state[name] = np.array(values, dtype=np.float32)
    return state


def make_endless(state, tokens):
    """Reserves residual channel 0 as a constant that makes all tokens improbable except printable
    ones.

    No layer reads or writes the channel. So after the last norm, it is a positive number in any
    context, and column 0 of the head makes a bias of it. At usual temperatures, the text is
    printable ASCII without control tokens. The rest of the model stays random. A flatter head makes
    sampled text varied.
    """
    state["lm_head.weight"] *= 0.6
    for name, values in state.items():
        if name.endswith("layernorm.weight"):
            values[0] = 0.0
        if name.endswith(("self_attn.o_proj.weight", "mlp.down_proj.weight")):
            values[0] = 0.0
        elif name.endswith("mlp.experts.down_proj"):
            values[:, 0] = 0.0
    state["model.embed_tokens.weight"][:, 0] = 6.0
    state["model.norm.weight"][0] = 1.0
    space = tiny_export.byte_to_text()[32]
    printable = [all(c == space or "!" <= c <= "~" for c in token) for token in tokens]
    specials = set(tiny_export.SPECIALS)
    allowed = [ok and token not in specials and not token.startswith("[UNUSED")
               for ok, token in zip(printable, tokens)]
    state["lm_head.weight"][:, 0] = np.where(allowed, 0.0, -24.0)


class RouterMargin:
    """Smallest logit gap between the K-th and the next expert over everything a model computed."""

    def __init__(self, model):
        self.smallest = float("inf")
        for name, module in model.named_modules():
            if name.endswith("mlp.gate"):
                module.register_forward_hook(self._observe)
        self._top_k = getattr(model.config, "num_experts_per_tok", 0)

    def _observe(self, module, inputs, _outputs):
        rows = inputs[0].reshape(-1, module.weight.shape[-1])
        top = torch.topk(linear(rows, module.weight), self._top_k + 1, dim=-1).values
        self.smallest = min(self.smallest, float((top[:, -2] - top[:, -1]).min()))


def load_truth(spec, model, state):
    """Loads the rounded weights. The load is strict, so that no parameter keeps its initial
    value."""
    weights = tiny_export.rounded(state, spec.ftype)
    model.load_state_dict({name: torch.from_numpy(v) for name, v in weights.items()}, strict=True)


def make_prompts(spec, seed, tokenizer):
    """[(name, text or None, ids)]: the start of TEXT, and three random ordinary tokens."""
    ids = tokenizer.encode(TEXT).ids[:TEXT_TOKENS]
    while tokenizer.encode(tokenizer.decode(ids)).ids != ids:
        ids.pop()  # the cut was inside of a character or of a merge
    rng = np.random.default_rng(seed + 1_000_000)
    short = [int(i) for i in rng.integers(0, 256 + spec.n_merges, 3)]
    return [("text", tokenizer.decode(ids), ids), ("short", None, short)]


def try_seed(spec, seed, tokenizer, control_ids):
    """(state, prompts with logits and greedy, router margin), or None when a near-tie was met."""
    model = build_model(spec)
    state = random_state(model, seed)
    if spec.serving:
        make_endless(state, tiny_export.vocabulary(spec.n_vocab, spec.n_merges)[0])
    load_truth(spec, model, state)
    router = RouterMargin(model)
    prompts = []
    for name, text, ids in make_prompts(spec, seed, tokenizer):
        run = common.greedy(model, ids, GREEDY_STEPS)
        if min(run["margin"]) < MIN_GREEDY_MARGIN or control_ids & set(run["ids"]):
            return None
        if spec.serving and len(set(run["ids"])) < MIN_SERVING_VARIETY:
            return None
        prompts.append({"name": name, "text": text, "ids": ids, "greedy": run,
                        "logits": common.all_logits(model, ids)})
    if router.smallest < MIN_ROUTER_MARGIN:
        return None
    return model.config, state, prompts, router.smallest


def make_one(spec, out):
    """Finds a seed, and writes NAME.gguf, NAME.json and the logits of one spec."""
    tokens, types, merges = tiny_export.vocabulary(spec.n_vocab, spec.n_merges)
    tokenizer = common.build_tokenizer({
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.pre": "gpt-2"})
    not_text = {i for i, kind in enumerate(types) if kind != 1}
    for seed in range(1000):
        found = try_seed(spec, seed, tokenizer, not_text)
        if found:
            break
    else:
        raise SystemExit(f"{spec.name}: no seed without near-ties")
    config, state, prompts, router_margin = found
    path = out / f"{spec.name}.gguf"
    tiny_export.write_gguf(path, config, state, spec.ftype, spec.n_merges)
    spread = float(np.std(prompts[0]["logits"]))
    for prompt in prompts:
        file = f"{spec.name}.{prompt['name']}.npy"
        common.save_npy(out / file, prompt["logits"].astype("<f4"))
        prompt["logits"] = file
    common.save_json(out / f"{spec.name}.json", {
        "model": f"{spec.name}.gguf", "family": config.model_type,
        "architecture": tiny_export.ARCHS[config.model_type], "weights": spec.ftype,
        "n_vocab": spec.n_vocab, "tied": config.tie_word_embeddings, "seed": seed,
        "logit_std": round(spread, 4),
        "router_margin": None if router_margin == float("inf") else round(router_margin, 6),
        "versions": common.versions(), "prompts": prompts})
    print(f"{spec.name}: seed {seed}, {path.stat().st_size} bytes, logit std {spread:.2f}, "
          f"router margin {router_margin:.4f}")


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", default=HERE / "tiny", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of models; default: all")
    args = parser.parse_args()
    common.setup_torch()
    unknown = set(args.only or ()) - {spec.name for spec in SPECS}
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    for spec in SPECS:
        if not args.only or spec.name in args.only:
            make_one(spec, args.out)


if __name__ == "__main__":
    main()
