#!/usr/bin/env python3
"""Makes tests/golden/smollm2: reference logits and greedy text of SmolLM2-135M-Instruct (Q4_1).

    python3 make_smollm2.py MODEL.gguf [--out smollm2] [--prompts smollm2/prompts.json]

The GGUF file is dequantised to float32 with the gguf package and loaded into transformers'
LlamaForCausalLM (float32, eager attention). README.md describes every file written here.
"""

import json
import pathlib

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
TOP = 64
GREEDY_STEPS = 64


def load_llama(fields, tensors):
    """LlamaForCausalLM in float32 from the metadata and dequantised tensors of a GGUF file."""
    key = lambda name: fields["llama." + name]
    n_heads, n_kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        head_dim=key("rope.dimension_count"),
        max_position_embeddings=key("context_length"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        tie_word_embeddings="output.weight" not in tensors,
        attn_implementation="eager",
    )
    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
        "lm_head.weight": tensors.get("output.weight", tensors["token_embd.weight"]),
    }
    names = {
        "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    }
    for layer in range(key("block_count")):
        for ours, theirs in names.items():
            rows = tensors[f"blk.{layer}.{ours}.weight"]
            if ours == "attn_q":
                rows = common.unpermute_qk(rows, n_heads)
            elif ours == "attn_k":
                rows = common.unpermute_qk(rows, n_kv_heads)
            state[f"model.layers.{layer}.{theirs}.weight"] = rows
    model = LlamaForCausalLM(config).float().eval()
    model.load_state_dict({name: torch.from_numpy(v) for name, v in state.items()}, strict=True)
    return model


def load_reference(path):
    """(model, tokenizer) of a GGUF file of architecture llama."""
    fields, tensors = common.read_gguf(path)
    if fields["general.architecture"] != "llama":
        raise SystemExit(f"{path}: architecture {fields['general.architecture']!r}, expected llama")
    return load_llama(fields, tensors), common.build_tokenizer(fields)


def write_top_positions(out, name, logits):
    """Writes the TOP largest logits of every position in descending order, ids and values in two
    files."""
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    common.save_npy(out / f"{name}.top_ids.npy", ids.astype("<i4"))
    values = np.take_along_axis(logits, ids, 1)
    common.save_npy(out / f"{name}.top_values.npy", values.astype("<f4"))


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("model", help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", default=HERE / "smollm2", type=pathlib.Path)
    parser.add_argument("--prompts", default=HERE / "smollm2" / "prompts.json", type=pathlib.Path)
    args = parser.parse_args()
    common.setup_torch()
    model, tokenizer = load_reference(args.model)
    args.out.mkdir(parents=True, exist_ok=True)
    records = []
    for prompt in json.loads(args.prompts.read_text(encoding="utf-8"))["prompts"]:
        name, ids = prompt["name"], tokenizer.encode(prompt["text"]).ids
        logits = common.all_logits(model, ids)
        common.save_npy(args.out / f"{name}.last_logits.npy", logits[-1].astype("<f4"))
        record = {"name": name, "kind": prompt["kind"], "text": prompt["text"], "ids": ids,
                  "last_logits": f"{name}.last_logits.npy"}
        if prompt.get("all_positions"):
            write_top_positions(args.out, name, logits)
            record["top_ids"] = f"{name}.top_ids.npy"
            record["top_values"] = f"{name}.top_values.npy"
        run = common.greedy(model, ids, GREEDY_STEPS)
        run["text"] = tokenizer.decode(run["ids"], skip_special_tokens=False)
        record["greedy"] = run
        records.append(record)
        print(name, len(ids), "tokens; smallest margin", min(run["margin"]))
        print(repr(run["text"]))
    common.save_json(args.out / "golden.json", {
        "model": pathlib.Path(args.model).name, "versions": common.versions(), "prompts": records})


if __name__ == "__main__":
    main()
