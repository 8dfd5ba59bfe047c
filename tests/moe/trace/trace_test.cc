#include "moe/trace/trace.h"

#include <zstd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "moe/trace/trace_writer.h"
#include "tests/moe/replay/made_traces.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kHeader[] =
    "{\"version\":1,\"model\":\"m\",\"layers\":2,\"experts\":4,\"top_k\":2,\"expert_bytes\":10}\n";

std::string TempFile(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Compressed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), 0);
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(TraceTest, ParsesEveryVariant) {
  const std::string text = absl::StrCat(
      "{\"version\":1,\"model\":\"m\",\"layers\":2,\"experts\":4,\"top_k\":2,"
      "\"expert_bytes\":[10,20],\"more\":{\"a\":[1]}}\r\n",
      "{\"request\":\"a\",\"phase\":\"prefill\",\"step\":3,\"layer\":1,\"ids\":[[3,0],[1,2]],",
      "\"weights\":[[0.5,0.25],[1,0]]}\n\n",
      "{\"request\":[\"b\",\"a\"],\"phase\":[\"decode\",\"prefill\"],\"step\":4,\"layer\":0,",
      "\"ids\":[[3,0],[1,2]]}\n",
      "{\"request\":7,\"phase\":\"decode\",\"step\":4,\"layer\":1,\"ids\":[],\"x\":null}");
  for (const std::string& bytes : {text, Compressed(text)}) {
    const auto trace = ParseTrace("t", bytes);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->header.model, "m");
    EXPECT_THAT(trace->header.expert_bytes, ElementsAre(10, 20));
    EXPECT_EQ(trace->header.slot_bytes(), 20);
    ASSERT_EQ(trace->entries.size(), 3u);
    const TraceEntry& first = trace->entries[0];
    EXPECT_EQ(first.step, 3);
    EXPECT_EQ(first.layer, 1);
    EXPECT_EQ(first.tokens(2), 2);
    EXPECT_THAT(first.ids, ElementsAre(3, 0, 1, 2));
    EXPECT_THAT(first.weights, ElementsAre(0.5f, 0.25f, 1.0f, 0.0f));
    EXPECT_THAT(first.phases, ElementsAre(Phase::kPrefill));
    EXPECT_THAT(first.requests, ElementsAre(0));
    EXPECT_THAT(trace->entries[1].phases, ElementsAre(Phase::kDecode, Phase::kPrefill));
    EXPECT_THAT(trace->entries[1].requests, ElementsAre(1, 0));
    EXPECT_THAT(trace->entries[1].weights, IsEmpty());
    EXPECT_EQ(trace->entries[2].tokens(2), 0);
  }
}

TEST(TraceTest, ErrorsNameLineAndFault) {
  const std::string entry = "{\"request\":\"a\",\"phase\":\"decode\",\"step\":0,\"layer\":0,";
  const std::pair<std::string, std::string> cases[] = {
      {"", "t: empty; a routing trace must begin with a line {\"version\":1,...}"},
      {"{\"version\":2}", "t: line 1: a routing trace must begin with {\"version\":1,...}"},
      {"[1]",
       "t: line 1: not a routing trace: it must begin with {\"version\":1,...}; --trace-experts "
       "writes one"},
      {"{\"version\":1,\"model\":3}", "t: line 1: \"model\" is not a name"},
      {"{\"version\":1,\"model\":\"m\",\"layers\":0}", "t: line 1: \"layers\" is not in 1 to 4096"},
      {"{\"version\":1,\"model\":\"m\",\"layers\":2,\"experts\":1e3}",
       "t: line 1: \"experts\" is not in 1 to 65536"},
      {"{\"version\":1,\"model\":\"m\",\"layers\":2,\"experts\":4,\"top_k\":5}",
       "t: line 1: \"top_k\" is not in 1 to 4"},
      {"{\"version\":1,\"model\":\"m\",\"layers\":2,\"experts\":4,\"top_k\":2,\"expert_bytes\":[1]"
       "}",
       "t: line 1: \"expert_bytes\" has 1 entries for 2 layers"},
      {"{\"version\":1,\"model\":\"m\",\"layers\":2,\"experts\":4,\"top_k\":2,\"expert_bytes\":0}",
       "t: line 1: \"expert_bytes\" is not a number of bytes or a list with one for each layer"},
      {"{\"version\":1,\"model\":\"m\",\"layers\":4096,\"experts\":4096,\"top_k\":1,"
       "\"expert_bytes\":1}",
       "t: line 1: 4096 layers of 4096 experts exceed the limit of 1048576 experts"},
      {absl::StrCat(kHeader, "{\"request\":\"a"),
       "t: line 2: \"{\"request\":\"a\" is not a JSON object; is the file truncated?"},
      {absl::StrCat(kHeader, "{\"step\":-1}"),
       "t: line 2: \"step\" is not the number of a forward"},
      {absl::StrCat(kHeader, "{\"step\":0,\"layer\":2}"), "t: line 2: \"layer\" is not in 0 to 1"},
      {absl::StrCat(kHeader, entry, "\"ids\":3}"),
       "t: line 2: \"ids\" is not an array with a row for each token"},
      {absl::StrCat(kHeader, entry, "\"ids\":[[1]]}"),
       "t: line 2: a row of \"ids\" is not an array of 2 experts"},
      {absl::StrCat(kHeader, entry, "\"ids\":[[1,4]]}"),
       "t: line 2: an expert in \"ids\" is not in 0 to 3"},
      {absl::StrCat(kHeader, entry, "\"ids\":[[1,1]]}"), "t: line 2: a token names expert 1 twice"},
      {absl::StrCat(kHeader, entry, "\"ids\":[[1,2]],\"weights\":[[1]]}"),
       "t: line 2: \"weights\" does not have the shape of \"ids\""},
      {absl::StrCat(kHeader,
                    "{\"request\":\"a\",\"phase\":\"x\",\"step\":0,\"layer\":0,\"ids\":[]}"),
       "t: line 2: \"phase\" is not \"prefill\" or \"decode\", or one per token"},
      {absl::StrCat(kHeader, "{\"phase\":\"decode\",\"step\":0,\"layer\":0,\"ids\":[]}"),
       "t: line 2: \"request\" is not a name, or one per token"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseTrace("t", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message(), message);
  }
  EXPECT_TRUE(absl::StrContains(ReadTrace("/nowhere/x.jsonl").status().message(),
                                "cannot read the trace /nowhere/x.jsonl"));
}

TEST(TraceTest, DamagedCompressionIsDataLoss) {
  std::string bytes = Compressed(kHeader);
  absl::Status status = ParseTrace("t.zst", bytes.substr(0, bytes.size() - 3)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), "t.zst: the zstd data ends early")) << status;
  bytes[6] ^= 0x55;
  status = ParseTrace("t.zst", bytes).status();
  EXPECT_FALSE(status.ok());
}

