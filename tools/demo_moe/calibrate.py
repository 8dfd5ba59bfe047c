#!/usr/bin/env python3
"""Finds how the FFNs of SmolLM2-135M-Instruct become experts, and writes it to routing.npz.

    .cache/venv/bin/python tools/demo_moe/calibrate.py            # needs tools/setup --peers; ~10 minutes

Nothing of the model is trained but a linear router for each layer (MoEfication, arXiv 2110.01786;
the always-on shared expert as in CMoE, arXiv 2502.04416). Everything is fitted on text that the model
writes itself, as answers to prompts.txt. Layer by layer, on what the layers before it give once
they are converted:
 1. h = silu(x G^T) * (x U^T); a neuron's importance is the mean of (|h_j| ||D_j||)^2. The most
    important ones are the shared expert.
 2. The others are grouped by balanced k-means over their profiles |h_j| ||D_j|| on some tokens, less
    half of each profile's mean, normalised.
 3. The router learns which k experts contribute most (by norm): weighted binary cross-entropy, an
    expert weighs by how far its squared contribution is from the k-th's; Adam.
 4. A factor for each expert makes the sum of the chosen ones the best stand-in, in the least-squares
    sense, for the sum of all.
Seeded: the same machine, threads and packages give the same file. Perplexities of the dense and of the
converted model are printed, on answers kept apart and on texts of others.
"""

import argparse
import hashlib
import pathlib
import time

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import routing_data
from llama_torch import Llama

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TEMPERATURE = 0.8
TOP_P = 0.95
ANSWER_TOKENS = 192
TEXT_TOKENS = 256  # pieces of other texts
PROFILE_TOKENS = 3072
KMEANS_ROUNDS = 20
ROUTER_STEPS = 400
ROUTER_BATCH = 1024
ROUTER_RATE = 3e-3
BATCH = 48  # answers sampled at once
CHUNK = 2048  # tokens at once, to bound memory


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


class Texts:
    """Rows of ids with a mask of the positions that count (pads do not)."""

    def __init__(self, rows):
        longest = max(map(len, rows))
        self.ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        self.mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row))
                                  for row in rows])


def write_answers(model, tokenizer, seed):
    """(rows to fit on, rows to judge by): chats of the model, up to its end-of-turn token."""
    questions = (HERE / "prompts.txt").read_text(encoding="utf-8").split("\n")
    turn = "<|im_start|>{}\n{}<|im_end|>\n"
    prompts = [tokenizer.encode(turn.format("system", SYSTEM) + turn.format("user", question)
                                + "<|im_start|>assistant\n").ids for question in questions if question]
    end = model.fields["tokenizer.ggml.eos_token_id"]
    generator = torch.Generator().manual_seed(seed)
    answers = []
    for start in range(0, len(prompts), BATCH):
        answers += model.sample(prompts[start:start + BATCH], ANSWER_TOKENS, TEMPERATURE, TOP_P,
                                generator).tolist()
        print(f"  {len(answers)} of {len(prompts)} answers", flush=True)
    rows = [prompt + (answer[:answer.index(end) + 1] if end in answer else answer)
            for prompt, answer in zip(prompts, answers)]
    judged = rows[::8]
    return [row for i, row in enumerate(rows) if i % 8], judged


def cut(tokenizer, path, pieces):
    ids = tokenizer.encode(path.read_text(encoding="utf-8")).ids
    return [ids[i * TEXT_TOKENS:(i + 1) * TEXT_TOKENS] for i in range(pieces)
            if len(ids) >= (i + 1) * TEXT_TOKENS]


