// The binary of tools/make_synthetic.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/loading/available_cpus.h"
#include "kernels/base/status_macros.h"
#include "tools/synthetic/checkpoint.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {
namespace {

constexpr char kUsage[] =
    "usage: make_synthetic (--dense | --moe) NAME --type TYPE --out FILE [--layers N] [--hidden "
    "N]\n"
    "       [--heads N] [--kv-heads N] [--head-dim N] [--width N] [--experts N] [--top-k N]\n"
    "       [--vocabulary N] [--skew SHARE] [--persistence SHARE] [--seed N] [--threads N] "
    "[--force]";
constexpr int64_t kMaxThreads = 1024;

struct Arguments {
  std::string shape_name;
  std::string type;
  std::string out;
  Shape sizes;  // sizes that replace those of the shape; 0: not given
  Shape shape;
  SyntheticOptions options;
};

std::string ShapeNames() {
  std::string names;
  for (const Shape& shape : Shapes()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", shape.name);
  }
  return names;
}

absl::Status ReadNumber(const std::string& flag, const std::string& text, int64_t least,
                        int64_t* value) {
  if (!absl::SimpleAtoi(text, value) || *value < least || *value > (1 << 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " must be a number of at least ", least, " (got \"", text, "\")"));
  }
  return absl::OkStatus();
}

absl::Status ReadShare(const std::string& flag, const std::string& text,
                       std::optional<double>* value) {
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !(number >= 0 && number <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " must be from 0 to 1 (got \"", text, "\")"));
  }
  *value = number;
  return absl::OkStatus();
}

struct SizeFlag {
  absl::string_view flag;
  int64_t Shape::*size;
};

constexpr SizeFlag kSizeFlags[] = {
    {"--layers", &Shape::layers},         {"--hidden", &Shape::hidden},
    {"--heads", &Shape::heads},           {"--kv-heads", &Shape::kv_heads},
    {"--head-dim", &Shape::head_dim},     {"--width", &Shape::expert_width},
    {"--experts", &Shape::experts},       {"--top-k", &Shape::experts_used},
    {"--vocabulary", &Shape::vocabulary},
};

absl::Status Apply(const std::string& flag, const std::string& value, Arguments* arguments) {
  SyntheticOptions& options = arguments->options;
  for (const SizeFlag& known : kSizeFlags) {
    if (flag == known.flag) return ReadNumber(flag, value, 1, &(arguments->sizes.*known.size));
  }
  int64_t number = 0;
  if (flag == "--shape" || flag == "--dense" || flag == "--moe") {
    arguments->shape_name = value;
  } else if (flag == "--type") {
    arguments->type = value;
  } else if (flag == "--out") {
    arguments->out = value;
  } else if (flag == "--skew") {
    return ReadShare(flag, value, &options.routing.skew);
  } else if (flag == "--persistence") {
    return ReadShare(flag, value, &options.routing.persistence);
  } else if (flag == "--seed") {
    RETURN_IF_ERROR(ReadNumber(flag, value, 0, &number));
    options.seed = static_cast<uint64_t>(number);
  } else if (flag == "--threads") {
    RETURN_IF_ERROR(ReadNumber(flag, value, 1, &number));
    options.threads = static_cast<int>(std::min(number, kMaxThreads));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown argument ", flag, "; ", kUsage));
  }
  return absl::OkStatus();
}

// Returns the named shape, with the sizes that were given on the command line.
absl::StatusOr<Shape> FindSizes(const Arguments& arguments) {
  const Shape* named = FindShape(arguments.shape_name);
  if (named == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--dense or --moe must be one of ", ShapeNames(),
                                                   " (got \"", arguments.shape_name, "\")"));
  }
  Shape shape = *named;
  for (const SizeFlag& known : kSizeFlags) {
    const int64_t size = arguments.sizes.*known.size;
    if (size > 0) shape.*known.size = size;
  }
  if (named->experts == 0 && (shape.experts > 0 || shape.experts_used > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--experts and --top-k: ", named->name, " is a dense model; choose a shape with experts"));
  }
  // Dense models and the llama architecture have only one width.
  if (arguments.sizes.expert_width > 0 && (shape.experts == 0 || shape.architecture == "llama")) {
    shape.ffn_width = arguments.sizes.expert_width;
  }
  RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

absl::StatusOr<engine::GgmlType> FindType(const std::string& name) {
  for (uint32_t id = 0; id < 64; ++id) {
    const engine::GgmlTypeInfo* info = engine::FindGgmlType(id);
    if (info != nullptr && absl::EqualsIgnoreCase(info->name, name)) return info->type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--type must be a weight type such as Q4_K (got \"", name, "\")"));
}

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  arguments.options.threads = engine::AvailableCpus();
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--force") {
      arguments.options.existing = base::ExistingFile::kReplace;
    } else if (i + 1 >= argc) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value; ", kUsage));
    } else {
      RETURN_IF_ERROR(Apply(flag, argv[++i], &arguments));
    }
  }
  ASSIGN_OR_RETURN(arguments.shape, FindSizes(arguments));
  ASSIGN_OR_RETURN(arguments.options.type, FindType(arguments.type));
  if (arguments.out.empty()) return absl::InvalidArgumentError("--out FILE is missing");
  return arguments;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Arguments> arguments = Parse(argc, argv);
  absl::Status status = arguments.status();
  if (status.ok()) {
    const absl::StatusOr<uint64_t> bytes =
        WriteSynthetic(arguments->shape, arguments->out, arguments->options);
    if (bytes.ok()) {
      std::printf("%s: %s in %s, %.1f MiB\n", arguments->out.c_str(), arguments->shape_name.c_str(),
                  arguments->type.c_str(), static_cast<double>(*bytes) / (1 << 20));
      return 0;
    }
    status = bytes.status();
  }
  std::fprintf(stderr, "make_synthetic: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace
}  // namespace tidepool::tools

int main(int argc, char** argv) { return tidepool::tools::Main(argc, argv); }
