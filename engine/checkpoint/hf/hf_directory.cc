#include "engine/checkpoint/hf/hf_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/gguf_parser.h"
#include "engine/checkpoint/hf/chat_template.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/origins.h"
#include "engine/checkpoint/hf/safetensors.h"
#include "engine/checkpoint/hf/sentencepiece.h"
#include "engine/checkpoint/hf/tokenizer_json.h"
#include "engine/checkpoint/hf/vocabulary.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {
namespace {

constexpr absl::string_view kConfig = "config.json";
constexpr absl::string_view kGenerationConfig = "generation_config.json";
constexpr absl::string_view kSingleFile = "model.safetensors";
constexpr absl::string_view kIndex = "model.safetensors.index.json";

// Resolves the symbolic links of a path, and returns the last component.
std::string NameOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  return error ? path : whole.filename().string();
}

}  // namespace

std::string HfDirectory::FilePath(absl::string_view name) const {
  return absl::StrCat(path_, path_.ends_with('/') ? "" : "/", name);
}

bool HfDirectory::HasFile(absl::string_view name) const {
  struct stat info;
  return stat(FilePath(name).c_str(), &info) == 0;
}

absl::StatusOr<absl::string_view> HfDirectory::Map(absl::string_view name,
                                                   absl::string_view expected) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(FilePath(name), expected));
  parts_.push_back(std::move(file));
  const MappedFile& part = parts_.back();
  return absl::string_view(reinterpret_cast<const char*>(part.data), part.size);
}

absl::StatusOr<hf::Json> HfDirectory::MapJson(absl::string_view name) {
  ASSIGN_OR_RETURN(const absl::string_view text, Map(name, "a JSON file"));
  return hf::ParseJsonObject(FilePath(name), text);
}

absl::StatusOr<hf::Json> HfDirectory::MapJsonIfThere(absl::string_view name) {
  if (!HasFile(name)) return hf::Json();
  return MapJson(name);
}

absl::StatusOr<HfDirectory> HfDirectory::Open(const std::string& path) {
  HfDirectory directory;
  directory.path_ = path;
  while (directory.path_.size() > 1 && directory.path_.ends_with('/')) directory.path_.pop_back();
  directory.format_ = "Hugging Face safetensors";
  directory.sidecar_prefix_ = directory.FilePath("model");
  if (!directory.HasFile(kConfig)) {
    return absl::NotFoundError(absl::StrCat(directory.FilePath(kConfig),
                                            ": missing; expected a GGUF file, or a directory with "
                                            "config.json and safetensors"));
  }
  GgufMetadata metadata;
  ASSIGN_OR_RETURN(const hf::Json config, directory.MapJson(kConfig));
  ASSIGN_OR_RETURN(const hf::HfModel model,
                   hf::ReadConfig(directory.FilePath(kConfig), config, &metadata));
  hf::AddConfigKeys(directory.FilePath(kConfig), model, &directory.names_);
  metadata.SetString("general.name", NameOf(directory.path_));
  if (model.text_prefix.has_value()) {
    // ReadConfig requires the key. (The operator [] of a const Json must not miss.)
    absl::StrAppend(&directory.format_, ", text model of ", hf::Shown(*config.find("model_type")));
  }
  RETURN_IF_ERROR(directory.ReadText(config, model.vocab_size, &metadata));
  RETURN_IF_ERROR(directory.ReadWeights(model, &metadata));
  RETURN_IF_ERROR(directory.SetMetadata(metadata));
  return directory;
}

// Reads the tokenizer, the chat templates and the sampling defaults.
absl::Status HfDirectory::ReadText(const hf::Json& config, int64_t vocab_size,
                                   GgufMetadata* metadata) {
  hf::ConfigTokens tokens;
  if (const auto text = config.find("text_config"); text != config.end() && text->is_object()) {
    RETURN_IF_ERROR(hf::ReadTokenIds(FilePath(kConfig), *text, &tokens));
  }
  RETURN_IF_ERROR(hf::ReadTokenIds(FilePath(kConfig), config, &tokens));
  ASSIGN_OR_RETURN(const hf::Json generation, MapJsonIfThere(kGenerationConfig));
  if (!generation.is_null()) {
    const std::string path = FilePath(kGenerationConfig);
    RETURN_IF_ERROR(hf::ReadTokenIds(path, generation, &tokens));
    RETURN_IF_ERROR(hf::ReadGenerationConfig(path, generation, metadata));
  }
  constexpr absl::string_view kTokenizerConfig = "tokenizer_config.json";
  ASSIGN_OR_RETURN(const hf::Json tokenizer_config, MapJsonIfThere(kTokenizerConfig));
  hf::TokenizerFiles files = {
      .config_path = FilePath(kTokenizerConfig), .config = &tokenizer_config, .tokens = &tokens};
  constexpr absl::string_view kTokenizer = "tokenizer.json";
  constexpr absl::string_view kSentencePiece = "tokenizer.model";
  if (HasFile(kTokenizer)) {
    ASSIGN_OR_RETURN(const hf::Json tokenizer, MapJson(kTokenizer));
    RETURN_IF_ERROR(hf::ReadTokenizerJson(FilePath(kTokenizer), tokenizer, files, metadata));
    hf::AddTokenizerKeys(FilePath(kTokenizer), &names_);
  } else if (HasFile(kSentencePiece)) {
    ASSIGN_OR_RETURN(const absl::string_view bytes, Map(kSentencePiece, "a SentencePiece model"));
    RETURN_IF_ERROR(hf::ReadSentencePiece(FilePath(kSentencePiece), bytes, files, metadata));
    hf::AddTokenizerKeys(FilePath(kSentencePiece), &names_);
  } else {
    hf::WriteNoTokenizer(tokens, vocab_size, metadata);
  }
  constexpr absl::string_view kTemplate = "chat_template.jinja";
  absl::string_view chat_template;
  if (HasFile(kTemplate)) {
    ASSIGN_OR_RETURN(chat_template, Map(kTemplate, "a Jinja template"));
  }
  return hf::ReadChatTemplate(FilePath(kTokenizerConfig), tokenizer_config, chat_template,
                              metadata);
}

