"""Writes ops_golden.txt: inputs and outputs of gates, gated activations, attention, soft-caps and
recurrent layers.

Usage: python3 make_ops_golden.py > ops_golden.txt

Needs torch and transformers (5.23), whose own modules compute the outputs. A case begins with a
line that has its kind and name. Each further line has a field's name and its numbers. An empty line
ends the case. Inputs are multiples of 1/16 (logits: 1/256), so that a few digits are exact.
"""

import types

import torch
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.ernie4_5_moe.modeling_ernie4_5_moe import Ernie4_5_MoeTopKRouter
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2_attention
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts, GptOssTopKRouter
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss_attention
from transformers.models.granitemoe.modeling_granitemoe import GraniteMoeTopKRouter
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.olmoe.modeling_olmoe import OlmoeTopKRouter
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet


def grid(*shape, scale=1.0, steps=16):
    return torch.round(torch.randn(*shape) * scale * steps) / steps


def field(name, values):
    numbers = torch.as_tensor(values).flatten().tolist()
    print(name, " ".join(f"{number:.9g}" for number in numbers))


# kinds of scores, as in GateScore
SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN = 0, 1, 2


def without_ties(rows, experts):
    """Returns random logits without equal ones, because torch may choose any of equal logits."""
    while True:
        logits = grid(rows, experts, scale=2, steps=256)
        if all(len(set(row)) == experts for row in logits.tolist()):
            return logits


def gate(name, router, *, kind, rows=5, bias=None, normalize=0, epsilon=0.0, group_score=0):
    """Writes a case of a gate. `group_score`: 0 max, 1 sum of two. The router's weight becomes the
    identity."""
    experts = router.weight.shape[0]
    with torch.no_grad():
        router.weight.copy_(torch.eye(experts))
        logits = without_ties(rows, experts)
        _, weights, ids = router(logits)
    order = ids.argsort(dim=-1)
    print("gate", name)
    field("experts", experts)
    field("top_k", router.top_k)
    field("score", kind)
    field("normalize", normalize)
    field("epsilon", epsilon)
    field("groups", getattr(router, "num_group", 1))
    field("groups_kept", getattr(router, "topk_group", 1))
    field("group_score", group_score)
    field("scale", getattr(router, "routed_scaling_factor", 1.0))
    field("bias", [] if bias is None else bias)
    field("logits", logits)
    field("ids", ids.gather(1, order))
    field("weights", weights.gather(1, order))
    print()


def config(experts, top_k, **more):
    names = ("num_experts", "num_local_experts", "hidden_size", "moe_intermediate_size")
    return types.SimpleNamespace(**dict.fromkeys(names, experts), num_experts_per_tok=top_k, **more)


def deepseek_v3(name, experts, top_k, groups, kept, *, scale=2.5, normalize=True, bias_scale=0.25):
    router = DeepseekV3TopkRouter(
        config(
            experts,
            top_k,
            routed_scaling_factor=scale,
            n_group=groups,
            topk_group=kept,
            norm_topk_prob=normalize,
        )
    )
    bias = grid(experts, scale=bias_scale, steps=256) - bias_scale
    router.e_score_correction_bias.copy_(bias)
    gate(
        name,
        router,
        kind=SIGMOID,
        bias=bias,
        normalize=int(normalize),
        epsilon=1e-20,
        group_score=1,
    )


