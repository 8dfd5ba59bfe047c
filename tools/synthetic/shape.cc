#include "tools/synthetic/shape.h"

#include "absl/strings/str_cat.h"

namespace tidepool::tools {
namespace {

// Returns a Qwen 3 model with the given sizes.
constexpr Shape Qwen3(Shape shape) {
  shape.architecture = shape.experts > 0 ? "qwen3moe" : "qwen3";
  if (shape.vocabulary == 0) shape.vocabulary = 151936;
  if (shape.context == 0) shape.context = 40960;
  shape.rope_base = 1e6f;
  shape.norm_eps = 1e-6f;
  shape.tied = shape.experts == 0;
  shape.qk_norm = true;
  return shape;
}

constexpr Shape kShapes[] = {
    Qwen3({.name = "tiny",
           .layers = 2,
           .hidden = 256,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 64,
           .ffn_width = 512,
           .vocabulary = 512,
           .context = 2048}),
    Qwen3({.name = "tiny-moe",
           .layers = 3,
           .hidden = 256,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 64,
           .ffn_width = 512,
           .experts = 16,
           .experts_used = 4,
           .expert_width = 256,
           .vocabulary = 512,
           .context = 2048}),
    Qwen3({.name = "qwen3-0.6b",
           .layers = 28,
           .hidden = 1024,
           .heads = 16,
           .kv_heads = 8,
           .head_dim = 128,
           .ffn_width = 3072}),
    Qwen3({.name = "qwen3-4b",
           .layers = 36,
           .hidden = 2560,
           .heads = 32,
           .kv_heads = 8,
           .head_dim = 128,
           .ffn_width = 9728}),
    Qwen3({.name = "qwen3-30b-a3b",
           .layers = 48,
           .hidden = 2048,
           .heads = 32,
           .kv_heads = 4,
           .head_dim = 128,
           .ffn_width = 6144,
           .experts = 128,
           .experts_used = 8,
           .expert_width = 768}),
    // OLMoE's sizes, as a qwen3moe model. (OLMoE's own architecture has norms of q and k across
    // heads.)
    {.name = "olmoe",
     .architecture = "qwen3moe",
     .layers = 16,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .ffn_width = 1024,
     .experts = 64,
     .experts_used = 8,
     .expert_width = 1024,
     .vocabulary = 50304,
     .context = 4096,
     .rope_base = 1e4f,
     .norm_eps = 1e-5f,
     .qk_norm = true},
    {.name = "mixtral-8x7b",
     .architecture = "llama",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn_width = 14336,
     .experts = 8,
     .experts_used = 2,
     .expert_width = 14336,
     .vocabulary = 32000,
     .context = 32768,
     .rope_base = 1e6f,
     .norm_eps = 1e-5f},
    {.name = "gemma3-270m",
     .architecture = "gemma3",
     .layers = 18,
     .hidden = 640,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 256,
     .ffn_width = 2048,
     .vocabulary = 262144,
     .context = 32768,
     .rope_base = 1e6f,
     .norm_eps = 1e-6f,
     .tied = true,
     .qk_norm = true,
     .extras = {.post_norms = true, .window = 512}},
    {.name = "tiny-hybrid",
     .architecture = "qwen35",
     .layers = 4,
     .hidden = 256,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .ffn_width = 512,
     .vocabulary = 512,
     .context = 2048,
     .rope_base = 1e6f,
     .norm_eps = 1e-6f,
     .tied = true,
     .qk_norm = true,
     .extras = {.ffn_norm = "post_attention_norm",
                .delta = {.interval = 2, .k_heads = 2, .v_heads = 4, .dim = 64, .rotated = 32}}},
    {.name = "qwen3.5-9b",
     .architecture = "qwen35",
     .layers = 32,
     .hidden = 4096,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 256,
     .ffn_width = 12288,
     .vocabulary = 248320,
     .context = 262144,
     .rope_base = 1e7f,
     .norm_eps = 1e-6f,
     .qk_norm = true,
     .extras = {.ffn_norm = "post_attention_norm",
                .delta = {.interval = 4, .k_heads = 16, .v_heads = 32, .dim = 128, .rotated = 64}}},
    {.name = "gpt-oss-20b",
     .architecture = "gpt-oss",
     .layers = 24,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .ffn_width = 2880,
     .experts = 32,
     .experts_used = 4,
     .expert_width = 2880,
     .vocabulary = 201088,
     .context = 131072,
     .rope_base = 150000,
     .norm_eps = 1e-5f,
     .extras = {.biases = true,
                .mxfp4_experts = true,
                .ffn_norm = "post_attention_norm",
                .window = 128,
                .yarn_context = 4096}},
};

}  // namespace

absl::Span<const Shape> Shapes() { return kShapes; }

const Shape* FindShape(absl::string_view name) {
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

absl::Status CheckShape(const Shape& shape) {
  struct Size {
    absl::string_view flag;
    int64_t value, least, most, multiple;
  };
  const bool moe = shape.experts > 0;
  for (const Size& size : {
           Size{"--layers", shape.layers, 1, 1024, 1},
           Size{"--hidden", shape.hidden, 64, 65536, 32},
           Size{"--kv-heads", shape.kv_heads, 1, 1024, 1},
           Size{"--heads", shape.heads, 1, 1024, shape.kv_heads},  // multiple of --kv-heads
           Size{"--head-dim", shape.head_dim, 32, 512, 32},
           Size{"--width", moe ? shape.expert_width : shape.ffn_width, 32, 1 << 20, 32},
           Size{"--experts", shape.experts, moe ? 2 : 0, 1024, 1},
           Size{"--top-k", shape.experts_used, moe ? 1 : 0, shape.experts, 1},
           Size{"--vocabulary", shape.vocabulary, 320, 1 << 20, 32},
       }) {
    if (size.value >= size.least && size.value <= size.most && size.value % size.multiple == 0) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(size.flag, " must be a multiple of ",
                                                   size.multiple, " from ", size.least, " to ",
                                                   size.most, " (got ", size.value, ")"));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::tools
