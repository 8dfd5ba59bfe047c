#include "engine/model/hidden_values.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace tidepool::engine {
namespace {

std::string NameOf(int layer) {
  return layer == kEmbeddingLayer ? "embedding" : absl::StrCat("layer ", layer);
}

absl::Status Broken(int layer, float value) {
  return absl::InternalError(absl::StrCat("the output of the model's ", NameOf(layer), " has ",
                                          std::isnan(value) ? "a NaN" : "an infinity",
                                          ": its weights or arithmetic are broken"));
}

}  // namespace

absl::Status CheckHiddenValues(int layer, absl::Span<const kernels::RowScan> rows,
                               absl::Span<int32_t> zero_since) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].first_large >= 0) return Broken(layer, rows[i].large);
    if (!rows[i].all_zero) {
      zero_since[i] = kNotZero;
    } else if (layer == kEmbeddingLayer || zero_since[i] == kNotZero) {
      zero_since[i] = layer;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNotZero(int32_t zero_since) {
  if (zero_since == kNotZero) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the output of the model's ", NameOf(zero_since),
                   " is 0, so all logits are equal: its weights are broken"));
}

absl::Status CheckLogits(kernels::ConstMatrixView logits) {
  if (logits.cols < 2) return absl::OkStatus();
  for (int64_t i = 0; i < logits.rows; ++i) {
    const float* row = logits.Row(i);
    const bool equal =
        std::all_of(row + 1, row + logits.cols, [row](float logit) { return logit == row[0]; });
    if (!equal) continue;
    return absl::InternalError(absl::StrCat("all logits of the model are ", row[0],
                                            ", although the output of its last layer is sound: the "
                                            "weights of its head are broken"));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine
