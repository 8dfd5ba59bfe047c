// Interpreter: renders a parsed template once.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_JINJA_INTERPRETER_H_
#define TIDEPOOL_ENGINE_TOKENIZER_JINJA_INTERPRETER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/tokenizer/jinja/ast.h"
#include "engine/tokenizer/jinja/functions.h"
#include "engine/tokenizer/jinja/text.h"
#include "engine/tokenizer/jinja/value.h"

namespace tidepool::engine::jinja {

struct InterpreterOptions {
  int64_t output_bytes = 0;
  int64_t steps = 0;
  int64_t copied_bytes = 0;
  std::optional<absl::Time> now;  // what strftime_now tells; unset: it is undefined
};

// Thread-compatible; for one rendering. The template outlives it.
class Interpreter {
 public:
  explicit Interpreter(const InterpreterOptions& options);

  void SetVariable(absl::string_view name, Value value);

  // What `block` prints. Errors say "chat template, line N: ...": INVALID_ARGUMENT for values that
  // do not fit and for raise_exception, UNIMPLEMENTED for unknown functions, RESOURCE_EXHAUSTED
  // past a limit.
  absl::StatusOr<Text> Run(const Block& block);

 private:
  using Scope = absl::flat_hash_map<std::string, Value>;

  // How a block ended.
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // Statements.
  absl::StatusOr<Flow> Execute(const Block& block, Text* out);
  absl::StatusOr<Flow> ExecuteOne(const Statement& statement, Text* out);
  absl::StatusOr<Flow> ExecuteIf(const Statement& statement, Text* out);
  absl::StatusOr<Flow> ExecuteFor(const Statement& statement, Text* out);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& statement);
  absl::Status ExecuteSet(const Statement& statement);
  absl::StatusOr<Flow> ExecuteSetBlock(const Statement& statement);
  absl::Status Print(const Text& text, Text* out);
  absl::Status Assign(const std::vector<std::string>& targets, const Value& value);

  // Expressions.
  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> EvaluateKind(const Expression& expression);
  absl::StatusOr<std::vector<Value>> EvaluateAll(const Expression& expression);
  absl::StatusOr<Value> EvaluateDict(const Expression& expression);
  absl::StatusOr<Value> EvaluateAttribute(const Expression& expression);
  absl::StatusOr<Value> EvaluateSubscript(const Expression& expression);
  absl::StatusOr<Value> EvaluateSlice(const Expression& expression);
  absl::StatusOr<Value> EvaluateUnary(const Expression& expression);
  absl::StatusOr<Value> EvaluateBinary(const Expression& expression);
  absl::StatusOr<Value> EvaluateCompare(const Expression& expression);
  absl::StatusOr<Value> EvaluateConditional(const Expression& expression);
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& expression);
  absl::StatusOr<Value> EvaluateCall(const Expression& expression);
  absl::StatusOr<Value> CallMethodOf(const Expression& attribute, const Value& object,
                                     const Arguments& arguments);
  absl::StatusOr<Value> CallFunction(const Callable& function, const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Callable& function, const Arguments& arguments);
  Value Lookup(const std::string& name) const;

  const InterpreterOptions options_;
  Budget budget_;
  std::vector<Scope> scopes_;  // the innermost last
  size_t loop_depth_ = 0;
  int depth_ = 0;  // of the walk
};

// left OP right for + - * / // % ** ~.
absl::StatusOr<Value> ApplyOperator(absl::string_view op, const Value& left, const Value& right,
                                    Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_TOKENIZER_JINJA_INTERPRETER_H_
