// ModelConfig: the architecture that a checkpoint's metadata describe, validated and immutable. It
// describes each layer by data. So the forward pass (transformer.h) does not need to know families.
#ifndef TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
#define TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "kernels/backend.h"

namespace tidepool::engine {

// Which RMS norms are applied to q and k.
enum class QkNorm : uint8_t {
  kNone,
  kHead,           // of each head, before RoPE
  kRow,            // of all heads of a row together, before RoPE
  kHeadAfterRope,  // of each head, after RoPE
};

// Where a branch (attention or FFN) has RMS norms.
enum class NormPlacement : uint8_t {
  kPre,   // before the branch, on its input
  kPost,  // after the branch, on its output, before that is added to the residual stream
  kBoth,
};

// Multi-head latent attention (DeepSeek V2 and V3). The KV of a token is one compressed vector,
// which all heads share, followed by a rotated key. Each head maps its query into the space of the
// compressed vector, and maps its output back from this space (the absorbed form).
struct MlaConfig {
  int kv_rank = 0;     // size of the compressed KV vector; 0: no MLA
  int q_rank = 0;      // size of the compressed query; 0: queries are not compressed
  int nope_dim = 0;    // number of elements of a head's query that are not rotated
  int rope_dim = 0;    // number of elements of a head's query that are rotated
  int value_dim = 0;   // number of elements of a head's output
  float norm_eps = 0;  // epsilon of the norms of the compressed queries, keys and values
};

// How the tokens of a sequence are mixed in a layer.
enum class Mixer : uint8_t {
  kAttention,
  kDeltaNet,   // gated delta net (Qwen3-Next, Qwen3.5): a matrix per head is the state
  kShortConv,  // short convolution between two gates (LFM2)
};

// Sizes of a gated delta net. A value head uses the queries and keys of one key head.
struct DeltaNetConfig {
  int k_heads = 0;
  int v_heads = 0;  // a multiple of k_heads
  int k_dim = 0;
  int v_dim = 0;
  kernels::HeadOrder order = kernels::HeadOrder::kGrouped;

  int k_size() const { return k_heads * k_dim; }
  int v_size() const { return v_heads * v_dim; }
  // Number of channels of the convolution: queries, keys and values.
  int channels() const { return 2 * k_size() + v_size(); }
};

enum class FfnKind : uint8_t { kDense, kMoe };

// The value of LayerConfig::rope for a layer without rotation.
inline constexpr int kNoRope = -1;

struct LayerConfig {
  Mixer mixer = Mixer::kAttention;
  // Only for layers with attention: all members up to `qk_norm`.
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;  // of q, k and v; with MLA, size of the stored key: kv_rank + rope_dim
  MlaConfig mla;
  // Whether attn_q also has the rows of a gate. The output of attention is multiplied by the
  // sigmoid of the gate.
  bool gated = false;
  int64_t sliding_window = 0;   // 0: full attention
  int rope = 0;                 // index into ModelConfig::ropes, or kNoRope
  float attention_scale = 0;    // q k^T is multiplied by this
  float attention_softcap = 0;  // scores become cap * tanh(score / cap); 0: no soft-cap
  QkNorm qk_norm = QkNorm::kNone;
  // Number of tokens that the causal convolution reads, if the mixer is not attention.
  int conv_width = 0;
  DeltaNetConfig delta;  // only with Mixer::kDeltaNet
  NormPlacement norms = NormPlacement::kPre;
  FfnKind ffn = FfnKind::kDense;
  int ffn_width = 0;                                 // width of a dense layer's FFN
  kernels::GluForm glu = kernels::GluForm::kSwiGlu;  // for the FFN, or for all experts

