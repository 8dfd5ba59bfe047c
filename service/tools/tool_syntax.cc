#include "service/tools/tool_syntax.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {
namespace {

struct Markers {
  absl::string_view begin, end;
};

constexpr Markers kReasoningMarkers[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"◁think▷", "◁/think▷"},
    {"Here is my thought process:", "Here is my response:"},  // Granite 3.2
};

}  // namespace

v1::ToolSyntax ToolSyntaxOf(absl::string_view source) {
  const auto has = [source](absl::string_view text) { return absl::StrContains(source, text); };
  if (source.empty()) return v1::TOOL_SYNTAX_UNSPECIFIED;
  if (has(harmony::kChannel) && has(harmony::kMessage)) return v1::HARMONY;
  // The first part of the markers of DeepSeek-V3.2 is a variable in its template.
  if (has("DSML") && has("invoke name=")) return v1::DEEPSEEK_DSML;
  if (has("<｜tool▁calls▁begin｜>")) return has("```json") ? v1::DEEPSEEK_V3 : v1::DEEPSEEK_V31;
  if (!has("tools")) return v1::GENERIC_TOOLS;
  if (has("<arg_key>") && has("<arg_value>")) return v1::GLM_XML;
  if (has("<tool_call>") && has("<function=") && has("<parameter=")) return v1::QWEN_XML;
  if (has("<seed:tool_call>") && has("<function=")) return v1::SEED_XML;
  // Later models of the family write other markers, and ids that count the calls.
  if (has("Action:") && has("```json") && has("\"tool_name\"") && !has("<|START_ACTION|>")) {
    return v1::COMMAND_R;
  }
  if (has("[TOOL_CALLS]")) return has("[ARGS]") ? v1::MISTRAL_ARGS : v1::MISTRAL_LIST;
  if (has("<tool_call>") && has("</tool_call>") && has("arguments")) return v1::TOOL_CALL_TAGS;
  // Granite 3 writes its calls like this, although not all of its templates say so.
  if (has("<|tool_call|>") || has("<|start_of_role|>tools<|end_of_role|>")) return v1::GRANITE;
  if (has("func_name1(params_name1=") || has("<|python_start|>")) return v1::LLAMA_PYTHONIC;
  if (has("\"parameters\": dictionary of argument name and its value") || has("<|python_tag|>")) {
    return v1::LLAMA3_JSON;
  }
  return v1::OTHER_TOOL_SYNTAX;
}

v1::ReasoningMarkers ReasoningMarkersOf(absl::string_view source) {
  v1::ReasoningMarkers markers;
  if (ToolSyntaxOf(source) == v1::HARMONY) {
    markers.set_begin(absl::StrCat(harmony::kChannel, "analysis", harmony::kMessage));
    markers.set_end(std::string(harmony::kEnd));
    return markers;
  }
  for (const Markers& known : kReasoningMarkers) {
    // Some templates of DeepSeek-R1 contain only the end marker. With it, they remove the reasoning
    // of earlier messages.
    if (!absl::StrContains(source, known.end)) continue;
    markers.set_begin(std::string(known.begin));
    markers.set_end(std::string(known.end));
    break;
  }
  return markers;
}

bool EndsInReasoning(absl::string_view prompt, const v1::ReasoningMarkers& markers) {
  return !markers.begin().empty() &&
         absl::EndsWith(absl::StripTrailingAsciiWhitespace(prompt), markers.begin());
}

bool ContinuesReasoning(absl::string_view message, const v1::ReasoningMarkers& markers) {
  if (markers.begin().empty()) return false;
  const size_t begin = message.rfind(markers.begin());
  return begin != message.npos && !absl::StrContains(message.substr(begin), markers.end());
}

}  // namespace tidepool::service
