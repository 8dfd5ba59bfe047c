// RowHistory: which experts each row of a layer's forwards has used. So it distinguishes the
// sequences of a batch, and the positions of a block.
//
// A row is a decoding sequence. If several positions of a sequence are computed together (positions
// of a block, speculated tokens), each position is a row. A row is identified by its request and
// its number among the request's rows. The tokens of a prompt are successive steps of one row,
// which continues when the request decodes.
#ifndef TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
#define TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/frequency_table.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. A FrequencyTable, which all layers share, counts how often a row uses an
// expert, by class of its uses in the row's last 32 steps.
class RowHistory {
 public:
  // Maximum number of rows. Further rows of a larger batch are ignored.
  static constexpr int kMaxRows = 32;
  // Number of steps per row. Of a prompt, only this number of tokens at the end count.
  static constexpr int kSteps = 32;
  static constexpr int kCases = 16 * 5 * 3;

  RowHistory(int experts, int top_k) : experts_(experts), top_k_(top_k), wanted_(experts, false) {}

  // The case of a row's uses of an expert. Bit i of `uses` is the step i steps ago.
  static int CaseOf(uint32_t uses);

  // Adds one forward. Adds the uses of its decoding rows to `table`.
  void Add(const LayerRouting& routing, FrequencyTable* table);

  // Returns the chance that no row of the last forward uses the expert, after `idle` forwards
  // without a use.
  float UnusedChance(int32_t expert, int32_t idle, const FrequencyTable& table) const;

 private:
  struct Row {
    int64_t request = 0;
    int number = 0;    // among the request's rows
    int64_t last = 0;  // last forward of this row
    bool has_steps = false;
    std::vector<uint32_t> uses;  // [experts]
  };

  // Returns an index of rows_, or -1 if all rows are used by this forward.
  int FindRow(int64_t request, int number);
  int CountActive(int64_t request) const;
  void Count(const Row& row, const int32_t* ids, FrequencyTable* table);

  const int experts_;
  const int top_k_;
  int64_t now_ = 0;
  std::vector<Row> rows_;
  std::vector<int> active_;   // rows of the last forward, as indices of rows_
  std::vector<bool> wanted_;  // [experts]: scratch of Count
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
