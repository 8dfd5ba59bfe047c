#include "tools/synthetic/metadata.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/tokenizer/byte_alphabet.h"

namespace tidepool::tools {
namespace {

using engine::GgufMetadata;

// Merges in the order of their rank. Each part is a byte or an earlier pair; "_" is the space.
constexpr absl::string_view kMerges =
    "_ t|h e|i n|_ a|r e|o n|e r|_t he|_ s|a t|_ w|e n|o r|i s|_ c|_ b|a n|o u|e s|_ f|in g|e d|"
    "_ o|_ p|a l|_a n|_an d|i t|_o f|l l|_ h|i c|_ m|a r|_t o|r o|_ i|e l|i on|_ l|s t|_ d|_i s";

constexpr absl::string_view kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUnused = 5;

std::vector<std::string> ByteTokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(engine::BytesToAlphabet(std::string(1, static_cast<char>(byte))));
  }
  return tokens;
}

void SetTokenizer(int64_t vocabulary, GgufMetadata* metadata) {
  std::vector<std::string> tokens = ByteTokens();
  const std::string space = tokens[' '];
  std::vector<std::string> merges;
  for (absl::string_view pair : absl::StrSplit(kMerges, '|')) {
    const std::string merge = absl::StrJoin(absl::StrSplit(pair, '_'), space);
    merges.push_back(merge);
    tokens.push_back(absl::StrJoin(absl::StrSplit(merge, ' '), ""));
  }
  std::vector<int32_t> types(tokens.size(), kNormal);
  const uint32_t end_of_text = static_cast<uint32_t>(tokens.size());
  for (absl::string_view name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(name);
    types.push_back(kControl);
  }
  while (static_cast<int64_t>(tokens.size()) < vocabulary) {
    tokens.push_back(absl::StrCat("[UNUSED", tokens.size(), "]"));
    types.push_back(kUnused);
  }
  metadata->SetString("tokenizer.ggml.model", "gpt2").SetString("tokenizer.ggml.pre", "gpt-2");
  metadata->SetStrings("tokenizer.ggml.tokens", tokens);
  metadata->SetI32s("tokenizer.ggml.token_type", types);
  metadata->SetStrings("tokenizer.ggml.merges", merges);
  metadata->SetU32("tokenizer.ggml.bos_token_id", end_of_text);
  metadata->SetU32("tokenizer.ggml.eos_token_id", end_of_text + 2);
  metadata->SetU32("tokenizer.ggml.padding_token_id", end_of_text);
  metadata->SetBool("tokenizer.ggml.add_bos_token", false);
  metadata->SetString("tokenizer.chat_template", kChatTemplate);
}

// Sets the keys of hybrid models.
void SetDeltaNets(const Shape& shape, GgufMetadata* metadata) {
  const DeltaNetShape& delta = shape.extras.delta;
  const std::string prefix = absl::StrCat(shape.architecture, ".");
  const auto set = [&](absl::string_view key, int64_t value) {
    metadata->SetU32(absl::StrCat(prefix, key), static_cast<uint32_t>(value));
  };
  set("full_attention_interval", delta.interval);
  set("ssm.conv_kernel", delta.conv_width);
  set("ssm.state_size", delta.dim);
  set("ssm.group_count", delta.k_heads);
  set("ssm.time_step_rank", delta.v_heads);
  set("ssm.inner_size", delta.v_size());
  set("rope.dimension_count", delta.rotated);
  const auto pairs = static_cast<int32_t>(delta.rotated / 2);
  const int32_t third = (pairs + 2) / 3;
  metadata->SetI32s(prefix + "rope.dimension_sections", {third, third, pairs - 2 * third, 0});
}

}  // namespace

GgufMetadata MakeMetadata(const Shape& shape) {
  GgufMetadata metadata;
  metadata.SetString("general.architecture", shape.architecture);
  metadata.SetString("general.name", absl::StrCat("synthetic ", shape.name));
  const auto set = [&](absl::string_view key, int64_t value) {
    metadata.SetU32(absl::StrCat(shape.architecture, ".", key), static_cast<uint32_t>(value));
  };
  set("context_length", shape.context);
  set("embedding_length", shape.hidden);
  set("block_count", shape.layers);
  set("feed_forward_length", shape.ffn_width);
  set("attention.head_count", shape.heads);
  set("attention.head_count_kv", shape.kv_heads);
  set("attention.key_length", shape.head_dim);
  set("attention.value_length", shape.head_dim);
  set("rope.dimension_count", shape.head_dim);
  set("vocab_size", shape.vocabulary);
  if (shape.experts > 0) {
    set("expert_count", shape.experts);
    set("expert_used_count", shape.experts_used);
    if (shape.architecture != "llama") set("expert_feed_forward_length", shape.expert_width);
  }
  if (shape.extras.delta.interval > 0) SetDeltaNets(shape, &metadata);
  if (shape.extras.window > 0) set("attention.sliding_window", shape.extras.window);
  if (shape.extras.yarn_context > 0) {
    const std::string prefix = absl::StrCat(shape.architecture, ".rope.scaling.");
    metadata.SetString(prefix + "type", "yarn");
    metadata.SetF32(prefix + "factor", static_cast<float>(shape.context) /
                                           static_cast<float>(shape.extras.yarn_context));
    set("rope.scaling.original_context_length", shape.extras.yarn_context);
  }
  metadata.SetF32(absl::StrCat(shape.architecture, ".rope.freq_base"), shape.rope_base);
  metadata.SetF32(absl::StrCat(shape.architecture, ".attention.layer_norm_rms_epsilon"),
                  shape.norm_eps);
  metadata.SetU32("general.quantization_version", 2);
  SetTokenizer(shape.vocabulary, &metadata);
  return metadata;
}

}  // namespace tidepool::tools
