#include "engine/model/families/gemma.h"

#include <cmath>
#include <cstddef>

namespace tidepool::engine {
namespace {

constexpr size_t kLayersOfGemma2With27B = 46;
constexpr size_t kLayersOfGemma3With27B = 62;

}  // namespace

absl::Status AdjustGemma(const Checkpoint& /*file*/, const Keys& keys, ModelConfig* config) {
  const size_t layers_of_27b =
      config->architecture == "gemma2" ? kLayersOfGemma2With27B : kLayersOfGemma3With27B;
  if (keys.Has("attention.scale") || config->layers.size() != layers_of_27b) {
    return absl::OkStatus();
  }
  for (LayerConfig& layer : config->layers) {
    layer.attention_scale =
        static_cast<float>(1 / std::sqrt(static_cast<double>(config->hidden_size / layer.heads)));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine
