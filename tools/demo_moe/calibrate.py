#!/usr/bin/env python3
"""Decides how to split the FFNs of SmolLM2-135M-Instruct into experts, and writes routing.npz.

    .cache/venv/bin/python tools/demo_moe/calibrate.py

The script needs `tools/setup --peers` and takes about 15 minutes.

The weights of the model are not trained. The script only fits a linear router for each layer and a
scale for each neuron (after MoEfication, arXiv 2110.01786; the always-on shared expert as in CMoE,
arXiv 2502.04416). It fits them on text that the model writes itself: answers to prompts.txt and
continuations of openings.txt. The continuations add prose with different first tokens. This
matters, because the first token of a text has unusual activations.

First, a backward pass over some of the text finds out which directions of each FFN's output affect the
loss most. Then each layer is fitted to the inputs that it gets in the dense model (split_ffn.py):
 1. h = silu(x G^T) * (x U^T). The importance of a neuron is the mean of (|h_j| ||D_j||)^2. The most
    important neurons form the shared expert.
 2. Balanced k-means groups the other neurons. Their profiles are |h_j| ||D_j|| on some tokens, less
    half of each profile's mean, normalised.
 3. The router learns which k experts contribute most, by binary cross-entropy and Adam. The weight of an
    expert is the distance between its squared contribution and the k-th largest.
 4. Least squares finds a scale for each neuron, including shared ones, so that the converted FFN is as
    close as possible to the dense one.
With the same seed, machine, threads and packages the file is the same. Products use bfloat16.
"""

import argparse
import hashlib
import pathlib
import time

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import routing_data
import split_ffn
from llama_torch import Llama

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TEMPERATURE = 0.8
TOP_P = 0.95
ANSWER_TOKENS = 192
BATCH = 48  # texts sampled at once
CHUNK = 2048  # tokens at once, to bound memory
FIT_TOKENS = 12000
METRIC_ROWS = 8  # texts for the gradients
METRIC_FLOOR = 0.3  # share of the plain squared length in the metric


def build_tokenizer(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(line.split(" ", 1)) for line in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    control = int(gguf.TokenType.CONTROL)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False)
         for token, kind in zip(tokens, fields["tokenizer.ggml.token_type"]) if kind == control])
    return tokenizer


def lines_of(name):
    return [line for line in (HERE / name).read_text(encoding="utf-8").split("\n") if line]


def write_texts(model, tokenizer, seed):
    """Returns (answers, continuations): lists of rows of ids. Each row is a prompt
    with its continuation up to an end of turn."""
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    prompts = [turn.format("system", SYSTEM) + turn.format("user", question)
               + "<|im_start|>assistant\n" for question in lines_of("prompts.txt")]
    end = model.fields["tokenizer.ggml.eos_token_id"]
    generator = torch.Generator().manual_seed(seed)
    out = []
    for beginnings in (prompts, lines_of("openings.txt")):
        given = [tokenizer.encode(text).ids for text in beginnings]
        more = []
        for start in range(0, len(given), BATCH):
            more += model.sample(given[start:start + BATCH], ANSWER_TOKENS, TEMPERATURE, TOP_P,
                                 generator).tolist()
            print(f"  {len(more)} of {len(given)} texts", flush=True)
        out.append([row + (rest[:rest.index(end) + 1] if end in rest else rest)
                    for row, rest in zip(given, more)])
    return out


def fast_products():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def find_metrics(model, rows):
    """Returns a matrix [hidden, hidden] for each layer: the root of the mean square of gradients.

    The matrix maps an error of the layer's output, relative to the stream, to a vector whose length is the
    effect on the loss.
    """
    hidden = model.embedding.shape[1]
    squares = [torch.zeros(hidden, hidden) for _ in model.layers]
    for row in rows:
        ids = torch.tensor(row)
        with torch.enable_grad(), fast_products():
            streams = [model.embedding[ids][None].requires_grad_()]
            for layer in model.layers:
                streams.append(layer.forward(streams[-1]))
            loss = model.loss(streams[-1][0], ids)
        slopes = torch.autograd.grad(loss, streams[1:])
        for square, stream, slope in zip(squares, streams[1:], slopes):
            felt = (slope * stream.detach().norm(dim=2, keepdim=True))[0]
            square += felt.T @ felt
    metrics = []
    for square in squares:
        mean = square.diagonal().mean()
        values, vectors = torch.linalg.eigh(square / mean)
        root = ((1 - METRIC_FLOOR) * values.clamp(min=0) + METRIC_FLOOR).sqrt()
        metrics.append((vectors * root) @ vectors.T)
    return metrics


