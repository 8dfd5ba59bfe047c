// RegexPool: regular expressions over bytes, with derivatives.
//
// An expression is a small number, and equal expressions have equal numbers. The derivative of an
// expression by a byte is the expression for the rest of the texts that begin with this byte
// (Brzozowski 1964; Owens, Reppy and Turon 2009). So expressions are the states of a lazy DFA, and
// intersection and complement cost nothing to write down.
//
//   RegexPool pool;
//   const Regex word = pool.Repeat(pool.Bytes(ByteRange('a', 'z')), 1, kNoLimit);
//   const Regex other = pool.And({word, pool.Not(pool.Literal("no"))});
//   pool.Matches(other, "yes");  // true
#ifndef TIDEPOOL_ENGINE_GRAMMAR_REGEX_POOL_H_
#define TIDEPOOL_ENGINE_GRAMMAR_REGEX_POOL_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::engine::grammar {

using ByteSet = std::bitset<256>;

// The number of an expression in its pool.
using Regex = int32_t;
inline constexpr Regex kNoRegex = 0;     // matches no text
inline constexpr Regex kEmptyRegex = 1;  // matches the empty text

inline constexpr int32_t kNoLimit = INT32_MAX;

ByteSet ByteRange(uint8_t low, uint8_t high);

// A range of Unicode code points, both ends included.
using CodePoints = std::pair<char32_t, char32_t>;

// The bytes of UTF-8 text for a range of code points that have the same size: one range per byte.
// Every combination of bytes in these ranges is the text of a code point in the range.
struct Utf8Range {
  std::array<uint8_t, 4> low;
  std::array<uint8_t, 4> high;
  int size;
};

// Which escapes a JSON string may use.
enum class Escapes : uint8_t {
  kAny,  // every escape of the JSON standard
  // \" \\ \b \f \n \r \t, and \uXXXX for control characters and for characters outside ASCII. So
  // printable ASCII has one spelling.
  kNeeded,
};

// Whether a multiple may have a point.
enum class MultipleForm : uint8_t { kDecimal, kInteger };

// Thread-compatible. Copies are independent. Derive and the queries create expressions, so they are
// not const. Large because each kind of expression has a constructor and a derivative.
class RegexPool {
 public:
  RegexPool();

  Regex Bytes(const ByteSet& set);
  Regex Literal(absl::string_view text);
  // Matches each of the texts. With many texts, faster than Or: common beginnings are shared.
  Regex Literals(std::vector<std::string> texts);
  // Matches one character of the ranges, in UTF-8. Surrogates never match.
  Regex Characters(absl::Span<const CodePoints> ranges);
  // Matches any valid UTF-8 text.
  Regex AnyText();
  // Matches any one character.
  Regex AnyCharacter();

  Regex Concat(Regex head, Regex tail);
  Regex Or(std::vector<Regex> parts);
  Regex And(std::vector<Regex> parts);
  Regex Not(Regex inner);
  // Matches between `min` and `max` texts of `inner`, one after the other.
  Regex Repeat(Regex inner, int32_t min, int32_t max);
  // Matches a JSON string, with its quotation marks, whose value matches `content`. The character
  // U+007F is always escaped. Requires: `content` matches only valid UTF-8.
  Regex Quoted(Regex content, Escapes escapes);
  // Matches a JSON number without a sign and without an exponent that is a multiple of `divisor` /
  // 10^`scale`. Requires: 0 < divisor < 2^59, and 0 <= scale <= 17.
  Regex Multiple(int64_t divisor, int32_t scale, MultipleForm form);

  bool nullable(Regex regex) const { return nodes_[regex].nullable; }
  // Returns the derivative; kNoRegex if no text begins with this byte.
  Regex Derive(Regex regex, uint8_t byte) { return DeriveClass(regex, class_of_[byte]); }
  Regex DeriveClass(Regex regex, int32_t byte_class);
  bool Matches(Regex regex, absl::string_view text);
  // Requires: `regex` begins inside of a JSON string. Returns a number of characters: any
  // characters that need no escape may come next, up to this number. Returns 0 if the number is
  // unknown.
  int32_t FreeCharacters(Regex regex) const;
  // Returns an expression that has the same texts up to `bytes` bytes, and the same beginnings of
  // texts up to this size. Larger counts become equal: the results for a{500,900}, a{499,899} and
  // a{101,} are the same if `bytes` is 100.
  Regex Clip(Regex regex, int32_t bytes) { return ClipCounts(regex, bytes + 1, 0); }
  // Returns whether no text matches.
  bool IsNothing(Regex regex) { return !Viable(regex); }

