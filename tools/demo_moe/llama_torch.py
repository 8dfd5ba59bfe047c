"""A llama model in plain PyTorch, for calibrate.py.

The weights of a GGUF file (architecture llama, tied embeddings) are dequantised to float32. The caller
runs the layers one by one, so it can inspect the inputs and outputs of each.
"""

import gguf
import torch
import torch.nn.functional as F

CANDIDATES = 256  # sampling considers this many of the most probable ids


def read_gguf(path):
    """Returns ({key: value}, {tensor name: float32 tensor in PyTorch shape})."""
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        shape = tuple(int(n) for n in reversed(tensor.shape))
        tensors[tensor.name] = torch.tensor(values, dtype=torch.float32).reshape(shape)
    return fields, tensors


class Cache:
    """Keys and values of one layer: [batch, kv heads, capacity, head_dim]. The first `used` positions
    are valid."""

    def __init__(self, batch, config, room):
        self.k = torch.empty(batch, config["kv_heads"], room, config["head_dim"])
        self.v = torch.empty_like(self.k)
        self.used = 0

    def append(self, k, v):
        end = self.used + k.shape[2]
        self.k[:, :, self.used:end], self.v[:, :, self.used:end] = k, v
        self.used = end
        return self.k[:, :, :end], self.v[:, :, :end]


class Layer:
    """One block: attention, then the FFN of the normed stream."""

    def __init__(self, tensors, index, config):
        self.config = config
        part = lambda name: tensors[f"blk.{index}.{name}.weight"]
        self.attn_norm, self.ffn_norm = part("attn_norm"), part("ffn_norm")
        self.q, self.k, self.v, self.o = (
            part("attn_" + name) for name in ("q", "k", "v", "output"))
        self.gate, self.up, self.down = (part("ffn_" + name) for name in ("gate", "up", "down"))

    def activations(self, x):
        """Returns the input of the down projection: [..., neurons]."""
        return F.silu(x @ self.gate.T) * (x @ self.up.T)

    def ffn(self, x):
        return self.activations(x) @ self.down.T

    def norm(self, x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["eps"]) * weight

    def attend(self, stream, cache, pads):
        """Returns the stream [batch, tokens, hidden] plus attention. Appends k and v to the cache, if there is one.

        The first pads[b] positions of row b are padding, which other positions ignore (None: no
        padding).
        """
        batch, tokens, _ = stream.shape
        heads, kv_heads, dim = (self.config[name] for name in ("heads", "kv_heads", "head_dim"))
        x = self.norm(stream, self.attn_norm)
        start = cache.used if cache else 0
        q = self.rotate((x @ self.q.T).view(batch, tokens, heads, dim).transpose(1, 2), start)
        k = self.rotate((x @ self.k.T).view(batch, tokens, kv_heads, dim).transpose(1, 2), start)
        v = (x @ self.v.T).view(batch, tokens, kv_heads, dim).transpose(1, 2)
        if cache:
            k, v = cache.append(k, v)
        key, query = torch.arange(start + tokens), torch.arange(start, start + tokens)[:, None]
        seen = (key <= query)[None]
        if pads is not None:
            seen = seen & ((key >= pads[:, None, None]) | (key == query))
        # The query heads of one KV head are rows of one product.
        q = q.reshape(batch, kv_heads, -1, dim)
        scores = q @ k.transpose(2, 3) / dim**0.5
        scores = scores.view(batch, heads, tokens, -1).masked_fill(~seen[:, None], -torch.inf)
        mixed = scores.softmax(-1).view(batch, kv_heads, -1, start + tokens) @ v
        mixed = mixed.view(batch, heads, tokens, dim).transpose(1, 2)
        return stream + mixed.reshape(batch, tokens, heads * dim) @ self.o.T

    def rotate(self, x, start):
        """Applies RoPE to interleaved pairs, the row order of a llama GGUF file."""
        dim = x.shape[-1]
        speed = self.config["rope_base"] ** (-torch.arange(0, dim, 2) / dim)
        angle = torch.arange(start, start + x.shape[2])[:, None] * speed
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([even * angle.cos() - odd * angle.sin(),
                              even * angle.sin() + odd * angle.cos()], -1)
        return turned.flatten(-2)

    def ffn_input(self, stream):
        return self.norm(stream, self.ffn_norm)

    def forward(self, stream, cache=None, pads=None):
        stream = self.attend(stream, cache, pads)
        return stream + self.ffn(self.ffn_input(stream))


class Llama:
    def __init__(self, path):
        fields, tensors = read_gguf(path)
        if fields["general.architecture"] != "llama" or "output.weight" in tensors:
            raise SystemExit(f"{path}: expected a llama model with tied embeddings")
        key = lambda name: fields["llama." + name]
        self.fields = fields
        self.config = {
            "heads": key("attention.head_count"), "kv_heads": key("attention.head_count_kv"),
            "head_dim": key("rope.dimension_count"), "rope_base": key("rope.freq_base"),
            "eps": key("attention.layer_norm_rms_epsilon")}
        self.embedding = tensors["token_embd.weight"]
        self.output_norm = tensors["output_norm.weight"]
        self.layers = [Layer(tensors, i, self.config) for i in range(key("block_count"))]

    def logits(self, stream):
        return self.layers[0].norm(stream, self.output_norm) @ self.embedding.T

    def loss(self, stream, ids):
        """Returns the sum of the negative log-likelihoods of ids [tokens]. `stream` [tokens, hidden] is the
        output of the last layer.
        """
        return F.cross_entropy(self.logits(stream[:-1]), ids[1:], reduction="sum")

    def sample(self, prompts, steps, temperature, top_p, generator):
        """Continues prompts (lists of ids) by `steps` sampled ids: [batch, steps]."""
        longest = max(map(len, prompts))
        pads = torch.tensor([longest - len(ids) for ids in prompts])
        ids = torch.tensor([[0] * (longest - len(ids)) + ids for ids in prompts])
        caches = [Cache(len(prompts), self.config, longest + steps) for _ in self.layers]
        out = []
        for _ in range(steps):
            stream = self.embedding[ids]
            for layer, cache in zip(self.layers, caches):
                stream = layer.forward(stream, cache, pads)
            probabilities = torch.softmax(self.logits(stream[:, -1]) / temperature, -1)
            ordered, order = probabilities.topk(CANDIDATES, -1)
            ordered[ordered.cumsum(-1) - ordered > top_p] = 0
            ids = order.gather(1, torch.multinomial(ordered, 1, generator=generator))
            out.append(ids)
        return torch.cat(out, 1)
