// RowHistory: what each row of a layer's forwards has used, so that the sequences of a batch, or
// the positions of a block, are told apart.
//
// A row is a sequence that decodes, or one of its positions that go through the model together
// (positions of a block, speculated tokens). It is identified by its request and its number among
// the request's rows. The tokens of a prompt are successive steps of one row, which continues when
// the request decodes.
#ifndef TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
#define TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/frequency_table.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. How often a row uses an expert is counted in a FrequencyTable that all layers
// share. Its cases are classes of the row's last 32 steps.
class RowHistory {
 public:
  // Rows that are remembered. Further rows of a larger batch are ignored.
  static constexpr int kMaxRows = 32;
  // Tokens at the end of a prompt that count.
  static constexpr int kSteps = 32;
  static constexpr int kCases = 16 * 5 * 3;

  RowHistory(int experts, int top_k) : experts_(experts), top_k_(top_k), wanted_(experts, false) {}

  // The case of a row's uses of an expert. Bit i of `uses` is the step i steps ago.
  static int CaseOf(uint32_t uses);

  // Adds one forward, and its decoding rows to `table`.
  void Add(const LayerRouting& routing, FrequencyTable* table);

  // The chance that no row of the last forward uses the expert, after `idle` forwards in which none
  // does.
  float UnusedChance(int32_t expert, int32_t idle, const FrequencyTable& table) const;

 private:
  struct Row {
    int64_t request = 0;
    int number = 0;    // among the request's rows
    int64_t last = 0;  // forward
    bool has_steps = false;
    std::vector<uint32_t> uses;  // [experts]
  };

  // Position in rows_, or -1 if all rows are of this forward.
  int FindRow(int64_t request, int number);
  int CountActive(int64_t request) const;
  void Count(const Row& row, const int32_t* ids, FrequencyTable* table);

  const int experts_;
  const int top_k_;
  int64_t now_ = 0;
  std::vector<Row> rows_;
  std::vector<int> active_;   // positions of the last forward's rows
  std::vector<bool> wanted_;  // [experts]: by the row at hand
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
