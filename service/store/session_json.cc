#include "service/store/session_json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "nlohmann/json.hpp"
#include "service/store/message_json.h"
#include "service/store/row_hash.h"
#include "service/store/session_check.h"
#include "service/store/store_errors.h"

namespace tidepool::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "tidepool-sessions";
constexpr int64_t kVersion = 1;
// The levels are session, turns, turn, messages, message and field.
constexpr int kMaxDepth = 6;

constexpr const char* kKinds[] = {"NEW", "TOKENS", "CHAT"};
constexpr const char* kFinishes[] = {"RUNNING", "STOP", "LENGTH", "STOP_STRING", "CANCELLED"};

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6S%Ez", time, absl::UTCTimeZone());
}

absl::Status Wrong(absl::string_view key, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is not ", wanted));
}

absl::Status Take(const Json& object, const char* key, std::string* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return Wrong(key, "a string");
  *value = found->get<std::string>();
  return absl::OkStatus();
}

absl::Status Take(const Json& object, const char* key, int64_t* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))) {
    return Wrong(key, "an integer");
  }
  *value = found->get<int64_t>();
  return absl::OkStatus();
}

absl::Status Take(const Json& object, const char* key, absl::Time* value) {
  std::string text;
  RETURN_IF_ERROR(Take(object, key, &text));
  std::string error;
  // Microseconds cannot represent years that are very far in the future.
  if (!absl::ParseTime(absl::RFC3339_full, text, value, &error) || *value < absl::UnixEpoch() ||
      *value > absl::FromUnixSeconds(int64_t{1} << 36)) {
    return Wrong(key, "a time such as 2026-01-31T12:00:00+00:00");
  }
  return absl::OkStatus();
}

template <typename Enum, size_t n>
absl::Status TakeName(const Json& object, const char* key, const char* const (&names)[n],
                      Enum* value) {
  std::string text;
  RETURN_IF_ERROR(Take(object, key, &text));
  const auto name = std::find(std::begin(names), std::end(names), text);
  if (name == std::end(names)) return Wrong(key, "a known name");
  *value = static_cast<Enum>(name - std::begin(names));
  return absl::OkStatus();
}

// Reads a key that turns of older programs do not have.
absl::Status TakeIfThere(const Json& object, const char* key, std::string* value) {
  return object.contains(key) ? Take(object, key, value) : absl::OkStatus();
}

Json ToJson(const StoredTurn& turn) {
  Json json = {{"request_id", turn.request_id},
               {"start", turn.start},
               {"output_start", turn.output_start},
               {"end", turn.end},
               {"finish", kFinishes[static_cast<size_t>(turn.finish)]},
               {"messages", Json::parse(MessagesToJson(turn.messages), nullptr, false)},
               {"answer", turn.response}};
  if (!turn.body_digest.empty()) json["body_digest"] = turn.body_digest;
  if (!turn.numerics_id.empty()) json["numerics_id"] = turn.numerics_id;
  return json;
}

absl::StatusOr<StoredTurn> TurnFromJson(const Json& json) {
  if (!json.is_object()) return Wrong("turns", "an array of objects");
  StoredTurn turn;
  RETURN_IF_ERROR(Take(json, "request_id", &turn.request_id));
  RETURN_IF_ERROR(Take(json, "start", &turn.start));
  RETURN_IF_ERROR(Take(json, "output_start", &turn.output_start));
  RETURN_IF_ERROR(Take(json, "end", &turn.end));
  RETURN_IF_ERROR(TakeName(json, "finish", kFinishes, &turn.finish));
  RETURN_IF_ERROR(Take(json, "answer", &turn.response));
  RETURN_IF_ERROR(TakeIfThere(json, "body_digest", &turn.body_digest));
  RETURN_IF_ERROR(TakeIfThere(json, "numerics_id", &turn.numerics_id));
  const auto messages = json.find("messages");
  if (messages == json.end()) return Wrong("messages", "an array");
  absl::StatusOr<std::vector<StoredMessage>> read = MessagesFromJson(Dump(*messages));
  if (!read.ok()) return Wrong("messages", "an array of messages, each with role and content");
  turn.messages = *std::move(read);
  return turn;
}

