// BoundedMoeLayer: one MoE layer of more (token, expert) pairs than its workspace has rows for.
//
// A token's experts are summed in ascending order, so an expert's outputs are only of use when all
// before it have had their turn. Those that are ready wait for it where they lie; the outputs of
// those that must not wait, because others need their memory or nothing else is to be done, are
// kept in rows of the workspace. Where these run out and the source has no memory left either, an
// expert is given back to it as it came, to be brought again.
#ifndef TIDEPOOL_MOE_BOUNDED_MOE_LAYER_H_
#define TIDEPOOL_MOE_BOUNDED_MOE_LAYER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/expert_plan.h"
#include "moe/expert_source.h"

namespace tidepool::moe {

// Engine thread only; of one layer of one forward. Implementation detail of ExpertScheduler.
class BoundedMoeLayer {
 public:
  struct Parts {
    kernels::KernelBackend* backend = nullptr;
    ExpertSource* source = nullptr;  // that has been asked for the plan's experts
    const ExpertPlan* plan = nullptr;
    kernels::Activation x;     // [tokens, hidden]
    kernels::MatrixView kept;  // [rows, hidden]: room for outputs
    int64_t call_bytes = 0;    // of scratch that one GroupedFfn may take
    kernels::Arena* arena = nullptr;
    std::atomic<uint64_t>* heartbeat = nullptr;  // raised whenever experts come
  };

  explicit BoundedMoeLayer(const Parts& parts);

  // sum[t] += the weighted outputs of t's experts, in ascending order. An error is the source's;
  // `sum` is then of no use.
  absl::Status Run(kernels::MatrixView sum);

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  enum class State : uint8_t {
    kAway,  // not given out
    kHeld,  // given out, not computed
    kKept,  // computed, not summed
  };
  struct Expert {
    State state = State::kAway;
    bool seen = false;  // given out before
    ReadyExpert ready;
  };
  // Pairs [begin, end) of one expert.
  struct Part {
    size_t expert = 0;
    int32_t begin = 0;
    int32_t end = 0;
  };

  absl::StatusOr<bool> Await(Patience patience);
  bool TakeTurn(kernels::MatrixView sum);
  void RunInTurn(kernels::MatrixView sum);
  bool ComputeAhead(bool leaving_hits_only);
  void Postpone();
  void Compute(absl::Span<const Part> parts);
  void Sum(const Part& part, kernels::MatrixView sum);
  void Release(size_t expert);
  Part Whole(size_t expert) const { return {expert, plan_.Begin(expert), plan_.ends[expert]}; }
  int64_t free_rows() const { return static_cast<int64_t>(free_rows_.size()); }

  const Parts parts_;
  const ExpertPlan& plan_;
  std::vector<Expert> experts_;     // as the plan has them
  std::vector<int32_t> row_of_;     // [pairs]: in `kept`, of those computed and not summed
  std::vector<int32_t> free_rows_;  // of `kept`
  int64_t call_rows_ = 0;           // of one GroupedFfn; known with the first expert
  size_t next_ = 0;                 // the first that is not summed
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

// Rows of one GroupedFfn over experts of `width` that takes at most about `call_bytes` of scratch.
int64_t CallRows(int64_t call_bytes, int64_t width);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_BOUNDED_MOE_LAYER_H_
