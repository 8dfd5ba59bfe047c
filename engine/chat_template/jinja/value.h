// Values of the template language, with the semantics that Python gives them.
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

// A name, key or attribute that is not there. Prints as nothing; looking into it is an error.
struct Undefined {
  std::shared_ptr<const std::string> what;  // the complaint: "'x' is undefined"
};

struct None {};

// How large a value is, known when it is made: what goes through all of it asks first. Namespaces
// and functions count as one, as they are compared by identity.
struct Extent {
  int depth = 1;       // of containers in containers; 1: no container
  int64_t weight = 1;  // items, keys and bytes of strings, below; saturates
  void Add(const Extent& part);
};

// Cheap to copy. All but namespaces, loops and carousels are immutable.
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

  // Null, or a view of what it holds. A bool counts as no integer here.
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

// Python's sequences and the views and iterators that act like one.
struct List {
  enum class Kind : uint8_t {
    kList,
    kTuple,
    kGroup,  // a tuple (grouper, list) whose items have these names too
    kRange,  // prints as `range_text`
    kKeys,   // dict.keys(), dict.values(), dict.items(): no item has an index
    kValues,
    kItems,
    kGenerator,  // can be gone through once; true even when empty
  };
  std::vector<Value> items;
  Kind kind = Kind::kList;
  Extent extent = {};
  std::string range_text = {};
  mutable size_t taken = 0;  // of a generator: the items that are gone

  bool IsTuple() const { return kind == Kind::kTuple || kind == Kind::kGroup; }
  bool HasIndex() const { return kind == Kind::kList || kind == Kind::kRange || IsTuple(); }
};
// Computes the extent.
Value MakeSequence(std::vector<Value> items, List::Kind kind, std::string range_text = "");

// Insertion-ordered. Keys are strings, numbers, none, and tuples of these.
class Dict {
 public:
  // Null: no such key.
  const Value* Find(absl::string_view key) const;
  const Value* Find(const Value& key) const;
  void Set(Text key, Value value);
  // INVALID_ARGUMENT: a key that Python cannot hash.
  absl::Status Set(Value key, Value value);
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  void SetAt(absl::flat_hash_map<std::string, size_t>* index, std::string hashed, Value key,
             Value value);

  std::vector<std::pair<Value, Value>> entries_;
  absl::flat_hash_map<std::string, size_t> index_;   // of strings
  absl::flat_hash_map<std::string, size_t> others_;  // by HashText
  Extent extent_ = {2, 1};
};

// namespace(...).
struct Namespace {
  Dict fields;
};

// cycler(...) and joiner(...).
struct Carousel {
  std::vector<Value> items;  // of a joiner: the separator
  Extent extent = {};
  bool is_joiner = false;
  size_t index = 0;  // of a joiner: whether it has been asked before
};

struct Frame;
struct MacroNode;
struct Statement;

// One running for loop; `index` moves.
struct LoopState {
  std::vector<Value> items;
  size_t index = 0;
  size_t depth = 1;
  std::optional<std::vector<Value>> last_seen = {};  // by loop.changed
  Extent extent = {};
  // Of a recursive loop, which can be called; the statement lives as long as the template.
  const Statement* recursive = nullptr;
  std::shared_ptr<Frame> frame = nullptr;  // around it
};

// What can be called.
struct Callable {
  enum class Kind : uint8_t {
    kRange,
    kNamespace,
    kDict,
    kCycler,
    kJoiner,
    kRaise,
    kStrftime,
    kMacro,   // macro, in frame
    kMethod,  // name, of self
  };
  Kind kind = Kind::kRange;
  const MacroNode* macro = nullptr;        // lives as long as the template
  std::shared_ptr<Frame> frame = nullptr;  // around the macro's definition
  Value self = {};
  std::string name = {};
};

// Python's name of the type, for messages: "str", "NoneType".
absl::string_view TypeName(const Value& value);

// A number, if it is one (bools are): exact for integers.
bool IsNumber(const Value& value);
double ToDouble(const Value& value);  // requires IsNumber
// Integers and bools.
bool IsInteger(const Value& value);
int64_t ToInt64(const Value& value);  // requires IsInteger

// Whether Python could hash it; if so, a text that equal values share, and no others.
std::optional<std::string> HashText(const Value& value);

// `==`. Costs at most the smaller weight.
bool Equals(const Value& a, const Value& b);
// Below zero: a < b. INVALID_ARGUMENT: types that have no order.
absl::StatusOr<int> Compare(const Value& a, const Value& b);
// `needle in haystack`.
absl::StatusOr<bool> Contains(const Value& haystack, const Value& needle);

// str(value): what is printed.
Text ToText(const Value& value);
// repr(value): as it stands inside a printed list.
Text Repr(const Value& value);
// repr(value) of a string.
std::string QuoteString(absl::string_view bytes);
// As Python prints floats: the shortest digits that read back, "1.0", "1e+16".
std::string FormatFloat(double value);

// What a for loop visits: items, keys, characters; nothing for an undefined value.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value);
// len(value).
absl::StatusOr<int64_t> Length(const Value& value);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_VALUE_H_
