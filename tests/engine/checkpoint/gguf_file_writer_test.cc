#include "engine/checkpoint/gguf_file_writer.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GgufFileWriterTest : public ::testing::Test {
 protected:
  GgufFileWriterTest()
      : folder_(absl::StrCat(::testing::TempDir(), "/",
                             ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }

  std::string Path() const { return folder_ + "/out.gguf"; }
  int Files() const {
    int files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
    return files;
  }

  static GgufMetadata SomeMetadata() {
    GgufMetadata metadata;
    metadata.SetString("general.architecture", "llama").SetU32("llama.block_count", 7);
    metadata.SetF32("llama.x", 0.5f).SetBool("llama.y", true);
    metadata.SetStrings("tokens", {"a", "", "bcd"}).SetI32s("types", {1, -2, 3});
    metadata.SetU32("llama.block_count", 9);
    return metadata;
  }

  static std::vector<GgufTensorPlan> Plans() {
    return {{"a.weight", GgmlType::kF32, 2, {3, 2, 1, 1}},
            {"b.weight", GgmlType::kQ8_0, 1, {32, 1, 1, 1}}};
  }

  absl::StatusOr<std::unique_ptr<GgufFileWriter>> Create(
      base::ExistingFile existing = base::ExistingFile::kRefuse) const {
    return GgufFileWriter::Create(Path(), SomeMetadata(), Plans(), existing);
  }

  // Writes 24 bytes of floats and a block of 34 bytes, in pieces that cross the border of the
  // tensors.
  static absl::Status WriteAll(GgufFileWriter* writer) {
    std::vector<std::byte> bytes(24 + 34);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    for (size_t i = 0; i < bytes.size(); i += 20) {
      const size_t count = std::min<size_t>(20, bytes.size() - i);
      const absl::Status status = writer->Append(absl::MakeConstSpan(&bytes[i], count));
      if (!status.ok()) return status;
    }
    return writer->Finish();
  }

  const std::string folder_;
};

TEST_F(GgufFileWriterTest, ReadsTheWrittenFile) {
  auto writer = Create();
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(WriteAll(writer->get()).ok());
  EXPECT_EQ(std::filesystem::file_size(Path()), (*writer)->file_bytes());
  EXPECT_EQ(Files(), 1);
  const auto file = GgufFile::Open(Path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->Int("llama.block_count"), 9);
  EXPECT_EQ(*file->Float("llama.x"), 0.5);
  EXPECT_EQ(*file->Bool("llama.y"), true);
  EXPECT_THAT(*file->Strings("tokens"), ElementsAre("a", "", "bcd"));
  EXPECT_THAT(*file->Ints("types"), ElementsAre(1, -2, 3));
  ASSERT_EQ(file->tensors().size(), 2u);
  const GgufTensor& a = file->tensors()[0];
  const GgufTensor& b = file->tensors()[1];
  EXPECT_EQ(a.ShapeString(), "{3, 2}");
  EXPECT_EQ(b.type, GgmlType::kQ8_0);
  for (int i = 0; i < 24; ++i) ASSERT_EQ(static_cast<int>(a.data[i]), i);
  for (int i = 0; i < 34; ++i) ASSERT_EQ(static_cast<int>(b.data[i]), 24 + i);
  EXPECT_EQ(b.file_offset % 32, 0u);
}

TEST_F(GgufFileWriterTest, CopiesEntriesOfEveryType) {
  GgufWriter source = TinyModel("llama");
  source.set_alignment(64).Strings("s", {"x", "yz"}).I32s("i", {4, 5}).Bool("b", false);
  source.Value("u64", GgufValueType::kUint64, BytesOf(uint64_t{1} << 40));
  source.F32Tensor("t", {2}, {1, 2});
  const auto original = GgufFile::Open(WriteTempFile("source.gguf", source.Build()));
  ASSERT_TRUE(original.ok());
  GgufMetadata metadata;
  for (const GgufEntry& entry : original->metadata()) metadata.Copy(entry);
  EXPECT_EQ(metadata.alignment(), 64u);
  auto writer = GgufFileWriter::Create(Path(), metadata, {}, base::ExistingFile::kRefuse);
  ASSERT_TRUE(writer.ok() && (*writer)->Finish().ok());
  const auto copy = GgufFile::Open(Path());
  ASSERT_TRUE(copy.ok()) << copy.status();
  ASSERT_EQ(copy->metadata().size(), original->metadata().size());
  for (size_t i = 0; i < copy->metadata().size(); ++i) {
    EXPECT_EQ(copy->metadata()[i].key, original->metadata()[i].key);
    EXPECT_EQ(GgufFile::FormatValue(copy->metadata()[i]),
              GgufFile::FormatValue(original->metadata()[i]));
  }
}

TEST_F(GgufFileWriterTest, AnUnfinishedFileLeavesNothing) {
  {
    auto writer = Create();
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Append(std::vector<std::byte>(10)).ok());
    EXPECT_FALSE(std::filesystem::exists(Path()));
  }
  EXPECT_EQ(Files(), 0);
}

TEST_F(GgufFileWriterTest, AFileInTheWayIsReplacedOnlyWhenAskedTo) {
  std::ofstream(Path()) << "precious";
  EXPECT_EQ(Create().status().code(), absl::StatusCode::kAlreadyExists);
  auto writer = Create(base::ExistingFile::kReplace);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(WriteAll(writer->get()).ok());
  EXPECT_TRUE(GgufFile::Open(Path()).ok());
}

TEST_F(GgufFileWriterTest, AFileThatCameMeanwhileStays) {
  auto writer = Create();
  ASSERT_TRUE(writer.ok());
  std::ofstream(Path()) << "precious";
  EXPECT_EQ(WriteAll(writer->get()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(Path()), 8u);
  EXPECT_EQ(Files(), 1);
}

TEST_F(GgufFileWriterTest, ADiskThatIsTooSmallSaysSoAtOnce) {
  // Exceeding a file size limit is handled like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const absl::Cleanup restore = [&] { setrlimit(RLIMIT_FSIZE, &before); };
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = Create().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path()));
  EXPECT_EQ(Files(), 0);
}

TEST_F(GgufFileWriterTest, NamesTheFileThatCannotBeWritten) {
  const auto at = [](const std::string& path) {
    return GgufFileWriter::Create(path, {}, {}, base::ExistingFile::kReplace).status();
  };
  EXPECT_EQ(at(folder_).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at("/dev/null").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at(folder_ + "/none/out.gguf").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tidepool::engine
