// Small KV caches, layers and tokens for tests.
#ifndef TIDEPOOL_TESTS_ENGINE_KV_KV_CACHE_FIXTURE_H_
#define TIDEPOOL_TESTS_ENGINE_KV_KV_CACHE_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/kv/kv_cache.h"

namespace tidepool::engine {

inline constexpr int64_t kTokens = kernels::kKvBlockTokens;

inline KvSpec Full() {
  return {.kv_heads = 2, .k_dim = 4, .v_dim = 4, .dtype = kernels::DType::kF16};
}

inline KvSpec Window(int64_t window) {
  KvSpec spec = Full();
  spec.kind = KvKind::kWindow;
  spec.window = window;
  return spec;
}

// Returns the spec of a recurrent state of `parts` blocks. The model must also have Full() layers.
inline KvSpec State(int64_t parts) {
  return {.kind = KvKind::kState, .state = {{.units = 2 * parts, .unit_bytes = 512}}};
}

// Returns a cache of this number of blocks, for a model with these layers.
inline std::unique_ptr<KvCache> MakeCache(const std::vector<KvSpec>& layers, int64_t blocks) {
  auto probe = KvCache::Create(layers, {.memory_bytes = 1 << 20});
  const size_t bytes = blocks * (*probe)->block_bytes();
  return KvCache::Create(layers, {.memory_bytes = bytes, .seed = "seed"}).value();
}

inline std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_KV_KV_CACHE_FIXTURE_H_
