// DeviceExperts above TieredExperts, with a protected backend as the device, records in memory, and
// reads and copies that end in random order.
#ifndef TIDEPOOL_TESTS_MOE_DEVICE_DEVICE_RIG_H_
#define TIDEPOOL_TESTS_MOE_DEVICE_DEVICE_RIG_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/counting_backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"
#include "moe/device/device_experts.h"
#include "moe/expert_scheduler.h"
#include "moe/resident_experts.h"
#include "moe/tiered_experts.h"
#include "tests/kernels/protected_backend.h"
#include "tests/moe/manual_reader.h"
#include "tests/moe/puppet_reader.h"

namespace tidepool::moe {

inline constexpr int kLayers = 3;
inline constexpr int kExperts = 12;
inline constexpr int kTopK = 4;
inline constexpr int kStaging = 4;
inline constexpr int64_t kHidden = 64;
inline constexpr int64_t kWidth = 32;
inline constexpr int64_t kAll = int64_t{kLayers} * kExperts;

// Random experts of type Q8_0, as a file of records and as weights in memory.
class RandomExperts {
 public:
  RandomExperts() : memory_(kAll * kRecordBytes) {
    std::mt19937 random(5);
    records_.path = "model.tidepack";
    bytes_.resize(kAll * kRecordBytes);
    int64_t offset = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      auto& row = records_.layers.emplace_back();
      auto& weights = layers_.emplace_back();
      for (int expert = 0; expert < kExperts; ++expert, offset += kRecordBytes) {
        const ExpertLayout layout(
            {Shape(kWidth, kHidden), Shape(kWidth, kHidden), Shape(kHidden, kWidth)});
        CHECK_EQ(layout.bytes(), kRecordBytes);
        std::byte* const record = memory_.data() + offset;
        std::memset(record, 0, kRecordBytes);
        weights.push_back(layout.At(record));
        for (const kernels::PackedMatrix& matrix :
             {weights.back().gate, weights.back().up, weights.back().down}) {
          Fill(matrix, &random);
        }
        std::memcpy(bytes_.data() + offset, record, kRecordBytes);
        row.push_back({layout, offset, RecordHash(record, kRecordBytes)});
      }
    }
  }

  static constexpr int64_t kRecordBytes = 8192;
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const ExpertRecords& records() const { return records_; }
  const std::vector<std::vector<kernels::FfnWeights>>& layers() const { return layers_; }
  const std::byte* record(int layer, int32_t expert) const {
    return memory_.data() + records_.layers[layer][expert].offset;
  }

 private:
  static kernels::PackedMatrix Shape(int64_t rows, int64_t cols) {
    return {kernels::DType::kQ8_0, rows, cols, nullptr};
  }
  // Small scales, so that no result is infinite.
  static void Fill(const kernels::PackedMatrix& matrix, std::mt19937* random) {
    constexpr int64_t kBlockBytes = 34;
    std::vector<std::byte> blocks(matrix.rows * matrix.cols / 32 * kBlockBytes);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>((*random)());
    for (size_t at = 0; at < blocks.size(); at += kBlockBytes) {
      const auto scale = static_cast<uint16_t>(0x1400 + (*random)() % 0x800);
      std::memcpy(&blocks[at], &scale, sizeof(scale));
    }
    Pack(matrix.dtype, matrix.rows, matrix.cols, blocks.data(),
         const_cast<std::byte*>(matrix.data));
  }

  kernels::Buffer memory_;
  std::vector<std::byte> bytes_;
  ExpertRecords records_;
  std::vector<std::vector<kernels::FfnWeights>> layers_;
};

// Some tokens and their routing: random distinct experts, with descending weights.
struct Tokens {
  Tokens(int64_t count, std::mt19937* random) : x(count * kHidden) {
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(*random);
    std::vector<int32_t> all(kExperts);
    for (int e = 0; e < kExperts; ++e) all[e] = e;
    for (int64_t t = 0; t < count; ++t) {
      std::shuffle(all.begin(), all.end(), *random);
      ids.insert(ids.end(), all.begin(), all.begin() + kTopK);
      for (int s = 0; s < kTopK; ++s) weights.push_back(1.0f / static_cast<float>(s + 2));
      requests.push_back(t);
      phases.push_back(count > 4 ? Phase::kPrefill : Phase::kDecode);
    }
  }

