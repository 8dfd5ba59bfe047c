#include "service/cli/layer_dump.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

using ::testing::HasSubstr;

class LayerDumpTest : public testing::Test {
 protected:
  LayerDumpTest() { std::filesystem::remove_all(folder_); }

  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  void ExpectRefused(const std::string& words) const {
    const absl::Status status = LayerDump::Create(folder_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(folder_));
    EXPECT_THAT(status.message(), HasSubstr(words));
  }

  const std::string folder_ = absl::StrCat(testing::TempDir(), "/layers");
  const std::vector<float> rows_ = {1, 2, 3, 4, 5, 6};
};

TEST_F(LayerDumpTest, WritesOneFilePerPartWithTheRowsOfAllChunks) {
  const auto dump = LayerDump::Create(folder_ + "/a/b");
  ASSERT_TRUE(dump.ok()) << dump.status();
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (const char* part : {"embedding", "layer.0.attention", "layer.0"}) {
      ASSERT_TRUE((*dump)->Append(part, {rows_.data(), 2, 3}).ok());
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/a/b")) << "files that are not complete";
  ASSERT_TRUE((*dump)->Finish().ok());
  EXPECT_EQ((*dump)->files(), 3u);
  for (const char* part : {"embedding", "layer.0.attention", "layer.0"}) {
    EXPECT_EQ(std::filesystem::file_size(absl::StrCat(folder_, "/a/b/", part, ".npy")),
              128 + sizeof(float) * 4 * 3);
  }
}

TEST_F(LayerDumpTest, RefusesADirectoryWithFiles) {
  std::filesystem::create_directory(folder_);
  EXPECT_TRUE(LayerDump::Create(folder_).ok()) << "it is empty";
  EXPECT_TRUE(LayerDump::Create(folder_).ok()) << "it is still empty";
  std::ofstream(folder_ + "/layer.7.npy") << "of another model";
  ExpectRefused("has files");
  EXPECT_EQ(Files(), std::set<std::string>{"layer.7.npy"});
}

TEST_F(LayerDumpTest, RefusesAFile) {
  std::ofstream(folder_) << "a file";
  ExpectRefused("Not a directory");
}

TEST_F(LayerDumpTest, RefusesADirectoryThatCannotBeCreated) {
  const absl::Status status = LayerDump::Create("/proc/layers").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/proc/layers"));
}

TEST_F(LayerDumpTest, AFullDiskLeavesNoFiles) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit before = limit;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const absl::Cleanup restore = [&] {
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  };
  const auto dump = LayerDump::Create(folder_);
  ASSERT_TRUE(dump.ok()) << dump.status();
  ASSERT_TRUE((*dump)->Append("embedding", {rows_.data(), 2, 3}).ok());
  limit.rlim_cur = 140;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  absl::Status status;
  // Some writes are buffered.
  for (int i = 0; i < 1 << 20 && status.ok(); ++i) {
    status = (*dump)->Append("layer.0", {rows_.data(), 2, 3});
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.message(), HasSubstr("layer.0.npy"));
  EXPECT_TRUE((*dump)->Finish().ok());
  EXPECT_TRUE(Files().empty());
}

}  // namespace
}  // namespace tidepool::service
