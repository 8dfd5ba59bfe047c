#include "engine/kv/block_hash.h"

#include <xxhash.h>

#include <cstring>
#include <string>

#include "kernels/backend.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

constexpr int kBlockTokens = kernels::kKvBlockTokens;

void PutUint64(uint64_t value, unsigned char* out) {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<unsigned char>(value >> (8 * i));
}

}  // namespace

BlockHash HashRoot(absl::string_view seed, absl::string_view salt) {
  // The length makes ("ab", "c") different from ("a", "bc").
  unsigned char length[8];
  PutUint64(seed.size(), length);
  std::string bytes(reinterpret_cast<const char*>(length), sizeof(length));
  bytes.append(seed.data(), seed.size());
  bytes.append(salt.data(), salt.size());
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

BlockHash HashBlock(const BlockHash& parent, absl::Span<const int32_t> tokens) {
  CHECK_EQ(tokens.size(), static_cast<size_t>(kBlockTokens));
  unsigned char bytes[16 + 4 * kBlockTokens];
  PutUint64(parent.low, bytes);
  PutUint64(parent.high, bytes + 8);
  for (int i = 0; i < kBlockTokens; ++i) {
    const uint32_t id = static_cast<uint32_t>(tokens[i]);
    for (int j = 0; j < 4; ++j) {
      bytes[16 + 4 * i + j] = static_cast<unsigned char>(id >> (8 * j));
    }
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes, sizeof(bytes));
  return {hash.low64, hash.high64};
}

std::vector<uint64_t> BlockDigests(absl::Span<const int32_t> tokens, absl::string_view seed,
                                   absl::string_view salt) {
  std::vector<uint64_t> digests;
  digests.reserve(tokens.size() / kBlockTokens);
  BlockHash hash = HashRoot(seed, salt);
  for (size_t begin = 0; begin + kBlockTokens <= tokens.size(); begin += kBlockTokens) {
    hash = HashBlock(hash, tokens.subspan(begin, kBlockTokens));
    digests.push_back(hash.low);
  }
  return digests;
}

}  // namespace tidepool::engine
