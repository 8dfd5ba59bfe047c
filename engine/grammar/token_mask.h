// TokenMask: a set of token ids, one bit per token.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_TOKEN_MASK_H_
#define TIDEPOOL_ENGINE_GRAMMAR_TOKEN_MASK_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tidepool::engine::grammar {

// Thread-compatible.
class TokenMask {
 public:
  TokenMask() = default;
  explicit TokenMask(int32_t size) : size_(size), words_((size + 63) / 64) {}

  int32_t size() const { return size_; }
  void Clear() { words_.assign(words_.size(), 0); }
  void Set(int32_t id) { words_[id >> 6] |= uint64_t{1} << (id & 63); }
  void Reset(int32_t id) { words_[id >> 6] &= ~(uint64_t{1} << (id & 63)); }
  bool Test(int32_t id) const { return (words_[id >> 6] >> (id & 63) & 1) != 0; }
  // Requires: the same size.
  void Add(const TokenMask& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

  bool IsEmpty() const {
    for (const uint64_t word : words_) {
      if (word != 0) return false;
    }
    return true;
  }
  // 64 tokens each, from token 0 on; the lowest bit is the first token.
  const std::vector<uint64_t>& words() const { return words_; }
  int32_t Count() const {
    int32_t count = 0;
    for (const uint64_t word : words_) count += std::popcount(word);
    return count;
  }
  void AppendIds(std::vector<int32_t>* ids) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        ids->push_back(static_cast<int32_t>(i * 64 + std::countr_zero(word)));
      }
    }
  }
  // Returns the token that comes after `n` others. Requires: 0 <= n < Count().
  int32_t Nth(int32_t n) const {
    size_t i = 0;
    for (; n >= std::popcount(words_[i]); ++i) n -= std::popcount(words_[i]);
    uint64_t word = words_[i];
    for (; n > 0; --n) word &= word - 1;
    return static_cast<int32_t>(i * 64 + std::countr_zero(word));
  }
  // Returns the token if the set has exactly one.
  std::optional<int32_t> Only() const {
    std::optional<int32_t> only;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == 0) continue;
      if (only.has_value() || std::popcount(words_[i]) != 1) return std::nullopt;
      only = static_cast<int32_t>(i * 64 + std::countr_zero(words_[i]));
    }
    return only;
  }
  bool operator==(const TokenMask&) const = default;

 private:
  int32_t size_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_TOKEN_MASK_H_
