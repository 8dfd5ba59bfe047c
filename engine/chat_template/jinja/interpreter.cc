#include "engine/chat_template/jinja/interpreter.h"

#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template/jinja/lexer.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::jinja {
namespace {

constexpr size_t kFewVariables = 24;
// memory of a frame or namespace; it lives until the rendering ends
constexpr size_t kScopeBytes = 256;

Value Function(Callable::Kind kind) {
  return Value(std::make_shared<const Callable>(Callable{kind}));
}

// Replaces line ends in a message and truncates it, because it may be from a template or a
// conversation.
std::string OneLine(absl::string_view message) {
  constexpr size_t kMaxMessage = 500;
  std::string line;
  for (size_t at = 0; at < message.size();) {
    const base::Utf8Char next = base::NextUtf8Char(message.substr(at));
    if (line.size() + next.size > kMaxMessage) return absl::StrCat(line, "...");
    if (next.code_point < 0x20 || next.code_point == 0x7F) {
      line.push_back(' ');
    } else {
      absl::StrAppend(&line, message.substr(at, next.size));
    }
    at += next.size;
  }
  return line;
}

// Adds the line to an error, unless it already has the line of an inner expression.
absl::Status AtLine(const absl::Status& status, int line) {
  if (status.ok() || absl::StartsWith(status.message(), "chat template, line ")) return status;
  return absl::Status(status.code(),
                      absl::StrCat("chat template, line ", line, ": ", OneLine(status.message())));
}

absl::Status TooDeep() {
  return absl::ResourceExhaustedError(absl::StrCat(
      "macros, loops and expressions are nested deeper than ", kMaxCallDepth, " levels"));
}

}  // namespace

Interpreter::Scope::Scope(Interpreter* interpreter, std::shared_ptr<Frame> parent)
    : interpreter_(*interpreter), outer_(interpreter->frame_) {
  interpreter_.frame_ = std::make_shared<Frame>(Frame{{}, std::move(parent)});
}

Interpreter::Scope::~Scope() { interpreter_.frame_ = std::move(outer_); }

Interpreter::Interpreter(const InterpreterOptions& options)
    : options_(options), budget_(options.limits), frame_(std::make_shared<Frame>()) {
  SetVariable("range", Function(Callable::Kind::kRange));
  SetVariable("namespace", Function(Callable::Kind::kNamespace));
  SetVariable("dict", Function(Callable::Kind::kDict));
  SetVariable("cycler", Function(Callable::Kind::kCycler));
  SetVariable("joiner", Function(Callable::Kind::kJoiner));
  SetVariable("raise_exception", Function(Callable::Kind::kRaise));
  if (options.now.has_value()) SetVariable("strftime_now", Function(Callable::Kind::kStrftime));
}

Interpreter::~Interpreter() {
  // Macros and namespaces may refer to each other in cycles and long chains. These lists keep all
  // of them alive while each one is cleared, which avoids deep recursion of destructors.
  for (const auto& frame : captured_) frame->Clear();
  for (const auto& made : namespaces_) made->fields = Dict();
}

