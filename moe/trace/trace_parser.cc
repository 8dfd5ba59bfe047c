#include "moe/trace/trace_parser.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxExpertBytes = int64_t{1} << 40;
constexpr size_t kMaxNameBytes = 4096;
constexpr absl::string_view kNoTrace =
    "not a routing trace: it must begin with {\"version\":1,...}; --trace-experts writes one";

// Returns the integer in `json`, or nullopt if it is not an integer in [least, most].
std::optional<int64_t> IntegerIn(const Json& json, int64_t least, int64_t most) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(most)) {
    return std::nullopt;
  }
  const int64_t value = json.get<int64_t>();
  if (value < least || value > most) return std::nullopt;
  return value;
}

// Returns the value of the member, or JSON null if it is missing.
const Json& Member(const Json& object, const char* key) {
  static const Json& none = *new Json();
  const auto member = object.find(key);
  return member == object.end() ? none : *member;
}

// Returns the text as an error should show it: short and printable.
std::string Shown(absl::string_view text) {
  std::string shown(text.substr(0, 40));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return shown;
}

}  // namespace

absl::Status TraceParser::Wrong(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s: line %d: %s", name_, line_, what));
}

absl::Status TraceParser::Add(absl::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const absl::string_view piece = text.substr(0, end);
    if (static_cast<int64_t>(rest_.size() + piece.size()) > Trace::kMaxLineBytes) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: line %d is longer than the limit of %d MiB", name_, line_ + 1,
                          Trace::kMaxLineBytes >> 20));
    }
    if (end == absl::string_view::npos) {
      absl::StrAppend(&rest_, piece);
      return absl::OkStatus();
    }
    if (rest_.empty()) {
      RETURN_IF_ERROR(ParseLine(piece));
    } else {
      absl::StrAppend(&rest_, piece);
      RETURN_IF_ERROR(ParseLine(std::exchange(rest_, "")));
    }
    text.remove_prefix(end + 1);
  }
  return absl::OkStatus();
}

absl::StatusOr<Trace> TraceParser::Finish() {
  if (!rest_.empty()) RETURN_IF_ERROR(ParseLine(std::exchange(rest_, "")));
  if (trace_.header.layers == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": empty; a routing trace must begin with a line {\"version\":1,...}"));
  }
  return std::move(trace_);
}

absl::Status TraceParser::ParseLine(absl::string_view line) {
  ++line_;
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  if (line.empty()) return absl::OkStatus();
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    if (line_ == 1) return Wrong(kNoTrace);
    return Wrong(
        absl::StrCat("\"", Shown(line), "\" is not a JSON object; is the file truncated?"));
  }
  return trace_.header.layers == 0 ? ParseHeader(json) : ParseEntry(json);
}

absl::Status TraceParser::ParseHeader(const Json& line) {
  if (Member(line, "version") != 1) {
    return Wrong("a routing trace must begin with {\"version\":1,...}");
  }
  TraceHeader header;
  const Json& model = Member(line, "model");
  if (!model.is_string() || model.get_ref<const std::string&>().size() > kMaxNameBytes) {
    return Wrong("\"model\" is not a name");
  }
  header.model = model.get<std::string>();
  const auto layers = IntegerIn(Member(line, "layers"), 1, PoolShape::kMaxLayers);
  if (!layers) return Wrong(absl::StrCat("\"layers\" is not in 1 to ", PoolShape::kMaxLayers));
  const auto experts = IntegerIn(Member(line, "experts"), 1, PoolShape::kMaxExperts);
  if (!experts) return Wrong(absl::StrCat("\"experts\" is not in 1 to ", PoolShape::kMaxExperts));
  const auto top_k = IntegerIn(Member(line, "top_k"), 1, *experts);
  if (!top_k) return Wrong(absl::StrCat("\"top_k\" is not in 1 to ", *experts));
  header.layers = static_cast<int>(*layers);
  header.experts = static_cast<int>(*experts);
  header.top_k = static_cast<int>(*top_k);
  const Json& bytes = Member(line, "expert_bytes");
  if (bytes.is_array() && static_cast<int64_t>(bytes.size()) != *layers) {
    return Wrong(
        absl::StrFormat("\"expert_bytes\" has %d entries for %d layers", bytes.size(), *layers));
  }
  for (int layer = 0; layer < header.layers; ++layer) {
    const auto value = IntegerIn(bytes.is_array() ? bytes[layer] : bytes, 1, kMaxExpertBytes);
    if (!value)
      return Wrong("\"expert_bytes\" is not a number of bytes or a list with one for each layer");
    header.expert_bytes.push_back(*value);
  }
  if (const absl::Status valid = header.Validate(); !valid.ok()) return Wrong(valid.message());
  seen_.assign(header.experts, 0);
  trace_.header = std::move(header);
  return absl::OkStatus();
}

