// The sizes of models that tools/make_synthetic can write.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_SHAPE_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::tools {

// Hybrid models: only every interval-th layer has attention, which is gated. The others have a
// gated delta net.
struct DeltaNetShape {
  int64_t interval = 0;  // 0: all layers have attention
  int64_t k_heads = 0;
  int64_t v_heads = 0;
  int64_t dim = 0;  // of every head
  int64_t conv_width = 4;
  int64_t rotated = 0;  // dimensions of attention heads that RoPE rotates

  bool HasAttention(int64_t layer) const { return interval == 0 || (layer + 1) % interval == 0; }
  // Number of rows of all values, and of all queries, keys and values.
  int64_t v_size() const { return v_heads * dim; }
  int64_t channels() const { return (2 * k_heads + v_heads) * dim; }
};

// Properties that only some architectures have.
struct ShapeExtras {
  bool post_norms = false;     // norms after attention and FFN, too
  bool biases = false;         // of attention, routers and experts; and attention sinks
  bool mxfp4_experts = false;  // whatever the type of the other matrices
  absl::string_view ffn_norm = "ffn_norm";
  int64_t window = 0;        // of the layers with a window; 0: none
  int64_t yarn_context = 0;  // original context of YaRN scaling; 0: no scaling
  DeltaNetShape delta;
};

// The sizes of a published model.
struct Shape {
  absl::string_view name;
  absl::string_view architecture;  // llama, qwen3, qwen3moe, qwen35, gemma3 or gpt-oss
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_width = 0;  // of dense layers
  int64_t experts = 0;    // 0: a dense model
  int64_t experts_used = 0;
  int64_t expert_width = 0;
  int64_t vocabulary = 0;
  int64_t context = 0;
  float rope_base = 0;
  float norm_eps = 0;
  bool tied = false;     // the embedding is the output head
  bool qk_norm = false;  // norms of q and k in each head
  ShapeExtras extras;

  // True if RoPE rotates interleaved pairs. Otherwise it rotates the halves of a head.
  bool interleaved_rope() const { return architecture == "llama"; }
};

absl::Span<const Shape> Shapes();
// Null for an unknown name.
const Shape* FindShape(absl::string_view name);
// INVALID_ARGUMENT: a size is out of range, or sizes do not fit together.
absl::Status CheckShape(const Shape& shape);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_SHAPE_H_
