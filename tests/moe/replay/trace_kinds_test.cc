#include "tests/moe/replay/trace_kinds.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

TEST(TraceKindsTest, TracesAreValidAndReproducible) {
  std::set<std::string> names;
  std::vector<TraceKind> kinds = TraceKinds();
  kinds.insert(kinds.end(), ModelKinds().begin(), ModelKinds().end());
  for (TraceKind kind : kinds) {
    kind.forwards = 20;
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name << " is listed twice";
    const Trace trace = MakeTrace(kind, 3);
    ASSERT_TRUE(trace.header.Validate().ok()) << kind.name;
    ASSERT_EQ(trace.entries.size(), static_cast<size_t>(20 * kind.layers)) << kind.name;
    for (const TraceEntry& entry : trace.entries) {
      ASSERT_FALSE(entry.ids.empty()) << kind.name;
      for (size_t token = 0; token < entry.ids.size(); token += kind.top_k) {
        const std::set<int32_t> row(&entry.ids[token], &entry.ids[token] + kind.top_k);
        ASSERT_EQ(row.size(), static_cast<size_t>(kind.top_k)) << kind.name;
        ASSERT_TRUE(*row.begin() >= 0 && *row.rbegin() < kind.experts) << kind.name;
      }
    }
    EXPECT_EQ(MakeTrace(kind, 3).entries.back().ids, trace.entries.back().ids);
    EXPECT_NE(MakeTrace(kind, 4).entries.back().ids, trace.entries.back().ids) << kind.name;
  }
}

}  // namespace
}  // namespace tidepool::moe
