// Values of the template language, with Python's semantics.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_VALUE_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/chat_template/jinja/text.h"

namespace tidepool::engine::jinja {

class Dict;
class Value;
struct Callable;
struct Carousel;
struct List;
struct LoopState;
struct Namespace;

// A missing name, key or attribute. It prints as nothing, and access to its attributes is an error.
struct Undefined {
  std::shared_ptr<const std::string> what;  // the error message: "'x' is undefined"
};

struct None {};

// The size of a value, computed when it is created, so that code can check it before visiting the
// whole value. Namespaces and functions count as one item, as they are compared by identity.
struct Extent {
  int depth = 1;       // nesting of containers; 1: not a container
  int64_t weight = 1;  // items, keys and string bytes, including nested ones; saturates
  void Add(const Extent& part);
};

// Cheap to copy. Immutable, except for namespaces, loops and carousels.
class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                            std::shared_ptr<Namespace>, std::shared_ptr<LoopState>,
                            std::shared_ptr<Carousel>, std::shared_ptr<const Callable>>;

  Value() : data_(None()) {}
  explicit Value(Data data) : data_(std::move(data)) {}

  static Value MakeUndefined(std::string what);
  static Value MakeBool(bool value) { return Value(Data(value)); }
  static Value MakeInt(int64_t value) { return Value(Data(value)); }
  static Value MakeFloat(double value) { return Value(Data(value)); }
  static Value MakeText(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }
  static Value MakeText(absl::string_view bytes, TextOrigin origin) {
    return MakeText(Text(bytes, origin));
  }
  static Value MakeList(std::vector<Value> items);
  static Value MakeTuple(std::vector<Value> items);
  static Value MakeGenerator(std::vector<Value> items);
  static Value MakeDict(Dict dict);

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }

  // Returns the value as T, or null if it has another type. A bool is not an integer here.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const Text* AsText() const { return Pointee<const Text>(); }
  const List* AsList() const { return Pointee<const List>(); }  // of any kind
  const Dict* AsDict() const { return Pointee<const Dict>(); }
  Namespace* AsNamespace() const { return Pointee<Namespace>(); }
  LoopState* AsLoop() const { return Pointee<LoopState>(); }
  Carousel* AsCarousel() const { return Pointee<Carousel>(); }
  const Callable* AsCallable() const { return Pointee<const Callable>(); }

  bool Truthy() const;
  Extent extent() const;

 private:
  template <typename T>
  T* Pointee() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Data data_;
};

// Python's sequences, and its views and iterators.
struct List {
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kGroup,  // a tuple (grouper, list) whose items also have these names
    kRange,  // prints as `range_text`
    kKeys,   // dict.keys(), dict.values(), dict.items(): they have no indices
    kValues,
    kItems,
    kGenerator,  // can be iterated once; true even if empty
  };
  std::vector<Value> items;
  Kind kind = Kind::kList;
  Extent extent = {};
  std::string range_text = {};
  mutable size_t taken = 0;  // for a generator: items already consumed

  bool IsTuple() const { return kind == Kind::kTuple || kind == Kind::kGroup; }
  bool HasIndex() const { return kind == Kind::kList || kind == Kind::kRange || IsTuple(); }
};
// Sets the extent.
Value MakeSequence(std::vector<Value> items, List::Kind kind, std::string range_text = "");

// Insertion-ordered. Keys are strings, numbers, none, and tuples of these.
class Dict {
 public:
  // Returns null if there is no such key.
  const Value* Find(absl::string_view key) const;
  const Value* Find(const Value& key) const;
  void Set(Text key, Value value);
  // INVALID_ARGUMENT if Python cannot hash the key.
  absl::Status Set(Value key, Value value);
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  void SetAt(absl::flat_hash_map<std::string, size_t>* index, std::string hashed, Value key,
             Value value);

  std::vector<std::pair<Value, Value>> entries_;
  absl::flat_hash_map<std::string, size_t> index_;   // keys that are strings
  absl::flat_hash_map<std::string, size_t> others_;  // other keys, by HashText
  Extent extent_ = {2, 1};
};

// namespace(...).
struct Namespace {
  Dict fields;
};

// cycler(...) and joiner(...).
struct Carousel {
  std::vector<Value> items;  // for a joiner: the separator
  Extent extent = {};
  bool is_joiner = false;
  size_t index = 0;  // for a joiner: whether it was called before
};

struct Frame;
struct MacroNode;
struct Statement;

// One running for loop. `index` advances.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  size_t depth = 1;
  std::optional<std::vector<Value>> last_seen = {};  // arguments of the last loop.changed call
  Extent extent = {};
  // Set for a recursive loop, which can be called. The statement lives as long as the template.
  const Statement* recursive = nullptr;
  std::shared_ptr<Frame> frame = nullptr;  // the scope around the loop
};

// A callable value.
struct Callable {
  enum class Kind : uint8_t {
    kRange,
    kNamespace,
    kDict,
    kCycler,
    kJoiner,
    kRaise,
    kStrftime,
    kMacro,   // uses `macro` and `frame`
    kMethod,  // uses `name` and `self`
  };
  Kind kind = Kind::kRange;
  const MacroNode* macro = nullptr;        // lives as long as the template
  std::shared_ptr<Frame> frame = nullptr;  // scope of the macro's definition
  Value self = {};
  std::string name = {};
};

// Python's name of the type, for messages: "str", "NoneType".
absl::string_view TypeName(const Value& value);

// True for numbers and bools.
bool IsNumber(const Value& value);
double ToDouble(const Value& value);  // requires IsNumber
// True for integers and bools.
bool IsInteger(const Value& value);
int64_t ToInt64(const Value& value);  // requires IsInteger

// Returns a text that is equal exactly for equal values. nullopt if Python could not hash the
// value.
std::optional<std::string> HashText(const Value& value);

// Implements `==`. Takes time up to the smaller weight.
bool Equals(const Value& a, const Value& b);
// Negative if a < b. INVALID_ARGUMENT for types without an order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);
// Implements `needle in haystack`.
absl::StatusOr<bool> Contains(const Value& haystack, const Value& needle);

// Implements str(value), which is printed.
Text ToText(const Value& value);
// Implements repr(value), used inside printed lists.
Text Repr(const Value& value);
// Implements repr(value) for a string.
std::string QuoteString(absl::string_view bytes);
// Formats a float as Python does: the shortest digits that parse to the same value, "1.0", "1e+16".
std::string FormatFloat(double value);

// Returns what a for loop visits: items, keys or characters. Empty for an undefined value.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value);
// Implements len(value).
absl::StatusOr<int64_t> Length(const Value& value);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_VALUE_H_
