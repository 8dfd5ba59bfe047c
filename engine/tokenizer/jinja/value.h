// Values of the template language, with the semantics that Python gives them.
#ifndef TIDEPOOL_ENGINE_TOKENIZER_JINJA_VALUE_H_
#define TIDEPOOL_ENGINE_TOKENIZER_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tokenizer/jinja/text.h"

namespace tidepool::engine::jinja {

class Dict;
class Value;
struct LoopState;
struct MacroNode;

// A name, key or attribute that is not there. Prints as nothing; looking into it is an error.
struct Undefined {
  std::string what;  // the complaint: "'x' is undefined"
};

struct None {};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
};

// namespace(...): the one kind of value that changes.
struct Namespace;

// What can be called by its name. Methods of strings and dicts are called where they are named.
struct Callable {
  enum class Kind : uint8_t { kRange, kNamespace, kDict, kRaise, kStrftime, kMacro };
  Kind kind = Kind::kRange;
  const MacroNode* macro = nullptr;  // of kMacro; lives as long as the template
  size_t scopes = 0;                 // of kMacro: how many scopes it can see
};

// Cheap to copy. All but namespaces are immutable.
class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Namespace>, std::shared_ptr<const LoopState>,
                            std::shared_ptr<const Callable>>;

  Value() : data_(None()) {}
  explicit Value(Data data) : data_(std::move(data)) {}

  static Value MakeUndefined(std::string what) { return Value(Undefined{std::move(what)}); }
  static Value MakeBool(bool value) { return Value(Data(value)); }
  static Value MakeInt(int64_t value) { return Value(Data(value)); }
  static Value MakeFloat(double value) { return Value(Data(value)); }
  static Value MakeText(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }
  static Value MakeText(absl::string_view bytes, TextOrigin origin) {
    return MakeText(Text(bytes, origin));
  }
  static Value MakeList(std::vector<Value> items);
  static Value MakeTuple(std::vector<Value> items);
  static Value MakeDict(Dict dict);

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }

  // Null, or a view of what it holds. A bool counts as no integer here.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const Text* AsText() const { return Pointee<const Text>(); }
  const List* AsList() const { return Pointee<const List>(); }
  const Dict* AsDict() const { return Pointee<const Dict>(); }
  Namespace* AsNamespace() const { return Pointee<Namespace>(); }
  const LoopState* AsLoop() const { return Pointee<const LoopState>(); }
  const Callable* AsCallable() const { return Pointee<const Callable>(); }

  bool Truthy() const;

 private:
  template <typename T>
  T* Pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Data data_;
};

// Insertion-ordered, keys are strings.
class Dict {
 public:
  // Null: no such key.
  const Value* Find(absl::string_view key) const;
  void Set(Text key, Value value);
  const std::vector<std::pair<Text, Value>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

 private:
  std::vector<std::pair<Text, Value>> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

struct Namespace {
  Dict fields;
};

// One running for loop; `index` moves.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  size_t depth = 1;
};

// Python's name of the type, for messages: "str", "NoneType".
absl::string_view TypeName(const Value& value);

// A number, if it is one (bools are): exact for integers.
bool IsNumber(const Value& value);
double ToDouble(const Value& value);  // requires IsNumber
// Integers and bools.
bool IsInteger(const Value& value);
int64_t ToInt64(const Value& value);  // requires IsInteger

// `==`.
bool Equals(const Value& a, const Value& b);
// Below zero: a < b. INVALID_ARGUMENT: types that have no order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);
// `needle in haystack`.
absl::StatusOr<bool> Contains(const Value& haystack, const Value& needle);

// str(value): what is printed.
Text ToText(const Value& value);
// repr(value): as it stands inside a printed list.
Text Repr(const Value& value);
// As Python prints floats: the shortest digits that read back, "1.0", "1e+16".
std::string FormatFloat(double value);

// What a for loop visits: items, keys, characters; nothing for an undefined value.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value);
// len(value).
absl::StatusOr<int64_t> Length(const Value& value);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_TOKENIZER_JINJA_VALUE_H_
