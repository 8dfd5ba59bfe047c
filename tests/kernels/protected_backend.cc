#include "tests/kernels/protected_backend.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/counting_backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/panel.h"
#include "tests/kernels/op_arguments.h"
#include "tests/kernels/protected_copies.h"
#include "tests/kernels/protected_memory.h"

namespace tidepool::kernels {
namespace {

// Limit for the bytes of all queued copies together.
constexpr size_t kMaxQueuedBytes = size_t{64} << 20;

// Copies the data of an Activation to another one of the same shape.
void CopyActivation(const Activation& from, const Activation& to) {
  const auto copy = [](const auto* source, const auto* target, int64_t count) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(target)>>;
    if (source != nullptr && source != target) std::copy_n(source, count, const_cast<T*>(target));
  };
  const int64_t rows = to.values.rows;
  const int64_t blocks = rows * (to.values.cols / kQuantBlock);
  for (int64_t i = 0; i < rows; ++i) copy(from.values.Row(i), to.values.Row(i), to.values.cols);
  copy(from.quants, to.quants, rows * to.values.cols);
  copy(from.scales, to.scales, blocks);
  copy(from.sums, to.sums, blocks);
  copy(from.half_sums, to.half_sums, 2 * blocks);
}

// Large because each op is a method.
class ProtectedBackend final : public KernelBackend {
 public:
  ProtectedBackend(const ProtectedOptions& options, std::unique_ptr<KernelBackend> cpu)
      : memory_(options.memory_bytes),
        copies_({options.seed, options.pinned_bytes, options.failing_copy}),
        cpu_(std::move(cpu)),
        counting_(MakeCountingBackend(options.precision, options.threads)),
        failing_op_(options.failing_op),
        random_(options.seed) {}
  ~ProtectedBackend() override { RunAll(); }

  std::string Description() const override { return "protected " + cpu_->Description(); }
  Precision precision() const override { return cpu_->precision(); }
  int threads() const override { return cpu_->threads(); }
  Memory* memory() override { return &memory_; }

  void CopyIn(absl::Span<const std::byte> from, std::byte* to) override {
    UseArray(to, from.size());
    queued_bytes_ += from.size();
    Queue([bytes = ListOf(from), to](KernelBackend& cpu) { cpu.CopyIn(bytes, to); });
  }
  absl::Status CopyOut(const std::byte* from, absl::Span<std::byte> to) override {
    UseArray(from, to.size());
    memory_.WhileOpen([&] {
      RunOpen(queue_.size());
      if (error_.ok()) error_ = cpu_->CopyOut(from, to);
    });
    AfterAll();
    return error_;
  }
  void CopyWithin(const std::byte* from, std::byte* to, size_t bytes) override {
    UseArray(from, bytes);
    UseArray(to, bytes);
    Queue([=](KernelBackend& cpu) { cpu.CopyWithin(from, to, bytes); });
  }
  absl::Status Sync() override {
    RunAll();
    return error_;
  }

  absl::Status PinHost(absl::Span<std::byte> memory) override { return copies_.Pin(memory); }
  void UnpinHost(absl::Span<std::byte> memory) override {
    if (!error_.ok()) copies_.DropAll();
    copies_.Unpin(memory);
  }
  OpMark MarkOps() override { return next_op_ + static_cast<int64_t>(queue_.size()); }
  CopyTicket BeginCopyIn(absl::Span<const std::byte> from, std::byte* to, OpMark after) override {
    CHECK(memory_.Owns(to, from.size())) << "the target of a copy is not in the backend's memory";
    CHECK(after >= 0 && after <= MarkOps()) << "mark " << after << " was not made";
    return copies_.Begin(from, to, after);
  }
  void AwaitCopy(CopyTicket copy) override {
    copies_.Await(copy);
    Queue([this, copy](KernelBackend&) { error_ = copies_.Run(copy); });
  }
  absl::StatusOr<std::optional<absl::Duration>> CopyTime(CopyTicket copy) override {
    if (!copies_.HasRun(copy) && copies_.AskedOften(copy)) EndCopy(copy);
    if (!error_.ok()) return error_;
    if (!copies_.HasRun(copy)) return std::nullopt;
    return copies_.TakeTime(copy);
  }