def move_through(layer, stream, lengths):
    """Returns (inputs of the FFN, inputs of its down projection, the stream after the layer), [tokens, ...] each.

    The texts are concatenated; `lengths` are their lengths.
    """
    attended = torch.cat([layer.attend(text[None], None, None)[0] for text in stream.split(lengths)])
    x = layer.ffn_input(attended)
    h = torch.cat([layer.activations(part) for part in x.split(CHUNK)])
    return x, h, attended + h @ layer.down.T


def fit_layers(model, rows, metrics, shape, seed):
    """Yields a split_ffn.Fit for each layer, fitted to its inputs in the dense model."""
    stream, lengths = model.embedding[[token for row in rows for token in row]], [len(row) for row in rows]
    for index, layer in enumerate(model.layers):
        started = time.monotonic()
        with fast_products():
            x, h, stream = move_through(layer, stream, lengths)
            sample = split_ffn.Sample(x, h, 1 / stream.norm(dim=1), layer.down, metrics[index])
            fit = split_ffn.fit_layer(sample, shape, torch.Generator().manual_seed(seed + index))
        print(f"  layer {index}: {fit.error:.4f} of the output's energy lost; "
              f"{time.monotonic() - started:.1f} s", flush=True)
        yield fit


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path,
                        default=ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "routing.npz")
    parser.add_argument("--shared", type=int, default=768, help="neurons of the shared expert")
    parser.add_argument("--experts", type=int, default=24)
    parser.add_argument("--top-k", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep-texts", type=pathlib.Path, metavar="FILE",
                        help="file for the texts of the model: read if it exists, else written")
    parser.add_argument("--judged", type=pathlib.Path, metavar="FILE",
                        help="file for the answers that are not used for the fit, as text\n"
                        "for tidepool perplexity")
    return parser.parse_args()


def texts_of(args, model):
    """Returns the rows to fit on: answers and continuations in turn. Every eighth pair is left out."""
    tokenizer = build_tokenizer(model.fields)
    if args.keep_texts and args.keep_texts.exists():
        texts = torch.load(args.keep_texts)
    else:
        texts = write_texts(model, tokenizer, args.seed)
    if args.keep_texts and not args.keep_texts.exists():
        torch.save(texts, args.keep_texts)
    if args.judged:
        args.judged.write_text("\n\n".join(tokenizer.decode(row) for row in texts[0][::8]),
                               encoding="utf-8")
    rows, total = [row for i, pair in enumerate(zip(*texts)) if i % 8 for row in pair], 0
    for count, row in enumerate(rows):
        total += len(row)
        if total >= FIT_TOKENS:
            return rows[:count + 1]
    return rows


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    started = time.monotonic()
    model = Llama(args.model)
    neurons = model.layers[0].gate.shape[0]
    width, rest = divmod(neurons - args.shared, args.experts)
    if rest or width <= 0 or width % 32:
        raise SystemExit(f"calibrate: {neurons} - {args.shared} neurons cannot be split into {args.experts} "
                         "experts of a multiple of 32")
    shape = routing_data.Routing(hashlib.sha256(args.model.read_bytes()).hexdigest(), args.shared,
                                 args.experts, width, args.top_k, None, None, None)
    rows = texts_of(args, model)
    print(f"fitting on {sum(map(len, rows))} tokens; {time.monotonic() - started:.0f} s so far",
          flush=True)
    metrics = find_metrics(model, rows[:METRIC_ROWS])
    print(f"gradients: {time.monotonic() - started:.0f} s so far", flush=True)
    fits = list(fit_layers(model, rows, metrics, shape, args.seed))
    shape.neurons, shape.router, shape.neuron_scale = (
        np.stack([getattr(fit, part).numpy() for fit in fits]) for part in ("neurons", "router", "scale"))
    routing_data.save(args.out, shape)
    print(f"{args.out}: {args.out.stat().st_size} bytes; {time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