  int64_t count() const { return static_cast<int64_t>(x.size()) / kHidden; }
  Routing InLayer(int64_t step, int layer) const {
    return {.moe_layer = layer,
            .top_k = kTopK,
            .ids = ids.data(),
            .weights = weights.data(),
            .step = step,
            .phases = phases,
            .requests = requests,
            .host_x = {x.data(), count(), kHidden}};
  }

  std::vector<float> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<int64_t> requests;
  std::vector<Phase> phases;
};

struct RigOptions {
  int64_t slots = 9;
  int staging = kStaging;
  int64_t host_slots = kAll;
  int host_staging = kStaging;
  PolicyKind policy = PolicyKind::kLru;
  Prefetch prefetch = Prefetch::kOn;
  int64_t chunk_bytes = 3 * RandomExperts::kRecordBytes;
  int seed = 1;
  kernels::ProtectedOptions device = {};  // the rig sets the seed
};

class DeviceRig {
 public:
  DeviceRig(const RandomExperts& model, RigOptions options) : model_(model) {
    options.device.seed = options.seed;
    device = kernels::MakeProtectedBackend(options.device);
    cpu = *kernels::MakeCpuBackend({.threads = 1});
    auto reader = std::make_unique<PuppetReader>(&model.bytes(), options.seed);
    puppet = reader.get();
    auto host = TieredExperts::Create(model.records(), std::move(reader),
                                      {.top_k = kTopK,
                                       .slots = options.host_slots,
                                       .staging = options.host_staging,
                                       .policy = {.kind = options.policy, .refresh_interval = 3},
                                       .prefetch = options.prefetch,
                                       .layer_numbers = {1, 2, 5},
                                       .pin = device.get()});
    CHECK_OK(host.status());
    auto created = DeviceExperts::Create(device.get(), *std::move(host),
                                         {.top_k = kTopK,
                                          .slots = options.slots,
                                          .staging = options.staging,
                                          .policy = {.kind = options.policy, .refresh_interval = 3},
                                          .prefetch = options.prefetch,
                                          .layer_numbers = {1, 2, 5},
                                          .chunk_bytes = options.chunk_bytes,
                                          .clock = &clock});
    CHECK_OK(created.status());
    experts = *std::move(created);
  }

  // From now on, the CPU is so fast or so slow that it computes all misses, or none.
  void MakeCpuFast() const {
    for (int i = 0; i < 200; ++i) {
      experts->NoteHostWork({kMuch, kMuch, absl::Nanoseconds(1)});
    }
  }
  void MakeCpuSlow() const { experts->NoteHostWork({kMuch, kMuch, absl::Hours(24 * 365)}); }

  // Returns whether the expert's memory has the right bytes. Waits for the copy of the expert, if
  // there is one.
  bool Matches(int layer, const ReadyExpert& ready) const {
    std::vector<std::byte> bytes(RandomExperts::kRecordBytes);
    const std::byte* const from = ready.weights->gate.data;
    if (ready.place == Place::kHost) {
      std::memcpy(bytes.data(), from, bytes.size());
    } else {
      CHECK_OK(device->CopyOut(from, absl::MakeSpan(bytes)));
    }
    return std::memcmp(bytes.data(), model_.record(layer, ready.expert), bytes.size()) == 0;
  }

  // Takes and checks experts until the source returns none. Releases the experts of each call
  // before the next call, like an ExpertScheduler.
  absl::StatusOr<std::vector<ReadyExpert>> Drain(int layer) const {
    std::vector<ReadyExpert> all;
    while (true) {
      const auto wave = experts->NextReady(Patience::kUntilOne);
      if (!wave.ok()) return wave.status();
      if (wave->empty()) return all;
      for (const ReadyExpert& ready : *wave) {
        EXPECT_TRUE(Matches(layer, ready)) << "layer " << layer << " expert " << ready.expert;
        all.push_back(ready);
      }
      for (const ReadyExpert& ready : *wave) experts->Release(ready.expert);
      CheckMemory();
    }
  }

