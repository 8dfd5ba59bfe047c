#include "service/worker/run_reasoning.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {

void RunReasoning::OnStart(const worker::v1::Start& start) {
  if (!start.has_chat() || model_.reasoning.begin().empty()) return;
  // Other syntaxes have no reasoning inside of the part that may contain calls.
  const bool harmony = model_.tool_syntax == v1::HARMONY;
  ResponseFormat format = {.reasoning = model_.reasoning,
                           .in_reasoning = start.prepared().in_reasoning()};
  if (harmony) format.syntax = v1::HARMONY;
  if (harmony && !start.chat().tools_json().empty()) {
    format.tools = std::make_shared<const ToolSchemas>();
  }
  counter_.emplace(format);
  for (const std::string& text : MarkersOf(format.syntax, model_.reasoning)) {
    const std::optional<int32_t> id = model_.tokenizer->FindToken(text);
    if (id.has_value() && model_.tokenizer->IsControl(*id)) markers_.push_back(*id);
  }
  Add(start.output_token_ids());
}

void RunReasoning::Add(absl::Span<const int32_t> tokens) {
  if (!counter_.has_value()) return;
  for (const int32_t id : tokens) {
    if (!model_.tokenizer->IsValid(id)) continue;
    const bool shown = !model_.tokenizer->IsControl(id) ||
                       std::find(markers_.begin(), markers_.end(), id) != markers_.end();
    counter_->Add(shown ? model_.tokenizer->TokenBytes(id) : absl::string_view());
  }
}

}  // namespace tidepool::service