  void Zero(MatrixView out) override {
    Use(out);
    Queue([=](KernelBackend& cpu) { cpu.Zero(out); });
  }
  void GatherRows(ConstMatrixView x, absl::Span<const int64_t> rows, MatrixView out) override {
    Use(x, out);
    Queue([x, list = ListOf(rows), out](KernelBackend& cpu) { cpu.GatherRows(x, list, out); });
  }
  void CopyHeads(const HeadCopy& copy, ConstMatrixView from, MatrixView to) override {
    Use(from, to);
    Queue([=](KernelBackend& cpu) { cpu.CopyHeads(copy, from, to); });
  }
  void ScanRows(ConstMatrixView x, float limit, RowScan* out) override {
    Use(x);
    UseArray(out, x.rows);
    Queue([=](KernelBackend& cpu) { cpu.ScanRows(x, limit, out); });
  }
  void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) override {
    Use(table, out);
    Queue([table, list = ListOf(ids), out](KernelBackend& cpu) { cpu.Embed(table, list, out); });
  }
  Activation Quantize(ConstMatrixView x, Arena* arena) override {
    Use(x);
    return QueueActivation(
        [=](KernelBackend& backend, Arena* scratch) { return backend.Quantize(x, scratch); },
        arena);
  }
  Activation QuantizeInTwo(const Activation& x, Arena* arena) override {
    Use(x);
    return QueueActivation(
        [=](KernelBackend& backend, Arena* scratch) { return backend.QuantizeInTwo(x, scratch); },
        arena);
  }
  Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                  Arena* arena) override {
    Use(x, weight);
    return QueueActivation([=](KernelBackend& backend,
                               Arena* scratch) { return backend.Norm(x, weight, eps, scratch); },
                           arena);
  }
  void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) override {
    Use(x, weight);
    Queue([=](KernelBackend& cpu) { cpu.HeadNorm(x, weight, eps); });
  }
  void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) override {
    Use(x);
    for (const MatMulTarget& target : targets) Use(target.weight, target.out, target.bias);
    Queue([x, list = ListOf(targets)](KernelBackend& cpu) { cpu.MatMul(x, list); });
  }
  void MatMulHead(const Activation& x, const HeadTarget& target, Arena* arena) override {
    Use(x, target.weight, target.bias, target.out);
    UseArray(target.argmax.data(), static_cast<int64_t>(target.argmax.size()));
    QueueWithScratch(
        [=](KernelBackend& backend, Arena* scratch) { backend.MatMulHead(x, target, scratch); },
        arena);
  }
  void MatMulHeads(const Activation& x, absl::Span<const PackedMatrix> weights,
                   MatrixView out) override {
    Use(x, out);
    for (const PackedMatrix& weight : weights) Use(weight);
    Queue([x, list = ListOf(weights), out](KernelBackend& cpu) { cpu.MatMulHeads(x, list, out); });
  }
  Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) override {
    Use(x, ffn.gate, ffn.up, ffn.gate_bias, ffn.up_bias);
    return QueueActivation(
        [=](KernelBackend& backend, Arena* scratch) { return backend.MatMulGlu(x, ffn, scratch); },
        arena);
  }
  void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                 float scale, MatrixView cos, MatrixView sin) override {
    Use(cos, sin);
    Queue([at = ListOf(positions), frequencies = ListOf(inv_freq), scale, cos,
           sin](KernelBackend& cpu) { cpu.RopeTable(at, frequencies, scale, cos, sin); });
  }
  void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
            ConstMatrixView sin) override {
    // The view may end after the memory of the last row, because the ends of heads are not rotated.
    // So only the first element is checked.
    UseArray(x.data, x.rows == 0 ? 0 : 1);
    Use(cos, sin);
    Queue([=](KernelBackend& cpu) { cpu.Rope(x, head_dim, style, cos, sin); });
  }
  void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
               absl::Span<const KvSpan> spans) override {
    Use(k, v);
    UseArray(layer.arena, layer.block_bytes);
    const auto list = std::make_shared<const KvSpanCopies>(spans);
    Queue([=](KernelBackend& cpu) { cpu.StoreKv(k, v, layer, list->spans()); });
  }
  Activation Attend(const AttendCall& call, Arena* arena) override {
    Use(call.q, call.sinks, call.gate);
    UseArray(call.layer.arena, call.layer.block_bytes);
    const auto list = std::make_shared<const KvSpanCopies>(call.spans);
    return QueueActivation(
        [call, layer = call.layer, list](KernelBackend& backend, Arena* scratch) {
          return backend.Attend({call.q, call.heads, call.scale, layer, list->spans(),
                                 call.soft_cap, call.sinks, call.gate},
                                scratch);
        },
        arena);
  }
  void CausalConv(const CausalConvCall& call) override {
    Use(call.x, call.weight, call.bias, call.in_gate, call.out_gate);
    UseArray(call.state.arena, call.state.block_bytes);
    const auto list = std::make_shared<const StateSpanCopies>(call.spans);
    Queue([call, state = call.state, list](KernelBackend& cpu) {
      cpu.CausalConv({call.x, call.weight, call.bias, call.kernel, call.activation, call.in_gate,
                      call.out_gate, state, list->spans()});
    });
  }
  void DeltaNet(const DeltaNetCall& call) override {
    Use(call.q, call.k, call.v, call.a, call.b, call.decay, call.dt_bias, call.out);
    UseArray(call.state.arena, call.state.block_bytes);
    const auto list = std::make_shared<const StateSpanCopies>(call.spans);
    Queue([call, state = call.state, list](KernelBackend& cpu) {
      cpu.DeltaNet({call.q, call.k, call.v, call.a, call.b, call.decay, call.dt_bias, call.k_heads,
                    call.v_heads, call.order, call.norm_eps, call.scale, state, list->spans(),
                    call.out});
    });
  }
  Activation GatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight,
                       float eps, Arena* arena) override {
    Use(x, z, weight);
    return QueueActivation(
        [=](KernelBackend& backend, Arena* scratch) {
          return backend.GatedNorm(x, z, weight, eps, scratch);
        },
        arena);
  }
  void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) override {
    Use(logits, spec.selection_bias);
    UseArray(ids, logits.rows * spec.top_k);
    UseArray(weights, logits.rows * spec.top_k);
    Queue([=](KernelBackend& cpu) { cpu.Gate(logits, spec, ids, weights); });
  }
  void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                  Arena* arena) override {
    Use(x, out);
    for (const ExpertGroup& group : groups) {
      const FfnWeights& ffn = *group.weights;
      Use(ffn.gate, ffn.up, ffn.down, ffn.gate_bias, ffn.up_bias, ffn.down_bias);
    }
    const auto list = std::make_shared<const ExpertGroupCopies>(groups);
    QueueWithScratch([=](KernelBackend& backend,
                         Arena* scratch) { backend.GroupedFfn(x, list->groups(), out, scratch); },
                     arena);
  }
  void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                      const float* weights, MatrixView out) override {
    Use(expert_out, out);
    const auto count = static_cast<size_t>(out.rows * slots);
    Queue([expert_out, slots, from = std::vector<int32_t>(rows, rows + count),
           by = std::vector<float>(weights, weights + count), out](KernelBackend& cpu) {
      cpu.CombineExperts(expert_out, slots, from.data(), by.data(), out);
    });
  }
  void AccumulateExpert(ConstMatrixView expert_out, const ExpertTerms& terms,
                        MatrixView sum) override {
    Use(expert_out, sum);
    Queue([expert_out, rows = ListOf(terms.rows), tokens = ListOf(terms.tokens),
           weights = ListOf(terms.weights), sum](KernelBackend& cpu) {
      cpu.AccumulateExpert(expert_out, {rows, tokens, weights}, sum);
    });
  }
  void Add(ConstMatrixView x, MatrixView out) override {
    Use(x, out);
    Queue([=](KernelBackend& cpu) { cpu.Add(x, out); });
  }
  void AddScaled(ConstMatrixView x, float scale, MatrixView out) override {
    Use(x, out);
    Queue([=](KernelBackend& cpu) { cpu.AddScaled(x, scale, out); });
  }
  void Scale(MatrixView x, float scale) override {
    Use(x);
    Queue([=](KernelBackend& cpu) { cpu.Scale(x, scale); });
  }
  void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) override {
    Use(x, gate, out);
    Queue([=](KernelBackend& cpu) { cpu.AddGated(x, gate, out); });
  }

 private:
  // Checks that operands are in this backend's memory. Ops without rows need no memory.
  template <typename T>
  void UseArray(const T* data, int64_t count) const {
    if (count == 0) return;
    CHECK(memory_.Owns(data, count * sizeof(T))) << "an operand is not in the backend's memory";
    copies_.CheckAwaited(data, count * sizeof(T));
  }
  void Use(ConstMatrixView x) const {
    if (x.data == nullptr || x.rows == 0 || x.cols == 0) return;
    UseArray(x.data, (x.rows - 1) * x.stride + x.cols);
  }
  void Use(absl::Span<const float> x) const { UseArray(x.data(), static_cast<int64_t>(x.size())); }
  void Use(const PackedMatrix& x) const {
    UseArray(x.data, static_cast<int64_t>(PackedBytes(x.dtype, x.rows, x.cols)));
  }
  void Use(const Activation& x) const {
    Use(x.values);
    if (x.quants == nullptr) return;
    const int64_t elements = x.values.rows * x.values.cols;
    UseArray(x.quants, elements);
    UseArray(x.scales, elements / kQuantBlock);
    UseArray(x.sums, elements / kQuantBlock);
    UseArray(x.half_sums, 2 * elements / kQuantBlock);
  }
  template <typename A, typename B, typename... More>
  void Use(const A& first, const B& second, const More&... more) const {
    Use(first);
    Use(second);
    (Use(more), ...);
  }

  using Op = std::function<void(KernelBackend& cpu)>;
  void Queue(Op op) {
    queue_.push_back(std::move(op));
    if (queued_bytes_ > kMaxQueuedBytes) RunAll();
    if (random_() % 32 == 0) Run(random_() % (queue_.size() + 1));
    if (copies_.all_have_run() || random_() % 16 != 0) return;
    EndCopy(copies_.PickRandom());
  }
  // Queues `op`, which needs scratch memory. The caller's arena must have room for this memory.
  template <typename ScratchOp>
  void QueueWithScratch(ScratchOp op, Arena* arena) {
    op(*counting_, arena);
    Arena measured = Arena::Counting();
    op(*counting_, &measured);
    Queue([op, bytes = measured.high_water()](KernelBackend& cpu) {
      Arena scratch(bytes);
      op(cpu, &scratch);
    });
  }
  // The counting backend allocates the result, and the op computes it in scratch memory.
  template <typename ActivationOp>
  Activation QueueActivation(ActivationOp op, Arena* arena) {
    const Activation result = op(*counting_, arena);
    Arena measured = Arena::Counting();
    op(*counting_, &measured);
    Queue([op, result, bytes = measured.high_water()](KernelBackend& cpu) {
      Arena scratch(bytes);
      CopyActivation(op(cpu, &scratch), result);
    });
    return result;
  }

  void RunAll() {
    Run(queue_.size());
    AfterAll();
  }
  // Requires: the queue is empty.
  void AfterAll() {
    queued_bytes_ = 0;
    // Freed memory may be the target of a copy.
    if (copies_.all_have_run()) memory_.Release();
  }
  // Runs a copy, after the ops that come before it.
  void EndCopy(CopyTicket copy) {
    Run(static_cast<size_t>(std::max<int64_t>(0, copies_.OpsBefore(copy) - next_op_)));
    if (!error_.ok()) return;
    memory_.WhileOpen([&] { error_ = copies_.Run(copy); });
  }
  // Runs the first `count` ops of the queue.
  void Run(size_t count) {
    if (count > 0) memory_.WhileOpen([&] { RunOpen(count); });
  }
  // Does the same as Run. Requires: the memory is open.
  void RunOpen(size_t count) {
    for (; count > 0; --count, queue_.pop_front()) {
      if (next_op_++ == failing_op_) {
        error_ = absl::InternalError(absl::StrCat("op ", failing_op_, " of the device failed"));
      }
      if (error_.ok()) queue_.front()(*cpu_);
    }
  }

  ProtectedMemory memory_;
  ProtectedCopies copies_;
  const std::unique_ptr<KernelBackend> cpu_;
  const std::unique_ptr<KernelBackend> counting_;
  const int64_t failing_op_;
  std::mt19937_64 random_;
  std::deque<Op> queue_;
  size_t queued_bytes_ = 0;  // of the copies in the queue
  int64_t next_op_ = 0;      // index of the first op in the queue
  absl::Status error_;
};

}  // namespace

std::unique_ptr<KernelBackend> MakeProtectedBackend(const ProtectedOptions& options) {
  auto cpu = MakeCpuBackend({.threads = options.threads, .precision = options.precision});
  CHECK(cpu.ok()) << cpu.status();
  return std::make_unique<ProtectedBackend>(options, *std::move(cpu));
}

}  // namespace tidepool::kernels
