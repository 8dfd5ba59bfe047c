#include "engine/model/mixer_weights.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

class DeltaNetLoader {
 public:
  DeltaNetLoader(const ModelConfig& config, const LayerConfig& layer, const std::string& prefix,
                 WeightStore* store)
      : hidden_(config.hidden_size),
        width_(layer.conv_width),
        delta_(layer.delta),
        prefix_(prefix),
        store_(store) {}

  absl::StatusOr<DeltaNetWeights> Load() {
    const bool grouped = delta_.order == kernels::HeadOrder::kGrouped;
    RETURN_IF_ERROR(grouped && Has("ssm_in.weight") ? LoadFusedQkvz() : LoadQkvz());
    RETURN_IF_ERROR(grouped && Has("ssm_ba.weight") ? LoadFusedBetaAlpha() : LoadBetaAlpha());
    const std::string conv = Name("ssm_conv1d.weight");
    ASSIGN_OR_RETURN(weights_.conv,
                     store_->Rows({.name = conv, .size = width_, .count = delta_.channels()}));
    ASSIGN_OR_RETURN(weights_.dt_bias, store_->Vector(Name("ssm_dt.bias"), delta_.v_heads));
    RETURN_IF_ERROR(LoadDecay());
    ASSIGN_OR_RETURN(weights_.norm, store_->Vector(Name("ssm_norm.weight"), delta_.v_dim));
    ASSIGN_OR_RETURN(weights_.out.weight, Matrix("ssm_out.weight", hidden_, delta_.v_size()));
    return std::move(weights_);
  }

 private:
  std::string Name(absl::string_view suffix) const { return absl::StrCat(prefix_, suffix); }
  bool Has(absl::string_view suffix) const { return store_->Has(Name(suffix)); }
  absl::StatusOr<kernels::PackedMatrix> Matrix(absl::string_view suffix, int64_t rows,
                                               int64_t cols) {
    const std::string name = Name(suffix);
    return store_->Matrix({.name = name, .rows = rows, .cols = cols});
  }

  // Loads a part of a tensor that is fused for each K head. For a head, the part has `rows` rows,
  // which begin `first` rows after the head's first row. All parts of a head together have
  // `all_rows` rows.
  absl::StatusOr<Linear> Part(absl::string_view suffix, int64_t first, int64_t rows,
                              int64_t all_rows) {
    const std::string name = Name(suffix);
    Linear linear;
    ASSIGN_OR_RETURN(linear.weight, store_->Matrix({.name = name,
                                                    .rows = delta_.k_heads * rows,
                                                    .cols = hidden_,
                                                    .first_row = first,
                                                    .tensor_rows = delta_.k_heads * all_rows,
                                                    .piece_rows = rows,
                                                    .piece_stride = all_rows}));
    return linear;
  }

  absl::Status LoadQkvz() {
    ASSIGN_OR_RETURN(weights_.qkv.emplace_back().weight,
                     Matrix("attn_qkv.weight", delta_.channels(), hidden_));
    ASSIGN_OR_RETURN(weights_.z.weight, Matrix("attn_gate.weight", delta_.v_size(), hidden_));
    return absl::OkStatus();
  }

  // For each K head: the rows of q, of k, of all v, and of all z.
  absl::Status LoadFusedQkvz() {
    const int64_t k = delta_.k_dim;
    const int64_t v = delta_.v_size() / delta_.k_heads;
    int64_t first = 0;
    for (const int64_t rows : {k, k, v}) {
      ASSIGN_OR_RETURN(weights_.qkv.emplace_back(),
                       Part("ssm_in.weight", first, rows, 2 * k + 2 * v));
      first += rows;
    }
    ASSIGN_OR_RETURN(weights_.z, Part("ssm_in.weight", first, v, 2 * k + 2 * v));
    return absl::OkStatus();
  }

  absl::Status LoadBetaAlpha() {
    ASSIGN_OR_RETURN(weights_.beta.weight, Matrix("ssm_beta.weight", delta_.v_heads, hidden_));
    ASSIGN_OR_RETURN(weights_.alpha.weight, Matrix("ssm_alpha.weight", delta_.v_heads, hidden_));
    return absl::OkStatus();
  }

  absl::Status LoadFusedBetaAlpha() {
    const int64_t ratio = delta_.v_heads / delta_.k_heads;
    ASSIGN_OR_RETURN(weights_.beta, Part("ssm_ba.weight", 0, ratio, 2 * ratio));
    ASSIGN_OR_RETURN(weights_.alpha, Part("ssm_ba.weight", ratio, ratio, 2 * ratio));
    return absl::OkStatus();
  }

  absl::Status LoadDecay() {
    const std::string name = Name("ssm_a");
    ASSIGN_OR_RETURN(const absl::Span<const float> decays,
                     store_->HostVector(name, delta_.v_heads));
    ASSIGN_OR_RETURN(weights_.decay, store_->Vector(name, delta_.v_heads));
    const auto* const bad =
        std::find_if(decays.begin(), decays.end(), [](float decay) { return decay > 0; });
    if (bad == decays.end()) return absl::OkStatus();
    return store_->file().Error(
        name, absl::StrCat("holds ", *bad, ", expected -exp(A_log), which is not above 0"));
  }

  const int64_t hidden_;
  const int64_t width_;
  const DeltaNetConfig& delta_;
  const std::string& prefix_;
  WeightStore* const store_;
  DeltaNetWeights weights_;
};

}  // namespace

absl::StatusOr<DeltaNetWeights> LoadDeltaNet(const ModelConfig& config, const LayerConfig& layer,
                                             const std::string& prefix, WeightStore* store) {
  return DeltaNetLoader(config, layer, prefix, store).Load();
}

absl::StatusOr<ShortConvWeights> LoadShortConv(const ModelConfig& config, const LayerConfig& layer,
                                               const std::string& prefix, WeightStore* store) {
  const int64_t hidden = config.hidden_size;
  const std::string in = absl::StrCat(prefix, "shortconv.in_proj.weight");
  const std::string conv = absl::StrCat(prefix, "shortconv.conv.weight");
  const std::string out = absl::StrCat(prefix, "shortconv.out_proj.weight");
  ShortConvWeights weights;
  ASSIGN_OR_RETURN(weights.in.weight,
                   store->Matrix({.name = in, .rows = 3 * hidden, .cols = hidden}));
  ASSIGN_OR_RETURN(weights.conv,
                   store->Rows({.name = conv, .size = layer.conv_width, .count = hidden}));
  ASSIGN_OR_RETURN(weights.out.weight,
                   store->Matrix({.name = out, .rows = hidden, .cols = hidden}));
  return weights;
}

}  // namespace tidepool::engine