  // Bytes of one class have the same derivatives. A new byte set can change the classes.
  int32_t classes() const { return static_cast<int32_t>(class_bytes_.size()); }
  int32_t class_of(uint8_t byte) const { return class_of_[byte]; }

  // Numbers of expressions and of derivatives that are stored.
  size_t size() const { return nodes_.size(); }
  size_t stored() const { return nodes_.size() + rows_.size() / 8 + kids_.size() / 4; }

  // IsNothing gives up and returns false once the pool has this number of expressions, or after
  // 20,000 derivatives of one expression.
  void set_limit(size_t limit) { limit_ = limit; }
  // Returns whether IsNothing gave up, or would give up now.
  bool over_limit() const { return gave_up_ || nodes_.size() > limit_; }

 private:
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,     // x: number of the byte set
    kConcat,    // x: head, y: tail. The head is not a kConcat
    kOr,        // x: first of kids_, y: number of kids
    kAnd,       // the same
    kNot,       // x: inner
    kRepeat,    // x: inner, y: min, z: max
    kQuoted,    // x: content, y: phase and escapes, z: value of the digits of an escape
    kMultiple,  // x: number of the divisor, y: place in the text, z: number of the remainder
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    // some text matches, because there is no complement and no intersection, except inside of a
    // JSON string
    bool plain = false;
    bool finite = false;  // certainly matches only a finite number of texts
    int8_t viable = 0;    // 1: some text matches, -1: none, 0: not known yet
    int32_t x = 0;
    int32_t y = 0;
    int32_t z = 0;
    int32_t row = -1;   // index of the derivatives in rows_
    int32_t next = -1;  // the next expression with the same hash
  };
  struct Divisor {
    int64_t divisor;
    int32_t scale;
    MultipleForm form;
    std::vector<int64_t> remainders;
    absl::flat_hash_map<int64_t, int32_t> numbers;
  };

  Regex Intern(Node node, absl::Span<const Regex> kids);
  uint64_t HashOf(const Node& node, absl::Span<const Regex> kids) const;
  absl::Span<const Regex> KidsOf(const Node& node) const {
    return absl::MakeConstSpan(kids_).subspan(node.x, node.y);
  }
  int32_t SetNumber(const ByteSet& set);
  Regex Byte(uint8_t byte);
  Regex CharacterBytes(absl::Span<const Utf8Range> parts, int at);
  void Refine(const ByteSet& set);
  Regex RawDerivative(Regex regex, int32_t byte_class);
  Regex DeriveRaw(Regex regex, int32_t byte_class);
  Regex DeriveConcat(Regex regex, int32_t byte_class);
  Regex ClipCounts(Regex regex, int32_t count, int depth);
  Regex DeriveQuoted(const Node& node, uint8_t byte);
  Regex DeriveEscape(const Node& node, uint8_t byte);
  void RefineForQuoted();
  bool IsAllButFinite(const Node& node) const;
  Regex QuotedAt(const Node& node, Regex content, int32_t phase, int32_t value);
  Regex DeriveCharacter(Regex content, char32_t character);
  bool AnyOf(Regex content, char32_t low, char32_t high);
  Regex DeriveMultiple(const Node& node, uint8_t byte);
  Regex MultipleAt(int32_t divisor, int32_t place, int64_t remainder);
  bool Contradicts(absl::Span<const Regex> parts) const;
  bool Viable(Regex regex);
  bool Search(Regex regex);

  std::vector<Node> nodes_;
  std::vector<Regex> kids_;
  absl::flat_hash_map<uint64_t, Regex> by_hash_;
  std::vector<ByteSet> sets_;
  absl::flat_hash_map<ByteSet, int32_t, std::hash<ByteSet>> set_numbers_;
  std::array<Regex, 256> bytes_ = {};  // kNoRegex: not known yet
  std::array<uint8_t, 256> class_of_ = {};
  std::vector<uint8_t> class_bytes_;  // one byte of each class
  std::vector<Regex> rows_;           // derivatives, one row per expression that has any
  std::vector<Divisor> divisors_;
  Regex any_character_ = kNoRegex;
  Regex any_text_ = kNoRegex;
  size_t limit_ = SIZE_MAX;
  bool gave_up_ = false;
  bool refined_for_quoted_ = false;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_REGEX_POOL_H_
