// RowHistory: which experts each row of a layer's forward passes has used. A row is a decoding
// sequence. So the history distinguishes the sequences of a batch.
//
// If several positions of a sequence are computed together (positions of a block, or speculated
// tokens), each of these positions is a row. A row is identified by its request and by its number
// among the request's rows. The tokens of a prompt are successive steps of one row. When the
// request decodes, the same row continues.
#ifndef TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
#define TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/frequency_table.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. All layers share a FrequencyTable. It counts how often a row uses an expert,
// depending on how the row used the expert in its last 32 steps (see CaseOf).
class RowHistory {
 public:
  // Maximum number of rows. If a batch has more rows, the others are ignored.
  static constexpr int kMaxRows = 32;
  // Number of steps that are remembered for each row. Of a prompt, only the last kSteps tokens are
  // used.
  static constexpr int kSteps = 32;
  static constexpr int kCases = 16 * 5 * 3;

  RowHistory(int experts, int top_k) : experts_(experts), top_k_(top_k), wanted_(experts, false) {}

  // The case for an expert's uses by a row. Bit i of `uses` says whether the row used it i steps
  // ago.
  static int CaseOf(uint32_t uses);

  // Adds one forward pass, and adds the uses of its decoding rows to `table`.
  void Add(const LayerRouting& routing, FrequencyTable* table);

  // Sets chances[i] to the chance that a row of the last forward pass uses experts[i], after `idle`
  // more forward passes without a use. rates: [kCases], the rates of the table.
  void UseChances(absl::Span<const int32_t> experts, int32_t idle, absl::Span<const float> rates,
                  float* chances) const;

 private:
  struct Row {
    int64_t request = 0;
    int number = 0;    // number among the rows of the request
    int64_t last = 0;  // the last forward pass that had this row
    bool has_steps = false;
    std::vector<uint32_t> uses;  // [experts]
  };

  // Returns an index of rows_, or -1 if this forward pass uses all rows.
  int FindRow(int64_t request, int number);
  int CountActive(int64_t request) const;
  void Count(const Row& row, const int32_t* ids, FrequencyTable* table);
  void SetWanted(const int32_t* ids, bool wanted);

  const int experts_;
  const int top_k_;
  int64_t now_ = 0;
  std::vector<Row> rows_;
  std::vector<int> active_;   // rows of the last forward pass, as indices of rows_
  std::vector<bool> wanted_;  // [experts]: scratch memory of Count
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
