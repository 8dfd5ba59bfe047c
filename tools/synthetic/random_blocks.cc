#include "tools/synthetic/random_blocks.h"

#include <cstring>

#include "absl/types/span.h"
#include "engine/checkpoint/quantize.h"
#include "kernels/base/check.h"

namespace tidepool::tools {
namespace {

constexpr uint64_t kPieces = 4096;  // a power of two

}  // namespace

uint64_t Random::Next() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

float Random::Bell() {
  // Twelve numbers of 16 bits: their sum has a variance of 2^32, within one part in 2^32.
  int64_t sum = 0;
  for (int i = 0; i < 3; ++i) {
    const uint64_t bits = Next();
    for (int shift = 0; shift < 64; shift += 16) {
      sum += static_cast<int64_t>(bits >> shift & 0xffff);
    }
  }
  return static_cast<float>(sum - 6 * 65535) * 0x1p-16f;
}

RandomBlocks::RandomBlocks(engine::GgmlType type, int64_t columns, float deviation, uint64_t seed)
    : pieces_per_row_(columns / PieceColumns(columns)) {
  CHECK(columns % PieceColumns(columns) == 0) << "rows of " << columns;
  Make(type, PieceColumns(columns), seed, [&](Random* random, absl::Span<float> values) {
    for (float& value : values) value = deviation * random->Bell();
  });
}

RandomBlocks::RandomBlocks(engine::GgmlType type, int64_t columns, uint64_t seed,
                           const std::function<void(Random*, absl::Span<float>)>& fill)
    : pieces_per_row_(1) {
  Make(type, columns, seed, fill);
}

void RandomBlocks::Make(engine::GgmlType type, int64_t elements, uint64_t seed,
                        const std::function<void(Random*, absl::Span<float>)>& fill) {
  const engine::GgmlTypeInfo& info = engine::TypeInfo(type);
  CHECK(elements % info.block_elements == 0) << "pieces of " << elements << " for " << info.name;
  piece_bytes_ = elements / info.block_elements * info.block_bytes;
  std::vector<float> values(kPieces * elements);
  Random random(seed);
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    fill(&random, absl::MakeSpan(values).subspan(piece * elements, elements));
  }
  pieces_.resize(kPieces * piece_bytes_);
  engine::Quantize(type, values, pieces_.data());
}

void RandomBlocks::FillRow(uint64_t seed, std::byte* out) const {
  Random random(seed);
  for (int64_t piece = 0; piece < pieces_per_row_; ++piece) {
    const uint64_t chosen = random.Next() % kPieces;
    std::memcpy(out + piece * piece_bytes_, pieces_.data() + chosen * piece_bytes_, piece_bytes_);
  }
}

}  // namespace tidepool::tools
