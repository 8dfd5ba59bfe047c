#include "engine/sampling/token_filter.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

void KeepOnly(const grammar::TokenMask& allowed, absl::Span<float> logits) {
  for (size_t i = 0; i < allowed.words().size(); ++i) {
    const uint64_t word = allowed.words()[i];
    if (word == ~uint64_t{0}) continue;
    const size_t end = std::min(logits.size(), i * 64 + 64);
    for (size_t id = i * 64; id < end; ++id) {
      if ((word >> (id % 64) & 1) == 0) logits[id] = -kInfinity;
    }
  }
  const size_t known = std::min(logits.size(), static_cast<size_t>(allowed.size()));
  std::fill(logits.begin() + static_cast<int64_t>(known), logits.end(), -kInfinity);
}

absl::Span<const float> Gather(const grammar::TokenMask& allowed, absl::Span<const float> logits,
                               std::vector<float>* memory) {
  // If more tokens of a word are allowed than this, all 64 are copied, without jumps.
  constexpr int kMany = 24;
  constexpr uint64_t kAll = ~uint64_t{0};
  if (memory->size() < logits.size()) memory->resize(logits.size());
  float* next = memory->data();
  const size_t whole = std::min(logits.size() / 64, allowed.words().size());
  for (size_t i = 0; i < whole; ++i) {
    const float* values = logits.data() + i * 64;
    uint64_t word = allowed.words()[i];
    if (word == kAll) {
      size_t end = i + 1;
      while (end < whole && allowed.words()[end] == kAll) ++end;
      next = std::copy(values, logits.data() + end * 64, next);
      i = end - 1;
    } else if (std::popcount(word) > kMany) {
      // The value after the last one is written too. It is inside of `memory`, because this word
      // has a token that is not allowed.
      for (size_t id = 0; id < 64; ++id) {
        *next = values[id];
        next += word >> id & 1;
      }
    } else {
      for (; word != 0; word &= word - 1) *next++ = values[std::countr_zero(word)];
    }
  }
  const size_t end = std::min(logits.size(), static_cast<size_t>(allowed.size()));
  for (size_t id = whole * 64; id < end; ++id) {
    if (allowed.Test(static_cast<int32_t>(id))) *next++ = logits[id];
  }
  return absl::MakeConstSpan(*memory).first(next - memory->data());
}

absl::StatusOr<TokenFilter> TokenFilter::Create(const SamplingParams& params,
                                                const Tokenizer& tokenizer, int vocab_size) {
  TokenFilter filter;
  if (!params.allowed_token_ids.empty()) {
    filter.allowed_ = grammar::TokenMask(vocab_size);
    for (const int32_t id : params.allowed_token_ids) filter.allowed_.Set(id);
  }
  for (const std::string& text : params.bad_words) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const absl::string_view word =
        begin < text.size() ? absl::string_view(text).substr(begin) : text;
    for (const std::string& variant : {std::string(word), absl::StrCat(" ", word)}) {
      ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                       tokenizer.Encode(variant, SpecialTokens::kParse, AddBos::kContinue));
      if (ids.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("bad_words: ", base::Quoted(variant), " has no token in this vocabulary"));
      }
      filter.bad_.push_back(std::move(ids));
    }
  }
  std::sort(filter.bad_.begin(), filter.bad_.end());
  filter.bad_.erase(std::unique(filter.bad_.begin(), filter.bad_.end()), filter.bad_.end());
  return filter;
}

void TokenFilter::Apply(absl::Span<const int32_t> outputs, absl::Span<float> logits) const {
  if (allowed_.size() > 0) KeepOnly(allowed_, logits);
  for (const std::vector<int32_t>& word : bad_) {
    const size_t before = word.size() - 1;
    if (outputs.size() < before || static_cast<size_t>(word.back()) >= logits.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, outputs.end() - static_cast<int64_t>(before))) {
      logits[word.back()] = -kInfinity;
    }
  }
}

}  // namespace tidepool::engine
