// Marker: a text with which a model begins or ends a part of its response, such as <think>.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_MARKER_H_
#define TIDEPOOL_ENGINE_GRAMMAR_MARKER_H_

#include <cstdint>
#include <string>

namespace tidepool::engine::grammar {

struct Marker {
  std::string text;
  // The control token that is the marker. -1: the marker is ordinary text.
  int32_t token = -1;
  bool operator==(const Marker&) const = default;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_MARKER_H_
