#include "engine/tokenizer/jinja/interpreter.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/tokenizer/jinja/lexer.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine::jinja {
namespace {

Value Function(Callable::Kind kind) {
  return Value(std::make_shared<const Callable>(Callable{kind, nullptr, 0}));
}

// The innermost place of an error is the one that is told.
absl::Status AtLine(const absl::Status& status, int line) {
  if (status.ok() || absl::StartsWith(status.message(), "chat template, line ")) return status;
  return absl::Status(status.code(),
                      absl::StrCat("chat template, line ", line, ": ", status.message()));
}

}  // namespace

Interpreter::Interpreter(const InterpreterOptions& options)
    : options_(options), budget_(options.steps, options.copied_bytes), scopes_(1) {
  SetVariable("range", Function(Callable::Kind::kRange));
  SetVariable("namespace", Function(Callable::Kind::kNamespace));
  SetVariable("dict", Function(Callable::Kind::kDict));
  SetVariable("raise_exception", Function(Callable::Kind::kRaise));
  if (options.now.has_value()) SetVariable("strftime_now", Function(Callable::Kind::kStrftime));
}

void Interpreter::SetVariable(absl::string_view name, Value value) {
  scopes_.back().insert_or_assign(std::string(name), std::move(value));
}

Value Interpreter::Lookup(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(name);
    if (found != scope->end()) return found->second;
  }
  return Value::MakeUndefined(absl::StrCat("'", name, "' is undefined"));
}

absl::StatusOr<Text> Interpreter::Run(const Block& block) {
  Text out;
  ASSIGN_OR_RETURN(const Flow flow, Execute(block, &out));
  CHECK(flow == Flow::kNormal);
  return out;
}