absl::Status TraceParser::ParseEntry(const Json& line) {
  TraceEntry entry;
  const auto step = IntegerIn(Member(line, "step"), 0, int64_t{1} << 53);
  if (!step) return Wrong("\"step\" is not the number of a forward");
  entry.step = *step;
  const auto layer = IntegerIn(Member(line, "layer"), 0, trace_.header.layers - 1);
  if (!layer) return Wrong(absl::StrCat("\"layer\" is not in 0 to ", trace_.header.layers - 1));
  entry.layer = static_cast<int>(*layer);
  RETURN_IF_ERROR(ParseIds(line, &entry));
  RETURN_IF_ERROR(ParseWeights(line, &entry));
  RETURN_IF_ERROR(ParsePhases(line, &entry));
  RETURN_IF_ERROR(ParseRequests(line, &entry));
  trace_.entries.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status TraceParser::ParseIds(const Json& line, TraceEntry* entry) {
  const Json& ids = Member(line, "ids");
  if (!ids.is_array()) return Wrong("\"ids\" is not an array with a row for each token");
  const int top_k = trace_.header.top_k;
  ids_ += static_cast<int64_t>(ids.size()) * top_k;
  if (ids_ > Trace::kMaxIds) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: line %d: more than the limit of %d expert ids; shorten the trace",
                        name_, line_, Trace::kMaxIds));
  }
  for (const Json& row : ids) {
    if (!row.is_array() || static_cast<int>(row.size()) != top_k) {
      return Wrong(absl::StrFormat("a row of \"ids\" is not an array of %d experts", top_k));
    }
    ++token_;
    for (const Json& id : row) {
      const auto expert = IntegerIn(id, 0, trace_.header.experts - 1);
      if (!expert) {
        return Wrong(
            absl::StrCat("an expert in \"ids\" is not in 0 to ", trace_.header.experts - 1));
      }
      if (std::exchange(seen_[*expert], token_) == token_) {
        return Wrong(absl::StrFormat("a token names expert %d twice", *expert));
      }
      entry->ids.push_back(static_cast<int32_t>(*expert));
    }
  }
  return absl::OkStatus();
}

absl::Status TraceParser::ParseWeights(const Json& line, TraceEntry* entry) {
  const Json& weights = Member(line, "weights");
  if (weights.is_null()) return absl::OkStatus();
  const int top_k = trace_.header.top_k;
  const int64_t tokens = entry->tokens(top_k);
  if (!weights.is_array() || static_cast<int64_t>(weights.size()) != tokens) {
    return Wrong("\"weights\" does not have the shape of \"ids\"");
  }
  for (const Json& row : weights) {
    if (!row.is_array() || static_cast<int>(row.size()) != top_k) {
      return Wrong("\"weights\" does not have the shape of \"ids\"");
    }
    for (const Json& weight : row) {
      if (!weight.is_number()) return Wrong("\"weights\" has an entry that is not a number");
      entry->weights.push_back(weight.get<float>());
    }
  }
  return absl::OkStatus();
}

absl::Status TraceParser::ParsePhases(const Json& line, TraceEntry* entry) {
  const Json& phases = Member(line, "phase");
  const auto add = [&](const Json& phase) {
    const bool prefill = phase == "prefill";
    entry->phases.push_back(prefill ? Phase::kPrefill : Phase::kDecode);
    return prefill || phase == "decode";
  };
  const absl::string_view wrong = "\"phase\" is not \"prefill\" or \"decode\", or one per token";
  if (!phases.is_array()) return add(phases) ? absl::OkStatus() : Wrong(wrong);
  if (static_cast<int64_t>(phases.size()) != entry->tokens(trace_.header.top_k)) {
    return Wrong(wrong);
  }
  for (const Json& phase : phases) {
    if (!add(phase)) return Wrong(wrong);
  }
  return absl::OkStatus();
}

absl::Status TraceParser::ParseRequests(const Json& line, TraceEntry* entry) {
  const Json& requests = Member(line, "request");
  const auto add = [&](const Json& request) {
    std::string name;
    if (request.is_string()) {
      name = request.get<std::string>();
    } else if (request.is_number_integer()) {
      name = request.dump();
    } else {
      return false;
    }
    if (name.size() > kMaxNameBytes) return false;
    const auto number = static_cast<int64_t>(requests_.size());
    entry->requests.push_back(requests_.try_emplace(std::move(name), number).first->second);
    return true;
  };
  const absl::string_view wrong = "\"request\" is not a name, or one per token";
  if (!requests.is_array()) return add(requests) ? absl::OkStatus() : Wrong(wrong);
  if (static_cast<int64_t>(requests.size()) != entry->tokens(trace_.header.top_k)) {
    return Wrong(wrong);
  }
  for (const Json& request : requests) {
    if (!add(request)) return Wrong(wrong);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::moe
