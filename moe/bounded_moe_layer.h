// BoundedMoeLayer: computes one MoE layer when the workspace has no room for the outputs of all
// (token, expert) pairs.
//
// The outputs of a token's experts are summed in ascending order of expert. So an expert's outputs
// can be added only after those of all lower experts. An expert that is in memory before its turn
// usually waits there, uncomputed. It is computed before its turn if other experts need its memory
// or if there is nothing else to compute; its outputs then wait in rows of the workspace. If
// neither rows nor memory are left, an uncomputed expert is returned to the source, which must read
// it again.
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

// Engine thread only. Computes one layer in one forward pass. Implementation detail of
// ExpertScheduler.
class BoundedMoeLayer {
 public:
  struct Parts {
    kernels::KernelBackend* backend = nullptr;
    ExpertSource* source = nullptr;  // has received the request for the plan's experts
    const ExpertPlan* plan = nullptr;
    kernels::Activation x;     // [tokens, hidden]
    kernels::MatrixView kept;  // [rows, hidden]: room for outputs that are not summed yet
    int64_t call_bytes = 0;    // scratch limit of one GroupedFfn call, in bytes
    kernels::Arena* arena = nullptr;
    std::atomic<uint64_t>* heartbeat = nullptr;  // incremented each time experts become ready
  };

  explicit BoundedMoeLayer(const Parts& parts);

  // Adds the weighted outputs of token t's experts to sum[t], in ascending order of expert. An
  // error comes from the source; `sum` is then invalid.
  absl::Status Run(kernels::MatrixView sum);

  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }

 private:
  enum class State : uint8_t {
    kAway,  // the source has not given it out
    kHeld,  // the source has given it out; not computed yet
    kKept,  // computed; its outputs are not summed yet
  };
  struct Expert {
    State state = State::kAway;
    bool seen = false;  // whether the source has given it out before
    ReadyExpert ready;
  };
  // The pairs [begin, end) of one expert.
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
  std::vector<Expert> experts_;  // in the plan's order
  // [pairs]: the row in `kept` with the pair's output, if this output is computed and not summed
  std::vector<int32_t> row_of_;
  std::vector<int32_t> free_rows_;  // unused rows of `kept`
  // maximum rows of one GroupedFfn call; set when the first expert is ready
  int64_t call_rows_ = 0;
  size_t next_ = 0;  // index of the first expert whose outputs are not summed
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

// Returns the number of rows for one GroupedFfn call on experts of `width`. The call then needs
// about `call_bytes` of scratch, or less.
int64_t CallRows(int64_t call_bytes, int64_t width);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_BOUNDED_MOE_LAYER_H_
