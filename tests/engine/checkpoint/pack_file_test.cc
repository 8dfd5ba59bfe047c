#include "engine/checkpoint/pack_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

using kernels::DType;
using ::testing::HasSubstr;

PackContents Contents(int layers = 2, int experts = 3) {
  PackContents contents = {.digest = std::string(32, 'd'),
                           .sampled_digest = std::string(32, 's'),
                           .modified_ns = 7000000012};
  for (int layer = 0; layer < layers; ++layer) {
    auto& row = contents.layouts.emplace_back();
    // Layers may differ in type, as in files that give some layers more bits.
    const DType type = layer % 2 == 0 ? DType::kF16 : DType::kF32;
    for (int expert = 0; expert < experts; ++expert) {
      row.emplace_back(kernels::FfnWeights{{type, 24, 40}, {type, 24, 40}, {type, 40, 24}});
    }
  }
  return contents;
}

std::byte Filler(int layer, int expert) { return static_cast<std::byte>(1 + layer * 16 + expert); }

class PackFileTest : public testing::Test {
 protected:
  PackFileTest() { std::filesystem::create_directory(folder_); }
  ~PackFileTest() override { std::filesystem::remove_all(folder_); }

  absl::Status Write(const PackContents& contents) {
    return WritePack(
        path_, contents,
        [&](int layer, int expert, std::byte* record) {
          std::memset(record, static_cast<int>(Filler(layer, expert)),
                      contents.layouts[layer][expert].bytes());
          return absl::OkStatus();
        },
        [&](double fraction) { fractions_.push_back(fraction); });
  }

  std::string Bytes() const {
    std::stringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  void Replace(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  size_t Files() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }

  const std::string folder_ = testing::TempDir() + "/pack_file_test";
  const std::string path_ = folder_ + "/model.tidepack";
  std::vector<double> fractions_;
};

TEST_F(PackFileTest, ReadsTheWrittenRecords) {
  const PackContents contents = Contents();
  ASSERT_TRUE(Write(contents).ok());
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(fractions_.size(), 6u);
  EXPECT_EQ(fractions_.back(), 1);
  const auto records = ReadPack(path_, contents);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->path, path_);
  const std::string bytes = Bytes();
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), contents.file_bytes());
  int64_t offset = contents.header_bytes();
  for (int layer = 0; layer < 2; ++layer) {
    for (int expert = 0; expert < 3; ++expert) {
      const moe::ExpertRecord& record = records->layers[layer][expert];
      EXPECT_EQ(record.offset, offset);
      EXPECT_EQ(record.offset % moe::kRecordAlignment, 0);
      const auto* data = reinterpret_cast<const std::byte*>(bytes.data()) + offset;
      EXPECT_EQ(data[0], Filler(layer, expert));
      EXPECT_EQ(record.hash, moe::RecordHash(data, record.layout.bytes()));
      offset += record.layout.bytes();
    }
  }
}

