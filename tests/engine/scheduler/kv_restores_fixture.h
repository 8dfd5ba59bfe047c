// A scheduler with a cache and a fake disk that blocks, fails or is damaged as the test requires.
#ifndef TIDEPOOL_TESTS_ENGINE_SCHEDULER_KV_RESTORES_FIXTURE_H_
#define TIDEPOOL_TESTS_ENGINE_SCHEDULER_KV_RESTORES_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/scheduler/kv_restores.h"
#include "tests/engine/kv/kv_disk_fixture.h"
#include "tests/engine/scheduler/scheduler_fixture.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::engine {

inline KvSpec Layer(int64_t window) {
  KvSpec spec = {.kv_heads = 1, .k_dim = 2, .v_dim = 2, .dtype = kernels::DType::kF32};
  if (window > 0) {
    spec.kind = KvKind::kWindow;
    spec.window = window;
  }
  return spec;
}

// Tokens with a beginning that is unique for each `name`.
inline std::vector<int32_t> Tokens(int64_t count, int32_t name) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(name * 10000 + i);
  return tokens;
}

class KvRestoresTest : public SchedulerTest {
 protected:
  // Starts a scheduler like that of SchedulerTest, with a cache of `blocks` blocks and a disk.
  void StartWithDisk(int64_t blocks, std::vector<KvSpec> layers = {Layer(0)},
                     int64_t disk_blocks = 100) {
    Stop();
    auto probe = KvCache::Create(layers, {.memory_bytes = 1 << 20}).value();
    const auto bytes = static_cast<int64_t>(probe->block_bytes());
    probe.reset();
    cache_ = KvCache::Create(layers, {.memory_bytes = static_cast<size_t>(blocks * bytes)}).value();
    disk_ =
        KvDisk::Open(fake_.Open(),
                     {.limit_bytes = LimitOf(disk_blocks, bytes), .block_bytes = bytes}, &clock_)
            .value();
    disk_->OnRead([this] { reads_.fetch_add(1); });
    cache_->SetDisk(disk_.get());
    restores_ = std::make_unique<KvRestores>(cache_.get(), disk_.get());
    scheduler_ = std::make_unique<BatchScheduler>(
        SchedulerOptions{
            .limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 4},
        cache_.get(), decoder_.get(), restores_.get());
  }

  void Stop() {
    plan_.reset();
    scheduler_.reset();
    restores_.reset();
    if (cache_ != nullptr) cache_->SetDisk(nullptr);
    cache_.reset();
    disk_.reset();
  }
  void TearDown() override {
    fake_.Release();
    Stop();
    SchedulerTest::TearDown();
  }

  // Computes these tokens as a sequence would, and writes bytes that identify them.
  void Compute(const std::vector<int32_t>& tokens) {
    KvLease lease = cache_->NewLease("");
    const int64_t cached = lease.AttachPrefix(tokens);
    auto space = lease.Reserve(tokens.size());
    ASSERT_TRUE(space.has_value());
    space->Keep();
    const auto tables = lease.Tables(tokens.size());
    for (size_t group = 0; group < tables.size(); ++group) {
      for (size_t block = cached / kTokens; block < tables[group].size(); ++block) {
        Stamp(tables[group][block], tokens[block * kTokens], static_cast<int>(group));
      }
    }
    lease.Commit(tokens);
  }

  std::byte* BlockMemory(int32_t block) const {
    return const_cast<std::byte*>(cache_->view().layers[0].arena) + block * cache_->block_bytes();
  }
  void Stamp(int32_t block, int32_t token, int group) const {
    const int32_t stamp[2] = {token, group};
    std::memcpy(BlockMemory(block), stamp, sizeof(stamp));
  }
  // Checks that the cached KV of these tokens is what was computed for them. Returns the lease's
  // slots.
  int64_t Check(const std::vector<int32_t>& tokens) {
    KvLease lease = cache_->NewLease("");
    const int64_t slots = lease.AttachPrefix(tokens);
    const auto tables = lease.Tables(slots);
    for (size_t group = 0; group < tables.size(); ++group) {
      for (size_t block = 0; block < tables[group].size(); ++block) {
        if (tables[group][block] == kNoBlock) continue;
        int32_t stamp[2];
        std::memcpy(stamp, BlockMemory(tables[group][block]), sizeof(stamp));
        EXPECT_EQ(stamp[0], tokens[block * kTokens]);
        EXPECT_EQ(stamp[1], static_cast<int32_t>(group));
      }
    }
    return slots;
  }

  bool Settle() {
    return Eventually([&] { return disk_->Flush(absl::ZeroDuration()); });
  }
  // A cache of `blocks` blocks, and a prefix of four blocks that was evicted to the disk.
  std::vector<int32_t> StartWithPrefixOnDisk(int64_t blocks) {
    StartWithDisk(blocks);
    const std::vector<int32_t> prefix = Tokens(4 * kTokens, 1);
    Compute(prefix);
    Compute(Tokens(blocks * kTokens, 2));
    EXPECT_TRUE(Settle());
    EXPECT_EQ(Check(prefix), 0);
    return prefix;
  }
  // Makes other blocks replace the cache's contents, which are written to the disk.
  void WriteOthers(int blocks) {
    const std::vector<std::byte> bytes(disk_->block_bytes());
    for (int i = 0; i < blocks; ++i) {
      const BlockKey key = {{static_cast<uint64_t>(i), 12345}, 0};
      ASSERT_TRUE(disk_->Write(key, Tokens(kTokens, 100 + i), bytes, {}));
    }
    ASSERT_TRUE(Settle());
  }
  // Lets `blocks` reads complete, and notifies the scheduler.
  void LetRead(int blocks) {
    const int before = reads_.load();
    fake_.Allow(blocks);
    ASSERT_TRUE(Eventually([&] { return reads_.load() >= before + blocks; }));
  }

  FakeDisk fake_;
  fakes::ManualClock clock_;
  std::atomic<int> reads_{0};
  std::unique_ptr<KvDisk> disk_;
  std::unique_ptr<KvRestores> restores_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_SCHEDULER_KV_RESTORES_FIXTURE_H_
