#!/usr/bin/env python3
"""Makes perplexity.json: llama.cpp's perplexity of a model over perplexity.txt.

    python3 make_perplexity.py MODEL.gguf
    python3 make_perplexity.py MODEL.gguf --beside TIDEPOOL_BINARY

The method is that of llama.cpp's own tool, over logits from llama-cpp-python. The text's tokens are cut
into chunks of 512. Each chunk has its own cache, and starts with BOS if the model adds one. The tokens of
the second half of a chunk are scored. This is done for the file as it is, and with its weights as float32.
--beside writes nothing. It also runs `tidepool perplexity`, and fails in two cases: --exact differs from
llama.cpp on float32 weights, or the default mode differs from that more than llama.cpp on the file itself.
"""

import json
import pathlib
import subprocess
import tempfile

import gguf
import llama_cpp
import numpy as np

import check_with_llamacpp
import golden_common as common

HERE = pathlib.Path(__file__).resolve().parent
TEXT = HERE / "perplexity.txt"
TARGET = HERE / "perplexity.json"
CONTEXT = 512
# Largest relative difference between --exact and llama.cpp on float32 weights.
EXACT_LIMIT = 0.0002


def losses(logits, tokens):
    """Negative log-likelihood of each token, from the logits of the position before it."""
    logits = logits.astype(np.float64)
    largest = logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
    return log_sum - logits[np.arange(len(tokens)), tokens]


def llamacpp_perplexity(path, kv_type):
    llama = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False,
                            type_k=int(kv_type), type_v=int(kv_type))
    adds_bos = llama_cpp.llama_vocab_get_add_bos(llama_cpp.llama_model_get_vocab(llama.model))
    ids = llama.tokenize(TEXT.read_bytes(), add_bos=bool(adds_bos), special=False)
    chunks = len(ids) // CONTEXT
    scored = []
    for chunk in range(chunks):
        tokens = ids[chunk * CONTEXT:(chunk + 1) * CONTEXT]
        llama.reset()
        llama.eval([llama.token_bos()] + tokens[1:] if adds_bos else tokens)
        half = CONTEXT // 2
        scored.append(losses(np.array(llama.scores[half:CONTEXT - 1]), tokens[half + 1:]))
    values = np.concatenate(scored)
    perplexity = float(np.exp(values.mean()))
    error = float(np.sqrt(values.var() / (len(values) - 1)) * perplexity)
    return {"tokens": len(ids), "chunks": chunks, "scored": len(values), "perplexity": perplexity,
            "standard_error": error, "chunk_losses": [float(chunk.mean()) for chunk in scored]}


def measure(model):
    quantised = llamacpp_perplexity(model, gguf.GGMLQuantizationType.F16)
    with tempfile.TemporaryDirectory() as scratch:
        target = pathlib.Path(scratch) / "f32.gguf"
        check_with_llamacpp.write_as_f32(model, target)
        exact = llamacpp_perplexity(target, gguf.GGMLQuantizationType.F32)
    return {"text": TEXT.name, "context": CONTEXT, "llama_cpp_python": llama_cpp.__version__,
            "as_it_is": quantised, "as_float32": exact}


def compare(binary, model, reference):
    good, truth = True, reference["as_float32"]
    theirs = abs(reference["as_it_is"]["perplexity"] / truth["perplexity"] - 1)
    for flags, limit in (([], theirs), (["--exact"], EXACT_LIMIT)):
        command = [binary, "perplexity", "--model", model, "--file", str(TEXT), "--json", *flags]
        ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        apart = abs(ours["perplexity"] / truth["perplexity"] - 1)
        good &= apart <= limit and ours["tokens_in_text"] == truth["tokens"]
        print(f"perplexity {' '.join(flags)}: {ours['perplexity']:.4f}, in float32 by llama.cpp "
              f"{truth['perplexity']:.4f}, {100 * apart:.3f} % apart, limit {100 * limit:.3f} %")
    return good


def main():
    parser = common.make_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--beside", metavar="TIDEPOOL_BINARY")
    args = parser.parse_args()
    reference = measure(args.model)
    if args.beside:
        raise SystemExit(0 if compare(args.beside, args.model, reference) else 1)
    common.save_json(TARGET, reference)
    print(json.dumps(reference, indent=1))


if __name__ == "__main__":
    main()