absl::Status Interpreter::Print(const Text& text, Text* out) {
  if (static_cast<int64_t>(out->size() + text.size()) > options_.output_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the prompt would be longer than ", options_.output_bytes, " bytes"));
  }
  out->Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Block& block, Text* out) {
  // The parser bounds the depth of a template's tree; macros that call themselves are bounded here.
  constexpr int kMaxDepth = 1000;
  if (++depth_ > kMaxDepth) return absl::ResourceExhaustedError("macros call each other too deep");
  const absl::Cleanup leave = [this] { --depth_; };
  for (const Statement& statement : block) {
    absl::Status status = budget_.Step();
    if (!status.ok()) return AtLine(status, statement.line);
    absl::StatusOr<Flow> flow = ExecuteOne(statement, out);
    if (!flow.ok()) return AtLine(flow.status(), statement.line);
    if (*flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteOne(const Statement& statement, Text* out) {
  switch (statement.kind) {
    case Statement::Kind::kData:
      RETURN_IF_ERROR(Print(Text(statement.text, TextOrigin::kTemplate), out));
      return Flow::kNormal;
    case Statement::Kind::kPrint: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
      const Text* text = value.AsText();
      RETURN_IF_ERROR(Print(text != nullptr ? *text : ToText(value), out));
      return Flow::kNormal;
    }
    case Statement::Kind::kIf:
      return ExecuteIf(statement, out);
    case Statement::Kind::kFor:
      return ExecuteFor(statement, out);
    case Statement::Kind::kSet:
      RETURN_IF_ERROR(ExecuteSet(statement));
      return Flow::kNormal;
    case Statement::Kind::kSetBlock:
      return ExecuteSetBlock(statement);
    case Statement::Kind::kMacro:
      SetVariable(statement.macro->name,
                  Value(std::make_shared<const Callable>(
                      Callable{Callable::Kind::kMacro, statement.macro.get(), scopes_.size()})));
      return Flow::kNormal;
    case Statement::Kind::kGroup:
      return Execute(statement.body, out);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return absl::InternalError("a statement of no kind");
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Statement& statement, Text* out) {
  for (const Statement::Branch& branch : statement.branches) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
    if (condition.Truthy()) return Execute(branch.body, out);
  }
  return Execute(statement.else_body, out);
}

absl::Status Interpreter::Assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    SetVariable(targets[0], value);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value));
  if (items.size() != targets.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(items.size(), " values for ", targets.size(), " variables"));
  }
  for (size_t i = 0; i < items.size(); ++i) SetVariable(targets[i], items[i]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value));
  RETURN_IF_ERROR(budget_.Step(static_cast<int64_t>(items.size())));
  if (statement.filter == nullptr) return items;
  std::vector<Value> kept;
  scopes_.emplace_back();
  const absl::Cleanup leave = [this] { scopes_.pop_back(); };
  for (const Value& item : items) {
    RETURN_IF_ERROR(Assign(statement.targets, item));
    ASSIGN_OR_RETURN(const Value keeps, Evaluate(*statement.filter));
    if (keeps.Truthy()) kept.push_back(item);
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFor(const Statement& statement, Text* out) {
  ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(statement));
  if (items.empty()) return Execute(statement.else_body, out);
  auto loop = std::make_shared<LoopState>();
  loop->items = std::move(items);
  loop->depth = ++loop_depth_;
  const absl::Cleanup leave_loop = [this] { --loop_depth_; };
  for (; loop->index < loop->items.size(); ++loop->index) {
    scopes_.emplace_back();
    const absl::Cleanup leave = [this] { scopes_.pop_back(); };
    RETURN_IF_ERROR(Assign(statement.targets, loop->items[loop->index]));
    SetVariable("loop", Value(std::shared_ptr<const LoopState>(loop)));
    ASSIGN_OR_RETURN(const Flow flow, Execute(statement.body, out));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

absl::Status Interpreter::ExecuteSet(const Statement& statement) {
  ASSIGN_OR_RETURN(Value value, Evaluate(*statement.expression));
  if (statement.attribute.empty()) return Assign(statement.targets, value);
  const Value target = Lookup(statement.targets[0]);
  if (target.AsNamespace() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", statement.targets[0], "' is no namespace: its attributes cannot be set"));
  }
  target.AsNamespace()->fields.Set(Text(statement.attribute, TextOrigin::kTemplate),
                                   std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteSetBlock(const Statement& statement) {
  Text text;
  Flow flow = Flow::kNormal;
  {
    scopes_.emplace_back();
    const absl::Cleanup leave = [this] { scopes_.pop_back(); };
    ASSIGN_OR_RETURN(flow, Execute(statement.body, &text));
  }
  RETURN_IF_ERROR(budget_.Copy(text.size()));
  SetVariable(statement.targets[0], Value::MakeText(std::move(text)));
  return flow;
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  ++depth_;
  const absl::Cleanup leave = [this] { --depth_; };
  absl::Status status = budget_.Step();
  if (!status.ok()) return AtLine(status, expression.line);
  absl::StatusOr<Value> value = EvaluateKind(expression);
  if (!value.ok()) return AtLine(value.status(), expression.line);
  return value;
}

absl::StatusOr<Value> Interpreter::CallMacro(const Callable& function, const Arguments& arguments) {
  const MacroNode& macro = *function.macro;
  if (arguments.positional.size() > macro.parameters.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the macro '", macro.name, "' takes ", macro.parameters.size(), " arguments"));
  }
  // A macro sees the variables around its definition, not those around its call.
  const size_t visible = std::min(function.scopes, scopes_.size());
  std::vector<Scope> hidden(
      std::make_move_iterator(scopes_.begin() + static_cast<std::ptrdiff_t>(visible)),
      std::make_move_iterator(scopes_.end()));
  scopes_.resize(visible);
  scopes_.emplace_back();
  const absl::Cleanup restore = [this, visible, &hidden] {
    scopes_.resize(visible);
    for (Scope& scope : hidden) scopes_.push_back(std::move(scope));
  };
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    const Value* given = arguments.Find(i, name);
    Value value = Value::MakeUndefined(
        absl::StrCat("the macro '", macro.name, "' got no argument '", name, "'"));
    if (given != nullptr) {
      value = *given;
    } else if (fallback != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*fallback));
    }
    SetVariable(name, std::move(value));
  }
  for (const auto& [name, unused] : arguments.named) {
    if (scopes_.back().find(name) == scopes_.back().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the macro '", macro.name, "' has no parameter '", name, "'"));
    }
  }
  Text text;
  ASSIGN_OR_RETURN(const Flow flow, Execute(*macro.body, &text));
  CHECK(flow == Flow::kNormal);
  RETURN_IF_ERROR(budget_.Copy(text.size()));
  return Value::MakeText(std::move(text));
}

}  // namespace tidepool::engine::jinja
