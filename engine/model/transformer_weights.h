// The weights of a decoder-only transformer. They are found in a checkpoint by GGUF's tensor names.
#ifndef TIDEPOOL_ENGINE_MODEL_TRANSFORMER_WEIGHTS_H_
#define TIDEPOOL_ENGINE_MODEL_TRANSFORMER_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/linear.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "moe/expert_record.h"

namespace tidepool::engine {

struct MoeWeights {
  Linear router;                             // [experts, hidden]
  absl::Span<const float> selection_bias;    // [experts]; empty if there is none
  std::vector<kernels::FfnWeights> experts;  // indexed by expert
  // Only set if the layer has a shared expert: the expert's FFN, and the gate [1, hidden] that
  // scales its output. The gate is empty unless MoeConfig::shared_gate is set.
  kernels::FfnWeights shared;
  Linear shared_gate;
};

// The weights of multi-head latent attention. LayerWeights::q multiplies the compressed query if
// there is a q_a, otherwise the input.
struct MlaWeights {
  Linear q_a;                              // [q_rank, hidden]; empty if queries are not compressed
  absl::Span<const float> q_a_norm;        // [q_rank]
  Linear kv_a;                             // [kv_rank + rope_dim, hidden]
  absl::Span<const float> kv_a_norm;       // [kv_rank]
  std::vector<kernels::PackedMatrix> k_b;  // for each head: [kv_rank, nope_dim]
  std::vector<kernels::PackedMatrix> v_b;  // for each head: [value_dim, kv_rank]
};

// The weights of a gated delta net.
struct DeltaNetWeights {
  // Either one matrix [channels, hidden] with the rows of q, k and v, or one matrix for each.
  std::vector<Linear> qkv;
  Linear z;                         // [v_heads * v_dim, hidden], gate of the output
  Linear alpha;                     // [v_heads, hidden]
  Linear beta;                      // [v_heads, hidden]
  absl::Span<const float> conv;     // [channels, conv_width]
  absl::Span<const float> dt_bias;  // [v_heads]
  absl::Span<const float> decay;    // [v_heads]: -exp(A_log)
  absl::Span<const float> norm;     // [v_dim]
  Linear out;                       // [hidden, v_heads * v_dim]
};

// The weights of a short convolution.
struct ShortConvWeights {
  Linear in;                     // [3 * hidden, hidden]: input gate, output gate, input
  absl::Span<const float> conv;  // [hidden, conv_width]
  Linear out;                    // [hidden, hidden]
};

// The weights of one layer. A norm that the layer does not have is empty.
struct LayerWeights {
  absl::Span<const float> attention_norm;  // [hidden], norm of the mixer's input
  DeltaNetWeights delta;                   // only with Mixer::kDeltaNet
  ShortConvWeights short_conv;             // only with Mixer::kShortConv
  // The members from here to attention_output are only set in layers with attention.
  Linear q;     // [heads * head_dim, hidden]
  Linear gate;  // [heads * head_dim, hidden]; empty unless LayerConfig::gated is set
  Linear k;     // [kv_heads * head_dim, hidden]
  Linear v;
  MlaWeights mla;                  // used instead of k and v
  absl::Span<const float> q_norm;  // [head_dim], or [heads * head_dim] with QkNorm::kRow
  absl::Span<const float> k_norm;
  absl::Span<const float> sinks;                // [heads]; empty if there are none
  Linear attention_output;                      // [hidden, heads * head_dim]
  absl::Span<const float> attention_post_norm;  // [hidden], norm of the mixer's output
  absl::Span<const float> ffn_norm;             // [hidden], norm of the FFN's input
  absl::Span<const float> ffn_post_norm;        // [hidden], norm of the FFN's output
  kernels::FfnWeights ffn;                      // only in dense layers
  MoeWeights moe;                               // only in layers with experts
};

struct TransformerWeights {
  kernels::PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  absl::Span<const float> final_norm;  // [hidden]
  Linear head;                         // [vocab, hidden]; the embedding if the file has no head
  // For each RopeConfig: the divisors of its frequencies [dims / 2], in the host's memory. Empty if
  // there are none.
  std::vector<absl::Span<const float>> rope_divisors;
  std::vector<absl::Span<const float>> long_rope_divisors;  // those of RopeConfig::long_divisors
};

// How routed experts are loaded.
enum class ExpertLoading : uint8_t {
  kPacked,      // packed into memory, like all other weights
  kShapesOnly,  // name, shape and type are checked; MoeWeights::experts have no data
};

// Called with the finished fraction of a load, which is above 0 and at most 1.
using LoadProgress = std::function<void(double fraction)>;

// Packs every tensor that `config` requires, and the experts as requested. Some tensors may be
// joined or split. attn_qkv.weight may hold q, k and v. ffn_up.weight (if there is no
// ffn_gate.weight) or ffn_gate_up_exps.weight may hold gate and up. The gate's rows then come
// first. Each expert may have its own tensor (ffn_gate.E.weight). Returns INVALID_ARGUMENT with the
// tensor's name if a tensor is missing, has the wrong shape or type, contains NaNs, or would be
// ignored.
absl::StatusOr<TransformerWeights> LoadTransformerWeights(const ModelConfig& config,
                                                          WeightStore* store,
                                                          const LoadProgress& progress,
                                                          ExpertLoading experts);

// Identifies a routed expert of a layer.
struct ExpertId {
  int layer = 0;
  int expert = 0;
};

// Returns the types and shapes of an expert, without data. Returns the errors of
// LoadTransformerWeights.
absl::StatusOr<kernels::FfnWeights> ExpertShapes(const ModelConfig& config, ExpertId id,
                                                 WeightStore* store);
// If the disk cannot read the expert, returns DATA_LOSS with the file and the range. Also returns
// the errors of LoadTransformerWeights.
absl::Status CheckExpertReadable(const ModelConfig& config, ExpertId id, WeightStore* store);
// Packs the expert into `record`, which has the layout of the expert's shapes. Returns the errors
// of LoadTransformerWeights.
absl::Status PackExpert(const ModelConfig& config, ExpertId id, WeightStore* store,
                        const moe::ExpertLayout& layout, std::byte* record);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_TRANSFORMER_WEIGHTS_H_
