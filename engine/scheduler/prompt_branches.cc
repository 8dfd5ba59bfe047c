#include "engine/scheduler/prompt_branches.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "kernels/backend.h"

namespace tidepool::engine {
namespace {

// Returns how many of their first `blocks` blocks two sequences have in common. Equal hashes mean
// that all blocks before are equal, too.
int64_t BlocksInCommon(Sequence* a, Sequence* b, int64_t blocks) {
  const auto equal = [&](int64_t block) {
    return a->lease.HashOf(a->tokens, block) == b->lease.HashOf(b->tokens, block);
  };
  if (blocks == 0 || !equal(0)) return 0;
  int64_t common = 1;
  int64_t different = blocks + 1;
  while (different - common > 1) {
    const int64_t middle = common + (different - common) / 2;
    (equal(middle - 1) ? common : different) = middle;
  }
  return common;
}

}  // namespace

std::vector<int64_t> BranchesWithin(Sequence* sequence, int64_t first, int64_t end,
                                    const AdmissionQueue& waiting) {
  const int64_t last = end / kernels::kKvBlockTokens;
  absl::flat_hash_map<int64_t, int64_t> uses;  // by boundary
  for (const auto& other : waiting.sequences()) {
    const int64_t usable =
        (static_cast<int64_t>(other->reusable().size()) - 1) / kernels::kKvBlockTokens;
    const int64_t boundary = BlocksInCommon(sequence, other.get(), std::min(usable, last));
    if (boundary * kernels::kKvBlockTokens <= first) continue;
    // The sequence may have more blocks in common after the end of this pass.
    if (boundary == last && usable > last) continue;
    ++uses[boundary];
  }
  std::vector<std::pair<int64_t, int64_t>> sorted;  // number of uses, boundary
  for (const auto& [boundary, count] : uses) sorted.emplace_back(count, boundary);
  std::sort(sorted.rbegin(), sorted.rend());
  if (sorted.size() > kMaxBranches) sorted.resize(kMaxBranches);
  std::vector<int64_t> boundaries;
  for (const auto& [count, boundary] : sorted) boundaries.push_back(boundary);
  return boundaries;
}

}  // namespace tidepool::engine
