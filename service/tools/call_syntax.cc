#include "service/tools/call_syntax.h"

namespace tidepool::service {
namespace {

// Returns the syntax of a format whose calls are JSON objects.
CallSyntax ObjectSyntax(const ToolFormat& format) {
  switch (format.syntax) {
    case v1::LLAMA3_JSON:
      return {.format = &format,
              .at_start = {"<|python_tag|> ", ""},
              .after_call = {" ; ", " "},
              .call_end = {"}"}};
    case v1::MISTRAL_LIST:
      // Workers of older releases leave out the name of the control token.
      return {.format = &format,
              .anywhere = {"[TOOL_CALLS] [ ", "[TOOL_CALLS] "},
              .at_start = {"[ "},
              .after_call = {" , ", " "},
              .call_end = {"}"},
              .section_end = {"]"}};
    case v1::GRANITE:
      return {.format = &format,
              .anywhere = {"<|tool_call|> [ ", "<tool_call> [ "},
              .at_start = {"[ "},
              .after_call = {" , ", " "},
              .call_end = {"}"},
              .section_end = {"]", "<|/tool_call|>", "</tool_call>"}};
    case v1::COMMAND_R:
      return {.format = &format,
              .anywhere = {"Action: ```json [ "},
              .after_call = {" , ", " "},
              .call_end = {"}"},
              .section_end = {"]", "```"}};
    default:  // TOOL_CALL_TAGS, GENERIC_TOOLS
      return {.format = &format, .anywhere = {"<tool_call> "}, .call_end = {"}", "</tool_call>"}};
  }
}

}  // namespace

CallSyntax SyntaxOf(const ToolFormat& format) {
  switch (format.syntax) {
    case v1::MISTRAL_ARGS:
      return {.format = &format,
              .anywhere = {"[TOOL_CALLS] "},
              .name_end = {"[ARGS]", "[CALL_ID]", ""}};
    case v1::QWEN_XML:
      // Qwen3-Coder sometimes forgets <tool_call>.
      return {.format = &format,
              .anywhere = {"<tool_call> <function=", "<function="},
              .name_end = {">"},
              .call_end = {"</function>", "</tool_call>"}};
    case v1::SEED_XML:
      return {.format = &format,
              .anywhere = {"<seed:tool_call> <function="},
              .name_end = {">"},
              .call_end = {"</function>", "</seed:tool_call>"}};
    case v1::GLM_XML:
      return {.format = &format,
              .anywhere = {"<tool_call> "},
              .name_end = {""},
              .call_end = {"</tool_call>"}};
    case v1::LLAMA_PYTHONIC:
      return {.format = &format,
              .at_start = {"<|python_start|> [ ", "<|python_tag|> [ ", "[ "},
              .after_call = {" , "},
              .name_end = {"("},
              .call_end = {")"},
              .section_end = {"]", "<|python_end|>"}};
    case v1::DEEPSEEK_V3:
      return {.format = &format,
              .anywhere = {"<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> function <｜tool▁sep｜> ",
                           "<｜tool▁call▁begin｜> function <｜tool▁sep｜> "},
              .name_end = {"```json", "```", ""},
              .call_end = {"```", "<｜tool▁call▁end｜>"},
              .section_end = {"<｜tool▁calls▁end｜>"}};
    case v1::DEEPSEEK_V31:
      return {
          .format = &format,
          .anywhere = {"<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜> ", "<｜tool▁call▁begin｜> "},
          .name_end = {"<｜tool▁sep｜>"},
          .call_end = {"<｜tool▁call▁end｜>"},
          .section_end = {"<｜tool▁calls▁end｜>"}};
    case v1::DEEPSEEK_DSML:
      return {.format = &format,
              .anywhere = {"<｜DSML｜function_calls> <｜DSML｜invoke name=\"",
                           "<｜DSML｜invoke name=\""},
              .name_end = {"\">"},
              .call_end = {"</｜DSML｜invoke>"},
              .section_end = {"</｜DSML｜function_calls>"}};
    default:
      return ObjectSyntax(format);
  }
}

}  // namespace tidepool::service