absl::Status Interpreter::Capture(const std::shared_ptr<Frame>& frame) {
  if (!captured_.empty() && captured_.back() == frame) return absl::OkStatus();
  RETURN_IF_ERROR(budget_.Copy(kScopeBytes));
  captured_.push_back(frame);
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::MakeNamespace(const Arguments& arguments) {
  ASSIGN_OR_RETURN(Dict fields, MakeDictOf(arguments, &budget_));
  RETURN_IF_ERROR(budget_.Copy(kScopeBytes));
  auto made = std::make_shared<Namespace>(Namespace{std::move(fields)});
  namespaces_.push_back(made);
  return Value(std::move(made));
}

Value* Frame::Find(absl::string_view name) {
  if (!places.empty()) {
    const auto it = places.find(name);
    return it == places.end() ? nullptr : &variables[it->second].second;
  }
  for (auto& [known, value] : variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Frame::Add(absl::string_view name, Value value) {
  variables.emplace_back(name, std::move(value));
  if (variables.size() <= kFewVariables) return;
  for (size_t i = places.size(); i < variables.size(); ++i) places.emplace(variables[i].first, i);
}

void Frame::Clear() {
  places.clear();
  variables.clear();
}

void Interpreter::SetVariable(absl::string_view name, Value value) {
  if (Value* known = frame_->Find(name)) {
    *known = std::move(value);
  } else {
    frame_->Add(name, std::move(value));
  }
}

Value Interpreter::Lookup(absl::string_view name) const {
  for (Frame* frame = frame_.get(); frame != nullptr; frame = frame->parent.get()) {
    if (const Value* value = frame->Find(name)) return *value;
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
        absl::StrCat("the rendered text exceeds the limit of ", options_.output_bytes, " bytes"));
  }
  RETURN_IF_ERROR(budget_.Copy(text.size()));
  out->Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Execute(const Block& block, Text* out) {
  if (++depth_ > kMaxCallDepth) return TooDeep();
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
      if (const Text* text = value.AsText()) {
        RETURN_IF_ERROR(Print(*text, out));
      } else {
        RETURN_IF_ERROR(budget_.Write(value));
        RETURN_IF_ERROR(Print(ToText(value), out));
      }
      return Flow::kNormal;
    }
    case Statement::Kind::kIf:
      return ExecuteIf(statement, out);
    case Statement::Kind::kFor:
      return ExecuteFor(statement, out);
    case Statement::Kind::kSet: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(Assign(statement.target, value));
      return Flow::kNormal;
    }
    case Statement::Kind::kWith:
      return ExecuteWith(statement, out);
    case Statement::Kind::kSetBlock:
    case Statement::Kind::kFilter:
      return ExecuteCapture(statement, out);
    case Statement::Kind::kMacro: {
      ASSIGN_OR_RETURN(Value macro, MakeMacro(*statement.macro));
      SetVariable(statement.macro->name, std::move(macro));
      return Flow::kNormal;
    }
    case Statement::Kind::kCall:
      RETURN_IF_ERROR(ExecuteCall(statement, out));
      return Flow::kNormal;
    case Statement::Kind::kDo:
      RETURN_IF_ERROR(Evaluate(*statement.expression).status());
      return Flow::kNormal;
    case Statement::Kind::kGroup: {
      const Scope scope(this, frame_);
      return Execute(statement.body, out);
    }
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return absl::InternalError("unknown kind of statement");
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteIf(const Statement& statement, Text* out) {
  for (const Statement::Branch& branch : statement.branches) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
    if (condition.Truthy()) return Execute(branch.body, out);
  }
  return Execute(statement.else_body, out);
}

absl::Status Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value object = Lookup(target.name);
    if (object.AsNamespace() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", target.name, "' is not a namespace, so its attributes cannot be set"));
    }
    object.AsNamespace()->fields.Set(Text(target.attribute, TextOrigin::kTemplate), value);
    return absl::OkStatus();
  }
  if (!target.name.empty()) {
    SetVariable(target.name, value);
    return absl::OkStatus();
  }
  if (value.IsUndefined()) return absl::InvalidArgumentError(*value.As<Undefined>()->what);
  const Arguments none;
  ASSIGN_OR_RETURN(const std::vector<Value> items, SelfItems({value, none, budget_}));
  if (items.size() != target.items.size()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot assign ", items.size(), " values to ",
                                                   target.items.size(), " variables"));
  }
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Assign(target.items[i], items[i]));
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteFor(const Statement& statement, Text* out) {
  ASSIGN_OR_RETURN(const Value sequence, Evaluate(*statement.expression));
  return RunLoop(statement, sequence, 1, out);
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& statement,
                                                          const Value& sequence) {
  const Arguments none;
  ASSIGN_OR_RETURN(std::vector<Value> items, SelfItems({sequence, none, budget_}));
  if (statement.filter == nullptr) return items;
  std::vector<Value> kept;
  const Scope scope(this, frame_);
  for (const Value& item : items) {
    RETURN_IF_ERROR(Assign(statement.target, item));
    ASSIGN_OR_RETURN(const Value keeps, Evaluate(*statement.filter));
    if (keeps.Truthy()) kept.push_back(item);
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoop(const Statement& statement,
                                                       const Value& sequence, size_t depth,
                                                       Text* out) {
  ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(statement, sequence));
  auto loop = std::make_shared<LoopState>();
  loop->items = std::move(items);
  loop->depth = depth;
  loop->extent = sequence.extent();
  loop->extent.Add({});
  if (statement.recursive) {
    RETURN_IF_ERROR(Capture(frame_));
    loop->recursive = &statement;
    loop->frame = frame_;
  }
  bool completed = false;
  for (; loop->index < loop->items.size(); ++loop->index) {
    const Scope scope(this, frame_);
    RETURN_IF_ERROR(Assign(statement.target, loop->items[loop->index]));
    SetVariable("loop", Value(loop));
    ASSIGN_OR_RETURN(const Flow flow, Execute(statement.body, out));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNormal;
  }
  if (completed) return Flow::kNormal;
  // As in Jinja, the else block runs if no iteration was completed.
  const Scope scope(this, frame_);
  return Execute(statement.else_body, out);
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteWith(const Statement& statement, Text* out) {
  // Compute all values before the first name is set.
  std::vector<Value> values;
  for (const auto& [unused, expression] : statement.assignments) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  const Scope scope(this, frame_);
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(statement.assignments[i].first, values[i]));
  }
  return Execute(statement.body, out);
}

absl::StatusOr<Interpreter::Flow> Interpreter::ExecuteCapture(const Statement& statement,
                                                              Text* out) {
  Text text;
  Flow flow = Flow::kNormal;
  {
    const Scope scope(this, frame_);
    ASSIGN_OR_RETURN(flow, Execute(statement.body, &text));
  }
  RETURN_IF_ERROR(budget_.Grow(text.size()));
  Value value = Value::MakeText(std::move(text));
  if (statement.filter != nullptr) {
    const Scope scope(this, frame_);
    SetVariable(kBlockText, std::move(value));
    ASSIGN_OR_RETURN(value, Evaluate(*statement.filter));
  }
  if (statement.kind == Statement::Kind::kSetBlock) {
    RETURN_IF_ERROR(Assign(statement.target, value));
  } else {
    RETURN_IF_ERROR(budget_.Write(value));
    RETURN_IF_ERROR(Print(ToText(value), out));
  }
  return flow;
}

absl::Status Interpreter::ExecuteCall(const Statement& statement, Text* out) {
  ASSIGN_OR_RETURN(Value caller, MakeMacro(*statement.macro));
  const Scope scope(this, frame_);
  SetVariable(kBlockCaller, std::move(caller));
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
  RETURN_IF_ERROR(budget_.Write(value));
  return Print(ToText(value), out);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  if (++depth_ > kMaxCallDepth) return AtLine(TooDeep(), expression.line);
  const absl::Cleanup leave = [this] { --depth_; };
  absl::Status status = budget_.Step();
  if (!status.ok()) return AtLine(status, expression.line);
  absl::StatusOr<Value> value = EvaluateKind(expression);
  if (!value.ok()) return AtLine(value.status(), expression.line);
  if (value->extent().depth > kMaxValueDepth) {
    return AtLine(absl::ResourceExhaustedError(
                      absl::StrCat("lists and dicts are nested deeper than ", kMaxValueDepth)),
                  expression.line);
  }
  return value;
}

}  // namespace tidepool::engine::jinja
