// How attention is divided among thread blocks, and into the rounds of AttendPlan.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/attention_plan.cu.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/staging.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kBlocks = 200;

std::vector<int32_t> Table() {
  std::vector<int32_t> table(kBlocks);
  std::iota(table.begin(), table.end(), 0);
  return table;
}

// An AttendCall without queries, which is enough to plan it.
struct Call {
  explicit Call(std::vector<KvSpan> call_spans, int kv_heads, int group)
      : spans(std::move(call_spans)) {
    layer.kv_heads = kv_heads;
    layer.k_dim = layer.v_dim = 8;
    int64_t rows = 0;
    for (KvSpan& span : spans) {
      span.first_row = rows;
      span.blocks = table;
      rows += span.rows;
    }
    call.q = {nullptr, rows, int64_t{kv_heads} * group * layer.k_dim};
    call.heads = kv_heads * group;
    call.spans = spans;
  }

  std::vector<int32_t> table = Table();
  std::vector<KvSpan> spans;
  KvLayer layer;
  AttendCall call = {.layer = layer};
};

// Checks that every segment that a vector attends to is computed exactly once, and that each part
// has its own place in memory.
void ExpectComplete(const Call& test, const AttendLimits& limits) {
  const AttendCall& call = test.call;
  const AttendPlan plan = PlanAttend(call, limits);
  const int group = call.heads / call.layer.kv_heads;
  std::map<std::tuple<int, int, int, int64_t>, int> computed;  // span, KV head, vector, segment
  EXPECT_LE(plan.split_vectors * plan.round_segments, limits.max_parts);
  for (int64_t round = 0; round < plan.rounds; ++round) {
    for (int i = 0; i < kVectorClasses; ++i) {
      for (const AttendTask& task : TasksOf(call, plan, limits, round, i)) {
        EXPECT_LE(task.count, kClassVectors[i]);
        const AttendSpan& span = plan.spans[task.span];
        for (int64_t segment = task.begin; segment < task.end; ++segment) {
          const int64_t index = segment - span.segment - round * plan.round_segments;
          EXPECT_TRUE(span.vectors < 0 || (index >= 0 && index < plan.round_segments));
          for (int v = task.first; v < task.first + task.count; ++v) {
            ++computed[{task.span, task.kv_head, v, segment}];
          }
        }
      }
    }
  }
  for (int s = 0; s < static_cast<int>(call.spans.size()); ++s) {
    const KvSpan& span = call.spans[s];
    for (int v = 0; v < span.rows * group; ++v) {
      const SlotRange slots = VisibleSlots(span, v / group);
      for (int64_t segment = slots.begin / kKvSegmentTokens; segment * kKvSegmentTokens < slots.end;
           ++segment) {
        for (int head = 0; head < call.layer.kv_heads; ++head) {
          const int times = computed[{s, head, v, segment}];
          EXPECT_EQ(times, 1) << "span " << s << " vector " << v << " segment " << segment;
        }
      }
    }
  }
}

TEST(AttentionPlanTest, ComputesEachSegmentOnce) {
  const std::vector<KvSpan> spans = {{.rows = 1, .first_slot = 5000},
                                     {.rows = 0, .first_slot = 7},
                                     {.rows = 70, .first_slot = 100},
                                     {.rows = 3, .first_slot = 4000, .window = 300},
                                     {.rows = 40, .first_slot = 90, .mask = Mask::kBidirectional},
                                     {.rows = 1, .first_slot = 0}};
  for (const int64_t tasks : {1, 40, 10000}) {
    for (const int64_t parts : {1, 60, 300, 100000}) {
      for (const int vectors : {4, 16, 32}) {
        for (const int group : {1, 3, 24}) {
          const AttendLimits limits = {.tasks = tasks, .max_parts = parts, .max_vectors = vectors};
          ExpectComplete(Call(spans, 2, group), limits);
        }
      }
    }
  }
}

TEST(AttentionPlanTest, DividesLongSpansOnly) {
  const Call test({{.rows = 1, .first_slot = 6000}, {.rows = 1, .first_slot = 90}}, 2, 4);
  const AttendPlan plan = PlanAttend(test.call, {.tasks = 500, .max_parts = 100000});
  EXPECT_EQ(plan.spans[0].vectors, 0);
  EXPECT_EQ(plan.spans[1].vectors, -1);
  EXPECT_EQ(plan.split_vectors, 8);
  EXPECT_EQ(plan.rounds, 1);
  EXPECT_TRUE(plan.has_whole);
}

// Runs Attend with the scratch memory of `threads` threads.
std::vector<float> Attend(int threads) {
  constexpr int kHeads = 24;
  constexpr int kDim = 8;
  const std::vector<int32_t> table = Table();
  KvLayer layer = {.dtype = DType::kF16, .kv_heads = 1, .k_dim = kDim, .v_dim = kDim};
  layer.v_offset = KvHeadBytes(layer.dtype, kDim);
  layer.block_bytes = 2 * layer.v_offset;
  Buffer kv(kBlocks * layer.block_bytes);
  layer.arena = kv.data();
  Noise noise(1);
  auto* const halves = reinterpret_cast<uint16_t*>(kv.data());
  for (size_t i = 0; i < kv.size() / 2; ++i) halves[i] = F32ToF16(noise.Unit());
  const std::vector<float> q = noise.Floats(kHeads * kDim, 3);
  const KvSpan span = {.rows = 1, .first_slot = 6000, .blocks = table};
  const AttendCall call = {.q = {q.data(), 1, kHeads * kDim},
                           .heads = kHeads,
                           .scale = 0.7f,
                           .layer = layer,
                           .spans = {&span, 1}};

  Stream* const stream = *MakeStream(0);
  auto staging = *StagingRing::Create(0, stream);
  CudaContext context = {stream, staging.get(), Precision::kExact, *FindDevice(0)};
  context.threads = threads;
  Arena arena(ActivationBytes(1, kHeads * kDim) + AttendScratchBytes(call, threads));
  Spoil(&arena);
  const ActivationBuffer out = AllocateAttended(call, context.precision, &arena);
  AttendRows(context, call, out, &arena);
  EXPECT_TRUE(Synchronize(stream).ok()) << Synchronize(stream);
  std::vector<float> result(out.values.data, out.values.data + kHeads * kDim);
  staging = nullptr;
  DeleteStream(stream);
  return result;
}

// 24 vectors with 47 segments have 1128 parts. One thread's memory has room for 512 of them.
TEST(AttentionTest, RoundsDoNotChangeBits) {
  const std::vector<float> in_rounds = Attend(1);
  const std::vector<float> at_once = Attend(8);
  for (size_t i = 0; i < at_once.size(); ++i) {
    EXPECT_EQ(FloatBits(in_rounds[i]), FloatBits(at_once[i])) << "element " << i;
  }
}

}  // namespace
}  // namespace tidepool::kernels::cuda
