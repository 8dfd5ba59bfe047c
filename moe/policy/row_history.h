// RowHistory: what each row of a layer's forwards has used, so that sequences of one batch, or
// places of one block, are told from each other.
//
// A row is a sequence that decodes, or one of several places of it that go through the model
// together (places of a block, guessed tokens): it is known again by its request and by its number
// among the request's rows. The tokens of a prompt are uses of one row, one after the other, which
// goes on when its request decodes. An expert is needed if any row uses it.
#ifndef TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
#define TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. How likely a row uses an expert, by when it did so before; for all layers.
class RowTable {
 public:
  // prior: what share of its steps a row uses an expert in, before anything is known.
  explicit RowTable(float prior);

  // Cells are classes of a row's uses of an expert: bit i of `uses` is that of i steps ago.
  static int CellOf(uint32_t uses);

  // Log2 of the chance of no use.
  float unused(int cell) const { return cells_[cell].unused; }

  // So many samples, of which so many were used. They show in unused() from Settle() on.
  void Count(int cell, int samples, int used);
  void Settle();

 private:
  struct Cell {
    float used;
    float seen;
    float unused;
    bool changed;
  };
  std::vector<Cell> cells_;
  std::vector<int32_t> changed_;
};

// Thread-compatible.
class RowHistory {
 public:
  // Rows that are remembered; the last of larger batches are not looked at.
  static constexpr int kMaxRows = 32;
  // Of a prompt, the tokens at its end that count.
  static constexpr int kSteps = 32;

  RowHistory(int experts, int top_k) : experts_(experts), top_k_(top_k), wanted_(experts, false) {}

  // One forward. Teaches `table` what the rows did that it decodes.
  void Add(const LayerRouting& routing, RowTable* table);

  // Log2 of the chance that no row of the last forward uses the expert after so many forwards in
  // which none has.
  float Unused(int32_t expert, int32_t silence, const RowTable& table) const;

 private:
  struct Row {
    int64_t request = 0;
    int number = 0;              // among the request's rows
    int64_t last = 0;            // forward
    bool known = false;          // has a step behind it
    std::vector<uint32_t> uses;  // [experts]
  };

  // Position in rows_; -1: all are of this forward.
  int FindRow(int64_t request, int number);
  int CountActive(int64_t request) const;
  void Learn(const Row& row, const int32_t* ids, RowTable* table);

  const int experts_;
  const int top_k_;
  int64_t now_ = 0;
  std::vector<Row> rows_;
  std::vector<int> active_;   // positions of the last forward's rows
  std::vector<bool> wanted_;  // [experts]: by the row at hand
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ROW_HISTORY_H_
