#include "service/front/name_lookup.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "service/base/task_pool.h"

namespace tidepool::service {
namespace {

absl::StatusOr<std::vector<std::string>> AddressesOf(const std::string& host) {
  boost::asio::io_context unused;  // the API requires it, but only asynchronous calls use it
  boost::asio::ip::tcp::resolver resolver(unused);
  boost::system::error_code error;
  const auto found = resolver.resolve(host, /*service=*/"", error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot look up ", host, ": ", error.message()));
  }
  std::set<std::string> addresses;
  for (const auto& entry : found) addresses.insert(entry.endpoint().address().to_string());
  if (addresses.empty()) return absl::UnavailableError(absl::StrCat(host, " has no address"));
  return std::vector<std::string>(addresses.begin(), addresses.end());
}

class SystemLookup final : public NameLookup {
 public:
  explicit SystemLookup(Executor* loop) : loop_(loop) {}

  void Lookup(const std::string& host, Done done) override {
    pool_.Post(host, [loop = loop_, host, done = std::move(done)] {
      loop->Post([done, addresses = AddressesOf(host)] { done(addresses); });
    });
  }

 private:
  Executor* const loop_;
  TaskPool pool_{/*threads=*/1};
};

}  // namespace

std::unique_ptr<NameLookup> MakeSystemLookup(Executor* loop) {
  return std::make_unique<SystemLookup>(loop);
}

}  // namespace tidepool::service
