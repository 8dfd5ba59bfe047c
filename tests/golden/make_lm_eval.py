#!/usr/bin/env python3
"""Makes lm_eval/golden.json: the results of lm-eval for SmolLM2 with transformers.

    tools/setup --tests --peers
    HF_HUB_OFFLINE=1 .cache/venv/bin/python tests/golden/make_lm_eval.py MODEL.gguf

The tasks of lm_eval/ run over transformers' model of make_smollm2.py: float32, eager attention, on
the weights as the file stores them. Needs lm_eval, which --tests installs, and accelerate, torch and
transformers, which --peers installs.
"""

import argparse
import json
import pathlib

import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import make_smollm2

HERE = pathlib.Path(__file__).resolve().parent
TASKS = ["tidepool_choice", "tidepool_until"]


def wrapped(tokenizer):
    """Returns the tokenizer of make_smollm2 as a transformers tokenizer."""
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>",
                                                pad_token="<|im_end|>")


def sample(task, one):
    """Returns the fields of one document that the test compares."""
    kept = {"doc_id": one["doc_id"]}
    if task == "tidepool_choice":
        kept["loglikelihoods"] = [float(response[0][0]) for response in one["resps"]]
        kept["greedy"] = [bool(response[0][1]) for response in one["resps"]]
        kept["acc"] = one["acc"]
    else:
        kept["text"] = one["resps"][0][0]
        kept["exact_match"] = one["exact_match"]
    return kept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = make_smollm2.load_reference(arguments.model)
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        tokenizer = wrapped(tokenizer)
    harness = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1, device="cpu")
    results = lm_eval.simple_evaluate(
        model=harness, tasks=TASKS, bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(HERE / "lm_eval"), include_defaults=False))
    golden = {
        "made_with": {"lm_eval": lm_eval.__version__, "torch": torch.__version__,
                      "transformers": transformers.__version__},
        "samples": {task: [sample(task, one) for one in results["samples"][task]] for task in TASKS},
    }
    (HERE / "lm_eval" / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