def balanced_clusters(profiles, count, generator):
    """[items] the cluster of each, all of equal size: k-means by cosine over normalised rows."""
    items = profiles.shape[0]
    size = items // count
    centres = profiles[torch.randperm(items, generator=generator)[:count]]
    chosen = None
    for _ in range(KMEANS_ROUNDS):
        likeness = profiles @ centres.T
        # The best pairs first; a cluster that is full takes no more.
        order = likeness.flatten().sort(descending=True, stable=True).indices.tolist()
        cluster, room = [-1] * items, [size] * count
        for pair in order:
            item, target = divmod(pair, count)
            if cluster[item] < 0 and room[target]:
                cluster[item] = target
                room[target] -= 1
        cluster = torch.tensor(cluster)
        if chosen is not None and bool((cluster == chosen).all()):
            break
        chosen = cluster
        centres = torch.stack([profiles[cluster == c].mean(0) for c in range(count)])
        centres = F.normalize(centres, dim=1)
    return chosen


def group_neurons(layer, x, shape, generator):
    """A permutation of the neurons: the shared ones, then expert by expert."""
    norms = layer.down.norm(dim=0)
    profiles = torch.cat([layer.activations(part).abs() * norms for part in x.split(CHUNK)])
    importance = profiles.square().mean(0)
    order = importance.argsort(descending=True, stable=True)
    shared, routed = order[:shape.shared], order[shape.shared:].sort().values
    picked = torch.randperm(x.shape[0], generator=generator)[:PROFILE_TOKENS]
    rows = profiles[picked][:, routed].T
    rows = F.normalize(rows - rows.mean(1, keepdim=True) / 2, dim=1)
    clusters = balanced_clusters(rows, shape.experts, generator)
    groups = [routed[clusters == c] for c in range(shape.experts)]
    return torch.cat([shared.sort().values, *groups])


def expert_outputs(layer, neurons, shape, x):
    """[experts, tokens, hidden]: what each routed expert adds."""
    own = neurons[shape.shared:].view(shape.experts, shape.width)
    h = layer.activations(x)[:, own.flatten()].view(-1, shape.experts, shape.width)
    return torch.einsum("tew,hew->eth", h, layer.down[:, own.flatten()].view(-1, *own.shape))


