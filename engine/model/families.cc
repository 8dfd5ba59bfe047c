#include "engine/model/families.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/model/families/gemma.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

using kernels::GateScore;
using kernels::GluForm;
using kernels::HeadOrder;
using kernels::RopeStyle;

constexpr Family kFamilies[] = {
    {.architecture = "llama",
     .models = "Llama 2 and 3, Mistral, Mixtral, SmolLM2, TinyLlama",
     .rope = RopeStyle::kInterleaved,
     .window = true,
     .experts = ExpertUse::kMaybe,
     .normalize_weights = true},
    {.architecture = "qwen2", .models = "Qwen2, Qwen2.5"},
    {.architecture = "qwen2vl", .models = "Qwen2-VL, Qwen2.5-VL (text)", .rope_sections = true},
    {.architecture = "qwen2moe",
     .models = "Qwen1.5-MoE, Qwen2-MoE",
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kGated,
     .width_of_chosen = true},
    {.architecture = "qwen3", .models = "Qwen3", .qk_norm = QkNorm::kHead},
    {.architecture = "qwen3vl",
     .models = "Qwen3-VL (text)",
     .qk_norm = QkNorm::kHead,
     .rope_sections = true},
    {.architecture = "qwen3moe",
     .models = "Qwen3-MoE",
     .qk_norm = QkNorm::kHead,
     .experts = ExpertUse::kAlways,
     .width_of_chosen = true,
     .normalize_weights = true},
    {.architecture = "qwen3vlmoe",
     .models = "Qwen3-VL-MoE (text)",
     .qk_norm = QkNorm::kHead,
     .rope_sections = true,
     .experts = ExpertUse::kAlways,
     .width_of_chosen = true,
     .normalize_weights = true},
    {.architecture = "qwen3next",
     .models = "Qwen3-Next",
     .qk_norm = QkNorm::kHead,
     .ffn_norm = "post_attention_norm",
     .gated_attention = true,
     .recurrent = Mixer::kDeltaNet,
     .delta_order = HeadOrder::kGrouped,
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kGated,
     .normalize_weights = true,
     .draft_layers = true},
    {.architecture = "qwen35",
     .models = "Qwen3.5, Qwen3.6 (text, dense)",
     .qk_norm = QkNorm::kHead,
     .ffn_norm = "post_attention_norm",
     .gated_attention = true,
     .recurrent = Mixer::kDeltaNet,
     .delta_order = HeadOrder::kTiled,
     .rope_sections = true,
     .draft_layers = true},
    {.architecture = "qwen35moe",
     .models = "Qwen3.5, Qwen3.6 (text, mixture of experts)",
     .qk_norm = QkNorm::kHead,
     .ffn_norm = "post_attention_norm",
     .gated_attention = true,
     .recurrent = Mixer::kDeltaNet,
     .delta_order = HeadOrder::kTiled,
     .rope_sections = true,
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kGated,
     .normalize_weights = true,
     .draft_layers = true},
    {.architecture = "lfm2",
     .models = "LFM2, LFM2.5 (dense)",
     .qk_norm = QkNorm::kHead,
     .final_norm = "token_embd_norm",
     .recurrent = Mixer::kShortConv},
    {.architecture = "lfm2moe",
     .models = "LFM2, LFM2.5 (mixture of experts)",
     .qk_norm = QkNorm::kHead,
     .final_norm = "token_embd_norm",
     .recurrent = Mixer::kShortConv,
     .experts = ExpertUse::kAlways,
     .score = GateScore::kSigmoid,
     .normalize_weights = true,
     .normalize_epsilon = 1e-6f},
    {.architecture = "olmoe",
     .models = "OLMoE",
     .qk_norm = QkNorm::kRow,
     .experts = ExpertUse::kAlways},
    {.architecture = "olmo2",
     .models = "OLMo 2 and 3",
     .qk_norm = QkNorm::kRow,
     .norms = NormPlacement::kPost,
     .window_rope = WindowRope::kUnscaled},
    {.architecture = "granite",
     .models = "Granite 3 and 4 (dense)",
     .rope = RopeStyle::kInterleaved,
     .multipliers = true},
    {.architecture = "granitemoe",
     .models = "Granite 3 and 4 (mixture of experts)",
     .rope = RopeStyle::kInterleaved,
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kPlain,
     .normalize_weights = true,
     .multipliers = true},
    {.architecture = "phi3", .models = "Phi-3, Phi-3.5, Phi-4", .window = true},
    {.architecture = "smollm3",
     .models = "SmolLM3",
     .rope = RopeStyle::kInterleaved,
     .rope_gap = 4},
    {.architecture = "gemma",
     .models = "Gemma",
     .glu = GluForm::kGeGluTanh,
     .scaled_embedding = true},
    {.architecture = "gemma2",
     .models = "Gemma 2",
     .norms = NormPlacement::kBoth,
     .window = true,
     .default_window = 4096,
     .full_period = 2,
     .glu = GluForm::kGeGluTanh,
     .scaled_embedding = true,
     .softcaps = true,
     .adjust = AdjustGemma},
    {.architecture = "gemma3",
     .models = "Gemma 3 (text)",
     .qk_norm = QkNorm::kHead,
     .norms = NormPlacement::kBoth,
     .window = true,
     .full_period = 6,
     .window_rope = WindowRope::kUnscaled,
     .window_rope_base = 10000,
     .glu = GluForm::kGeGluTanh,
     .scaled_embedding = true,
     .softcaps = true,
     .adjust = AdjustGemma},
    {.architecture = "glm4",
     .models = "GLM-4 (dense)",
     .rope = RopeStyle::kInterleaved,
     .norms = NormPlacement::kBoth},
    {.architecture = "glm4moe",
     .models = "GLM-4.5, GLM-4.6",
     .qk_norm = QkNorm::kHead,
     .qk_norm_by_tensor = true,
     .ffn_norm = "post_attention_norm",
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kPlain,
     .score = GateScore::kSigmoid,
     .normalize_weights = true,
     .draft_layers = true},
    {.architecture = "dots1",
     .models = "dots.llm1",
     .qk_norm = QkNorm::kHead,
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kPlain,
     .score = GateScore::kSigmoid,
     .normalize_weights = true},
    {.architecture = "ernie4_5", .models = "ERNIE 4.5 (dense)", .rope = RopeStyle::kInterleaved},
    {.architecture = "ernie4_5-moe",
     .models = "ERNIE 4.5 (mixture of experts)",
     .rope = RopeStyle::kInterleaved,
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kPlain,
     .normalize_weights = true},
    {.architecture = "hunyuan-dense",
     .models = "Hunyuan (dense)",
     .qk_norm = QkNorm::kHeadAfterRope},
    {.architecture = "hunyuan-moe",
     .models = "Hunyuan-A13B",
     .qk_norm = QkNorm::kHeadAfterRope,
     .experts = ExpertUse::kAlways,
     .shared_expert = SharedExpert::kPlain,
     .normalize_weights = true},
    {.architecture = "seed_oss", .models = "Seed-OSS", .ffn_norm = "post_attention_norm"},
    {.architecture = "deepseek2",
     .models = "DeepSeek V2, V2.5, V3 and R1",
     .rope = RopeStyle::kInterleaved,
     .mla = true,
     .experts = ExpertUse::kMaybe,
     .shared_expert = SharedExpert::kPlain,
     .draft_layers = true},
    {.architecture = "gpt-oss",
     .models = "gpt-oss",
     .ffn_norm = "post_attention_norm",
     .window = true,
     .full_period = 2,
     .experts = ExpertUse::kAlways,
     .score = GateScore::kSoftmaxOfChosen,
     .glu = GluForm::kClampedSwiGlu,
     .yarn_truncate = false},
};

}  // namespace

absl::Span<const Family> Families() { return kFamilies; }

absl::StatusOr<const Family*> FindFamily(const Checkpoint& file) {
  ASSIGN_OR_RETURN(const absl::string_view kind, file.StringOr("general.type", "model"));
  if (kind != "model") {
    return absl::UnimplementedError(
        file.Error("general.type", absl::StrCat(Checkpoint::FormatValue(*file.Find("general.type")),
                                                " is not supported, expected \"model\""))
            .message());
  }
  ASSIGN_OR_RETURN(const absl::string_view name, file.String("general.architecture"));
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == name) return &family;
    absl::StrAppend(&known, known.empty() ? "" : ", ", family.architecture);
  }
  return absl::UnimplementedError(
      file.Error("general.architecture",
                 absl::StrCat(Checkpoint::FormatValue(*file.Find("general.architecture")),
                              " is not supported, expected one of ", known))
          .message());
}

const Family& FamilyOf(const ModelConfig& config) {
  const auto* found = std::find_if(
      std::begin(kFamilies), std::end(kFamilies),
      [&](const Family& family) { return family.architecture == config.architecture; });
  CHECK(found != std::end(kFamilies)) << config.architecture;
  return *found;
}

}  // namespace tidepool::engine
