#include "engine/scheduler/in_flight_prefixes.h"

#include <algorithm>

#include "kernels/backend.h"

namespace tidepool::engine {
namespace {

bool Fills(int64_t tokens, int64_t block) {
  return (block + 1) * kernels::kKvBlockTokens <= tokens;
}

}  // namespace

void InFlightPrefixes::Add(Sequence* sequence) {
  const int64_t block = sequence->lease.slots() / kernels::kKvBlockTokens;
  if (!Fills(static_cast<int64_t>(sequence->tokens.size()), block)) return;
  blocks_.insert(sequence->lease.HashOf(sequence->tokens, block));
  if (std::find(depths_.begin(), depths_.end(), block) == depths_.end()) depths_.push_back(block);
}

bool InFlightPrefixes::Hold(Sequence* sequence) const {
  const int64_t usable = static_cast<int64_t>(sequence->reusable().size()) - 1;
  return std::any_of(depths_.begin(), depths_.end(), [&](int64_t block) {
    return Fills(usable, block) &&
           blocks_.contains(sequence->lease.HashOf(sequence->tokens, block));
  });
}

}  // namespace tidepool::engine