TEST(TraceTest, WrittenTracesReadBackEqual) {
  Trace made = MakeTrace({.forwards = 50, .tokens = 3, .prefill_every = 9, .prefill_tokens = 11});
  made.header.expert_bytes[1] = 77;
  made.entries[5].weights = {0.1f, 0.9f, 1e-9f, 1.0f / 3, 0.5f, 0.25f};
  made.entries[6].phases = {Phase::kDecode, Phase::kPrefill, Phase::kDecode};
  made.entries[6].requests = {0, 1, 2};
  for (const char* name : {"made.jsonl", "made.jsonl.zst"}) {
    const std::string path = TempFile(name);
    auto writer = TraceWriter::Create(path, made.header);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const TraceEntry& entry : made.entries) {
      ASSERT_TRUE((*writer)->Write(entry.routing(made.header.top_k)).ok());
    }
    ASSERT_TRUE((*writer)->Close().ok());
    const auto read = ReadTrace(path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->header.expert_bytes, made.header.expert_bytes);
    ASSERT_EQ(read->entries.size(), made.entries.size());
    for (size_t i = 0; i < made.entries.size(); ++i) {
      EXPECT_EQ(read->entries[i].step, made.entries[i].step);
      EXPECT_EQ(read->entries[i].layer, made.entries[i].layer);
      EXPECT_EQ(read->entries[i].ids, made.entries[i].ids);
      EXPECT_EQ(read->entries[i].weights, made.entries[i].weights);
      EXPECT_EQ(read->entries[i].phases, made.entries[i].phases);
      EXPECT_EQ(read->entries[i].requests, made.entries[i].requests);
    }
  }
  EXPECT_LT(Contents(TempFile("made.jsonl.zst")).size() * 4,
            Contents(TempFile("made.jsonl")).size());
}

TEST(TraceTest, WritesTheDocumentedFormat) {
  const std::string path = TempFile("format.jsonl");
  auto writer = TraceWriter::Create(
      path, {.model = "m\n", .layers = 2, .experts = 4, .top_k = 2, .expert_bytes = {10, 10}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::vector<int32_t> ids = {3, 0, 1, 2};
  const std::vector<Phase> phases = {Phase::kPrefill, Phase::kDecode};
  ASSERT_TRUE(
      (*writer)->Write({.step = 1, .layer = 1, .tokens = 2, .ids = ids, .phases = phases}).ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  EXPECT_EQ(Contents(path),
            "{\"version\":1,\"model\":\"m\\n\",\"layers\":2,\"experts\":4,\"top_k\":2,"
            "\"expert_bytes\":10}\n"
            "{\"request\":\"r0\",\"phase\":[\"prefill\",\"decode\"],\"step\":1,\"layer\":1,"
            "\"ids\":[[3,0],[1,2]]}\n");
}

TEST(TraceTest, WriteErrorsNameThePath) {
  const TraceHeader header{
      .model = "m", .layers = 1, .experts = 2, .top_k = 1, .expert_bytes = {1}};
  EXPECT_TRUE(absl::StrContains(TraceWriter::Create("/nowhere/t", header).status().message(),
                                "cannot write the trace /nowhere/t"));
  auto writer = TraceWriter::Create("/dev/full", header);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(absl::StrContains((*writer)->Flush().message(), "cannot write the trace /dev/full"));
}

TEST(TraceTest, CountsADistinctExpertOncePerForward) {
  Trace trace = MakeTrace({.layers = 2, .experts = 3, .top_k = 1, .forwards = 0});
  trace.entries = {{.step = 0, .layer = 0, .ids = {1, 1, 2}},
                   {.step = 0, .layer = 1, .ids = {0}},
                   {.step = 1, .layer = 0, .ids = {1}}};
  EXPECT_THAT(CountUses(trace), ElementsAre(0, 2, 1, 1, 0, 0));
}

}  // namespace
}  // namespace tidepool::moe
