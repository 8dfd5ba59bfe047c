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

// The value of a name, key or attribute that does not exist. Printing it gives an empty text.
// Access to its attributes is an error.
struct Undefined {
  std::shared_ptr<const std::string> what;  // the error message, for example "'x' is undefined"
};

struct None {};

// The size of a value. It is computed when the value is created, so that code can check the size
// before it visits the whole value. Namespaces and functions count as one item, because they are
// compared by identity.
struct Extent {
  int depth = 1;  // nesting of containers; 1 if the value is not a container
  // number of items, keys and string bytes, including nested ones; saturates at the maximum
  int64_t weight = 1;
  void Add(const Extent& part);
};

// Cheap to copy. Immutable, except for namespaces, loops, and carousels (cycler and joiner).
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

  // Returns the value as T, or null if it has another type. Here a bool is not an integer.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const Text* AsText() const { return Pointee<const Text>(); }
  const List* AsList() const { return Pointee<const List>(); }  // for lists of any kind
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

// Python's sequences, and the views and iterators of its dicts.
struct List {
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kGroup,  // a tuple (grouper, list) whose items can also be accessed by these names
    kRange,  // is printed as `range_text`
    kKeys,   // dict.keys(), dict.values() and dict.items(); they have no indices
    kValues,
    kItems,
    kGenerator,  // can be iterated once; its truth value is true even if it is empty
  };
  std::vector<Value> items;
  Kind kind = Kind::kList;
  Extent extent = {};
  std::string range_text = {};
  mutable size_t taken = 0;  // for a generator: number of items that were consumed

  bool IsTuple() const { return kind == Kind::kTuple || kind == Kind::kGroup; }
  bool HasIndex() const { return kind == Kind::kList || kind == Kind::kRange || IsTuple(); }
};
// Makes a List value and sets its extent.
Value MakeSequence(std::vector<Value> items, List::Kind kind, std::string range_text = "");

// Keeps the order of insertion. Keys are strings, numbers, none, and tuples of these.
class Dict {
 public:
  // Returns null if there is no such key.
  const Value* Find(absl::string_view key) const;
  const Value* Find(const Value& key) const;
  void Set(Text key, Value value);
  // Returns INVALID_ARGUMENT if Python cannot hash the key.
  absl::Status Set(Value key, Value value);
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  void SetAt(absl::flat_hash_map<std::string, size_t>* index, std::string hashed, Value key,
             Value value);

  std::vector<std::pair<Value, Value>> entries_;
  absl::flat_hash_map<std::string, size_t> index_;   // for keys that are strings
  absl::flat_hash_map<std::string, size_t> others_;  // for other keys, by HashText
  Extent extent_ = {2, 1};
};

// The value of namespace(...).
struct Namespace {
  Dict fields;
};

// The value of cycler(...) or joiner(...).
struct Carousel {
  std::vector<Value> items;  // for a joiner, its separator
  Extent extent = {};
  bool is_joiner = false;
  size_t index = 0;  // for a joiner, whether it was called before
};

struct Frame;
struct MacroNode;
struct Statement;

// A for loop that is running. `index` is the current iteration.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  size_t depth = 1;
  std::optional<std::vector<Value>> last_seen = {};  // arguments of the last call of loop.changed
  Extent extent = {};
  // Set if the loop is recursive, so that it can be called. The statement lives as long as the
  // template.
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
    kMacro,   // uses the fields `macro` and `frame`
    kMethod,  // uses the fields `name` and `self`
  };
  Kind kind = Kind::kRange;
  const MacroNode* macro = nullptr;        // valid as long as the template exists
  std::shared_ptr<Frame> frame = nullptr;  // the scope in which the macro was defined
  Value self = {};
  std::string name = {};
};

// Python's name of the type, for error messages: for example "str" or "NoneType".
absl::string_view TypeName(const Value& value);

// Returns true for numbers and bools.
bool IsNumber(const Value& value);
double ToDouble(const Value& value);  // requires: IsNumber(value)
// Returns true for integers and bools.
bool IsInteger(const Value& value);
int64_t ToInt64(const Value& value);  // requires: IsInteger(value)

// Returns a text that identifies the value: two values have the same text exactly if they are
// equal. Returns nullopt if Python cannot hash the value.
std::optional<std::string> HashText(const Value& value);

// Implements `==`. The time is at most proportional to the smaller weight.
bool Equals(const Value& a, const Value& b);
// Returns a negative number if a < b, 0 if they are equal, and a positive number otherwise. Returns
// INVALID_ARGUMENT for types without an order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);
// Implements `needle in haystack`.
absl::StatusOr<bool> Contains(const Value& haystack, const Value& needle);

// Implements str(value), the text that is printed.
Text ToText(const Value& value);
// Implements repr(value), the text of an item in a printed list.
Text Repr(const Value& value);
// Implements repr(value) for a string.
std::string QuoteString(absl::string_view bytes);
// Formats a float as Python does, with the fewest digits that parse to the same value, for example
// "1.0" or "1e+16".
std::string FormatFloat(double value);

// Returns the values that a for loop over `value` visits: items, keys or characters. Returns no
// values for an undefined value.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value);
// Implements len(value).
absl::StatusOr<int64_t> Length(const Value& value);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_VALUE_H_
