#include "service/cli/reload.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/string_view.h"

namespace tidepool::service {
namespace {

template <auto group, auto member>
void Take(const Config& from, Config* into) {
  into->*group.*member = from.*group.*member;
}

struct LiveFlag {
  absl::string_view name;
  void (*take)(const Config& from, Config* into);
};

constexpr LiveFlag kLiveFlags[] = {
    {"drain-grace", Take<&Config::serving, &ServingFlags::drain_grace>},
    {"drain-timeout", Take<&Config::serving, &ServingFlags::drain_timeout>},
    {"log-level", Take<&Config::log, &LogFlags::level>},
    {"log-prompts", Take<&Config::log, &LogFlags::prompts>},
    {"max-queued", Take<&Config::serving, &ServingFlags::max_queued>},
    {"max-session-tokens", Take<&Config::store, &StoreFlags::max_session_tokens>},
    {"orphan-ttl", Take<&Config::front, &FrontFlags::orphan_ttl>},
    {"request-ttl", Take<&Config::front, &FrontFlags::request_ttl>},
    {"session-ttl", Take<&Config::store, &StoreFlags::session_ttl>},
    {"worker", Take<&Config::front, &FrontFlags::workers>},
    {"workers", Take<&Config::front, &FrontFlags::worker_names>},
};

const LiveFlag* FindLive(absl::string_view name) {
  const auto found = std::find_if(std::begin(kLiveFlags), std::end(kLiveFlags),
                                  [name](const LiveFlag& flag) { return flag.name == name; });
  return found == std::end(kLiveFlags) ? nullptr : found;
}

const std::vector<std::string>* Find(const FlagValues& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

bool Same(const std::vector<std::string>* a, const std::vector<std::string>* b) {
  return a == nullptr || b == nullptr ? a == b : *a == *b;
}

}  // namespace

ConfigChanges TakeChanges(const ParsedConfig& read, ParsedConfig* running) {
  std::set<std::string> names;
  for (const FlagValues* values :
       {&read.values, static_cast<const FlagValues*>(&running->values)}) {
    for (const auto& [name, texts] : *values) names.insert(name);
  }
  ConfigChanges changes;
  for (const std::string& name : names) {
    const std::vector<std::string>* now = Find(read.values, name);
    if (Same(now, Find(running->values, name))) continue;
    const LiveFlag* live = FindLive(name);
    (live == nullptr ? changes.left : changes.taken).push_back(name);
    if (live == nullptr) continue;
    live->take(read.config, &running->config);
    if (now == nullptr) {
      running->values.erase(name);
    } else {
      running->values[name] = *now;
    }
  }
  return changes;
}

}  // namespace tidepool::service
