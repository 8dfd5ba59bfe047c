#include "engine/grammar/token_trie.h"

#include <algorithm>

#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

// Returns the number of characters, or 0 if some are not ordinary characters of JSON strings. Line
// separators do not count as ordinary, because "." in patterns does not match them.
int32_t PlainCharacters(absl::string_view text) {
  int32_t count = 0;
  while (!text.empty()) {
    const base::Utf8Char next = base::NextUtf8Char(text);
    const char32_t c = next.code_point;
    const bool plain = next.kind == base::Utf8Char::Kind::kWhole && c >= 0x20 && c != '"' &&
                       c != '\\' && c != 0x7F && c != 0x2028 && c != 0x2029;
    if (!plain) return 0;
    text.remove_prefix(next.size);
    ++count;
  }
  return count;
}

struct Entry {
  absl::string_view text;
  int32_t id;
};

TokenTrie::Trie MakeTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.id < b.id;
  });
  TokenTrie::Trie trie;
  std::vector<int32_t> open;  // the nodes from the root to the last one
  const auto add = [&](uint8_t byte) {
    open.push_back(static_cast<int32_t>(trie.bytes.size()));
    trie.bytes.push_back(byte);
    trie.depths.push_back(static_cast<int16_t>(open.size() - 1));
    trie.ends.push_back(0);
    trie.first_token.push_back(static_cast<int32_t>(trie.tokens.size()));
    trie.max_depth = std::max(trie.max_depth, static_cast<int32_t>(open.size()) - 1);
  };
  const auto close = [&](size_t depth) {
    while (open.size() > depth) {
      trie.ends[open.back()] = static_cast<int32_t>(trie.bytes.size());
      open.pop_back();
    }
  };
  add(0);
  absl::string_view last;
  for (const Entry& entry : entries) {
    size_t shared = 0;
    while (shared < last.size() && shared < entry.text.size() &&
           last[shared] == entry.text[shared]) {
      ++shared;
    }
    close(shared + 1);
    for (size_t i = shared; i < entry.text.size(); ++i) add(static_cast<uint8_t>(entry.text[i]));
    trie.tokens.push_back(entry.id);
    last = entry.text;
  }
  close(0);
  trie.first_token.push_back(static_cast<int32_t>(trie.tokens.size()));
  return trie;
}

}  // namespace

std::string TokenTerm(int32_t id) {
  std::string term(1, static_cast<char>(kTokenByte));
  for (int shift = 21; shift >= 0; shift -= 7) {
    term.push_back(static_cast<char>(id >> shift & 0x7F));
  }
  return term;
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer)
    : stop_ids_(tokenizer.stop_ids().begin(), tokenizer.stop_ids().end()) {
  std::vector<std::string> texts;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool has_text = !tokenizer.IsControl(id) && !tokenizer.IsEndOfGeneration(id);
    texts.emplace_back(has_text ? tokenizer.TokenBytes(id) : "");
  }
  Build(texts);
}

TokenTrie::TokenTrie(const std::vector<std::string>& texts, absl::Span<const int32_t> stop_ids)
    : stop_ids_(stop_ids.begin(), stop_ids.end()) {
  Build(texts);
}

void TokenTrie::Build(const std::vector<std::string>& texts) {
  vocab_size_ = static_cast<int32_t>(texts.size());
  for (const std::string& text : texts) {
    offsets_.push_back(bytes_.size());
    // This byte is in no UTF-8 text, and begins the terms for tokens.
    const bool never = text.find(static_cast<char>(kTokenByte)) != std::string::npos;
    if (!never) bytes_ += text;
  }
  offsets_.push_back(bytes_.size());
  std::vector<Entry> others;
  std::array<std::vector<Entry>, kSliceCharacters.size()> sliced;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (text(id).empty()) continue;
    longest_ = std::max(longest_, static_cast<int32_t>(text(id).size()));
    const int32_t characters = PlainCharacters(text(id));
    const auto slice = static_cast<size_t>(
        std::lower_bound(kSliceCharacters.begin(), kSliceCharacters.end(), characters) -
        kSliceCharacters.begin());
    const bool in_slice = characters > 0 && slice < sliced.size();
    (in_slice ? sliced[slice] : others).push_back({text(id), id});
  }
  others_ = MakeTrie(std::move(others));
  for (size_t i = 0; i < slices_.size(); ++i) {
    slices_[i].tokens = TokenMask(vocab_size_);
    for (const Entry& entry : sliced[i]) slices_[i].tokens.Set(entry.id);
    slices_[i].trie = MakeTrie(std::move(sliced[i]));
  }
}

bool TokenTrie::IsStop(int32_t id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
}

}  // namespace tidepool::engine::grammar
