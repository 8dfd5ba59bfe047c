// Distributes the work of attention among threads. A job computes a few query vectors of one span
// and KV head over all slots that they see. If there are few jobs (as in decoding), several threads
// compute the segments of a job. Each thread stores the results of its segments, and the last
// thread merges them in order. So the bits are the same as with one thread. The memory for these
// results is limited, so long jobs need several rounds.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "kernels/attend_bounds.h"
#include "kernels/cpu/attention_fold.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// If the cost of all jobs is at most this, one thread computes them, because another thread would
// start too late to help. The unit is that of Job::cost, about 100 ns.
constexpr int64_t kMinShared = 12;

// The additional state of a job whose segments are distributed among threads.
struct SplitJob {
  Folds folds;
  Folds parts;    // [segments of a round][job.count]: results that are not merged yet
  int64_t begin;  // the segments of the round are [begin, end)
  int64_t end;
  std::atomic<int64_t> left;  // number of segments of the round that are not computed yet
};

struct Job {
  FoldJob fold;
  SplitJob* split;  // null if one task computes the whole job
  // Number of passes over a block with 64 dimensions of keys and 64 of values, plus one pass for
  // its conversion.
  int64_t cost;
};

// The segments [begin, end) of a job. One thread computes them.
struct Task {
  const Job* job;
  int64_t begin;
  int64_t end;
};

static_assert(sizeof(Job) + sizeof(Task) <= kAttendJobBytes, "more than AttendScratchBytes counts");

struct Jobs {
  Job* data;
  int64_t count;
  int64_t cost;
  int64_t split_vectors;
};

int64_t JobsOf(const AttendOp& op, const KvSpan& span) {
  const int64_t vectors = span.rows * op.HeadsPerKv();
  return (vectors + kFoldVectors - 1) / kFoldVectors * op.layer.kv_heads;
}

Jobs MakeJobs(const AttendOp& op, absl::Span<const KvSpan> spans, Arena* arena) {
  int64_t count = 0;
  for (const KvSpan& span : spans) count += JobsOf(op, span);
  Jobs jobs = {arena->Allocate<Job>(count), 0, 0, 0};
  const int together = op.context.kernels->attention.vectors;
  const int64_t width = std::max(1, (op.layer.k_dim + op.layer.v_dim) / 128);
  for (const KvSpan& span : spans) {
    for (int64_t first = 0; first < span.rows * op.HeadsPerKv(); first += kFoldVectors) {
      for (int head = 0; head < op.layer.kv_heads; ++head) {
        Job& job = jobs.data[jobs.count++];
        job.fold = MakeFoldJob(op, span, head, first);
        job.split = nullptr;
        const int passes = (job.fold.count + together - 1) / together;
        job.cost = job.fold.blocks * (1 + passes) * width;
        jobs.cost += job.cost;
      }
    }
  }
  return jobs;
}

// Splits the jobs that would keep one thread busy after the other threads have finished.
void SplitLongJobs(const AttendOp& op, int64_t task_cost, Jobs* jobs, Arena* arena) {
  if (op.context.pool->threads() == 1) return;
  for (Job* job = jobs->data; job != jobs->data + jobs->count; ++job) {
    if (job->cost <= 2 * task_cost || job->fold.end - job->fold.begin < 2) continue;
    job->split = new (arena->Allocate<SplitJob>(1)) SplitJob;
    job->split->folds = AllocateFolds(op, job->fold.count, arena);
    ClearFolds(op, job->fold.count, job->split->folds);
    jobs->split_vectors += job->fold.count;
  }
}

void RunWhole(const AttendOp& op, const FoldJob& job, const FoldScratch& scratch) {
  ClearFolds(op, job.count, scratch.folds);
  for (int64_t segment = job.begin; segment < job.end; ++segment) {
    ComputeSegment(op, job, segment, scratch, scratch.segment);
    MergeSegment(op, job.count, scratch.segment, scratch.folds);
  }
  FinishFolds(op, job, scratch.folds);
}

Folds PartOf(const AttendOp& op, const Job& job, int64_t segment) {
  const int64_t at = (segment - job.split->begin) * job.fold.count;
  return {job.split->parts.states + at, job.split->parts.sums + at * op.FoldStride()};
}

void RunTask(const AttendOp& op, const Task& task, const FoldScratch& scratch) {
  const Job& job = *task.job;
  SplitJob* split = job.split;
  BeginJob(op, job.fold, scratch);
  if (split == nullptr) return RunWhole(op, job.fold, scratch);
  for (int64_t segment = task.begin; segment < task.end; ++segment) {
    ComputeSegment(op, job.fold, segment, scratch, PartOf(op, job, segment));
  }
  const int64_t computed = task.end - task.begin;
  if (split->left.fetch_sub(computed, std::memory_order_acq_rel) != computed) return;
  for (int64_t segment = split->begin; segment < split->end; ++segment) {
    MergeSegment(op, job.fold.count, PartOf(op, job, segment), split->folds);
  }
  if (split->end == job.fold.end) FinishFolds(op, job.fold, split->folds);
}