TEST_F(PackFileTest, ReplacesAnOldOne) {
  Replace("something else");
  EXPECT_EQ(ReadPack(path_, Contents()).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(Write(Contents()).ok());
  EXPECT_TRUE(ReadPack(path_, Contents()).ok());
}

// The digest covers every byte, so a copy of the checkpoint may have another modification time.
TEST_F(PackFileTest, TheTimeOfTheCheckpointDoesNotMatter) {
  ASSERT_TRUE(Write(Contents()).ok());
  PackContents copied = Contents();
  copied.modified_ns += 1;
  EXPECT_TRUE(ReadPack(path_, copied).ok());
}

// The modification time detects an edit that the samples miss. If an archive truncates the time to
// seconds, the pack is still used.
TEST_F(PackFileTest, APackOfAnEarlierReleaseIsUsedWhileTheTimeIsTheSame) {
  PackContents earlier = Contents();
  earlier.digest = earlier.sampled_digest;
  ASSERT_TRUE(Write(earlier).ok());
  EXPECT_TRUE(ReadPack(path_, Contents()).ok());
  PackContents changed = Contents();
  changed.modified_ns += 1;
  const absl::Status status = ReadPack(path_, changed).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has changed since"));
  changed.modified_ns = 7000000000;
  EXPECT_TRUE(ReadPack(path_, changed).ok());
  changed.modified_ns = 8000000000;
  EXPECT_FALSE(ReadPack(path_, changed).ok());
}

TEST_F(PackFileTest, APackOfAnEarlierReleaseGetsTheDigest) {
  PackContents earlier = Contents();
  earlier.digest = earlier.sampled_digest;
  ASSERT_TRUE(Write(earlier).ok());
  const std::string old = Bytes();
  ASSERT_TRUE(RenewPackDigest(path_, Contents()).ok());
  const std::string renewed = Bytes();
  EXPECT_NE(renewed, old);
  PackContents copied = Contents();
  copied.modified_ns = 8000000000;
  EXPECT_TRUE(ReadPack(path_, copied).ok());
  // Now the pack has the current format, and a second call does not change it.
  ASSERT_TRUE(Write(Contents()).ok());
  EXPECT_EQ(Bytes(), renewed);
  ASSERT_TRUE(RenewPackDigest(path_, Contents()).ok());
  EXPECT_EQ(Bytes(), renewed);
}

TEST_F(PackFileTest, APackOfAnotherCheckpointGetsNoDigest) {
  PackContents other = Contents();
  other.digest = std::string(32, 'o');
  ASSERT_TRUE(Write(other).ok());
  const std::string old = Bytes();
  EXPECT_EQ(RenewPackDigest(path_, Contents()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Bytes(), old);
}

TEST_F(PackFileTest, DistinguishesAnotherCheckpointOrVersionFromDamage) {
  ASSERT_TRUE(Write(Contents()).ok());
  PackContents other = Contents();
  other.digest[0] = 'e';
  EXPECT_EQ(ReadPack(path_, other).status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string good = Bytes();
  std::string newer = good;
  ++newer[8];
  Replace(newer);
  const absl::Status version = ReadPack(path_, Contents()).status();
  EXPECT_EQ(version.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(version.message()), HasSubstr("version is 4, expected 3"));
  Replace(good + "x");
  EXPECT_EQ(ReadPack(path_, Contents()).status().code(), absl::StatusCode::kDataLoss);
}

// Every damaged byte of the header is detected, and so is every truncation.
TEST_F(PackFileTest, EveryDamageToTheHeaderShows) {
  const PackContents contents = Contents();
  ASSERT_TRUE(Write(contents).ok());
  const std::string good = Bytes();
  const auto parse = [&](const std::string& bytes, int64_t file_bytes) {
    return ParsePack(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
        file_bytes, contents);
  };
  const auto size = static_cast<int64_t>(good.size());
  ASSERT_TRUE(parse(good, size).ok());
  const size_t used = 72 + 6 * 16 + 8;
  for (size_t i = 0; i < used; ++i) {
    std::string bad = good;
    bad[i] ^= 4;
    EXPECT_FALSE(parse(bad, size).ok()) << "byte " << i;
    EXPECT_FALSE(parse(good.substr(0, i), size).ok()) << i << " bytes";
  }
  EXPECT_FALSE(parse(good, size - 4096).ok());
}

TEST_F(PackFileTest, AnErrorLeavesNoFile) {
  const PackContents contents = Contents();
  const absl::Status status = WritePack(
      path_, contents,
      [](int layer, int, std::byte*) {
        return layer == 1 ? absl::InvalidArgumentError("a NaN") : absl::OkStatus();
      },
      [](double) {});
  EXPECT_EQ(status.message(), "a NaN");
  EXPECT_EQ(Files(), 0u);
}

// Kills the process at each record: with and without an old pack, and also as on file systems
// without unnamed files.
TEST_F(PackFileTest, AKillLeavesNoHalfPack) {
  const PackContents contents = Contents();
  for (const bool replace : {false, true}) {
    if (replace) Replace("something else");
    for (int record = 0; record < 6; ++record) {
      EXPECT_EXIT(WritePack(
                      path_, contents,
                      [&](int layer, int expert, std::byte*) {
                        if (layer * 3 + expert == record) raise(SIGKILL);
                        return absl::OkStatus();
                      },
                      [](double) {})
                      .IgnoreError(),
                  testing::KilledBySignal(SIGKILL), "");
      EXPECT_EQ(std::filesystem::exists(path_), replace);
      if (replace) {
        EXPECT_EQ(Bytes(), "something else");
      }
    }
  }
  std::ofstream(path_ + ".0badf00d.partial") << "half a pack";
  ASSERT_TRUE(Write(contents).ok());
  EXPECT_EQ(Files(), 1u);
  EXPECT_TRUE(ReadPack(path_, contents).ok());
}

TEST_F(PackFileTest, AFullDiskIsNamedAndLeavesNoFile) {
  // The file size limit simulates a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {16384, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Write(Contents());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_EQ(Files(), 0u);
}

TEST_F(PackFileTest, AFolderThatIsNotThereIsNamed) {
  const absl::Status status = WritePack(
      "/nowhere/model.tidepack", Contents(), [](int, int, std::byte*) { return absl::OkStatus(); },
      [](double) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/model.tidepack"));
}

}  // namespace
}  // namespace tidepool::engine
