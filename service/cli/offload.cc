// offload: shows and changes the expert settings of a running server.
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/cli/client.h"
#include "service/cli/commands.h"

namespace tidepool::service {
namespace {

// Maximum time to wait for a change, which takes effect at the end of a step.
constexpr absl::Duration kPatience = absl::Seconds(60);

std::string Text(const Json& answer) {
  std::string text;
  for (const Json& worker : answer["workers"]) {
    absl::StrAppend(&text, "worker ", Shown(worker["worker_id"]), " ", Shown(worker["address"]),
                    "\n");
    const Json& settings = worker["settings"];
    if (settings.is_null()) {
      absl::StrAppend(&text, "  failed: ", Shown(worker["status_message"]), "\n");
      continue;
    }
    const auto number = [&](const char* key) { return settings[key].get<int64_t>(); };
    const std::string policy = Shown(settings["policy"]);
    absl::StrAppendFormat(&text, "  policy      %s", policy);
    if (policy == "tide") {
      absl::StrAppendFormat(&text, ", refreshed every %d steps", number("refresh_interval"));
    }
    absl::StrAppendFormat(
        &text,
        "\n  memory      %s: slots for %d of %d experts, and %d staging records; %s each\n"
        "  prefetch    %s\n",
        FormatBytes(settings["expert_memory_bytes"].get<double>()), number("slots"),
        number("experts"), number("staging_records"),
        FormatBytes(settings["record_bytes"].get<double>()),
        settings["prefetch"].get<bool>() ? "on" : "off");
  }
  return text;
}

}  // namespace

absl::Status RunOffload(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(config));
  ASSIGN_OR_RETURN(const Json answer, client->Offload(config.offload, kPatience));
  RETURN_IF_ERROR(console->PrintResult(config.output.format, answer, Text));
  for (const Json& worker : answer["workers"]) {
    if (worker["status_code"].get<int64_t>() == 0) continue;
    return absl::UnavailableError(absl::StrCat(
        config.client.server,
        ": not all workers accepted the change: ", worker["status_message"].get<std::string>()));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
