"""Splits one FFN into a shared expert and routed experts. calibrate.py calls it for each layer.

Errors are weighted by their effect on the loss:
 - `metric` [hidden, hidden] maps an error of the FFN's output to a vector whose squared length is the
   cost. calibrate.py computes it from the loss's gradients.
 - A token's `weight` [tokens] is 1 / the length of its stream after the FFN, because the next norm divides
   by that length. Some tokens, especially the first of a text, have streams a hundred times longer.
"""

import torch
import torch.nn.functional as F

PROFILE_TOKENS = 3072
FACTOR_TOKENS = 6144
KMEANS_ROUNDS = 20
ROUTER_BATCH = 512
ROUTER_STEPS = 300
ROUTER_RATE = 3e-3
RIDGE = 0.02  # relative to the mean square
CHUNK = 2048  # tokens at once, to bound memory


class Sample:
    """The data for one layer.

    x [tokens, hidden]: inputs of the FFN. h [tokens, neurons]: inputs of the down projection, times
    each token's weight. down [hidden, neurons]: the down projection, multiplied by the metric.
    """

    def __init__(self, x, h, weight, down, metric):
        self.x, self.h, self.down = x, (h * weight[:, None]).to(h.dtype), metric @ down


def balanced_clusters(profiles, count, generator):
    """Returns the cluster of each item, [items]: k-means by cosine on normalised rows. All clusters have
    the same size."""
    items = profiles.shape[0]
    size = items // count
    centres = profiles[torch.randperm(items, generator=generator)[:count]]
    chosen = None
    for _ in range(KMEANS_ROUNDS):
        likeness = profiles @ centres.T
        # Best pairs first; a full cluster accepts no more items.
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


def group_neurons(sample, shape, generator):
    """Returns a permutation of the neurons: first the shared ones, then those of each expert."""
    norms = sample.down.float().norm(dim=0)
    importance = sample.h.float().square().mean(0) * norms.square()
    order = importance.argsort(descending=True, stable=True)
    shared, routed = order[:shape.shared], order[shape.shared:].sort().values
    picked = torch.randperm(len(sample.h), generator=generator)[:PROFILE_TOKENS]
    profiles = (sample.h[picked][:, routed].float().abs() * norms[routed]).T
    profiles = F.normalize(profiles - profiles.mean(1, keepdim=True) / 2, dim=1)
    clusters = balanced_clusters(profiles, shape.experts, generator)
    groups = [routed[clusters == c] for c in range(shape.experts)]
    return torch.cat([shared.sort().values, *groups])


def contributions(sample, neurons, shape):
    """Returns the squared length of each routed expert's contribution to each token, [tokens, experts]."""
    own = neurons[shape.shared:].view(shape.experts, shape.width)
    down = sample.down.float()[:, own].permute(1, 0, 2)
    alike = down.transpose(1, 2) @ down
    out = []
    for h in sample.h.split(CHUNK):
        by_expert = h[:, own].float().transpose(0, 1)
        out.append((torch.bmm(by_expert, alike) * by_expert).sum(2).T)
    return torch.cat(out)


def choose(scores, top_k):
    """Returns (mask, edge). The mask is 1 for the top_k scores of each row. The edge is halfway between
    the last of these and the next score."""
    best = scores.topk(min(top_k + 1, scores.shape[1]), dim=1)
    mask = torch.zeros_like(scores).scatter_(1, best.indices[:, :top_k], 1.0)
    return mask, best.values[:, -2:].mean(1, keepdim=True)


def imitation_loss(scores, squares, top_k):
    """Returns a loss that is high if the k experts that contribute most do not have the k largest scores.
    Near ties count little."""
    target, edge = choose(squares, top_k)
    return F.binary_cross_entropy_with_logits(scores, target, (squares - edge).abs(),
                                              reduction="sum") / squares.sum()


def train_router(x, squares, top_k, generator):
    """Returns a router [experts, hidden], whose k largest scores select the experts. `squares` are the
    results of contributions()."""
    inputs_scale = x.square().mean().sqrt()
    router = torch.zeros(squares.shape[1], x.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([router], ROUTER_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, ROUTER_STEPS)
    for _ in range(ROUTER_STEPS):
        rows = torch.randint(x.shape[0], (ROUTER_BATCH,), generator=generator)
        loss = imitation_loss(x[rows] / inputs_scale @ router.T, squares[rows], top_k)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return (router / inputs_scale).detach()


def scores_of(x, router):
    with torch.autocast("cpu", enabled=False):
        return x @ router.T


def neuron_mask(x, router, shape):
    """Returns a mask [tokens, neurons]: 1 if the neuron is shared or belongs to a selected expert, else 0."""
    mask, _ = choose(scores_of(x, router), shape.top_k)
    always = torch.ones(x.shape[0], shape.shared)
    return torch.cat([always, mask.repeat_interleave(shape.width, 1)], 1)


def fit_neurons(sample, neurons, router, shape):
    """Returns (scale [neurons], relative error) of the least-squares fit of the masked FFN to the dense
    one."""
    count = len(neurons)
    down = sample.down[:, neurons]
    gram, match, total = torch.zeros(count, count), torch.zeros(count), 0.0
    for x, all_of_them in zip(sample.x[:FACTOR_TOKENS].split(CHUNK),
                              sample.h[:FACTOR_TOKENS].split(CHUNK)):
        h = all_of_them[:, neurons]
        wanted = h @ down.T
        h = h * neuron_mask(x, router, shape).to(h.dtype)
        gram += h.T @ h
        match += (h * (wanted @ down)).float().sum(0)
        total += float(wanted.float().square().sum())
    gram *= (down.T @ down).float()
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(count)
    scale = torch.linalg.solve(gram + ridge, match + ridge.diagonal())
    error = total + float(scale.dot(gram.mv(scale)) - 2 * scale.dot(match))
    return scale, error / total


class Fit:
    """The result for one layer: `neurons`, `router` and `scale`, and the relative `error` with them."""


def fit_layer(sample, shape, generator):
    fit = Fit()
    fit.neurons = group_neurons(sample, shape, generator)
    with torch.autocast("cpu", enabled=False):
        squares = contributions(sample, fit.neurons, shape)
        with torch.enable_grad():
            fit.router = train_router(sample.x, squares, shape.top_k, generator)
    fit.scale, fit.error = fit_neurons(sample, fit.neurons, fit.router, shape)
    return fit