absl::Status TakeTokens(const Json& object, std::vector<int32_t>* tokens) {
  const auto found = object.find("token_ids");
  if (found == object.end() || !found->is_array()) return Wrong("token_ids", "an array");
  tokens->reserve(found->size());
  for (const Json& id : *found) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) {
      return Wrong("token_ids", "an array of token ids");
    }
    tokens->push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

// Parses a line. Values that are nested deeper than any value of a session are left out.
absl::StatusOr<Json> ParseLine(absl::string_view line) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; };
  Json json = Json::parse(line.begin(), line.end(), shallow, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  return json;
}

absl::StatusOr<SessionLogData> FromJson(const Json& json) {
  SessionLogData session;
  SessionInfo& info = session.info;
  RETURN_IF_ERROR(Take(json, "session_id", &info.session_id));
  RETURN_IF_ERROR(Take(json, "principal", &info.principal));
  RETURN_IF_ERROR(Take(json, "model", &info.model));
  RETURN_IF_ERROR(Take(json, "model_digest", &info.model_digest));
  RETURN_IF_ERROR(TakeName(json, "kind", kKinds, &info.kind));
  RETURN_IF_ERROR(Take(json, "create_time", &info.create_time));
  RETURN_IF_ERROR(Take(json, "update_time", &info.update_time));
  RETURN_IF_ERROR(TakeTokens(json, &session.token_ids));
  const auto turns = json.find("turns");
  if (turns == json.end() || !turns->is_array()) return Wrong("turns", "an array");
  for (const Json& turn : *turns) {
    ASSIGN_OR_RETURN(session.turns.emplace_back(), TurnFromJson(turn));
  }
  info.token_count = static_cast<int64_t>(session.token_ids.size());
  info.turn_count = static_cast<int32_t>(session.turns.size());
  RETURN_IF_ERROR(CheckSession(session));
  return session;
}

absl::Status CheckHead(absl::string_view line) {
  const absl::StatusOr<Json> json = ParseLine(line);
  std::string format;
  int64_t version = 0;
  if (!json.ok() || !Take(*json, "format", &format).ok() || format != kFormat ||
      !Take(*json, "version", &version).ok()) {
    return absl::InvalidArgumentError(
        "this is not an export of sessions; create one with `tidepool sessions export`");
  }
  if (version == kVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its version is ", version, ", this program supports version ", kVersion,
                   ": use the program that wrote it, or a newer one"));
}

constexpr absl::string_view kHashKey = ",\"hash\":\"";
constexpr size_t kHashDigits = 32;
constexpr absl::string_view kEndStart = "{\"end\":";
// The maximum size of a session's name in a report.
constexpr size_t kMaxNameBytes = 256;

// Returns the line with its hash. Requires: the line is a JSON object with at least one member.
std::string WithHash(std::string line) {
  line.pop_back();
  const std::string hash = HashBytes(line).Hex();
  return absl::StrCat(line, kHashKey, hash, "\"}");
}

// Returns OK if the line has no hash, because older programs wrote none.
absl::Status CheckHash(absl::string_view line, const Json& json) {
  if (!json.contains("hash")) return absl::OkStatus();
  constexpr size_t kTail = kHashKey.size() + kHashDigits + 2;
  const absl::string_view body = line.substr(0, line.size() - std::min(kTail, line.size()));
  if (WithHash(absl::StrCat(body, "}")) == line) return absl::OkStatus();
  return absl::DataLossError(
      "it does not match its hash; export it again, or remove \"hash\" from the line if you "
      "changed "
      "it yourself");
}

// Returns the session ids in the line, even if the line is not valid JSON any more.
std::vector<absl::string_view> NamesIn(absl::string_view line) {
  constexpr absl::string_view kKey = "\"session_id\":\"";
  std::vector<absl::string_view> names;
  while (true) {
    const size_t at = line.find(kKey);
    if (at == absl::string_view::npos) return names;
    line.remove_prefix(at + kKey.size());
    names.push_back(line.substr(0, std::min(line.find('"'), kMaxNameBytes)));
  }
}

