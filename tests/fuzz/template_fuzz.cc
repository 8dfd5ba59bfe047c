// libFuzzer target: any text as a chat template, rendered with any JSON as its variables. The
// text before the line "---" is the template. After it follows an optional object with "messages",
// "tools" and "template_kwargs".
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:template_fuzz -- -max_total_time=60
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "engine/chat_template/chat_template.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

namespace {

using tidepool::engine::ChatInputs;
using tidepool::engine::ChatTemplate;
using tidepool::engine::ChatTemplateLimits;
using tidepool::engine::TextOrigin;
using tidepool::engine::TextPiece;
using Json = nlohmann::ordered_json;

constexpr absl::string_view kSeparator = "\n---\n";
// A character that no operation produces from others. If it is in the output, it came from a
// message.
constexpr absl::string_view kMark = "\xEE\x80\x80";  // U+E000

ChatInputs InputsOf(absl::string_view text) {
  ChatInputs inputs;
  inputs.bos_token = "<s>";
  inputs.eos_token = "</s>";
  inputs.now = absl::FromUnixSeconds(1'700'000'000);
  const std::string mark(kMark);
  inputs.messages = Json::array({{{"role", "system"}, {"content", mark + "Be brief."}},
                                 {{"role", "user"}, {"content", "<s>" + mark + " \u00dfx\n"}}});
  inputs.template_kwargs = {{"n", 7}, {"f", 2.5}, {"xs", {3, 1, 2}}, {"d", {{"k", mark}}}};
  const Json given = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) return inputs;
  if (given.contains("messages")) inputs.messages = given["messages"];
  if (given.contains("tools")) inputs.tools = given["tools"];
  if (given.contains("template_kwargs")) inputs.template_kwargs = given["template_kwargs"];
  return inputs;
}

void CheckMessage(const absl::Status& status) {
  CHECK(!absl::StrContains(status.message(), "\n"));
  CHECK(!status.message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find(kSeparator), input.size());
  const absl::string_view source = input.substr(0, cut);
  const auto chat = ChatTemplate::Parse(source);
  if (!chat.ok()) {
    CheckMessage(chat.status());
    return 0;
  }
  const absl::string_view rest =
      cut == input.size() ? absl::string_view() : input.substr(cut + kSeparator.size());
  const ChatTemplateLimits limits = {1 << 20, 100'000, 16 << 20, 1 << 20};
  const auto pieces = chat->Render(InputsOf(rest), limits);
  if (!pieces.ok()) {
    CheckMessage(pieces.status());
    return 0;
  }
  // An escape sequence in a literal could produce the mark. Then it belongs to the template.
  const bool can_write_mark = absl::StrContains(source, kMark) || absl::StrContains(source, "\\");
  std::string text;
  for (const TextPiece& piece : *pieces) {
    CHECK(!piece.text.empty());
    CHECK(can_write_mark || piece.origin == TextOrigin::kUser ||
          !absl::StrContains(piece.text, kMark));
    text += piece.text;
  }
  CHECK(tidepool::base::CheckUtf8(text, "the prompt").ok());
  return 0;
}
