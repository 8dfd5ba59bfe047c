// TieredExperts with records in memory, reads that end in random order, and random routings.
#ifndef TIDEPOOL_TESTS_MOE_TIERED_RIG_H_
#define TIDEPOOL_TESTS_MOE_TIERED_RIG_H_

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
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/tiered_experts.h"
#include "tests/moe/puppet_reader.h"

namespace tidepool::moe {

inline constexpr int kLayers = 3;
inline constexpr int kExperts = 12;
inline constexpr int kTopK = 4;
inline constexpr int kStaging = 3;
inline constexpr int64_t kRows = 16;
inline constexpr int64_t kAll = int64_t{kLayers} * kExperts;

// Records of random bytes, one after the other.
class Master {
 public:
  Master() : Master(kRows) {}
  // `last_rows`: the number of rows of experts in the last layer.
  explicit Master(int64_t last_rows) {
    std::mt19937 random(5);
    records_.path = "model.tidepack";
    int64_t offset = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      const int64_t rows = layer + 1 < kLayers ? kRows : last_rows;
      const kernels::PackedMatrix matrix = {kernels::DType::kF32, rows, kRows, nullptr};
      const ExpertLayout layout({matrix, matrix, matrix});
      auto& row = records_.layers.emplace_back();
      bytes_.resize(offset + kExperts * layout.bytes());
      for (int expert = 0; expert < kExperts; ++expert, offset += layout.bytes()) {
        std::byte* const record = bytes_.data() + offset;
        std::generate_n(record, layout.bytes(), [&] { return static_cast<std::byte>(random()); });
        row.push_back({layout, offset, RecordHash(record, layout.bytes())});
      }
    }
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  const ExpertRecords& records() const { return records_; }

  bool Matches(int layer, const ReadyExpert& ready) const {
    const ExpertRecord& record = records_.layers[layer][ready.expert];
    const kernels::FfnWeights expected = record.layout.At(bytes_.data() + record.offset);
    const size_t bytes = PackedBytes(kernels::DType::kF32, expected.gate.rows, kRows);
    return std::memcmp(ready.weights->gate.data, expected.gate.data, bytes) == 0 &&
           std::memcmp(ready.weights->up.data, expected.up.data, bytes) == 0 &&
           std::memcmp(ready.weights->down.data, expected.down.data, bytes) == 0;
  }

 private:
  std::vector<std::byte> bytes_;
  ExpertRecords records_;
};

// Random routings of a few tokens.
class Routings {
 public:
  explicit Routings(int seed) : random_(seed) {}

  // Valid until the next call.
  LayerRouting Next(int64_t step, int layer) {
    const int64_t tokens = 1 + (random_() % 8 == 0 ? random_() % 20 : 0);
    ids_.clear();
    std::vector<int32_t> all(kExperts);
    for (int e = 0; e < kExperts; ++e) all[e] = e;
    for (int64_t t = 0; t < tokens; ++t) {
      std::shuffle(all.begin(), all.end(), random_);
      ids_.insert(ids_.end(), all.begin(), all.begin() + kTopK);
    }
    return {.step = step, .layer = layer, .tokens = tokens, .ids = ids_};
  }

  std::vector<int32_t> Distinct() const {
    std::vector<int32_t> ids = ids_;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  std::vector<int32_t> Guess() {
    std::vector<int32_t> ids(4);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % kExperts);
    return ids;
  }

 private:
  std::mt19937 random_;
  std::vector<int32_t> ids_;
};

struct Rig {
  Rig(const Master& master, PolicyKind policy, int64_t slots, int seed,
      Prefetch prefetch = Prefetch::kOn)
      : Rig(master,
            {.slots = slots,
             .policy = {.kind = policy, .refresh_interval = 3},
             .prefetch = prefetch},
            seed) {}
  // With the caller's options, except for those that the records determine.
  Rig(const Master& master, TieredOptions options, int seed) {
    auto reader = std::make_unique<PuppetReader>(&master.bytes(), seed);
    puppet = reader.get();
    options.top_k = kTopK;
    options.staging = kStaging;
    options.layer_numbers = {1, 2, 5};
    auto created = TieredExperts::Create(master.records(), std::move(reader), std::move(options));
    CHECK_OK(created.status());
    experts = *std::move(created);
  }

  PuppetReader* puppet;
  std::unique_ptr<TieredExperts> experts;
};

// Takes all experts that a layer requested, and checks their bytes. Returns the first error.
inline absl::Status Drain(const Master& master, int layer, const std::vector<int32_t>& expected,
                          TieredExperts* experts) {
  std::vector<int32_t> given;
  while (true) {
    const auto wave = experts->NextReady(Patience::kUntilOne);
    if (!wave.ok()) return wave.status();
    if (wave->empty()) break;
    for (const ReadyExpert& ready : *wave) {
      EXPECT_TRUE(master.Matches(layer, ready)) << "layer " << layer << " expert " << ready.expert;
      given.push_back(ready.expert);
    }
    for (const ReadyExpert& ready : *wave) experts->Release(ready.expert);
    const OffloadStats stats = *experts->Stats();
    EXPECT_LE(stats.resident_bytes, stats.capacity_bytes);
  }
  std::sort(given.begin(), given.end());
  EXPECT_EQ(given, expected);
  return absl::OkStatus();
}

// Like Drain, but uses experts in ascending order only and holds experts that come before their
// turn. Returns the number of experts that it had to postpone.
inline absl::StatusOr<int> DrainInOrder(const Master& master, int layer,
                                        const std::vector<int32_t>& expected,
                                        TieredExperts* experts) {
  std::map<int32_t, ReadyExpert> held;
  int postponed = 0;
  for (size_t next = 0; next < expected.size();) {
    const auto wave = experts->NextReady(Patience::kUntilOne);
    if (!wave.ok()) return wave.status();
    for (const ReadyExpert& ready : *wave) CHECK(held.emplace(ready.expert, ready).second);
    if (wave->empty()) {
      auto last = held.rbegin();
      while (last != held.rend() && !last->second.leaves) ++last;
      CHECK(last != held.rend()) << "nothing that leaves, and no memory";
      const int32_t expert = last->first;
      experts->Postpone(expert);
      held.erase(expert);
      ++postponed;
    }
    for (; next < expected.size() && held.count(expected[next]) > 0; ++next) {
      EXPECT_TRUE(master.Matches(layer, held[expected[next]])) << "expert " << expected[next];
      experts->Release(expected[next]);
      held.erase(expected[next]);
    }
    const OffloadStats stats = *experts->Stats();
    EXPECT_LE(stats.resident_bytes, stats.capacity_bytes);
  }
  EXPECT_TRUE(experts->NextReady(Patience::kUntilOne)->empty());
  return postponed;
}

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_TIERED_RIG_H_
