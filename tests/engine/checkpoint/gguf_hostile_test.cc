// Damaged and hostile files. Each is refused with a one-line error, or its parsed contents can be
// read completely. ASan and UBSan detect reads outside of the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_parser.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/model_config.h"
#include "tests/engine/checkpoint/gguf_writer.h"

namespace tidepool::engine {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kHuge = ~uint64_t{0};

// Returns a file with every kind of value and several tensors.
GgufWriter Victim() {
  GgufWriter writer = TinyModel("llama");
  writer.Bool("flag", true)
      .I32s("ints", {1, 2, 3})
      .Array("flags", GgufValueType::kBool, 2, std::string("\0\1", 2))
      .U32("general.alignment", 32);
  writer.F32Tensor("token_embd.weight", {32, 4}, std::vector<float>(128, 0.5f))
      .F32Tensor("output_norm.weight", {32}, std::vector<float>(32, 1.0f))
      .Tensor("q4", GgmlType::kQ4_K, {256, 2}, std::string(288, '\1'))
      .Tensor("q8", GgmlType::kQ8_0, {32, 3}, std::string(102, '\2'));
  return writer;
}

// Parses from a copy of exactly the file's size, on the heap.
absl::StatusOr<GgufContents> Parse(const std::string& bytes) {
  const std::unique_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), copy.get());
  absl::StatusOr<GgufContents> contents = ParseGguf("victim", {copy.get(), bytes.size()});
  if (!contents.ok()) return contents.status();
  // Everything that the parser accepted can be read.
  size_t text = 0;
  unsigned sum = 0;
  for (const GgufEntry& entry : contents->entries) text += GgufFile::FormatValue(entry).size();
  for (const GgufTensor& tensor : contents->tensors) {
    for (size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<unsigned>(tensor.data[i]);
    text += tensor.ShapeString().size() + tensor.row_bytes();
  }
  EXPECT_GT(text + sum, 0u);
  return contents;
}

// Loads a model from a file on disk, as at a real start.
absl::Status Load(const std::string& bytes) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(WriteTempFile("hostile.gguf", bytes));
  if (!file.ok()) return file.status();
  const absl::Status config = ModelConfig::Parse(*file).status();
  EXPECT_EQ(file->SampledDigest().size(), 32u);
  auto store = WeightStore::Create(*std::move(file), {.threads = 2});
  if (!store.ok()) return store.status();
  absl::Status weights;
  for (const GgufTensor& tensor : (*store)->file().tensors()) {
    weights.Update((*store)
                       ->Matrix({.name = tensor.name,
                                 .rows = tensor.dims[1],
                                 .cols = tensor.dims[0],
                                 .slab = tensor.dims[2] - 1,
                                 .slabs = tensor.dims[2]})
                       .status());
  }
  weights.Update(config);
  return weights;
}

TEST(HostileGguf, VictimIsFine) {
  EXPECT_TRUE(Parse(Victim().Build()).ok());
  EXPECT_TRUE(Load(Victim().Build()).ok());
}

TEST(HostileGguf, EveryTruncationIsRefused) {
  const std::string bytes = Victim().Build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = Parse(bytes.substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    ASSERT_THAT(std::string(status.message()), HasSubstr("victim: ")) << size;
    ASSERT_EQ(status.message().find('\n'), absl::string_view::npos) << size;
  }
}