def train_router(x, contributions, top_k, generator):
    """[experts, hidden]: scores whose k largest are meant to be the k largest contributions."""
    inputs_scale = x.square().mean().sqrt()
    squares = contributions.square()
    edge = squares.topk(top_k + 1, dim=1).values[:, -2:].mean(1, keepdim=True)
    target, weight = (squares > edge).float(), (squares - edge).abs()
    weight = weight / weight.mean()
    router = torch.zeros(contributions.shape[1], x.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([router], ROUTER_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ROUTER_STEPS)
    for _ in range(ROUTER_STEPS):
        rows = torch.randint(x.shape[0], (ROUTER_BATCH,), generator=generator)
        scores = x[rows] / inputs_scale @ router.T
        loss = F.binary_cross_entropy_with_logits(scores, target[rows], weight[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return (router / inputs_scale).detach()


def chosen_mask(x, router, top_k):
    best = (x @ router.T).topk(top_k, dim=1).indices
    return torch.zeros(x.shape[0], router.shape[0]).scatter_(1, best, 1.0)


def fit_layer(layer, x, shape, generator):
    """(neurons, router, expert_scale) of one layer, from the inputs x [tokens, hidden] of its FFN."""
    neurons = group_neurons(layer, x, shape, generator)
    contributions = torch.cat([expert_outputs(layer, neurons, shape, part).norm(dim=2).T
                               for part in x.split(CHUNK)])
    with torch.enable_grad():
        router = train_router(x, contributions, shape.top_k, generator)
    gram, match, total = torch.zeros(shape.experts, shape.experts), torch.zeros(shape.experts), 0.0
    for part in x.split(CHUNK):
        outputs = expert_outputs(layer, neurons, shape, part)
        all_of_them = outputs.sum(0)
        masked = (outputs * chosen_mask(part, router, shape.top_k).T[:, :, None]).flatten(1)
        gram += masked @ masked.T
        match += masked @ all_of_them.flatten()
        total += float(all_of_them.square().sum())
    ridge = 1e-3 * gram.diagonal().mean() * torch.eye(shape.experts)
    scale = torch.linalg.solve(gram + ridge, match + ridge.diagonal())
    error = (total - 2 * scale @ match + scale @ gram @ scale) / total
    return neurons, router, scale, float(error)


def convert(layer, neurons, router, scale, shape):
    """Replaces the layer's FFN by shared and chosen experts."""
    layer.gate, layer.up = layer.gate[neurons], layer.up[neurons]
    layer.down = layer.down[:, neurons]

    def ffn(x):
        flat = x.flatten(0, -2)
        weights = chosen_mask(flat, router, shape.top_k) * scale
        per_neuron = torch.cat([torch.ones(flat.shape[0], shape.shared),
                                weights.repeat_interleave(shape.width, 1)], 1)
        return (layer.activations(flat) * per_neuron @ layer.down.T).view(x.shape)

    layer.ffn = ffn


def calibrate(model, texts, shape, generator):
    """Fits and converts each layer in turn; returns neurons, routers and scales of all."""
    stream, found = model.embedding[texts.ids], []
    for index, layer in enumerate(model.layers):
        started = time.monotonic()
        behind = torch.cat([layer.attend(rows, None, None) for rows in stream.split(8)])
        x = layer.ffn_input(behind)[texts.mask]
        neurons, router, scale, error = fit_layer(layer, x, shape, generator)
        convert(layer, neurons, router, scale, shape)
        stream = behind + torch.cat([layer.ffn(layer.ffn_input(rows)) for rows in behind.split(8)])
        found.append((neurons.numpy(), router.numpy(), scale.numpy()))
        print(f"  layer {index}: {error:.3f} of the routed part's energy lost, factors "
              f"{scale.min():.2f} to {scale.max():.2f}, {time.monotonic() - started:.1f} s", flush=True)
    return [np.stack(parts) for parts in zip(*found)]


def perplexity(model, rows):
    """Over texts one by one, so that what is fitted and what is judged take one path."""
    losses = [model.losses(part.ids, part.mask) for part in (Texts([row]) for row in rows)]
    return float(torch.cat(losses).mean().exp())


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path,
                        default=ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "routing.npz")
    parser.add_argument("--shared", type=int, default=512, help="neurons of the shared expert")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--top-k", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep-answers", type=pathlib.Path, metavar="FILE",
                        help="read the model's answers there, or write them if it is not there yet")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    started = time.monotonic()
    model = Llama(args.model)
    neurons = model.layers[0].gate.shape[0]
    width, rest = divmod(neurons - args.shared, args.experts)
    if rest or width <= 0 or width % 32:
        raise SystemExit(f"calibrate: {neurons} - {args.shared} neurons do not make {args.experts} "
                         "experts of a multiple of 32")
    shape = routing_data.Routing(hashlib.sha256(args.model.read_bytes()).hexdigest(), args.shared,
                                 args.experts, width, args.top_k, None, None, None)
    tokenizer = build_tokenizer(model.fields)
    if args.keep_answers and args.keep_answers.exists():
        fitted, judged = torch.load(args.keep_answers)
    else:
        fitted, judged = write_answers(model, tokenizer, args.seed)
        if args.keep_answers:
            torch.save((fitted, judged), args.keep_answers)
    texts = {"its own answers": judged, "licence": cut(tokenizer, ROOT / "LICENSE", 8),
             "declaration": cut(tokenizer, ROOT / "tests/golden/perplexity.txt", 16)}
    dense = {name: perplexity(model, rows) for name, rows in texts.items()}
    print(f"fitting on {sum(map(len, fitted))} tokens, judging by {sum(map(len, judged))}; "
          f"{time.monotonic() - started:.0f} s so far", flush=True)
    found = calibrate(model, Texts(fitted), shape, torch.Generator().manual_seed(args.seed))
    shape.neurons, shape.router, shape.expert_scale = found
    routing_data.save(args.out, shape)
    for name, rows in texts.items():
        print(f"perplexity on {name}: dense {dense[name]:.2f}, as experts {perplexity(model, rows):.2f}")
    print(f"{args.out}: {args.out.stat().st_size} bytes; {time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
