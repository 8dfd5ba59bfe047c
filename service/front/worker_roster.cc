#include "service/front/worker_roster.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

std::string Joined(absl::string_view host, int port) {
  const bool v6 = absl::StrContains(host, ":");
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]" : "", ":", port);
}

}  // namespace

WorkerRoster::WorkerRoster(Surroundings surroundings) : surroundings_(std::move(surroundings)) {
  surroundings_.workers->OnTrouble([this, weak = std::weak_ptr<int>(alive_)] {
    if (!weak.expired()) LookUpAll(kShortestPeriod);
  });
}

void WorkerRoster::Set(const WorkerSources& sources) {
  addresses_ = sources.addresses;
  std::map<WorkerName, Name> names;
  for (const WorkerName& name : sources.names) names[name] = names_[name];
  names_ = std::move(names);
  for (const auto& [name, known] : names_) {
    if (known.addresses.empty()) LookUp(name);
  }
  Reconcile();
}

void WorkerRoster::LookUp(const WorkerName& name) {
  Name& known = names_[name];
  if (std::exchange(known.asking, true)) return;
  known.asked_at = surroundings_.clock->Monotonic();
  surroundings_.lookup->Lookup(name.host, [this, name, weak = std::weak_ptr<int>(alive_)](
                                              absl::StatusOr<std::vector<std::string>> addresses) {
    if (!weak.expired()) OnAddresses(name, std::move(addresses));
  });
}

void WorkerRoster::LookUpAll(absl::Duration shortest_period) {
  const absl::Duration now = surroundings_.clock->Monotonic();
  for (const auto& [name, known] : names_) {
    if (now - known.asked_at >= shortest_period) LookUp(name);
  }
}

void WorkerRoster::OnAddresses(const WorkerName& name,
                               absl::StatusOr<std::vector<std::string>> addresses) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  Name& known = found->second;
  known.asking = false;
  // Log each error once, until a lookup succeeds.
  const std::string complaint(addresses.status().message());
  if (std::exchange(known.complaint, complaint) != complaint && !complaint.empty()) {
    surroundings_.log(LogLevel::kWarn,
                      absl::StrCat(complaint,
                                   "; the known workers stay in use, and the name is looked up "
                                   "again every ",
                                   absl::FormatDuration(kPeriod)));
  }
  if (addresses.ok()) known.addresses = *std::move(addresses);
  Reconcile();
}

void WorkerRoster::Join(const std::string& address, const std::string& name) {
  if (const auto link = links_.find(address); link != links_.end()) {
    return surroundings_.workers->Rejoin(link->second);
  }
  std::shared_ptr<WorkerLink> link = surroundings_.make_link(address, name);
  links_[address] = link.get();
  surroundings_.workers->Add(std::move(link));
}

void WorkerRoster::Reconcile() {
  std::set<std::string> wanted;
  // Add workers in the order in which the user named them.
  for (const std::string& address : addresses_) {
    if (wanted.insert(address).second) Join(address, "");
  }
  for (const auto& [name, known] : names_) {
    for (const std::string& host : known.addresses) {
      const std::string address = Joined(host, name.port);
      if (wanted.insert(address).second) Join(address, Joined(name.host, name.port));
    }
  }
  for (auto link = links_.begin(); link != links_.end();) {
    const bool gone = !wanted.contains(link->first) && surroundings_.workers->Retire(link->second);
    link = gone ? links_.erase(link) : std::next(link);
  }
  // Continue to check, because names may get new addresses, and a removed worker may still have
  // running requests.
  const bool more = !names_.empty() || links_.size() > wanted.size();
  if (more && !std::exchange(ticking_, true)) {
    surroundings_.loop->PostAfter(kPeriod, [this, weak = std::weak_ptr<int>(alive_)] {
      if (!weak.expired()) Tick();
    });
  }
}

void WorkerRoster::Tick() {
  ticking_ = false;
  LookUpAll(absl::ZeroDuration());
  Reconcile();
}

}  // namespace tidepool::service