// Returns the names of the weight files, sorted. If there is an index, also sets `index`.
absl::StatusOr<std::vector<std::string>> HfDirectory::WeightFiles(
    std::map<std::string, std::string>* index) {
  if (HasFile(kSingleFile)) return std::vector<std::string>{std::string(kSingleFile)};
  if (!HasFile(kIndex)) {
    const bool has_other = HasFile("pytorch_model.bin") || HasFile("pytorch_model.bin.index.json");
    return absl::NotFoundError(absl::StrCat(
        FilePath(kSingleFile), ": missing, and so is ", kIndex,
        has_other ? "; pytorch_model.bin is not read: save the model as safetensors" : ""));
  }
  ASSIGN_OR_RETURN(const absl::string_view text, Map(kIndex, "a JSON file"));
  ASSIGN_OR_RETURN(*index, hf::ParseSafetensorsIndex(FilePath(kIndex), text));
  std::set<std::string> files;
  for (const auto& [tensor, file] : *index) files.insert(file);
  return std::vector<std::string>(files.begin(), files.end());
}

absl::Status HfDirectory::ReadWeights(const hf::HfModel& model, GgufMetadata* metadata) {
  std::map<std::string, std::string> index;
  ASSIGN_OR_RETURN(const std::vector<std::string> files, WeightFiles(&index));
  std::vector<hf::SafetensorsContents> contents;
  contents.reserve(files.size());
  const size_t first_part = parts_.size();
  for (const std::string& file : files) {
    RETURN_IF_ERROR(Map(file, "a safetensors file").status());
    MappedFile& part = parts_.back();
    ASSIGN_OR_RETURN(hf::SafetensorsContents found, hf::ParseSafetensors(part.path, part.bytes()));
    part.data_start = found.data_start;
    for (const hf::StoredTensor& tensor : found.tensors) {
      const auto entry = index.find(tensor.name);
      if (!index.empty() && (entry == index.end() || entry->second != file)) {
        return hf::FileError(
            part.path, tensor.name,
            absl::StrCat("is not in this file by ", kIndex, "; restore the published files"));
      }
    }
    contents.push_back(std::move(found));
  }
  std::vector<hf::TensorSource> sources;
  for (size_t i = 0; i < contents.size(); ++i) {
    const MappedFile& part = parts_[first_part + i];
    for (const hf::StoredTensor& tensor : contents[i].tensors) {
      index.erase(tensor.name);
      sources.push_back(
          {&tensor, part.path, static_cast<int>(first_part + i), part.data + tensor.file_offset});
    }
  }
  if (!index.empty()) {
    const auto& [name, file] = *index.begin();
    return hf::FileError(FilePath(file), name,
                         absl::StrCat("missing, expected this tensor by ", kIndex));
  }
  ASSIGN_OR_RETURN(hf::TensorSet set, hf::NameTensors(path_, model, sources));
  if (set.draft_layers > 0) hf::WriteDraftLayers(model, set.draft_layers, metadata);
  for (auto& memory : set.owned) owned_.push_back(std::move(memory));
  for (GgufTensor& tensor : set.tensors) AddTensor(std::move(tensor));
  for (auto& [tensor, origin] : set.origins) names_.AddTensor(tensor, std::move(origin));
  const GgufTensor* embedding = FindTensor("token_embd.weight");
  if (embedding->dims[1] == model.vocab_size) return absl::OkStatus();
  return hf::FileError(FilePath(kConfig), "vocab_size",
                       absl::StrCat(model.vocab_size, ", but model.embed_tokens.weight has ",
                                    embedding->dims[1], " rows"));
}

// Writes the metadata as a GGUF header, and parses it. The entries point into the header.
absl::Status HfDirectory::SetMetadata(const GgufMetadata& metadata) {
  const std::string header = GgufHeader(metadata);
  owned_.push_back(std::make_unique<std::byte[]>(header.size()));
  std::memcpy(owned_.back().get(), header.data(), header.size());
  ASSIGN_OR_RETURN(GgufContents contents,
                   ParseGguf(path_, absl::MakeConstSpan(owned_.back().get(), header.size())));
  SetEntries(std::move(contents.entries));
  return absl::OkStatus();
}

}  // namespace tidepool::engine
