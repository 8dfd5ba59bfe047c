#include "engine/sampling/dry_breakers.h"

#include <algorithm>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr size_t kMaxRestTokens = 20;

// Returns the byte of the text at `at`, or -1 at its end.
int ByteAt(const std::string& text, size_t at) {
  return at < text.size() ? static_cast<uint8_t>(text[at]) : -1;
}

// Returns the texts with the byte `byte` at `at`. Requires: the texts are sorted, and are equal
// before `at`.
absl::Span<const std::string> WithByte(absl::Span<const std::string> sorted, size_t at, int byte) {
  const auto begin =
      std::partition_point(sorted.begin(), sorted.end(),
                           [at, byte](const std::string& text) { return ByteAt(text, at) < byte; });
  const auto end = std::partition_point(begin, sorted.end(), [at, byte](const std::string& text) {
    return ByteAt(text, at) == byte;
  });
  return sorted.subspan(begin - sorted.begin(), end - begin);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const DryBreakers>> DryBreakers::Create(
    absl::Span<const std::string> texts, const Tokenizer& tokenizer) {
  std::vector<std::string> sorted(texts.begin(), texts.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::shared_ptr<DryBreakers> breakers(new DryBreakers);
  breakers->whole_ = breakers->begins_ = grammar::TokenMask(tokenizer.vocab_size());
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    RETURN_IF_ERROR(breakers->AddToken(sorted, token, tokenizer));
  }
  breakers->roots_.clear();
  return breakers;
}

absl::Status DryBreakers::AddToken(absl::Span<const std::string> sorted, int32_t token,
                                   const Tokenizer& tokenizer) {
  const absl::string_view text = tokenizer.TokenBytes(token);
  for (size_t begin = 0; begin < text.size(); ++begin) {
    // The breakers that begin with the token's text in [begin, at) and are longer than this text.
    absl::Span<const std::string> open = sorted;
    size_t at = begin;
    while (at < text.size() && !open.empty()) {
      open = WithByte(open, at - begin, static_cast<uint8_t>(text[at]));
      ++at;
      if (open.empty() || open[0].size() > at - begin) continue;
      whole_.Set(token);
      open.remove_prefix(1);
    }
    if (open.empty()) continue;
    ASSIGN_OR_RETURN(const int32_t root, RestsOf(open, at - begin, tokenizer));
    begins_.Set(token);
    rests_[token].push_back(root);
  }
  return absl::OkStatus();
}

// Returns the root of the rests of breakers that are equal up to `length`.
absl::StatusOr<int32_t> DryBreakers::RestsOf(absl::Span<const std::string> breakers, size_t length,
                                             const Tokenizer& tokenizer) {
  const auto [found, is_new] =
      roots_.try_emplace(breakers[0].substr(0, length), static_cast<int32_t>(ends_.size()));
  const int32_t root = found->second;
  if (!is_new) return root;
  ends_.push_back(false);
  for (const std::string& breaker : breakers) {
    ASSIGN_OR_RETURN(
        std::vector<int32_t> rest,
        tokenizer.Encode(breaker.substr(length), SpecialTokens::kAsText, AddBos::kContinue));
    rest.resize(std::min(rest.size(), kMaxRestTokens));
    AddRest(root, rest);
  }
  return root;
}

void DryBreakers::AddRest(int32_t root, absl::Span<const int32_t> tokens) {
  if (tokens.empty()) return;  // the vocabulary has no tokens for the rest
  int32_t node = root;
  for (const int32_t token : tokens) {
    const auto [found, is_new] =
        next_.try_emplace({node, token}, static_cast<int32_t>(ends_.size()));
    if (is_new) ends_.push_back(false);
    node = found->second;
  }
  ends_[node] = true;
}

absl::Span<const int32_t> DryBreakers::Rests(int32_t token) const {
  if (!begins_.Test(token)) return {};
  return rests_.at(token);
}

int32_t DryBreakers::Next(int32_t node, int32_t token) const {
  const auto found = next_.find({node, token});
  return found == next_.end() ? kNone : found->second;
}

absl::StatusOr<std::shared_ptr<const DryBreakers>> DryBreakerCache::Get(
    const std::vector<std::string>& texts) {
  return breakers_.Get(texts, [&] { return DryBreakers::Create(texts, *tokenizer_); });
}

}  // namespace tidepool::engine