std::string LineFault(int64_t number, absl::string_view line, const absl::Status& status) {
  const std::vector<absl::string_view> names = NamesIn(line);
  std::string which;
  if (!names.empty()) {
    which = absl::StrCat(", session '", Utf8Text(absl::StrJoin(names, "' and session '")), "'");
  } else if (!line.empty() && !absl::StartsWith(line, kEndStart)) {
    which = absl::StrCat(", which begins with ", base::Quoted(line));
  }
  return absl::StrCat("line ", number, which, ": ", status.message());
}

// Reads one line. Returns false at the end of the input. INVALID_ARGUMENT if the line is too long.
// The rest of such a line is skipped.
absl::StatusOr<bool> ReadLine(std::istream& in, std::string* line) {
  line->clear();
  std::streambuf* bytes = in.rdbuf();
  while (true) {
    const int byte = bytes->sbumpc();
    if (byte == std::char_traits<char>::eof()) return !line->empty();
    if (byte == '\n') return true;
    if (line->size() == kMaxExportLineBytes) {
      in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
      return absl::InvalidArgumentError(
          absl::StrCat("it is longer than ", kMaxExportLineBytes >> 20, " MiB"));
    }
    line->push_back(static_cast<char>(byte));
  }
}

// INVALID_ARGUMENT if the number in the last line is not the number of sessions before it.
absl::Status CheckEnd(const Json& json, int64_t sessions) {
  int64_t stated = 0;
  RETURN_IF_ERROR(Take(json, "sessions", &stated));
  if (stated == sessions) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("it states ", stated, " sessions, but ", sessions, " precede it"));
}

absl::StatusOr<SessionLogData> ToSession(absl::string_view line, const Json& json) {
  RETURN_IF_ERROR(CheckHash(line, json));
  return FromJson(json);
}

}  // namespace

std::string ExportHead() { return Dump({{"format", kFormat}, {"version", kVersion}}); }

std::string ExportEnd(int64_t sessions) { return Dump({{"end", true}, {"sessions", sessions}}); }

std::string SessionToJson(const SessionLogData& session) {
  const SessionInfo& info = session.info;
  Json turns = Json::array();
  for (const StoredTurn& turn : session.turns) turns.push_back(ToJson(turn));
  const Json json = {{"session_id", info.session_id},
                     {"principal", info.principal},
                     {"model", info.model},
                     {"model_digest", info.model_digest},
                     {"kind", kKinds[static_cast<size_t>(info.kind)]},
                     {"create_time", TimeText(info.create_time)},
                     {"update_time", TimeText(info.update_time)},
                     {"token_ids", session.token_ids},
                     {"turns", std::move(turns)}};
  return WithHash(Dump(json));
}

absl::StatusOr<SessionLogData> SessionFromJson(absl::string_view line) {
  ASSIGN_OR_RETURN(const Json json, ParseLine(line));
  return ToSession(line, json);
}

absl::StatusOr<std::vector<std::string>> ReadExport(
    std::istream& in, const std::function<absl::Status(SessionLogData)>& take) {
  std::vector<std::string> faults;
  std::string line;
  int64_t sessions = 0;
  for (int64_t number = 1;; ++number) {
    const absl::StatusOr<bool> more = ReadLine(in, &line);
    const auto fault = [&](const absl::Status& status) {
      faults.push_back(LineFault(number, line, status));
    };
    if (number == 1) {
      if (const absl::Status head = more.ok() ? CheckHead(line) : more.status(); !head.ok()) {
        return absl::Status(head.code(), absl::StrCat("line 1: ", head.message()));
      }
      continue;
    }
    if (more.ok() && !*more) {
      fault(
          absl::InvalidArgumentError("the file is truncated: it has no end line; export it again"));
      return faults;
    }
    const absl::StatusOr<Json> json = more.ok() ? ParseLine(line) : more.status();
    if (json.ok() && json->contains("end")) {
      if (const absl::Status end = CheckEnd(*json, sessions); !end.ok()) fault(end);
      return faults;
    }
    ++sessions;
    absl::StatusOr<SessionLogData> session = json.ok() ? ToSession(line, *json) : json.status();
    if (session.ok()) {
      RETURN_IF_ERROR(take(*std::move(session)));
    } else {
      fault(session.status());
    }
  }
}

}  // namespace tidepool::service