// Plans the tasks of each round. Split jobs are computed in rounds, because `parts` has room for
// only some of their segments. Each round has the next round_segments segments of each split job.
// The jobs that are not split are all in the first round.
struct Rounds {
  const AttendOp& op;
  const Jobs& jobs;
  int64_t task_cost;
  int64_t round_segments;
  Folds parts;  // for all split jobs in a round
  Task* tasks;  // the tasks of the current round

  int64_t Plan(int64_t round) const {
    int64_t count = 0;
    int64_t used = 0;  // number of vectors in `parts` that are used
    // The last jobs of a span see the most slots. They are the first tasks, so that no long task is
    // left at the end.
    for (const Job* job = jobs.data + jobs.count - 1; job >= jobs.data; --job) {
      SplitJob* split = job->split;
      if (split == nullptr) {
        if (round == 0) tasks[count++] = {job, job->fold.begin, job->fold.end};
        continue;
      }
      split->begin = std::min(job->fold.end, job->fold.begin + round * round_segments);
      split->end = std::min(job->fold.end, split->begin + round_segments);
      split->left.store(split->end - split->begin, std::memory_order_relaxed);
      split->parts = {parts.states + used, parts.sums + used * op.FoldStride()};
      used += (split->end - split->begin) * job->fold.count;
      const int64_t segment_cost = job->cost / (job->fold.end - job->fold.begin) + 1;
      const int64_t step = std::max<int64_t>(1, task_cost / segment_cost);
      for (int64_t at = split->begin; at < split->end; at += step) {
        tasks[count++] = {job, at, std::min(split->end, at + step)};
      }
    }
    return count;
  }
};

// Returns an upper bound of the number of tasks in a round.
int64_t MostTasks(const Jobs& jobs, int64_t task_cost) {
  return jobs.count + 3 * jobs.cost / task_cost;
}

}  // namespace

void AttendRows(const CpuContext& context, const AttendCall& call, const ActivationBuffer& out,
                Arena* arena) {
  const int64_t rows = call.q.rows;
  int64_t covered = 0;
  for (const KvSpan& span : call.spans) covered += span.rows;
  const bool quantises =
      out.quants != nullptr && call.layer.v_dim % kQuantBlock == 0 && covered == rows;
  const AttendOp op{context, call.q,    call.heads,    call.scale, call.layer,
                    out,     quantises, call.soft_cap, call.sinks, call.gate};
  if (covered < rows) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(out.values.Row(i), out.values.cols, 0.0f);
  }
  const size_t mark = arena->used();
  const int threads = context.pool->threads();
  const size_t bound = AttendScratchBytes(call, threads);
  arena->Reserve(bound);
  Jobs jobs = MakeJobs(op, call.spans, arena);
  const int64_t task_cost = std::max<int64_t>(1, jobs.cost / (kAttendTasksPerThread * threads));
  SplitLongJobs(op, task_cost, &jobs, arena);

  FoldScratch* scratch = arena->Allocate<FoldScratch>(threads);
  for (int t = 0; t < threads; ++t) scratch[t] = AllocateFoldScratch(op, arena);
  const int64_t capacity = kAttendPartsPerThread * threads;
  const bool splits = jobs.split_vectors > 0;
  const Rounds rounds = {op,
                         jobs,
                         task_cost,
                         splits ? capacity / jobs.split_vectors : 0,
                         AllocateFolds(op, capacity, arena),
                         arena->Allocate<Task>(MostTasks(jobs, task_cost))};
  CHECK_LE(arena->used() - mark, bound);
  int64_t longest = 0;  // the longest of the split jobs, in segments
  for (const Job* job = jobs.data; job != jobs.data + jobs.count; ++job) {
    if (job->split != nullptr) longest = std::max(longest, job->fold.end - job->fold.begin);
  }
  int64_t round = 0;
  do {
    const int64_t tasks = rounds.Plan(round);
    const int64_t grain = jobs.cost <= kMinShared ? std::max<int64_t>(1, tasks) : 1;
    context.pool->ParallelFor(tasks, grain, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t at = begin; at < end; ++at) RunTask(op, rounds.tasks[at], scratch[worker]);
    });
    ++round;
  } while (round * rounds.round_segments < longest);
  arena->ResetTo(mark);
  if (!quantises) QuantizeRows(context, out.values, out);
}

}  // namespace tidepool::kernels
