#include "engine/checkpoint/hf/origins.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace tidepool::engine::hf {
namespace {

constexpr int kMaxDims = 4;

// How to compute the sizes of a stored tensor from the dimensions of the tensor that a rule makes
// of it. sizes[i] is for dimension i of the stored tensor, counted from the fastest.
struct Mapping {
  TensorOrigin::Size sizes[kMaxDims];
};

Mapping MappingOf(Take take) {
  constexpr TensorOrigin::Size kColumns = {.dim = 0};
  constexpr TensorOrigin::Size kTwiceColumns = {.dim = 0, .times = 2};
  constexpr TensorOrigin::Size kRows = {.dim = 1};
  constexpr TensorOrigin::Size kTwiceRows = {.dim = 1, .times = 2};
  constexpr TensorOrigin::Size kSlabs = {.dim = 2};
  constexpr TensorOrigin::Size kLast = {.dim = 3};
  constexpr TensorOrigin::Size kSame = {};
  constexpr int64_t kMxfp4Elements = 32;
  constexpr TensorOrigin::Size kGroups = {.dim = 0, .per = kMxfp4Elements};
  switch (take) {
    case Take::kAll:
    case Take::kRotary:
    case Take::kDeltaQkv:
    case Take::kDeltaRows:
    case Take::kDeltaColumns:
    case Take::kDeltaDecay:
      return {kColumns, kRows, kSlabs, kLast};
    case Take::kVector:
      return {kColumns, kSame, kSame, kSame};
    case Take::kFirstRows:
    case Take::kSecondRows:
      return {kColumns, kTwiceRows, kSlabs, kLast};
    case Take::kEvenOfRows:
    case Take::kOddOfRows:
      return {kTwiceColumns, kRows, kSlabs, kLast};
    case Take::kTransposed:
      return {kRows, kColumns, kSlabs, kLast};
    case Take::kTransposedEven:
    case Take::kTransposedOdd:
    case Take::kTransposedFirst:
    case Take::kTransposedSecond:
      return {kTwiceRows, kColumns, kSlabs, kLast};
    case Take::kMxfp4:
    case Take::kMxfp4Scales:
      return {kSame, kGroups, kRows, kSlabs};
    case Take::kMxfp4Even:
    case Take::kMxfp4Odd:
      return {kSame, kGroups, kTwiceRows, kSlabs};
    case Take::kMlaKeys:
      return {kRows, kSame, kSame, kSame};
    case Take::kMlaValues:
    case Take::kFusedDeltaQkv:
    case Take::kFusedDeltaGate:
      return {kColumns, kSame, kSame, kSame};
    case Take::kDeltaConv:
    case Take::kConv:
      return {kColumns, kSame, kRows, kSame};
  }
  return {};
}

// The sizes of a stored tensor, slowest first. Dimensions that it lacks come first.
std::vector<TensorOrigin::Size> SizesOf(const Mapping& mapping, const std::vector<int64_t>& shape) {
  std::vector<TensorOrigin::Size> sizes;
  for (int i = kMaxDims - 1; i >= 0; --i) {
    TensorOrigin::Size size = mapping.sizes[i];
    const auto rank = static_cast<int>(shape.size());
    size.stored = i < rank ? shape[rank - 1 - i] : 0;
    if (size.stored != 0 || size.dim != TensorOrigin::kFixed) sizes.push_back(size);
  }
  return sizes;
}

// A key of config.json, by the end of the metadata key that is made from it. Keys of rotary
// settings begin with "rope:"; they are in rope_parameters or rope_scaling.
struct KeyName {
  absl::string_view gguf;
  absl::string_view config;
};
constexpr KeyName kKeyNames[] = {
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.key_length_mla", "qk_nope_head_dim"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.mla_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.recurrent_layers", "layer_types"},
    {"attention.scale", "query_pre_attn_scalar"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "layer_types"},
    {"attention.value_length", "head_dim"},
    {"attention.value_length_mla", "v_head_dim"},
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"expert_gating_func", "scoring_func"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"feed_forward_length", "intermediate_size"},
    {"leading_dense_block_count", "mlp_only_layers"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
    {"rope.dimension_count", "partial_rotary_factor"},
    {"rope.dimension_sections", "rope:mrope_section"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"rope.scaling.attn_factor", "rope:attention_factor"},
    {"rope.scaling.factor", "rope:factor"},
    {"rope.scaling.original_context_length", "rope:original_max_position_embeddings"},
    {"rope.scaling.type", "rope:rope_type"},
    {"rope.scaling.yarn_attn_factor", "rope:attention_factor"},
    {"rope.scaling.yarn_beta_fast", "rope:beta_fast"},
    {"rope.scaling.yarn_beta_slow", "rope:beta_slow"},
    {"rope.scaling.yarn_log_multiplier", "rope:mscale_all_dim"},
    {"rope.scaling.yarn_rotary_factor", "rope:attention_factor"},
    {"rope.scaling.yarn_truncate", "rope:truncate"},
    {"shortconv.l_cache", "conv_L_cache"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.inner_size", "linear_value_head_dim"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {"vocab_size", "vocab_size"},
};

}  // namespace