TEST(HostileGguf, TruncatedFilesOnDiskAreRefused) {
  GgufWriter writer = Victim();
  const std::string bytes = writer.Build();
  std::vector<size_t> sizes = {0, 1, 3, 4, bytes.size() - 1};
  for (const auto& [name, offset] : writer.marks()) sizes.push_back(offset);
  for (const size_t size : sizes) {
    EXPECT_EQ(Load(bytes.substr(0, size)).code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

struct Damage {
  std::string field;  // a mark of GgufWriter
  uint64_t value;
  int bytes;
  std::string complaint;
};

TEST(HostileGguf, BadFieldsAreNamed) {
  GgufWriter writer = Victim();
  const std::string bytes = writer.Build();
  const std::vector<Damage> damages = {
      {"version", 0, 4, "GGUF version 0, expected 2 or 3"},
      {"version", 1, 4, "GGUF version 1, expected 2 or 3"},
      {"version", 4, 4, "GGUF version 4"},
      {"version", 0x03000000, 4, "big-endian"},
      {"n_tensors", kHuge, 8, "tensors, expected at most"},
      {"n_tensors", 1 << 20, 8, "tensors, expected at most"},
      {"n_tensors", 5, 8, "tensor 4"},
      {"n_kv", kHuge, 8, "metadata keys, expected at most"},
      {"n_kv", 60000, 8, "metadata keys, expected at most"},
      {"general.name.length", kHuge, 8, "a string of 18446744073709551615 bytes"},
      {"general.name.length", 0, 8, "an empty name"},
      {"general.name.length", 60000, 8, "the file ends"},
      {"general.name.type", 13, 4, "general.name: unknown value type 13"},
      {"general.name.value", kHuge, 8, "general.name: a string of"},
      {"general.name.value", 1 << 20, 8, "general.name: the file ends"},
      {"ints.value", 9, 4, "ints: an array of arrays"},
      {"ints.value", 99, 4, "ints: unknown value type 99"},
      {"flag.value", 2, 1, "flag: a bool of value 2"},
      {"general.alignment.value", 0, 4, "general.alignment: 0, expected a power of two"},
      {"general.alignment.value", 33, 4, "general.alignment: 33, expected a power of two"},
      {"general.alignment.value", 1u << 31, 4, "general.alignment: 2147483648"},
      {"general.alignment.type", 5, 4, "general.alignment: a value of type i32, expected u32"},
      {"q4.length", 64, 8, "a string of 64 bytes, expected at most 63"},
      {"q4.length", 0, 8, "an empty name"},
      {"q4.n_dims", 5, 4, "q4: 5 dimensions, expected at most 4"},
      {"q4.n_dims", 0xffffffff, 4, "q4: 4294967295 dimensions"},
      {"q4.dims", 0, 8, "q4: dimension 0 is 0"},
      {"q4.dims", kHuge, 8, "q4: dimension 0 is 18446744073709551615"},
      {"q4.dims", uint64_t{1} << 48, 8, "q4: dimension 1 is 2"},
      {"q4.dims", 255, 8, "q4: rows of 255 elements, expected a multiple of 256"},
      {"q4.dims", 256 << 20, 8, "q4: needs"},
      {"q4.type", 4, 4, "q4: type Q4_2 (4), which was removed"},
      {"q4.type", 33, 4, "q4: type Q4_0_8_8 (33), which was removed"},
      {"q4.type", 38, 4, "q4: type IQ4_NL_8_8 (38), which was removed"},
      {"q4.type", 43, 4, "q4: unknown type 43"},
      {"q4.type", 0xffffffff, 4, "q4: unknown type"},
      {"q4.offset", 1, 8, "q4: data at offset 1, expected a multiple of 32"},
      {"q4.offset", kHuge - 31, 8, "q4: needs 288 bytes at offset 18446744073709551584"},
      {"q4.offset", 1 << 20, 8, "q4: needs 288 bytes at offset 1048576"},
      {"q4.offset", 0, 8, "overlaps"},
      {"q8.offset", 0, 8, "overlaps"},
      {"q8.offset", 512, 8, "overlaps"},
  };
  for (const Damage& damage : damages) {
    std::string broken = bytes;
    broken.replace(writer.OffsetOf(damage.field), damage.bytes,
                   BytesOf(damage.value).substr(0, damage.bytes));
    const absl::Status status = Parse(broken).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << damage.field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(damage.complaint)) << damage.field;
    EXPECT_EQ(Load(broken).code(), absl::StatusCode::kInvalidArgument) << damage.field;
  }
}

TEST(HostileGguf, DataWithoutATensorIsRefused) {
  const std::string bytes = Victim().Build();
  EXPECT_TRUE(Parse(bytes + std::string(4096, '\0')).ok());
  const absl::Status status = Parse(bytes + std::string(5000, '\0')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("q8: is the last of 4 tensors, but 5000 bytes follow"));
}

TEST(HostileGguf, HugeArrayCountsAreRefused) {
  GgufWriter writer = Victim();
  const std::string bytes = writer.Build();
  for (const std::string key : {"ints", "flags", "tokenizer.ggml.tokens"}) {
    for (const uint64_t count : {kHuge, uint64_t{1} << 61, uint64_t{1} << 30, uint64_t{100000}}) {
      // The element type of an array precedes its count.
      const std::string broken = Patched(bytes, writer.OffsetOf(key + ".value") + 4, count);
      const absl::Status status = Parse(broken).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key << " " << count;
      EXPECT_THAT(std::string(status.message()), HasSubstr(key + ": ")) << count;
    }
  }
}

TEST(HostileGguf, DuplicatesAreRefused) {
  GgufWriter writer = Victim();
  writer.String("general.namf", "x").F32Tensor("q9", {1}, {1.0f});
  const std::string bytes = writer.Build();
  // Changes the last letter of the key or of the tensor's name. The text follows its length, which
  // has eight bytes.
  std::string twice = bytes;
  twice[writer.OffsetOf("general.namf.length") + 8 + 11] = 'e';
  EXPECT_THAT(std::string(Parse(twice).status().message()),
              HasSubstr("general.name: appears twice"));
  twice = bytes;
  twice[writer.OffsetOf("q9.length") + 8 + 1] = '8';
  EXPECT_THAT(std::string(Parse(twice).status().message()), HasSubstr("q8: appears twice"));
}

TEST(HostileGguf, NamesWithControlCharactersStayOnOneLine) {
  GgufWriter writer;
  writer.Tensor("a\nb\x1b[2J", GgmlType::kF32, {4}, "");
  const absl::Status status = Parse(writer.Build()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("a\\nb\\x1b[2J: needs 16 bytes"));
}

TEST(HostileGguf, ForeignFilesAreRefused) {
  const std::vector<std::string> foreign = {
      "PK\3\4 a zip archive", "GGML old format",
      "{\"json\": true}",     "FUGG",
      std::string(100, '\0'), std::string("GGUF\0\0\0\3", 8) + std::string(100, '\0')};
  for (const std::string& bytes : foreign) {
    const absl::Status status = Load(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bytes;
    EXPECT_THAT(std::string(status.message()), HasSubstr("hostile.gguf: header: ")) << bytes;
  }
}

// Testing all values of all structural bytes would take too long, so this tests a fixed random
// sample.
TEST(HostileGguf, RandomDamageNeverReadsOutside) {
  const std::string bytes = Victim().Build();
  std::mt19937 random(20240817);
  int refused = 0;
  constexpr int kTrials = 20000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::string broken = bytes;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) {
      char& byte = broken[random() % broken.size()];
      byte = random() % 2 == 0 ? static_cast<char>(byte ^ (1 << random() % 8))
                               : static_cast<char>(random());
    }
    if (random() % 8 == 0) broken.resize(random() % (broken.size() + 1));
    refused += Parse(broken).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, kTrials / 10);
  EXPECT_LT(refused, kTrials);
}

TEST(HostileGguf, RandomDamageOnDiskLoadsOrIsRefused) {
  const std::string bytes = Victim().Build();
  std::mt19937 random(7);
  for (int trial = 0; trial < 500; ++trial) {
    std::string broken = bytes;
    broken[random() % broken.size()] ^= static_cast<char>(1 << random() % 8);
    const absl::Status status = Load(broken);
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace tidepool::engine
