// libFuzzer target: any text as a regular expression. A grammar that compiles has no dead ends.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:regex_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tidepool::engine::grammar::GrammarKind;
  const std::string text(reinterpret_cast<const char*>(data), size);
  tidepool::fuzz::CheckGrammar({.kind = GrammarKind::kRegex, .text = text}, text);
  return 0;
}
