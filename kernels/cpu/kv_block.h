// The layout of one KV head's keys or values in a block of the arena (KvLayer in backend.h).
#ifndef TIDEPOOL_KERNELS_CPU_KV_BLOCK_H_
#define TIDEPOOL_KERNELS_CPU_KV_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace tidepool::kernels {

struct KvHeadBlock {
  DType dtype;
  std::byte* elements;
  uint16_t* scales;  // for kQ8_0: one float16 for each 32 elements; otherwise null
};

inline KvHeadBlock HeadBlockAt(std::byte* base, DType dtype, int head_dim) {
  if (dtype != DType::kQ8_0) return {dtype, base, nullptr};
  const int64_t scales = BlockCount(dtype, int64_t{head_dim} * kKvBlockTokens);
  return {dtype, base + scales * sizeof(uint16_t), reinterpret_cast<uint16_t*>(base)};
}

inline KvHeadBlock KeysOf(const KvLayer& layer, int32_t block, int head) {
  std::byte* base = layer.arena + block * layer.block_bytes + layer.k_offset;
  return HeadBlockAt(base + head * KvHeadBytes(layer.dtype, layer.k_dim), layer.dtype, layer.k_dim);
}

inline KvHeadBlock ValuesOf(const KvLayer& layer, int32_t block, int head) {
  std::byte* base = layer.arena + block * layer.block_bytes + layer.v_offset;
  return HeadBlockAt(base + head * KvHeadBytes(layer.dtype, layer.v_dim), layer.dtype, layer.v_dim);
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_KV_BLOCK_H_
