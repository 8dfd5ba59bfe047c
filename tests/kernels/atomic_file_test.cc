#include "kernels/base/atomic_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidepool::base {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AtomicFileTest : public ::testing::TestWithParam<UnfinishedFile> {
 protected:
  AtomicFileTest() { std::filesystem::create_directories(folder_); }
  ~AtomicFileTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<AtomicFile>> Create(ExistingFile existing,
                                                     int64_t bytes = 0) const {
    return AtomicFile::Create(path_,
                              {.existing = existing, .bytes = bytes, .unfinished = GetParam()});
  }
  std::string Contents() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  int64_t Files() const {
    return std::distance(std::filesystem::directory_iterator(folder_),
                         std::filesystem::directory_iterator());
  }

  const std::string folder_ = ::testing::TempDir() + "/atomic_file_test";
  const std::string path_ = folder_ + "/out";
};

TEST_P(AtomicFileTest, AppearsWhenItIsFinished) {
  auto file = Create(ExistingFile::kRefuse, 10);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("hello ", 6).ok());
  ASSERT_TRUE((*file)->Append("pool", 4).ok());
  ASSERT_TRUE((*file)->WriteAt("H", 1, 0).ok());
  EXPECT_EQ((*file)->position(), 10);
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE((*file)->Finish().ok());
  file->reset();
  EXPECT_EQ(Contents(), "Hello pool");
  EXPECT_EQ(Files(), 1);
}

TEST_P(AtomicFileTest, LeavesNothingWhenItIsGivenUp) {
  {
    auto file = Create(ExistingFile::kRefuse);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append("x", 1).ok());
    if (GetParam() == UnfinishedFile::kNamed) {
      EXPECT_EQ(Files(), 1);
    }
  }
  EXPECT_EQ(Files(), 0);
}

TEST_P(AtomicFileTest, ReplacesOnlyWhenAskedTo) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(Create(ExistingFile::kRefuse).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Contents(), "precious");
  auto file = Create(ExistingFile::kReplace);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("new", 3).ok());
  EXPECT_EQ(Contents(), "precious");
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_EQ(Contents(), "new");
  EXPECT_EQ(Files(), 1);
}

TEST_P(AtomicFileTest, AFileCreatedMeanwhileIsKept) {
  auto file = Create(ExistingFile::kRefuse);
  ASSERT_TRUE(file.ok()) << file.status();
  std::ofstream(path_) << "precious";
  const absl::Status status = (*file)->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  file->reset();
  EXPECT_EQ(Contents(), "precious");
  EXPECT_EQ(Files(), 1);
}

// Several writers write at the same time. None of them removes the unfinished file of another one.
TEST_P(AtomicFileTest, WritersAreNotInEachOthersWay) {
  auto first = Create(ExistingFile::kReplace);
  auto second = Create(ExistingFile::kReplace);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Files(), GetParam() == UnfinishedFile::kNamed ? 2 : 0);
  ASSERT_TRUE((*first)->Append("1", 1).ok());
  ASSERT_TRUE((*second)->Append("2", 1).ok());
  ASSERT_TRUE((*second)->Finish().ok());
  ASSERT_TRUE(Create(ExistingFile::kReplace).ok());
  ASSERT_TRUE((*first)->Finish().ok());
  EXPECT_EQ(Contents(), "1");
  EXPECT_EQ(Files(), 1);
}

TEST_P(AtomicFileTest, TheNextWriteRemovesTheFileOfAKilledWriter) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EXIT(
        {
          auto file = Create(ExistingFile::kReplace);
          if (file.ok() && (*file)->Append("x", 1).ok()) raise(SIGKILL);
        },
        ::testing::KilledBySignal(SIGKILL), "");
    EXPECT_EQ(Files(), GetParam() == UnfinishedFile::kNamed ? 1 : 0);
  }
  // Only the first name is that of an unfinished file of this path. The second one is malformed,
  // and the third one belongs to another path.
  std::ofstream(path_ + ".00c0ffee.partial") << "left";
  std::ofstream(path_ + ".00coffee.partial") << "theirs";
  std::ofstream(path_ + "2.00c0ffee.partial") << "theirs";
  std::ofstream(path_ + ".00c0ffee.partial2") << "theirs";
  std::filesystem::create_directory(path_ + ".00c0ffe0.partial");
  auto file = Create(ExistingFile::kReplace);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("1", 1).ok());
  ASSERT_TRUE((*file)->Finish().ok());
  EXPECT_EQ(Contents(), "1");
  EXPECT_EQ(Files(), 5);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".00c0ffee.partial"));
}

TEST_P(AtomicFileTest, AFullDiskIsNamedAtOnce) {
  // Exceeding a file size limit is handled like a full disk.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const absl::Cleanup restore = [&] {
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
  };
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Create(ExistingFile::kRefuse, 5000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("5000 bytes"));
  EXPECT_EQ(Files(), 0);

  // If the size is not given to Create, only a write detects the limit.
  auto file = Create(ExistingFile::kRefuse);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string much(5000, 'x');
  const absl::Status met = (*file)->Append(much.data(), static_cast<int64_t>(much.size()));
  EXPECT_EQ(met.code(), absl::StatusCode::kResourceExhausted) << met;
  EXPECT_THAT(std::string(met.message()), Not(HasSubstr("bytes")));
  file->reset();
  EXPECT_EQ(Files(), 0);
}

TEST_P(AtomicFileTest, NamesTheFileThatCannotBeWritten) {
  const auto at = [](const std::string& path) {
    return AtomicFile::Create(path, {.existing = ExistingFile::kReplace, .unfinished = GetParam()})
        .status();
  };
  EXPECT_EQ(at(folder_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at("/dev/null").code(), absl::StatusCode::kInvalidArgument);
  const absl::Status none = at(folder_ + "/none/out");
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr(folder_ + "/none/out"));
}

INSTANTIATE_TEST_SUITE_P(BothWays, AtomicFileTest,
                         ::testing::Values(UnfinishedFile::kUnnamed, UnfinishedFile::kNamed),
                         [](const auto& which) {
                           return which.param == UnfinishedFile::kNamed ? "Named" : "Unnamed";
                         });

}  // namespace
}  // namespace tidepool::base
