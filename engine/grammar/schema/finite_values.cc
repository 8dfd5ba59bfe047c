#include "engine/grammar/schema/finite_values.h"

#include <utility>

namespace tidepool::engine::grammar {
namespace {

// Appends all texts that match. Returns false if there are more than `max`, or if some are long.
bool AppendTexts(Regex regex, size_t max, RegexPool* pool, std::vector<std::string>* texts) {
  constexpr size_t kMaxBytes = 256;
  constexpr size_t kMaxVisits = 10'000;
  std::vector<std::pair<Regex, std::string>> left = {{regex, ""}};
  size_t visits = 0;
  while (!left.empty()) {
    const auto [state, text] = std::move(left.back());
    left.pop_back();
    if (pool->nullable(state)) texts->push_back(text);
    if (texts->size() > max || text.size() > kMaxBytes || ++visits > kMaxVisits) return false;
    for (int byte = 255; byte >= 0; --byte) {
      const Regex next = pool->Derive(state, static_cast<uint8_t>(byte));
      if (next != kNoRegex) left.emplace_back(next, text + static_cast<char>(byte));
      if (left.size() > 256 * max) return false;
    }
  }
  return true;
}

}  // namespace

std::optional<std::vector<std::string>> FiniteValues(const Shapes& shapes, size_t max,
                                                     RegexPool* pool) {
  if (!shapes.arrays.empty() || !shapes.objects.empty()) return std::nullopt;
  std::vector<std::string> values, strings;
  if (shapes.null) values.emplace_back("null");
  if (shapes.yes) values.emplace_back("true");
  if (shapes.no) values.emplace_back("false");
  // The numbers of const and enum have one text each. A range of numbers has infinitely many texts.
  if (shapes.numbers != kNoRegex && !AppendTexts(shapes.numbers, max, pool, &values)) {
    return std::nullopt;
  }
  if (shapes.strings != kNoRegex && !AppendTexts(shapes.strings, max, pool, &strings)) {
    return std::nullopt;
  }
  for (const std::string& text : strings) values.push_back(Json(text).dump());
  if (values.size() > max) return std::nullopt;
  return values;
}

}  // namespace tidepool::engine::grammar
