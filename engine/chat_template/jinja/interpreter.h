// Interpreter: renders a parsed template. Each rendering needs a new interpreter.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_INTERPRETER_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_INTERPRETER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/chat_template/jinja/ast.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/text.h"
#include "engine/chat_template/jinja/value.h"

namespace tidepool::engine::jinja {

struct InterpreterOptions {
  Limits limits;
  int64_t output_bytes = 0;
  std::optional<absl::Time> now;  // result of strftime_now; if unset, strftime_now is undefined
};

inline constexpr int kMaxCallDepth = 1000;  // nesting of blocks, expressions and macros
inline constexpr int kMaxValueDepth = 200;  // nesting of lists and dicts
// number of items of one range, as in Jinja's sandbox
inline constexpr int64_t kMaxRange = 100'000;

// The variables of one scope, and a pointer to the scope around it. Most scopes have few variables.
// For these, a linear search is faster than a map.
struct Frame {
  absl::InlinedVector<std::pair<absl::string_view, Value>, 3> variables;
  std::shared_ptr<Frame> parent;
  // Index into `variables`, by name. Empty while the scope has few variables.
  absl::flat_hash_map<absl::string_view, size_t> places = {};

  // Returns null if the name is not in this scope.
  Value* Find(absl::string_view name);
  // Requires: the name is not in this scope.
  void Add(absl::string_view name, Value value);
  void Clear();
};

// Thread-compatible. Used for one rendering. The template must outlive it. Large because each kind
// of node has its own method.
class Interpreter {
 public:
  explicit Interpreter(const InterpreterOptions& options);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  // `name` must outlive the interpreter.
  void SetVariable(absl::string_view name, Value value);

  // Returns the output of `block`. Errors begin with "chat template, line N: ". They are
  // INVALID_ARGUMENT for wrong values and for raise_exception, UNIMPLEMENTED for unknown functions,
  // and RESOURCE_EXHAUSTED if a limit is exceeded.
  absl::StatusOr<Text> Run(const Block& block);

 private:
  // Why a block ended.
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // Opens a scope, and closes it when destroyed.
  class Scope {
   public:
    Scope(Interpreter* interpreter, std::shared_ptr<Frame> parent);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Frame> outer_;
  };

  // The functions for statements.
  absl::StatusOr<Flow> Execute(const Block& block, Text* out);
  absl::StatusOr<Flow> ExecuteOne(const Statement& statement, Text* out);
  absl::StatusOr<Flow> ExecuteIf(const Statement& statement, Text* out);
  absl::StatusOr<Flow> ExecuteFor(const Statement& statement, Text* out);
  absl::StatusOr<Flow> RunLoop(const Statement& statement, const Value& sequence, size_t depth,
                               Text* out);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& statement, const Value& sequence);
  absl::StatusOr<Flow> ExecuteWith(const Statement& statement, Text* out);
  absl::StatusOr<Flow> ExecuteCapture(const Statement& statement, Text* out);
  absl::Status ExecuteCall(const Statement& statement, Text* out);
  absl::Status Print(const Text& text, Text* out);
  absl::Status Assign(const Target& target, const Value& value);

  // The functions for expressions.
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
  Value Lookup(absl::string_view name) const;

  // The functions for calls.
  absl::StatusOr<Value> CallValue(const Value& function, const Arguments& arguments);
  absl::StatusOr<Value> CallMethodOf(const std::string& name, const Value& object,
                                     const Arguments& arguments);
  absl::StatusOr<Value> CallFunction(const Callable& function, const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Callable& function, const Arguments& arguments);
  absl::Status BindParameters(const MacroNode& macro, const Arguments& arguments);
  absl::StatusOr<Value> CallLoop(const LoopState& loop, const Arguments& arguments);
  absl::StatusOr<Value> MakeMacro(const MacroNode& macro);
  absl::StatusOr<Value> MakeNamespace(const Arguments& arguments);
  // Keeps the frame alive until the rendering ends. At the end, cycles of references between frames
  // and macros are broken, so that all memory is freed.
  absl::Status Capture(const std::shared_ptr<Frame>& frame);

  const InterpreterOptions options_;
  Budget budget_;
  std::shared_ptr<Frame> frame_;                  // the innermost scope
  std::vector<std::shared_ptr<Frame>> captured_;  // frames that macros and recursive loops use
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // all namespaces that were created
  int depth_ = 0;                                       // current recursion depth
};

// The built-in functions of templates.
absl::StatusOr<Value> MakeRange(const Arguments& arguments, Budget* budget);
absl::StatusOr<Dict> MakeDictOf(const Arguments& arguments, Budget* budget);
absl::StatusOr<Value> MakeCycler(const Arguments& arguments);
absl::StatusOr<Value> MakeJoiner(const Arguments& arguments);
absl::StatusOr<Value> Strftime(const Arguments& arguments, absl::Time now, Budget* budget);
absl::Status RaiseException(const Arguments& arguments, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_INTERPRETER_H_
