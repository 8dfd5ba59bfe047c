// BoundedMoeLayer: computes one MoE layer whose (token, expert) pairs do not all fit into the
// workspace.
//
// A token's experts are summed in ascending order, so an expert's outputs can be added only after
// all lower experts. An expert that is ready early usually waits in the source's memory. If others
// need that memory, or there is nothing else to compute, the expert is computed early and its
// outputs are kept in rows of the workspace. If the rows and the source's memory are both used up,
// an uncomputed expert is returned to the source, which must read it again.
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

// Engine thread only. Computes one layer of one forward. Implementation detail of ExpertScheduler.
class BoundedMoeLayer {
 public:
  struct Parts {
    kernels::KernelBackend* backend = nullptr;
    ExpertSource* source = nullptr;  // the plan's experts were requested from it
    const ExpertPlan* plan = nullptr;
    kernels::Activation x;     // [tokens, hidden]
    kernels::MatrixView kept;  // [rows, hidden]: room for outputs that wait
    int64_t call_bytes = 0;    // scratch limit of one GroupedFfn call
    kernels::Arena* arena = nullptr;
    std::atomic<uint64_t>* heartbeat = nullptr;  // incremented when experts arrive
  };

  explicit BoundedMoeLayer(const Parts& parts);

  // sum[t] += the weighted outputs of token t's experts, in ascending order. On error, which comes
  // from the source, `sum` is invalid.
  absl::Status Run(kernels::MatrixView sum);

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  enum class State : uint8_t {
    kAway,  // not given out by the source
    kHeld,  // given out, not computed
    kKept,  // computed, not summed
  };
  struct Expert {
    State state = State::kAway;
    bool seen = false;  // was given out before
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
  std::vector<Expert> experts_;     // in the plan's order
  std::vector<int32_t> row_of_;     // [pairs]: row in `kept` of a computed pair that is not summed
  std::vector<int32_t> free_rows_;  // of `kept`
  int64_t call_rows_ = 0;           // rows of one GroupedFfn call; computed with the first expert
  size_t next_ = 0;                 // the first expert that is not summed
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

// The number of rows for one GroupedFfn call on experts of `width`, so that its scratch is about
// `call_bytes` or less.
int64_t CallRows(int64_t call_bytes, int64_t width);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_BOUNDED_MOE_LAYER_H_
