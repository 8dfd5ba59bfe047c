// Damaged pack files, and models that use them.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/loading/tiered_fixture.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

using TieredDamageTest = TieredModelTest;

// Flips a bit in the middle of each record of the second layer. The records are rebuilt from the
// checkpoint, at the start and while the model runs, and written back.
TEST_F(TieredDamageTest, ADamagedRecordIsRebuiltFromTheCheckpoint) {
  const auto expected = Logits(MustLoad(model_, {}).get(), 24);
  ASSERT_TRUE(expected.ok());
  MustLoad(model_, Share(0.5));
  const std::string sound = Read(pack_);
  Notes notes;
  ExpertOptions options = Share(0.5);
  options.note = notes.Taker();
  {
    FlipRecords();
    const auto bundle = MustLoad(model_, options);
    EXPECT_EQ(*Logits(bundle.get(), 24), *expected);
    const moe::OffloadStats at_start = *bundle->model->offload_stats();
    EXPECT_GT(at_start.rebuilt_records, 0);
    FlipRecords();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(*Logits(bundle.get(), 24), *expected);
    const moe::OffloadStats stats = *bundle->model->offload_stats();
    EXPECT_GT(stats.rebuilt_records, at_start.rebuilt_records);
    EXPECT_EQ(stats.lost_records, 0);
    EXPECT_EQ(stats.failed_record_writes, 0);
    EXPECT_EQ(stats.failed_reads, 0);
  }
  const std::vector<std::string> lines = notes.lines();
  ASSERT_EQ(lines.size(), 1u) << "each of them";
  EXPECT_THAT(lines[0], HasSubstr(pack_));
  EXPECT_THAT(lines[0], HasSubstr("rebuilt from the model file"));
  // Runs until no record that a run needs is damaged.
  for (int i = 0; i < 100 && Read(pack_) != sound; ++i) {
    const auto bundle = MustLoad(model_, Share(1));
    if (bundle->model->offload_stats()->rebuilt_records == 0) break;
  }
  EXPECT_EQ(Read(pack_), sound);
}

// The experts in the checkpoint are also damaged.
TEST_F(TieredDamageTest, ARecordThatCannotBeRebuiltIsLostUntilTheCheckpointIsRestored) {
  Notes notes;
  ExpertOptions options = Share(12.1 / 48);
  options.note = notes.Taker();
  const auto bundle = MustLoad(model_, options);
  const auto expected = Logits(bundle.get(), 24);
  ASSERT_TRUE(expected.ok());
  FlipRecords();
  FlipExperts();
  const absl::Status status = Logits(bundle.get(), 24).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(pack_, ": layer 1, expert ")));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the model file has changed"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("restore the model file"));
  EXPECT_GT(bundle->model->offload_stats()->lost_records, 0);
  EXPECT_EQ(bundle->model->offload_stats()->rebuilt_records, 0);
  ASSERT_FALSE(Logits(bundle.get(), 24).ok());
  ASSERT_EQ(notes.lines().size(), 1u);
  EXPECT_THAT(notes.lines()[0], HasSubstr("the server is not ready"));
  FlipExperts();
  for (int i = 0; i < 20 && bundle->model->offload_stats()->lost_records > 0; ++i) {
    const auto logits = Logits(bundle.get(), 24);
    ASSERT_TRUE(logits.ok()) << logits.status();
    EXPECT_EQ(*logits, *expected);
  }
  EXPECT_EQ(bundle->model->offload_stats()->lost_records, 0);
}

// Access to the truncated part would end the process.
TEST_F(TieredDamageTest, ATruncatedCheckpointRebuildsNothing) {
  const auto bundle = MustLoad(model_, Share(12.1 / 48));
  ASSERT_TRUE(Logits(bundle.get(), 24).ok());
  FlipRecords();
  std::filesystem::resize_file(model_, 4096);
  const absl::Status status = Logits(bundle.get(), 24).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(model_, ": bytes ")));
}

// The new file with the pack's name may belong to another checkpoint.
TEST_F(TieredDamageTest, APackThatWasReplacedIsNotWrittenTo) {
  const auto bundle = MustLoad(model_, Share(12.1 / 48));
  const auto expected = Logits(bundle.get(), 24);
  ASSERT_TRUE(expected.ok());
  FlipRecords();
  const std::string other(100000, 'x');
  std::filesystem::rename(pack_, pack_ + ".moved");
  std::ofstream(pack_, std::ios::binary) << other;
  for (int i = 0; i < 10000 && bundle->model->offload_stats()->failed_record_writes == 0; ++i) {
    EXPECT_EQ(*Logits(bundle.get(), 24), *expected);
  }
  EXPECT_GT(bundle->model->offload_stats()->failed_record_writes, 0);
  EXPECT_EQ(Read(pack_), other);
}

TEST_F(TieredDamageTest, APackWithADamagedHeaderIsRebuilt) {
  const auto expected = Logits(MustLoad(model_, Share(0.5)).get(), 24);
  const std::string sound = Read(pack_);
  for (const int64_t at : {3, 90, 500}) {  // in the first bytes, in a record, and in the checksum
    std::string bad = sound;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    std::ofstream(pack_, std::ios::binary) << bad;
    Notes notes;
    ExpertOptions options = Share(0.5);
    options.note = notes.Taker();
    EXPECT_EQ(*Logits(MustLoad(model_, options).get(), 24), *expected);
    ASSERT_EQ(notes.lines().size(), 1u) << at;
    EXPECT_THAT(notes.lines()[0], HasSubstr(absl::StrCat("cannot use the pack ", pack_)));
    EXPECT_THAT(notes.lines()[0], HasSubstr(absl::StrCat("writing it again from ", model_)));
    EXPECT_EQ(Read(pack_), sound);
  }
}

// The file is truncated while the model runs.
TEST_F(TieredDamageTest, RecordsThatATruncatedPackLostAreRebuilt) {
  const auto bundle = MustLoad(model_, Share(12.1 / 48));
  const auto expected = Logits(bundle.get(), 1);
  ASSERT_TRUE(expected.ok());
  std::filesystem::resize_file(pack_, 4096);
  EXPECT_EQ(*Logits(bundle.get(), 1), *expected);
  EXPECT_GT(bundle->model->offload_stats()->rebuilt_records, 0);
}

}  // namespace
}  // namespace tidepool::engine
