// Copies of the lists that ops get as arguments, for backends that run ops later.
#ifndef TIDEPOOL_TESTS_KERNELS_OP_ARGUMENTS_H_
#define TIDEPOOL_TESTS_KERNELS_OP_ARGUMENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

template <typename T>
std::vector<T> ListOf(absl::Span<const T> list) {
  return std::vector<T>(list.begin(), list.end());
}

// The classes cannot be copied, because their spans point to their lists.
class KvSpanCopies {
 public:
  explicit KvSpanCopies(absl::Span<const KvSpan> spans) : spans_(ListOf(spans)) {
    for (KvSpan& span : spans_) {
      blocks_.push_back(ListOf(span.blocks));
      span.blocks = blocks_.back();
    }
  }
  KvSpanCopies(const KvSpanCopies&) = delete;
  KvSpanCopies& operator=(const KvSpanCopies&) = delete;

  absl::Span<const KvSpan> spans() const { return spans_; }

 private:
  std::vector<KvSpan> spans_;
  std::vector<std::vector<int32_t>> blocks_;
};

class StateSpanCopies {
 public:
  explicit StateSpanCopies(absl::Span<const StateSpan> spans) : spans_(ListOf(spans)) {
    for (StateSpan& span : spans_) {
      span.in = Keep(span.in);
      span.out = Keep(span.out);
      snapshots_.push_back(ListOf(span.snapshots));
      for (StateSnapshot& snapshot : snapshots_.back()) snapshot.blocks = Keep(snapshot.blocks);
      span.snapshots = snapshots_.back();
    }
  }
  StateSpanCopies(const StateSpanCopies&) = delete;
  StateSpanCopies& operator=(const StateSpanCopies&) = delete;

  absl::Span<const StateSpan> spans() const { return spans_; }

 private:
  absl::Span<const int32_t> Keep(absl::Span<const int32_t> list) {
    return blocks_.emplace_back(ListOf(list));
  }

  std::vector<StateSpan> spans_;
  std::vector<std::vector<StateSnapshot>> snapshots_;
  std::vector<std::vector<int32_t>> blocks_;
};

class ExpertGroupCopies {
 public:
  explicit ExpertGroupCopies(absl::Span<const ExpertGroup> groups) : groups_(ListOf(groups)) {
    for (ExpertGroup& group : groups_) {
      weights_.push_back(std::make_unique<FfnWeights>(*group.weights));
      group.weights = weights_.back().get();
      group.rows = rows_.emplace_back(ListOf(group.rows));
      group.out_rows = rows_.emplace_back(ListOf(group.out_rows));
    }
  }
  ExpertGroupCopies(const ExpertGroupCopies&) = delete;
  ExpertGroupCopies& operator=(const ExpertGroupCopies&) = delete;

  absl::Span<const ExpertGroup> groups() const { return groups_; }

 private:
  std::vector<ExpertGroup> groups_;
  std::vector<std::unique_ptr<FfnWeights>> weights_;
  std::vector<std::vector<int32_t>> rows_;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_OP_ARGUMENTS_H_