TensorOrigin OriginOf(Take take, const TensorSource& source) {
  return {.path = std::string(source.path),
          .name = source.tensor->name,
          .sizes = SizesOf(MappingOf(take), source.tensor->shape),
          .data = source.data};
}

TensorOrigin OriginOfExperts(const TensorSource& source, int64_t expert) {
  constexpr Mapping kEachExpert = {{{.dim = 0}, {.dim = 1}}};
  return {.path = std::string(source.path),
          .name = absl::StrReplaceAll(source.tensor->name,
                                      {{absl::StrCat("experts.", expert, "."), "experts.#."}}),
          .sizes = SizesOf(kEachExpert, source.tensor->shape)};
}

void AddConfigKeys(const std::string& path, const HfModel& model, FileNames* names) {
  const std::string prefix = model.text_prefix.value_or("");
  const auto add = [&](absl::string_view gguf, absl::string_view key) {
    if (key.empty()) return;
    constexpr absl::string_view kRope = "rope:";
    std::string name(key);
    if (absl::StartsWith(key, kRope)) {
      name = absl::StrCat(model.rope_settings, ".", key.substr(kRope.size()));
    }
    names->AddKey(absl::StrCat(model.family->architecture, ".", gguf),
                  {path, absl::StrCat(prefix, name)});
  };
  for (const KeyName& key : kKeyNames) add(key.gguf, key.config);
  for (const NumberKey& key : model.family->numbers) add(key.gguf, key.key);
  add("attention.layer_norm_rms_epsilon", model.family->eps);
  const ExpertKeys& experts = model.family->experts;
  add("expert_count", experts.count);
  add("expert_used_count", experts.used);
  add("expert_feed_forward_length", experts.width);
  if (!experts.own_width) add("feed_forward_length", experts.width);
  add("expert_shared_count", experts.shared_count);
  add("expert_shared_feed_forward_length",
      experts.shared_width.empty() ? experts.shared_count : experts.shared_width);
  add("expert_weights_norm", experts.normalize);
  add("expert_weights_scale", experts.scale);
  add("leading_dense_block_count", experts.first_sparse);
  add("interleave_moe_layer_step", experts.interval);
  add("rope.layers", model.family->no_rope);
  if (model.parts.Has(Part::kMla)) add("rope.dimension_count", "qk_rope_head_dim");
  names->AddKey(absl::StrCat(model.family->architecture, ".n_deepstack_layers"),
                {path, "vision_config.deepstack_visual_indexes"});
  // These tensors are made from numbers in config.json.
  const KeyName numbers[] = {{"rope_freqs.weight", "factor"},
                             {"rope_factors_long.weight", "long_factor"},
                             {"rope_factors_short.weight", "short_factor"}};
  for (const KeyName& number : numbers) {
    names->AddKey(number.gguf,
                  {path, absl::StrCat(prefix, model.rope_settings, ".", number.config)});
  }
}

void AddTokenizerKeys(const std::string& path, FileNames* names) {
  const bool json = absl::EndsWith(path, ".json");
  const absl::string_view vocabulary = json ? "model.vocab" : "pieces";
  const KeyName keys[] = {{"tokens", vocabulary},
                          {"scores", vocabulary},
                          {"token_type", vocabulary},
                          {"merges", "model.merges"},
                          {"model", "model.type"},
                          {"pre", "pre_tokenizer"},
                          {"add_bos_token", "add_bos_token"},
                          {"add_eos_token", "add_eos_token"}};
  for (const KeyName& key : keys) {
    names->AddKey(absl::StrCat("tokenizer.ggml.", key.gguf), {path, std::string(key.config)});
  }
}

}  // namespace tidepool::engine::hf
