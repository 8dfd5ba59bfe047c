#include "service/cli/npy.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Path(const std::string& name) { return absl::StrCat(::testing::TempDir(), "/", name); }

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(NpyWriterTest, WritesRowsAfterAHeaderOf128Bytes) {
  const std::string path = Path("rows.npy");
  auto npy = NpyWriter::Create(path, {.columns = 3});
  ASSERT_TRUE(npy.ok()) << npy.status();
  const std::vector<float> first = {1, 2.5f, -3};
  const std::vector<float> second = {4, 5, 6};
  ASSERT_TRUE((*npy)->Append(first).ok());
  ASSERT_TRUE((*npy)->Append(second).ok());
  EXPECT_FALSE(std::filesystem::exists(path)) << "not before it is whole";
  ASSERT_TRUE((*npy)->Finish().ok());

  const std::string file = Contents(path);
  ASSERT_EQ(file.size(), 128 + 6 * sizeof(float));
  EXPECT_THAT(file, StartsWith(std::string("\x93NUMPY\x01\x00\x76\x00", 10)));
  EXPECT_THAT(file.substr(0, 128),
              HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_EQ(file[127], '\n');
  std::vector<float> values(6);
  std::memcpy(values.data(), file.data() + 128, 6 * sizeof(float));
  EXPECT_EQ(values, (std::vector<float>{1, 2.5f, -3, 4, 5, 6}));
}

TEST(NpyWriterTest, AVectorHasOneDimension) {
  const std::string path = Path("vector.npy");
  auto npy = NpyWriter::Create(path, {.columns = 2, .shape = NpyShape::kVector});
  ASSERT_TRUE(npy.ok());
  ASSERT_TRUE((*npy)->Append(std::vector<float>{1, 2}).ok());
  ASSERT_TRUE((*npy)->Finish().ok());
  EXPECT_THAT(Contents(path), HasSubstr("'shape': (2,), }"));
}

TEST(NpyWriterTest, AnUnfinishedFileIsRemoved) {
  const std::string folder = Path("given_up");
  std::filesystem::create_directories(folder);
  const std::string path = absl::StrCat(folder, "/x.npy");
  std::ofstream(path) << "earlier";
  {
    auto npy = NpyWriter::Create(path, {.columns = 1});
    ASSERT_TRUE(npy.ok());
    ASSERT_TRUE((*npy)->Append(std::vector<float>{1}).ok());
  }
  EXPECT_EQ(Contents(path), "earlier");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST(NpyWriterTest, RefusesFoldersAndDevices) {
  EXPECT_EQ(NpyWriter::Create("/nonexistent/x.npy", {.columns = 1}).status().code(),
            absl::StatusCode::kNotFound);
  const std::string pipe = Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {::testing::TempDir(), pipe}) {
    const absl::Status status = NpyWriter::Create(path, {.columns = 1}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe)) << "it was replaced";
}

}  // namespace
}  // namespace tidepool::service
