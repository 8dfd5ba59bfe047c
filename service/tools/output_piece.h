// OutputPiece: a part of a response that a parser of this folder has found.
#ifndef TIDEPOOL_SERVICE_TOOLS_OUTPUT_PIECE_H_
#define TIDEPOOL_SERVICE_TOOLS_OUTPUT_PIECE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tidepool::service {

struct OutputPiece {
  enum class Kind : uint8_t {
    kReasoning,
    kContent,
    kCall,       // a call begins; `text` is the name of the tool
    kArguments,  // the next piece of a call's arguments
  };
  Kind kind = Kind::kContent;
  int32_t call = 0;  // index of the call in the response, for kCall and kArguments
  std::string text;
};

using OutputPieces = std::vector<OutputPiece>;

// If the last piece has the same kind and the same call, appends the text to this piece. Otherwise
// adds a piece. Does nothing if the text is empty.
inline void AddText(OutputPiece::Kind kind, int32_t call, absl::string_view text,
                    OutputPieces* pieces) {
  if (text.empty()) return;
  const bool continues = !pieces->empty() && pieces->back().kind == kind &&
                         pieces->back().call == call && kind != OutputPiece::Kind::kCall;
  if (!continues) pieces->push_back({.kind = kind, .call = call, .text = {}});
  pieces->back().text.append(text.data(), text.size());
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_OUTPUT_PIECE_H_