def gates():
    gate("olmoe", OlmoeTopKRouter(config(11, 3, norm_topk_prob=False)), kind=SOFTMAX)
    gate("mixtral", MixtralTopKRouter(config(8, 2)), kind=SOFTMAX, normalize=1)
    deepseek_v3("deepseek_v3", 16, 4, 4, 2)
    deepseek_v3("one_group", 9, 3, 1, 1, scale=1.0)
    deepseek_v3("negative_bias", 12, 4, 3, 2, bias_scale=2.0)
    deepseek_v3("all_experts", 6, 6, 3, 3, normalize=False)
    greedy = {"n_group": 1, "topk_group": 1, "topk_method": "greedy"}
    limited = {"n_group": 5, "topk_group": 2, "topk_method": "group_limited_greedy"}
    for name, method in (("deepseek_v2", limited), ("deepseek_v2_lite", greedy)):
        router = DeepseekV2TopkRouter(config(15, 4, routed_scaling_factor=16.0, **method))
        gate(name, router, kind=SOFTMAX)
    router = GptOssTopKRouter(config(10, 4))
    gate("gpt_oss", router, kind=SOFTMAX_OF_CHOSEN)
    gate("granite", GraniteMoeTopKRouter(config(7, 3)), kind=SOFTMAX_OF_CHOSEN)
    router = Ernie4_5_MoeTopKRouter(config(8, 3, moe_norm_min=1e-12))
    bias = grid(8, scale=0.1, steps=256)
    with torch.no_grad():
        router.moe_statics.e_score_correction_bias.copy_(bias[None])
    gate("ernie", router, kind=SOFTMAX, bias=bias, normalize=1)


def glu(form, alpha, limit, function):
    gates_and_ups = grid(2, 100, scale=3).double()
    print("glu", form)
    field("alpha", alpha)
    field("limit", limit)
    field("gate", gates_and_ups[0])
    field("up", gates_and_ups[1])
    field("out", function(*gates_and_ups))
    print()


def glus():
    experts = types.SimpleNamespace(alpha=1.702, limit=7.0)
    glu("swiglu", 0, 0, lambda g, u: functional.silu(g) * u)
    glu("geglu", 0, 0, lambda g, u: ACT2FN["gelu"](g) * u)
    glu("geglu_tanh", 0, 0, lambda g, u: ACT2FN["gelu_pytorch_tanh"](g) * u)
    interleaved = lambda g, u: torch.stack((g, u), dim=-1).flatten()
    glu("clamped", 1.702, 7, lambda g, u: GptOssExperts._apply_gate(experts, interleaved(g, u)))
    experts = types.SimpleNamespace(alpha=1.25, limit=2.5)
    glu("clamped", 1.25, 2.5, lambda g, u: GptOssExperts._apply_gate(experts, interleaved(g, u)))


def attention(name, *, heads, kv_heads, rows, window, scale, cap=0.0, sinks=False, dim=6):
    q = grid(1, heads, rows, dim, scale=3)
    k = grid(1, kv_heads, rows, dim)
    v = grid(1, kv_heads, rows, dim)
    at = torch.arange(rows)
    distance = at[:, None] - at[None, :]
    visible = (distance >= 0) & ((distance < window) if window else True)
    mask = torch.zeros(rows, rows).masked_fill(~visible, float("-inf"))[None, None]
    module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, training=False)
    module.sinks = grid(heads, scale=2)
    if sinks:
        out, _ = gpt_oss_attention(module, q, k, v, mask, scaling=scale)
    else:
        softcap = cap if cap else None
        out, _ = gemma2_attention(module, q, k, v, mask, scaling=scale, softcap=softcap)
    print("attention", name)
    field("heads", heads)
    field("kv_heads", kv_heads)
    field("dim", dim)
    field("rows", rows)
    field("window", window)
    field("scale", scale)
    field("cap", cap)
    field("sinks", module.sinks if sinks else [])
    for letter, values in (("q", q), ("k", k), ("v", v)):
        field(letter, values[0].transpose(0, 1))
    field("out", out[0])
    print()


def attentions():
    attention("plain", heads=3, kv_heads=1, rows=7, window=0, scale=0.25)
    attention("cap", heads=4, kv_heads=2, rows=9, window=0, scale=0.5, cap=3.0)
    attention("cap_window", heads=2, kv_heads=1, rows=10, window=4, scale=0.5, cap=50.0)
    attention("sinks", heads=4, kv_heads=2, rows=9, window=0, scale=0.125, sinks=True)
    attention("sinks_window", heads=2, kv_heads=2, rows=10, window=5, scale=0.5, sinks=True)