  // Requests one token's experts, which must stay valid, and drains them.
  absl::StatusOr<std::vector<ReadyExpert>> Use(int layer, const std::vector<int32_t>& ids,
                                               HostLane lane = HostLane::kOn) const {
    experts->Request({.layer = layer, .tokens = 1, .ids = ids, .host_lane = lane}, ids);
    return Drain(layer);
  }

  void CheckMemory() const {
    const OffloadStats stats = *experts->Stats();
    EXPECT_LE(stats.resident_bytes, stats.capacity_bytes);
    EXPECT_LE(stats.host->resident_bytes, stats.host->capacity_bytes);
  }

  // Computes a layer. Returns its output plus one.
  absl::StatusOr<std::vector<float>> Run(const Tokens& tokens, int64_t step, int layer,
                                         const SchedulerMemory& memory = {}) {
    ExpertScheduler scheduler(device.get(), experts.get(), cpu.get(), memory, &clock);
    return RunOn(tokens, tokens.InLayer(step, layer), device.get(), &scheduler);
  }
  // Computes the same layer with all experts in memory, on the CPU.
  std::vector<float> Expected(const Tokens& tokens, int layer, const SchedulerMemory& memory = {}) {
    ResidentExperts resident(model_.layers());
    ExpertScheduler scheduler(cpu.get(), &resident, nullptr, memory);
    return *RunOn(tokens, tokens.InLayer(0, layer), cpu.get(), &scheduler);
  }

  // Computes a layer with any backend and source. Returns its output plus one.
  absl::StatusOr<std::vector<float>> RunOn(const Tokens& tokens, const Routing& routing,
                                           kernels::KernelBackend* backend,
                                           ExpertScheduler* scheduler) {
    const auto counting = kernels::MakeCountingBackend(backend->precision(), backend->threads());
    kernels::Arena measured = kernels::Arena::Counting();
    scheduler->Measure({.tokens = tokens.count(),
                        .top_k = kTopK,
                        .hidden = kHidden,
                        .expert = &model_.layers()[0][0]},
                       counting.get(), &measured);
    kernels::Arena inputs(1 << 20, backend->memory());
    kernels::Arena arena(measured.high_water(), backend->memory());
    const kernels::MatrixView values = inputs.AllocateMatrix(tokens.count(), kHidden);
    const kernels::MatrixView out = inputs.AllocateMatrix(tokens.count(), kHidden);
    std::vector<float> result(tokens.x.size(), 1.0f);
    backend->CopyIn(BytesOf(tokens.x), reinterpret_cast<std::byte*>(values.data));
    backend->CopyIn(BytesOf(result), reinterpret_cast<std::byte*>(out.data));
    const absl::Status run =
        scheduler->Run(routing, backend->Quantize(values, &inputs), out, &arena);
    const absl::Status copied = backend->CopyOut(
        reinterpret_cast<const std::byte*>(out.data),
        {reinterpret_cast<std::byte*>(result.data()), result.size() * sizeof(float)});
    if (!run.ok()) return run;
    if (!copied.ok()) return copied;
    return result;
  }

  SteppingClock clock{absl::Microseconds(1)};
  std::unique_ptr<kernels::KernelBackend> device;
  std::unique_ptr<kernels::KernelBackend> cpu;
  PuppetReader* puppet = nullptr;
  std::unique_ptr<DeviceExperts> experts;

 private:
  static constexpr int64_t kMuch = int64_t{1} << 40;

  static absl::Span<const std::byte> BytesOf(const std::vector<float>& values) {
    return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
  }

  const RandomExperts& model_;
};

// Returns the experts of a kind, in ascending order.
inline std::vector<int32_t> Where(const std::vector<ReadyExpert>& all, Place place, Found found) {
  std::vector<int32_t> ids;
  for (const ReadyExpert& ready : all) {
    if (ready.place == place && ready.found == found) ids.push_back(ready.expert);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_DEVICE_DEVICE_RIG_H_
