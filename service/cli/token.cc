// token new: creates a token, and the line for a server's token file.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/atomic_file.h"
#include "kernels/base/status_macros.h"
#include "service/auth/token_table.h"
#include "service/cli/commands.h"

namespace tidepool::service {
namespace {

absl::Status WriteToken(const std::string& path, const std::string& token) {
  constexpr unsigned kOwnerOnly = 0600;
  ASSIGN_OR_RETURN(const std::unique_ptr<base::AtomicFile> file,
                   base::AtomicFile::Create(path, {.mode = kOwnerOnly}));
  const std::string line = token + "\n";
  RETURN_IF_ERROR(file->Append(line.data(), static_cast<int64_t>(line.size())));
  return file->Finish();
}

}  // namespace

absl::Status RunToken(const Config& config, Console* console) {
  ASSIGN_OR_RETURN(const std::string token, DrawToken());
  const std::string line = TokenLine(config.token.caller, HashToken(token), config.token.expires);
  const std::string& path = config.security.token_file;
  if (!path.empty()) RETURN_IF_ERROR(WriteToken(path, token));
  if (config.output.format == OutputFormat::kJson) {
    Json json = {{"line", line}};
    path.empty() ? json["token"] = token : json["token_file"] = path;
    console->PrintJson(json);
    return console->out_status();
  }
  // stdout has only this line, so that it can be appended to a file.
  console->Print(line + "\n");
  if (path.empty()) console->Note(absl::StrCat("the token, which is shown once: ", token, "\n"));
  return console->out_status();
}

}  // namespace tidepool::service
