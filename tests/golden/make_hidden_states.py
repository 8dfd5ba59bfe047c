#!/usr/bin/env python3
"""Makes tests/golden/hf/NAME.hidden.npy: the output of each layer, for two models of that folder.

    python3 make_hidden_states.py [--out hf]

The file is float32 [layers + 1, tokens, hidden]: the hidden states of transformers for the tokens of
NAME.json. The first is the embedding's output, and the last is that of the final norm.
"""

import json
import pathlib

import numpy as np
import torch
import transformers

import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("gemma3_text", "qwen3_moe_bf16")


def hidden_states(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager",
        experts_implementation="eager").eval()
    outputs = model(torch.tensor([ids]), output_hidden_states=True)
    return np.stack([state[0].numpy() for state in outputs.hidden_states])


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "hf")
    options = parser.parse_args()
    common.setup_torch()
    options.out.mkdir(exist_ok=True)
    for name in NAMES:
        ids = json.loads((HERE / "hf" / f"{name}.json").read_text())["ids"]
        states = hidden_states(HERE / "hf" / name, ids)
        np.save(options.out / f"{name}.hidden.npy", states)
        print(name, states.shape)


if __name__ == "__main__":
    main()
