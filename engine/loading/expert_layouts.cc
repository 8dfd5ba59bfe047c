#include "engine/loading/expert_layouts.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "engine/checkpoint/content_digest.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/model/transformer_weights.h"
#include "kernels/base/status_macros.h"
#include "kernels/packed_matrix.h"

namespace tidepool::engine {

std::vector<int> MoeLayers(const ModelConfig& config) {
  std::vector<int> layers;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].ffn == FfnKind::kMoe) layers.push_back(static_cast<int>(i));
  }
  return layers;
}

absl::StatusOr<PackContents> PackContentsOf(const ModelConfig& config, const std::string& digest,
                                            WeightStore* store) {
  PackContents contents;
  contents.digest = digest;
  contents.sampled_digest = store->file().SampledDigest();
  if (store->quantize_to().has_value()) {
    contents.sampled_digest = QuantizedDigest(contents.sampled_digest, *store->quantize_to());
  }
  contents.modified_ns = store->file().modified_ns();
  for (const int layer : MoeLayers(config)) {
    auto& row = contents.layouts.emplace_back();
    for (int expert = 0; expert < config.moe.experts; ++expert) {
      ASSIGN_OR_RETURN(const kernels::FfnWeights shapes,
                       ExpertShapes(config, {layer, expert}, store));
      row.emplace_back(shapes);
    }
  }
  return contents;
}

ExpertSizes ExpertSizesOf(const ModelConfig& config, const PackContents& contents, int staging) {
  ExpertSizes sizes = {.top_k = config.moe.experts_used, .staging = staging};
  for (const auto& layer : contents.layouts) {
    for (const moe::ExpertLayout& layout : layer) {
      ++sizes.experts;
      sizes.total_bytes += layout.bytes();
      sizes.record_bytes = std::max(sizes.record_bytes, layout.bytes());
    }
  }
  return sizes;
}

int64_t DenseBytes(const WeightStore& store) {
  int64_t bytes = 0;
  for (const absl::string_view name : store.Unused()) {
    const GgufTensor& tensor = *store.file().FindTensor(name);
    const auto dtype = NativeDType(store.TypeOf(tensor)).value_or(kernels::DType::kF32);
    bytes += static_cast<int64_t>(kernels::PackedBytes(dtype, tensor.rows(), tensor.dims[0]));
  }
  return bytes;
}

}  // namespace tidepool::engine
