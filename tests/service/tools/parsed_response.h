// Joins the pieces that a ResponseParser finds, and compares all ways to split a text.
#ifndef TIDEPOOL_TESTS_SERVICE_TOOLS_PARSED_RESPONSE_H_
#define TIDEPOOL_TESTS_SERVICE_TOOLS_PARSED_RESPONSE_H_

#include <cstddef>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/tools/response_parser.h"

namespace tidepool::service {

struct ParsedCall {
  std::string name, arguments;
  bool operator==(const ParsedCall&) const = default;
};

struct ParsedResponse {
  std::string reasoning, content;
  std::vector<ParsedCall> calls;
  bool operator==(const ParsedResponse&) const = default;

  friend std::ostream& operator<<(std::ostream& out, const ParsedResponse& parsed) {
    out << "reasoning [" << parsed.reasoning << "] content [" << parsed.content << "]";
    for (const ParsedCall& call : parsed.calls)
      out << " " << call.name << "(" << call.arguments << ")";
    return out;
  }
};

inline void Join(const OutputPieces& pieces, ParsedResponse* parsed) {
  for (const OutputPiece& piece : pieces) {
    switch (piece.kind) {
      case OutputPiece::Kind::kReasoning:
        parsed->reasoning += piece.text;
        break;
      case OutputPiece::Kind::kContent:
        parsed->content += piece.text;
        break;
      case OutputPiece::Kind::kCall:
        CHECK_EQ(piece.call, static_cast<int32_t>(parsed->calls.size()));
        parsed->calls.push_back({piece.text, ""});
        break;
      case OutputPiece::Kind::kArguments:
        CHECK_EQ(piece.call + 1, static_cast<int32_t>(parsed->calls.size()));
        parsed->calls.back().arguments += piece.text;
        break;
    }
  }
}

// `cuts` are positions in the text, in ascending order.
inline ParsedResponse ParseInPieces(const ResponseFormat& format, absl::string_view text,
                                    const std::vector<size_t>& cuts) {
  ResponseParser parser(format);
  OutputPieces pieces;
  size_t from = 0;
  for (const size_t cut : cuts) {
    parser.Feed(text.substr(from, cut - from), &pieces);
    from = cut;
  }
  parser.Feed(text.substr(from), &pieces);
  parser.Finish(&pieces);
  ParsedResponse parsed;
  Join(pieces, &parsed);
  return parsed;
}

inline ParsedResponse ParseWhole(const ResponseFormat& format, absl::string_view text) {
  return ParseInPieces(format, text, {});
}

// Returns a split of the text that gives another result, or "" if there is none. Tries each byte
// alone, all splits with one cut, all with two cuts if the text is short, and random splits.
inline std::string FindBadSplit(const ResponseFormat& format, absl::string_view text,
                                std::mt19937* random) {
  constexpr size_t kShort = 120;
  const ParsedResponse whole = ParseWhole(format, text);
  std::vector<std::vector<size_t>> splits(1);
  for (size_t i = 1; i < text.size(); ++i) splits[0].push_back(i);
  for (size_t i = 1; i < text.size(); ++i) {
    splits.push_back({i});
    if (text.size() > kShort) continue;
    for (size_t j = i + 1; j < text.size(); ++j) splits.push_back({i, j});
  }
  for (int n = 0; n < 8; ++n) {
    std::vector<size_t>& split = splits.emplace_back();
    const unsigned one_in = 2 + (*random)() % 12;
    for (size_t i = 1; i < text.size(); ++i) {
      if ((*random)() % one_in == 0) split.push_back(i);
    }
  }
  for (const std::vector<size_t>& split : splits) {
    if (ParseInPieces(format, text, split) == whole) continue;
    std::string shown;
    size_t from = 0;
    for (const size_t cut : split) {
      shown += std::string(text.substr(from, cut - from)) + "|";
      from = cut;
    }
    return shown + std::string(text.substr(from));
  }
  return "";
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_TOOLS_PARSED_RESPONSE_H_
