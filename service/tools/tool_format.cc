#include "service/tools/tool_format.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace tidepool::service {
namespace {

constexpr ToolFormat Tags(v1::ToolSyntax syntax) {
  return {.syntax = syntax,
          .trigger = "<tool_call>",
          .separator = "\n",
          .call_begin = "<tool_call>\n{\"name\": \"",
          .name_end = "\", \"arguments\": ",
          .call_end = "}\n</tool_call>",
          .json_object = true};
}

constexpr ToolFormat kFormats[] = {
    Tags(v1::TOOL_CALL_TAGS),
    Tags(v1::GENERIC_TOOLS),
    {.syntax = v1::LLAMA3_JSON,
     .optional_marker = "<|python_tag|>",
     .separator = "; ",
     .call_begin = "{\"name\": \"",
     .name_end = "\", \"parameters\": ",
     .call_end = "}",
     .json_object = true},
    {.syntax = v1::MISTRAL_LIST,
     .trigger = "[TOOL_CALLS]",
     .begin = "[TOOL_CALLS][",
     .end = "]",
     .separator = ", ",
     .call_begin = "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}",
     .json_object = true},
    {.syntax = v1::MISTRAL_ARGS,
     .trigger = "[TOOL_CALLS]",
     .call_begin = "[TOOL_CALLS]",
     .name_end = "[ARGS]"},
    {.syntax = v1::QWEN_XML,
     .trigger = "<tool_call>",
     .separator = "\n",
     .call_begin = "<tool_call>\n<function=",
     .name_end = ">\n",
     .call_end = "</function>\n</tool_call>",
     .form = ArgumentForm::kParameters,
     .parameter = {.key_begin = "<parameter=", .key_end = ">\n", .value_end = "\n</parameter>\n"}},
    {.syntax = v1::GLM_XML,
     .trigger = "<tool_call>",
     .separator = "\n",
     .call_begin = "<tool_call>",
     .name_end = "\n",
     .call_end = "</tool_call>",
     .form = ArgumentForm::kParameters,
     .parameter = {.key_begin = "<arg_key>",
                   .key_end = "</arg_key>\n<arg_value>",
                   .value_end = "</arg_value>\n"}},
    {.syntax = v1::LLAMA_PYTHONIC,
     .optional_marker = "<|python_start|>",
     .begin = "[",
     .end = "]",
     .separator = ", ",
     .name_end = "(",
     .call_end = ")",
     .form = ArgumentForm::kPython},
    {.syntax = v1::DEEPSEEK_V3,
     .trigger = "<｜tool▁calls▁begin｜>",
     .begin = "<｜tool▁calls▁begin｜>",
     .end = "<｜tool▁calls▁end｜>",
     .separator = "\n",
     .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .name_end = "\n```json\n",
     .call_end = "\n```<｜tool▁call▁end｜>"},
    {.syntax = v1::DEEPSEEK_V31,
     .trigger = "<｜tool▁calls▁begin｜>",
     .begin = "<｜tool▁calls▁begin｜>",
     .end = "<｜tool▁calls▁end｜>",
     .call_begin = "<｜tool▁call▁begin｜>",
     .name_end = "<｜tool▁sep｜>",
     .call_end = "<｜tool▁call▁end｜>"},
    {.syntax = v1::DEEPSEEK_DSML,
     .trigger = "<｜DSML｜function_calls>",
     .begin = "<｜DSML｜function_calls>\n",
     .end = "\n</｜DSML｜function_calls>",
     .separator = "\n",
     .call_begin = "<｜DSML｜invoke name=\"",
     .name_end = "\">\n",
     .call_end = "</｜DSML｜invoke>",
     .form = ArgumentForm::kParameters,
     .parameter = {.key_begin = "<｜DSML｜parameter name=\"",
                   .key_end = "\" string=\"true\">",
                   .json_key_end = "\" string=\"false\">",
                   .value_end = "</｜DSML｜parameter>\n"}},
    {.syntax = v1::HARMONY,
     .trigger = "<|channel|>commentary to=functions.",
     .call_begin = "<|channel|>commentary to=functions.",
     .name_end = " <|constrain|>json<|message|>",
     .call_end = harmony::kCall,
     .parallel = false},
    {.syntax = v1::GRANITE,
     .trigger = "<|tool_call|>",
     .begin = "<|tool_call|>[",
     .end = "]",
     .separator = ", ",
     .call_begin = "{\"name\": \"",
     .name_end = "\", \"arguments\": ",
     .call_end = "}",
     .json_object = true},
    {.syntax = v1::SEED_XML,
     .trigger = "<seed:tool_call>",
     .separator = "\n",
     .call_begin = "<seed:tool_call>\n<function=",
     .name_end = ">\n",
     .call_end = "</function>\n</seed:tool_call>",
     .form = ArgumentForm::kParameters,
     .parameter = {.key_begin = "<parameter=", .key_end = ">", .value_end = "</parameter>\n"}},
    {.syntax = v1::COMMAND_R,
     .trigger = "Action: ```json",
     .begin = "Action: ```json\n[\n",
     .end = "\n]```",
     .separator = ",\n",
     .call_begin = "{\"tool_name\": \"",
     .name_end = "\", \"parameters\": ",
     .call_end = "}",
     .json_object = true},
};

// Adds `text` and, if it begins or ends with a text in brackets, also this text.
void AddMarkers(absl::string_view text, std::vector<std::string>* markers) {
  const auto add = [markers](absl::string_view marker) {
    if (marker.empty()) return;
    if (std::find(markers->begin(), markers->end(), marker) == markers->end()) {
      markers->emplace_back(marker);
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char close = text[i] == '<' ? '>' : text[i] == '[' ? ']' : '\0';
    const size_t end = close == '\0' ? text.npos : text.find(close, i);
    if (end == text.npos) continue;
    add(text.substr(i, end + 1 - i));
    i = end;
  }
  add(absl::StripAsciiWhitespace(text));
}

}  // namespace

const ToolFormat* FormatOf(v1::ToolSyntax syntax) {
  for (const ToolFormat& format : kFormats) {
    if (format.syntax == syntax) return &format;
  }
  return nullptr;
}

std::vector<const ToolFormat*> AllToolFormats() {
  std::vector<const ToolFormat*> all;
  for (const ToolFormat& format : kFormats) all.push_back(&format);
  return all;
}

std::vector<std::string> MarkersOf(v1::ToolSyntax syntax, const v1::ReasoningMarkers& reasoning) {
  std::vector<std::string> markers;
  AddMarkers(reasoning.begin(), &markers);
  AddMarkers(reasoning.end(), &markers);
  const ToolFormat* const format = FormatOf(syntax);
  if (format == nullptr) return markers;
  for (const absl::string_view text :
       {format->trigger, format->optional_marker, format->begin, format->end, format->call_begin,
        format->name_end, format->call_end, format->parameter.key_begin, format->parameter.key_end,
        format->parameter.json_key_end, format->parameter.value_end}) {
    AddMarkers(text, &markers);
  }
  if (syntax == v1::HARMONY) {
    for (const absl::string_view text :
         {harmony::kStart, harmony::kChannel, harmony::kConstrain, harmony::kMessage, harmony::kEnd,
          harmony::kCall, harmony::kReturn}) {
      AddMarkers(text, &markers);
    }
  }
  if (syntax == v1::LLAMA_PYTHONIC) {
    AddMarkers("<|python_end|>", &markers);
    AddMarkers("<|python_tag|>", &markers);
  }
  if (syntax == v1::MISTRAL_ARGS) AddMarkers("[CALL_ID]", &markers);
  return markers;
}

}  // namespace tidepool::service