  bool has_attention() const { return mixer == Mixer::kAttention; }
  bool has_mla() const { return mla.kv_rank > 0; }
  // Number of elements of each KV head's value. With MLA, the value is the first elements of the
  // key.
  int value_dim() const { return has_mla() ? mla.kv_rank : head_dim; }
};

// Settings of the experts. They are the same for all layers with experts. kernels::GateSpec defines
// the gate.
struct MoeConfig {
  int experts = 0;
  int experts_used = 0;
  int expert_width = 0;  // width of one routed expert
  int shared_width = 0;  // width of the shared expert; 0: there is none
  // Whether the shared expert's output is multiplied by the sigmoid of a learned gate.
  bool shared_gate = false;
  kernels::GateScore score = kernels::GateScore::kSoftmax;
  // whether the weights of the chosen experts are divided by their sum
  bool normalize_weights = false;
  float normalize_epsilon = 0;  // added to this sum
  float weights_scale = 1;      // the weights of the chosen experts are multiplied by this
  int groups = 1;
  int groups_used = 1;
  kernels::GroupScore group_score = kernels::GroupScore::kMax;
};

// The limit for rotary angles within the context. The kernels' sin and cos do not accept larger
// angles.
inline constexpr double kMaxRopeAngle = 0x1p30;

struct RopeConfig {
  kernels::RopeStyle style = kernels::RopeStyle::kInterleaved;
  int dims = 0;  // number of rotated elements of each head
  // [dims / 2]: radians per position, with all scaling except the divisors below.
  std::vector<double> inv_freq;
  float scale = 1;  // cos and sin are multiplied by this (YaRN)
  // The name of the tensor with divisors of the frequencies. Empty if there is none.
  std::string divisors;
  // Like `divisors`, for sequences that can have more than `short_slots` slots (LongRoPE). If all
  // sequences use the same divisors, `short_slots` is 0.
  std::string long_divisors;
  int64_t short_slots = 0;
  // MRoPE: the numbers of rotated pairs whose angle depends on the position in time, height, width,
  // and a fourth dimension. All zero: a token has only one position. All positions of a text token
  // are equal, so the sections do not change its rotation.
  std::array<int, 4> sections = {};
};

// Immutable and validated. Only Parse creates the config of a file.
struct ModelConfig {
  // Supports the values of general.architecture in families.h. Errors name the key, its value and
  // the accepted values. They are INVALID_ARGUMENT if the file is wrong, and UNIMPLEMENTED if it
  // uses an unsupported feature or has an unknown key.
  static absl::StatusOr<ModelConfig> Parse(const Checkpoint& file);

  std::string architecture;
  std::string name;    // general.name, or the file's name; one line of UTF-8
  int vocab_size = 0;  // number of rows of the embedding; the tokenizer may have fewer tokens
  int hidden_size = 0;
  int64_t context_length = 0;  // number of positions that the model was trained for
  float norm_eps = 0;
  float embedding_scale = 1;  // the embedding is multiplied by this
  float residual_scale = 1;   // the output of each branch is multiplied by this
  float logit_scale = 1;      // the logits are multiplied by this
  float logit_softcap = 0;    // logits become cap * tanh(logit / cap); 0: no soft-cap
  std::vector<RopeConfig> ropes;
  MoeConfig moe;
  std::vector<LayerConfig> layers;
  // Number of layers after `layers` that predict further tokens. Their tensors are not loaded.
  int draft_layers = 0;

  // Number of layers with experts.
  int moe_layers() const;
  // The first layer with attention. Every supported model has one.
  const LayerConfig& attention_layer() const;
  // Returns whether the KV of all layers can have this type.
  bool CanStoreKv(kernels::DType dtype) const;
};

// Bytes of KV per token in all layers together, for keys and values of `dtype`.
int64_t KvBytesPerToken(const ModelConfig& config, kernels::DType dtype);

// Returns the depth, in tokens, at which the attention of a row needs as many multiplications as
// the row's products with weights. Returns 0 if all layers have windows.
int64_t AttentionDepth(const ModelConfig& config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MODEL_CONFIG_H_
