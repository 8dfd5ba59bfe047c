// ModelConfig: the architecture in a checkpoint's metadata, validated and immutable. Each layer is
// data: the forward pass (transformer.h) knows parts, not families.
#ifndef TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
#define TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/backend.h"

namespace tidepool::engine {

// RMS norms of q and k.
enum class QkNorm : uint8_t {
  kNone,
  kHead,           // of each head, before RoPE
  kRow,            // of all heads of a row together, before RoPE
  kHeadAfterRope,  // of each head, after RoPE
};

// RMS norms of a branch (attention or FFN).
enum class NormPlacement : uint8_t {
  kPre,   // of its input
  kPost,  // of its output, before that is added to the residual stream
  kBoth,
};

// Multi-head latent attention (DeepSeek V2 and V3). KV is one compressed vector per token that all
// heads share, followed by a rotated key. Each head maps its query into the space of that vector
// and its output back (the absorbed form).
struct MlaConfig {
  int kv_rank = 0;    // elements of the compressed vector; 0: no MLA
  int q_rank = 0;     // elements of the compressed query; 0: queries are not compressed
  int nope_dim = 0;   // elements of a head's query that are not rotated
  int rope_dim = 0;   // and that are
  int value_dim = 0;  // elements of a head's output
};

enum class FfnKind : uint8_t { kDense, kMoe };

// LayerConfig::rope of a layer without rotation.
inline constexpr int kNoRope = -1;

struct LayerConfig {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;  // of q, k and v; with MLA, of the stored key: kv_rank + rope_dim
  MlaConfig mla;
  int64_t sliding_window = 0;   // 0: full attention
  int rope = 0;                 // index into ModelConfig::ropes, or kNoRope
  float attention_scale = 0;    // factor on q k^T
  float attention_softcap = 0;  // scores become cap * tanh(score / cap); 0: unchanged
  QkNorm qk_norm = QkNorm::kNone;
  NormPlacement norms = NormPlacement::kPre;
  FfnKind ffn = FfnKind::kDense;
  int ffn_width = 0;                                 // neurons of a dense layer's FFN
  kernels::GluForm glu = kernels::GluForm::kSwiGlu;  // of the FFN, or of all experts

  bool has_mla() const { return mla.kv_rank > 0; }
  // Elements of each KV head's value. With MLA, the first elements of the key.
  int value_dim() const { return has_mla() ? mla.kv_rank : head_dim; }
};

// The same for all layers with experts. kernels::GateSpec defines the gate.
struct MoeConfig {
  int experts = 0;
  int experts_used = 0;
  int expert_width = 0;  // neurons of one routed expert
  int shared_width = 0;  // neurons of the shared expert; 0: none
  // The shared expert's output is multiplied by the sigmoid of a learned gate.
  bool shared_gate = false;
  kernels::GateScore score = kernels::GateScore::kSoftmax;
  bool normalize_weights = false;  // divide the chosen experts' weights by their sum
  float weights_scale = 1;         // factor on them
  int groups = 1;
  int groups_used = 1;
  kernels::GroupScore group_score = kernels::GroupScore::kMax;
};

// Limit for rotary angles within the context, because the kernels' sin and cos accept no larger
// ones.
inline constexpr double kMaxRopeAngle = 0x1p30;

struct RopeConfig {
  kernels::RopeStyle style = kernels::RopeStyle::kInterleaved;
  int dims = 0;  // rotated elements of each head
  // [dims / 2] radians per position, with all scaling except that of a tensor with divisors.
  std::vector<double> inv_freq;
  float scale = 1;  // factor on cos and sin (YaRN)
  // The tensor with divisors of the frequencies. Empty: none.
  std::string divisors;
  // The same for sequences that can have more than `short_slots` slots (LongRoPE). 0: none.
  std::string long_divisors;
  int64_t short_slots = 0;
};

// Immutable and validated. For a file, only Parse creates it.
struct ModelConfig {
  // Supports the values of general.architecture in families.h. Errors name the key, its value and
  // what is accepted: INVALID_ARGUMENT if the file is wrong, UNIMPLEMENTED if it uses an
  // unsupported feature or has a key that is not understood.
  static absl::StatusOr<ModelConfig> Parse(const Checkpoint& file);

  std::string architecture;
  std::string name;    // general.name, or the file's name; one line of UTF-8
  int vocab_size = 0;  // rows of the embedding; the tokenizer may have fewer tokens
  int hidden_size = 0;
  int64_t context_length = 0;  // number of positions in training
  float norm_eps = 0;
  float embedding_scale = 1;  // factor on the embedding
  float residual_scale = 1;   // factor on the output of each branch
  float logit_scale = 1;      // factor on the logits
  float logit_softcap = 0;    // logits become cap * tanh(logit / cap); 0: unchanged
  std::vector<RopeConfig> ropes;
  MoeConfig moe;
  std::vector<LayerConfig> layers;
  // Layers after `layers` that predict further tokens. Their tensors are not loaded.
  int draft_layers = 0;

  // Number of layers with experts.
  int moe_layers() const;
  // True if the KV of all layers can have this type.
  bool CanStoreKv(kernels::DType dtype) const;
};

// KV bytes per token in all layers, for keys and values of `dtype`.
int64_t KvBytesPerToken(const ModelConfig& config, kernels::DType dtype);

// The depth in tokens at which the attention of a row needs as many multiplications as its weights.
// 0 if all layers have windows.
int64_t AttentionDepth(const ModelConfig& config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
