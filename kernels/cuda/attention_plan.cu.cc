#include "kernels/cuda/attention_plan.cu.h"

#include <algorithm>
#include <numeric>

#include "kernels/ops.h"

namespace tidepool::kernels::cuda {
namespace {

// A span is divided only if the memory of parts has room for this number of its segments, or for
// all its segments if it has fewer.
constexpr int64_t kMinRoundSegments = 4;

int64_t HeadsPerKv(const AttendCall& call) { return call.heads / call.layer.kv_heads; }

// The segments that rows [first, last] of a span see.
struct Segments {
  int64_t begin;
  int64_t end;
};
Segments SegmentsOf(const KvSpan& span, int64_t first, int64_t last) {
  const int64_t end = VisibleSlots(span, last).end;
  return {VisibleSlots(span, first).begin / kKvSegmentTokens,
          (end + kKvSegmentTokens - 1) / kKvSegmentTokens};
}

int ClassOf(const AttendCall& call, const AttendLimits& limits, const KvSpan& span) {
  const int64_t vectors = std::min<int64_t>(span.rows * HeadsPerKv(call), limits.max_vectors);
  int result = 0;
  while (kClassVectors[result] < vectors) ++result;
  return result;
}

// Calls make(task) for each task that is not divided. `begin` and `end` of the task are the
// segments that its vectors see.
template <typename Make>
void ForTasks(const AttendCall& call, const AttendLimits& limits, int span_index, Make make) {
  const KvSpan& span = call.spans[span_index];
  const int64_t group = HeadsPerKv(call);
  const int step = kClassVectors[ClassOf(call, limits, span)];
  for (int64_t first = 0; first < span.rows * group; first += step) {
    const int64_t count = std::min<int64_t>(step, span.rows * group - first);
    const Segments seen = SegmentsOf(span, first / group, (first + count - 1) / group);
    for (int head = 0; head < call.layer.kv_heads; ++head) {
      make(AttendTask{span_index, head, static_cast<int32_t>(first), static_cast<int32_t>(count),
                      static_cast<int32_t>(seen.begin), static_cast<int32_t>(seen.end)});
    }
  }
}

// Adds the span, and the part of its block table that the attention uses.
void AddSpan(const KvSpan& span, AttendPlan* plan) {
  AttendSpan added = {.first_row = span.first_row,
                      .rows = span.rows,
                      .first_slot = span.first_slot,
                      .window = span.window,
                      .vectors = -1,
                      .causal = span.mask == Mask::kCausal};
  if (span.rows > 0) {
    const int64_t slot = VisibleSlots(span, 0).begin;
    const int64_t begin = slot / kKvBlockTokens;
    const int64_t end = (span.first_slot + span.rows - 1) / kKvBlockTokens + 1;
    added.table = static_cast<int64_t>(plan->tables.size()) - begin;
    added.segment = slot / kKvSegmentTokens;
    plan->tables.insert(plan->tables.end(), span.blocks.begin() + begin, span.blocks.begin() + end);
  }
  std::fill_n(plan->span_of_row.begin() + span.first_row, span.rows,
              static_cast<int32_t>(plan->spans.size()));
  plan->covered_rows += span.rows;
  plan->spans.push_back(added);
}

}  // namespace

AttendPlan PlanAttend(const AttendCall& call, const AttendLimits& limits) {
  AttendPlan plan;
  plan.span_of_row.assign(call.q.rows, -1);
  const auto count = static_cast<int>(call.spans.size());
  std::vector<int64_t> longest(count);  // the longest task of each span, in segments
  int64_t cost = 0;
  for (int s = 0; s < count; ++s) {
    AddSpan(call.spans[s], &plan);
    ForTasks(call, limits, s, [&](const AttendTask& task) {
      longest[s] = std::max<int64_t>(longest[s], task.end - task.begin);
      cost += task.end - task.begin;
    });
  }
  plan.step = std::max<int64_t>(1, cost / limits.tasks);
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&longest](int a, int b) { return longest[a] > longest[b]; });
  int64_t segments = 0;  // the largest number of segments of a divided span
  for (const int s : order) {
    const KvSpan& span = call.spans[s];
    if (span.rows == 0) continue;
    const int64_t vectors = span.rows * call.heads;
    const int64_t together = plan.split_vectors + vectors;
    const Segments seen = SegmentsOf(span, 0, span.rows - 1);
    const int64_t needed = std::min(kMinRoundSegments, seen.end - seen.begin);
    if (longest[s] < 2 || longest[s] <= 2 * plan.step || together * needed > limits.max_parts) {
      plan.has_whole = true;
      continue;
    }
    plan.spans[s].vectors = plan.split_vectors;
    plan.split_vectors = together;
    segments = std::max(segments, seen.end - seen.begin);
  }
  if (plan.split_vectors > 0) {
    plan.round_segments = std::min(segments, limits.max_parts / plan.split_vectors);
    plan.rounds = (segments + plan.round_segments - 1) / plan.round_segments;
  }
  return plan;
}

std::vector<AttendTask> TasksOf(const AttendCall& call, const AttendPlan& plan,
                                const AttendLimits& limits, int64_t round, int vector_class) {
  std::vector<AttendTask> tasks;
  for (int s = 0; s < static_cast<int>(call.spans.size()); ++s) {
    if (ClassOf(call, limits, call.spans[s]) != vector_class) continue;
    const bool split = plan.spans[s].vectors >= 0;
    if (!split && round > 0) continue;
    ForTasks(call, limits, s, [&](const AttendTask& task) {
      if (!split) return tasks.push_back(task);
      const int64_t first = plan.spans[s].segment + round * plan.round_segments;
      const int64_t end = std::min<int64_t>(task.end, first + plan.round_segments);
      for (int64_t at = std::max<int64_t>(task.begin, first); at < end; at += plan.step) {
        AttendTask part = task;
        part.begin = static_cast<int32_t>(at);
        part.end = static_cast<int32_t>(std::min(end, at + plan.step));
        tasks.push_back(part);
      }
    });
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const AttendTask& a, const AttendTask& b) {
    return a.end - a.begin > b.end - b.begin;
  });
  return tasks;
}

}  // namespace tidepool::kernels::cuda