def soft_caps():
    for cap in (30.0, 50.0, 0.75):
        x = torch.cat((grid(40, scale=cap), grid(20, scale=0.1 * cap), torch.tensor([0.0, 1e6])))
        print("softcap", cap)
        field("x", x)
        field("out", cap * torch.tanh(x / cap))
        print()


def with_weights(layer, **parameters):
    """Returns the layer with these parameters, and with projections that do nothing."""
    for name, module in layer.named_children():
        if name.startswith(("in_proj", "out_proj")):
            setattr(layer, name, torch.nn.Identity())
    with torch.no_grad():
        for name, values in parameters.items():
            layer.get_parameter(name).copy_(values)
    return layer


def delta_net(name, *, rows, k_heads, v_heads, k_dim, v_dim):
    """Writes a case of a layer: from the outputs of its input projections to the input of its
    output projection."""
    settings = types.SimpleNamespace(
        hidden_size=4,
        linear_num_key_heads=k_heads,
        linear_num_value_heads=v_heads,
        linear_key_head_dim=k_dim,
        linear_value_head_dim=v_dim,
        linear_conv_kernel_dim=4,
        hidden_act="silu",
        rms_norm_eps=1e-6,
        layer_types=["linear_attention"],
    )
    channels = 2 * k_heads * k_dim + v_heads * v_dim
    weights = {
        "conv1d.weight": grid(channels, 1, 4),
        "A_log": grid(v_heads),
        "dt_bias": grid(v_heads),
        "norm.weight": grid(v_dim),
    }
    layer = with_weights(Qwen3NextGatedDeltaNet(settings, 0), **weights)
    q = grid(1, rows, k_heads, k_dim)
    k = grid(1, rows, k_heads, k_dim)
    v = grid(1, rows, v_heads, v_dim)
    z = grid(1, rows, v_heads, v_dim)
    b = grid(1, rows, v_heads)
    a = grid(1, rows, v_heads)
    layer.fix_query_key_value_ordering = lambda qkvz, ba: (q, k, v, z, b, a)
    with torch.no_grad():
        out = layer(q)
    print("deltanet", name)
    field("rows", rows)
    field("k_heads", k_heads)
    field("v_heads", v_heads)
    field("k_dim", k_dim)
    field("v_dim", v_dim)
    field("conv", weights["conv1d.weight"])
    field("decay", -weights["A_log"].exp())
    field("dt_bias", weights["dt_bias"])
    field("norm", weights["norm.weight"])
    field("qkv", torch.cat([x.flatten(2) for x in (q, k, v)], dim=-1))
    for letter, values in (("z", z), ("b", b), ("a", a)):
        field(letter, values)
    field("out", out)
    print()


def short_conv(name, *, rows, channels, kernel, bias):
    settings = types.SimpleNamespace(
        hidden_size=channels, conv_L_cache=kernel, conv_bias=bias, layer_types=["conv"]
    )
    weights = {"conv.weight": grid(channels, 1, kernel)}
    if bias:
        weights["conv.bias"] = grid(channels)
    layer = with_weights(Lfm2ShortConv(settings, 0), **weights)
    bcx = grid(1, rows, 3 * channels)
    with torch.no_grad():
        out = layer(bcx)
    print("shortconv", name)
    field("rows", rows)
    field("channels", channels)
    field("kernel", kernel)
    field("conv", weights["conv.weight"])
    field("bias", weights.get("conv.bias", []))
    field("bcx", bcx)
    field("out", out)
    print()


def recurrent_layers():
    delta_net("grouped", rows=9, k_heads=2, v_heads=4, k_dim=6, v_dim=5)
    delta_net("wide", rows=5, k_heads=1, v_heads=1, k_dim=8, v_dim=18)
    short_conv("plain", rows=7, channels=5, kernel=3, bias=False)
    short_conv("bias", rows=4, channels=3, kernel=4, bias=True)


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    gates()
    glus()
    attentions()
    soft_caps()
    recurrent_layers()


main()
