#include "engine/checkpoint/content_digest.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

// The tensors have 20 MiB. They are hashed in five chunks, of which the last one is short.
constexpr int kTensors = 4;
constexpr int kValues = (5 << 20) / kTensors;

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class ContentDigestTest : public testing::Test {
 protected:
  ContentDigestTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(cache_);
    for (int i = 0; i < kTensors; ++i) {
      std::vector<float> values(kValues);
      for (int j = 0; j < kValues; ++j) values[j] = static_cast<float>(i + j % 1000);
      writer_.F32Tensor(absl::StrCat("t", i), {kValues}, values);
    }
    Write(model_, writer_.Build());
  }
  ~ContentDigestTest() override { std::filesystem::remove_all(folder_); }

  static GgufFile Open(const std::string& path) {
    absl::StatusOr<GgufFile> file = GgufFile::Open(path);
    CHECK_OK(file.status());
    return *std::move(file);
  }

  // Computes the digest. Writes a record even for a small model.
  ContentDigest Digest(int threads = 2) {
    calls_ = 0;
    absl::StatusOr<ContentDigest> digest =
        DigestContent(Open(model_), {.threads = threads,
                                     .cache_dir = cache_in_use_,
                                     .min_recorded_bytes = 0,
                                     .progress = [this](double fraction) {
                                       ++calls_;
                                       last_ = fraction;
                                     }});
    CHECK_OK(digest.status());
    return *std::move(digest);
  }

  // Returns the digest that is computed without any record.
  static std::string Computed(const std::string& path, int threads = 2) {
    absl::StatusOr<ContentDigest> digest = DigestContent(Open(path), {.threads = threads});
    CHECK_OK(digest.status());
    EXPECT_EQ(digest->origin, DigestOrigin::kComputed);
    return digest->hex;
  }

  // Flips one bit of the model and restores its modification time.
  void FlipModel(int64_t at) const {
    struct stat before;
    CHECK_EQ(stat(model_.c_str(), &before), 0);
    {
      std::fstream file(model_, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 1));
    }
    const timespec times[] = {before.st_atim, before.st_mtim};
    CHECK_EQ(utimensat(AT_FDCWD, model_.c_str(), times, 0), 0);
  }

  GgufWriter writer_;
  const std::string folder_ = testing::TempDir() + "/content_digest_test";
  const std::string cache_ = folder_ + "/cache";
  const std::string model_ = folder_ + "/model.gguf";
  const std::string record_ = model_ + ".tidedigest";
  std::string cache_in_use_;
  int calls_ = 0;
  double last_ = 0;
};

TEST_F(ContentDigestTest, EveryByteCounts) {
  const std::string digest = Computed(model_);
  const std::string sampled = Open(model_).SampledDigest();
  EXPECT_EQ(digest.size(), 32u);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(model_));
  const auto data = static_cast<int64_t>(writer_.OffsetOf("data"));
  bool missed_by_samples = false;
  for (const int64_t at : {data + 1, data + (4 << 20) - 1, data + (9 << 20) + 3, size - 1}) {
    FlipModel(at);
    EXPECT_NE(Computed(model_), digest) << at;
    missed_by_samples |= Open(model_).SampledDigest() == sampled;
    FlipModel(at);
  }
  EXPECT_TRUE(missed_by_samples);
  EXPECT_EQ(Computed(model_), digest);
}

TEST_F(ContentDigestTest, IsTheSameForAnyNumberOfThreads) {
  const std::string digest = Computed(model_, 1);
  for (const int threads : {2, 3, 16}) EXPECT_EQ(Computed(model_, threads), digest) << threads;
}

TEST_F(ContentDigestTest, IsComputedOnceAndThenRemembered) {
  const ContentDigest first = Digest();
  EXPECT_EQ(first.origin, DigestOrigin::kComputed);
  EXPECT_TRUE(first.recorded.ok()) << first.recorded;
  EXPECT_GT(calls_, 0);
  EXPECT_EQ(last_, 1);
  const ContentDigest second = Digest();
  EXPECT_EQ(second.origin, DigestOrigin::kRemembered);
  EXPECT_EQ(second.hex, first.hex);
  EXPECT_EQ(calls_, 0);
  EXPECT_EQ(second.hex, Computed(model_));
}

