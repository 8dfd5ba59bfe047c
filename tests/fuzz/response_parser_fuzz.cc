// libFuzzer target: any text as a response that is separated into reasoning, content and tool
// calls. The first byte selects the syntax. The second byte has flags: 1, the request has tools; 2,
// the model has reasoning; 4, the prompt ends inside of the reasoning. Its other bits select the
// size of the pieces. No text may be lost, and the result must not depend on the pieces.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:response_parser_fuzz -- -max_total_time=60
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/tools/response_parser.h"

namespace {

namespace service = tidepool::service;
namespace v1 = tidepool::v1;
using Kind = service::OutputPiece::Kind;

constexpr char kTools[] =
    R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{)"
    R"("a":{"type":"string"},"n":{"type":["array","number","null"]}}}}},)"
    R"({"type":"function","function":{"name":"g"}}])";

struct Found {
  std::string reasoning, content, calls;
  int64_t call_count = 0;
  bool operator==(const Found&) const = default;
};

Found Parse(const service::ResponseFormat& format, absl::string_view text, size_t step) {
  service::ResponseParser parser(format);
  service::OutputPieces pieces;
  for (size_t i = 0; i < text.size(); i += step) parser.Feed(text.substr(i, step), &pieces);
  parser.Finish(&pieces);
  Found found;
  for (const service::OutputPiece& piece : pieces) {
    if (piece.kind == Kind::kReasoning) found.reasoning += piece.text;
    if (piece.kind == Kind::kContent) found.content += piece.text;
    if (piece.kind == Kind::kArguments) {
      CHECK_EQ(piece.call + 1, found.call_count);
      found.calls += piece.text;
    }
    if (piece.kind == Kind::kCall) {
      CHECK_EQ(piece.call, found.call_count++);
      CHECK(!piece.text.empty());
      absl::StrAppend(&found.calls, "\n", piece.text, " ");
    }
  }
  return found;
}

size_t Count(absl::string_view text, absl::string_view word) {
  size_t count = 0;
  for (size_t i = text.find(word); i != text.npos; i = text.find(word, i + 1)) ++count;
  return count;
}

size_t Letters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); });
}

// Checks that the letters of the text are in the result, except those of markers.
void CheckNothingIsLost(const service::ResponseFormat& format, absl::string_view text,
                        const Found& found) {
  const bool harmony = format.syntax == v1::HARMONY;
  const bool reasons = !format.reasoning.begin().empty() && !harmony;
  if (found.call_count == 0 && !reasons && !harmony) {
    CHECK(found.content == text);
    CHECK(found.reasoning.empty());
    return;
  }
  const size_t kept = Letters(found.reasoning) + Letters(found.content) + Letters(found.calls);
  size_t markers = reasons ? 5 * (Count(text, "<think>") + Count(text, "</think>")) : 0;
  // A header of harmony, or the markers and other members of a call.
  constexpr size_t kMaxMarker = 1200;
  markers += kMaxMarker * static_cast<size_t>(found.call_count);
  if (harmony) markers += kMaxMarker * (Count(text, "<|message|>") + 1) + 10 * Count(text, "<|");
  CHECK(kept + markers >= Letters(text)) << "of " << text.size() << " bytes";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const absl::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  service::ResponseFormat format;
  format.syntax = static_cast<v1::ToolSyntax>(data[0] % (v1::ToolSyntax_MAX + 1));
  if ((data[1] & 1) != 0) format.tools = std::make_shared<service::ToolSchemas>(kTools);
  if ((data[1] & 2) != 0) {
    format.reasoning.set_begin("<think>");
    format.reasoning.set_end("</think>");
  }
  format.in_reasoning = (data[1] & 4) != 0;
  const Found whole = Parse(format, text, std::max<size_t>(text.size(), 1));
  CHECK(whole == Parse(format, text, 1 + data[1] / 8));
  CHECK(whole == Parse(format, text, 1));
  CheckNothingIsLost(format, text, whole);
  return 0;
}
