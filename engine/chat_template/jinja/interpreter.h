// Interpreter: renders a parsed template once.
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
  std::optional<absl::Time> now;  // what strftime_now tells; unset: it is undefined
};

inline constexpr int kMaxCallDepth = 1000;     // of blocks, expressions and macros in one another
inline constexpr int kMaxValueDepth = 200;     // of lists and dicts in one another
inline constexpr int64_t kMaxRange = 100'000;  // items of one range, as Jinja's sandbox has it

// Variables of one scope, and those around it. Most scopes have few: going through them beats a
// map.
struct Frame {
  absl::InlinedVector<std::pair<absl::string_view, Value>, 3> variables;
  std::shared_ptr<Frame> parent;
  // By name; empty while the scope has few.
  absl::flat_hash_map<absl::string_view, size_t> places = {};

  // Null: not in this scope.
  Value* Find(absl::string_view name);
  // Requires that it is not.
  void Add(absl::string_view name, Value value);
  void Clear();
};

// Thread-compatible; for one rendering. The template outlives it. Large because each kind of node
// has its method.
class Interpreter {
 public:
  explicit Interpreter(const InterpreterOptions& options);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  // `name` outlives the interpreter.
  void SetVariable(absl::string_view name, Value value);

  // What `block` prints. Errors say "chat template, line N: ...": INVALID_ARGUMENT for values that
  // do not fit and for raise_exception, UNIMPLEMENTED for unknown functions, RESOURCE_EXHAUSTED
  // past a limit.
  absl::StatusOr<Text> Run(const Block& block);

 private:
  // How a block ended.
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  // A scope for as long as it lives; its variables are set as usual.
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

  // Statements.
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
  Value Lookup(absl::string_view name) const;

  // Calls.
  absl::StatusOr<Value> CallValue(const Value& function, const Arguments& arguments);
  absl::StatusOr<Value> CallMethodOf(const std::string& name, const Value& object,
                                     const Arguments& arguments);
  absl::StatusOr<Value> CallFunction(const Callable& function, const Arguments& arguments);
  absl::StatusOr<Value> CallMacro(const Callable& function, const Arguments& arguments);
  absl::Status BindParameters(const MacroNode& macro, const Arguments& arguments);
  absl::StatusOr<Value> CallLoop(const LoopState& loop, const Arguments& arguments);
  absl::StatusOr<Value> MakeMacro(const MacroNode& macro);
  absl::StatusOr<Value> MakeNamespace(const Arguments& arguments);
  // Keeps the frame until the rendering ends, when cycles through it are cut.
  absl::Status Capture(const std::shared_ptr<Frame>& frame);

  const InterpreterOptions options_;
  Budget budget_;
  std::shared_ptr<Frame> frame_;                        // the innermost
  std::vector<std::shared_ptr<Frame>> captured_;        // by macros and recursive loops
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // all that were made
  int depth_ = 0;                                       // of the walk
};

// The functions that every template finds.
absl::StatusOr<Value> MakeRange(const Arguments& arguments, Budget* budget);
absl::StatusOr<Dict> MakeDictOf(const Arguments& arguments, Budget* budget);
absl::StatusOr<Value> MakeCycler(const Arguments& arguments);
absl::StatusOr<Value> MakeJoiner(const Arguments& arguments);
absl::StatusOr<Value> Strftime(const Arguments& arguments, absl::Time now, Budget* budget);
absl::Status RaiseException(const Arguments& arguments, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_INTERPRETER_H_