TEST_F(ContentDigestTest, ADamagedRecordIsNotTrusted) {
  const std::string digest = Digest().hex;
  const std::string good = Read(record_);
  const GgufFile file = Open(model_);
  ASSERT_EQ(ParseDigestRecord(file, good), digest);
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {1, 4}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ bit);
      EXPECT_EQ(ParseDigestRecord(file, bad), std::nullopt) << "byte " << i;
    }
    EXPECT_EQ(ParseDigestRecord(file, good.substr(0, i)), std::nullopt) << i;
  }
  EXPECT_EQ(ParseDigestRecord(file, good + "\n"), std::nullopt);
  // The next start replaces the bad record.
  std::string bad = good;
  bad[40] = bad[40] == '0' ? '1' : '0';
  Write(record_, bad);
  const ContentDigest again = Digest();
  EXPECT_EQ(again.origin, DigestOrigin::kComputed);
  EXPECT_EQ(again.hex, digest);
  EXPECT_EQ(Digest().origin, DigestOrigin::kRemembered);
}

// Flips a bit that is not sampled, and restores the modification time.
TEST_F(ContentDigestTest, ARecordFromBeforeAChangeIsNotTrusted) {
  const std::string digest = Digest().hex;
  FlipModel(static_cast<int64_t>(writer_.OffsetOf("data")) + 1);
  const ContentDigest changed = Digest();
  EXPECT_EQ(changed.origin, DigestOrigin::kComputed);
  EXPECT_NE(changed.hex, digest);
}

TEST_F(ContentDigestTest, ARecordOfAnotherFileIsNotTrusted) {
  const std::string digest = Digest().hex;
  const std::string copy = folder_ + "/copy.gguf";
  std::filesystem::copy_file(model_, copy);
  EXPECT_EQ(ParseDigestRecord(Open(copy), Read(record_)), std::nullopt);
  EXPECT_EQ(Computed(copy), digest);
}

TEST_F(ContentDigestTest, GoesToTheCacheIfTheModelsFolderTakesNone) {
  std::filesystem::create_directory(record_);  // blocks the record's path
  const ContentDigest nowhere = Digest();
  EXPECT_FALSE(nowhere.recorded.ok());
  EXPECT_NE(nowhere.recorded.message().find(record_), std::string::npos) << nowhere.recorded;
  EXPECT_EQ(Digest().origin, DigestOrigin::kComputed);
  cache_in_use_ = cache_;
  EXPECT_TRUE(Digest().recorded.ok());
  EXPECT_TRUE(std::filesystem::exists(
      absl::StrCat(cache_, "/", Open(model_).SampledDigest(), ".tidedigest")));
  const ContentDigest remembered = Digest();
  EXPECT_EQ(remembered.origin, DigestOrigin::kRemembered);
  EXPECT_EQ(remembered.hex, nowhere.hex);
}

TEST_F(ContentDigestTest, SmallModelsLeaveNoRecord) {
  Computed(model_);
  EXPECT_FALSE(std::filesystem::exists(record_));
}

TEST_F(ContentDigestTest, EveryPartOfASplitModelCounts) {
  const auto part = [&](int number, float value) {
    const std::string path = absl::StrCat(folder_, "/s-0000", number + 1, "-of-00002.gguf");
    Write(path, GgufWriter()
                    .U32("split.no", number)
                    .U32("split.count", 2)
                    .F32Tensor(absl::StrCat("t", number), {2}, {1, value})
                    .Build());
    return path;
  };
  const std::string first = part(0, 2);
  part(1, 2);
  const std::string digest = Computed(first);
  part(1, 3);
  EXPECT_NE(Computed(first), digest);
  part(1, 2);
  EXPECT_EQ(Computed(first), digest);
}

}  // namespace
}  // namespace tidepool::engine
