// Lists the values of shapes that have only a few values.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_FINITE_VALUES_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_FINITE_VALUES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/schema/shapes.h"

namespace tidepool::engine::grammar {

// Returns the JSON texts of all values, one for each. Returns nullopt if there are more than `max`,
// or if arrays or objects are among them.
std::optional<std::vector<std::string>> FiniteValues(const Shapes& shapes, size_t max,
                                                     RegexPool* pool);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_FINITE_VALUES_H_
