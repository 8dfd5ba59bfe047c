// Routing traces: the experts that a model's gates chose in each layer of each forward pass. A
// trace is a file of JSON lines, plain or compressed with zstd. The first line is the header:
//   {"version":1,"model":"m","layers":24,"experts":64,"top_k":8,"expert_bytes":4096}
// `layers` counts only MoE layers. `expert_bytes` is one number, or an array with one number per
// layer. Each further line describes one layer in one forward pass:
//   {"request":"r0","phase":"decode","step":7,"layer":3,"ids":[[5,1],[0,5]],"weights":[[.6,.4],..]}
// `ids` has a row of top_k distinct experts for each token, in descending order of weight.
// `request` (a string or a number) and `phase` ("prefill" or "decode") may be arrays with one entry
// per token. `weights` is optional. Other keys are ignored.
#ifndef TIDEPOOL_MOE_TRACE_TRACE_H_
#define TIDEPOOL_MOE_TRACE_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

struct TraceHeader {
  std::string model;
  int layers = 0;
  int experts = 0;  // per layer
  int top_k = 0;
  std::vector<int64_t> expert_bytes;  // [layers]

  absl::Status Validate() const;
  int64_t all_experts() const { return int64_t{layers} * experts; }
  // Bytes of a slot. A slot has room for any expert.
  int64_t slot_bytes() const;
};

// One line of the trace after the header.
struct TraceEntry {
  int64_t step = 0;
  int layer = 0;
  std::vector<int32_t> ids;    // [tokens, top_k]
  std::vector<float> weights;  // [tokens, top_k] or empty
  std::vector<Phase> phases;   // [tokens], or one for all tokens
  // [tokens], or one for all tokens; requests are numbered in the order of their first appearance
  std::vector<int64_t> requests;

  int64_t tokens(int top_k) const { return static_cast<int64_t>(ids.size()) / top_k; }
  LayerRouting routing(int top_k) const;
};

// Returns whether the entry begins a forward pass. `last` is the entry before it, or null. (The
// layers of a forward pass are in ascending order.)
bool BeginsForward(const TraceEntry* last, const TraceEntry& entry);

struct Trace {
  TraceHeader header;
  std::vector<TraceEntry> entries;

  // Limits for untrusted input.
  static constexpr int64_t kMaxLineBytes = int64_t{64} << 20;
  static constexpr int64_t kMaxIds = int64_t{1} << 28;
};

// Reads a whole file. Detects zstd compression by the file's first bytes. Errors name the file, the
// line and what is wrong: NOT_FOUND or PERMISSION_DENIED for the file; INVALID_ARGUMENT for its
// contents; DATA_LOSS if compressed data is damaged or truncated; RESOURCE_EXHAUSTED if a limit is
// exceeded.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

// Like ReadTrace, for bytes in memory. `name` is used as the file's name in errors.
absl::StatusOr<Trace> ParseTrace(const std::string& name, absl::string_view bytes);

// Returns the number of forward passes that needed each expert, [layers, experts]. It can be the
// profile of a static placement.
std::vector<int64_t> CountUses(const Trace& trace);

// Returns CountUses of the trace at `path`. Returns INVALID_ARGUMENT if the trace has another
// number of layers or experts. Other errors are the same as of ReadTrace.
absl::StatusOr<std::vector<int64_t>> ReadProfile(const std::string& path, int layers, int experts);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TRACE_TRACE_H_
