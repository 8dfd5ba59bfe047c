// Implements Checkpoint::SampledDigest.
#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/checkpoint/checkpoint.h"
#include "xxhash.h"

namespace tidepool::engine {
namespace {

constexpr uint64_t kWholeDataBytes = 16 << 20;
constexpr size_t kMaxSamples = 512;
constexpr size_t kSampleBytes = 4096;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

std::string Checkpoint::SampledDigest() const {
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  XXH3_128bits_reset(state.get());
  uint64_t data_bytes = 0;
  for (const MappedFile& part : parts_) {
    XXH3_128bits_update(state.get(), &part.size, sizeof(part.size));
    XXH3_128bits_update(state.get(), part.data, part.data_start);
    data_bytes += part.size - part.data_start;
  }
  if (data_bytes <= kWholeDataBytes) {
    for (const MappedFile& part : parts_) {
      XXH3_128bits_update(state.get(), part.data + part.data_start, part.size - part.data_start);
    }
  } else {
    // The samples are taken from the middle of tensors. These tensors are spread evenly over the
    // file.
    const size_t samples = std::min(tensors_.size(), kMaxSamples);
    for (size_t i = 0; i < samples; ++i) {
      const GgufTensor& tensor = tensors_[i * tensors_.size() / samples];
      const size_t slab_bytes =
          tensor.slabs.empty() ? tensor.bytes : tensor.bytes / tensor.slabs.size();
      const size_t bytes = std::min(slab_bytes, kSampleBytes);
      XXH3_128bits_update(state.get(), tensor.data + (slab_bytes - bytes) / 2, bytes);
    }
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state.get());
  return absl::StrFormat("%016x%016x", digest.high64, digest.low64);
}

}  // namespace tidepool::engine
