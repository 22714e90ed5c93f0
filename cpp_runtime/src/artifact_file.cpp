#include "artifact_file.h"

#include <lensbox/error.h>

#include <algorithm>

#include "code_check.h"
#include "identifier.h"
#include "onnx_file.h"
#include "open_file.h"
#include "pickle_check.h"
#include "signature.h"
#include "zip_archive.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetadata = "extra/lensbox.json";
constexpr const char* kLibraries = "extra/ops/";
constexpr const char* kPackageMark = "archive_format";  // of all that torch.export writes
constexpr const char* kCompiledCode = "data/aotinductor/detect/";
constexpr const char* kProgram = "models/model.json";  // the graph of an exported program
// All sources, and all pickles, together: checking takes many times their size in memory.
constexpr uint64_t kMostCode = uint64_t{4} << 20;
constexpr uint64_t kMostBytes = (uint64_t{1} << 31) - 1;

[[noreturn]] void fail(const fs::path& artifact, const std::string& reason) {
  throw ArtifactError("artifact " + artifact.string() + ": " + reason);
}

std::string read_bytes(const fs::path& artifact) {
  OpenedFile opened = open_file(artifact);
  if (!opened.fault.empty()) fail(artifact, opened.fault);
  std::error_code error;
  const uint64_t size = fs::file_size(artifact, error);
  if (!error && size > kMostBytes) {
    fail(artifact, "must be smaller than 2 GiB, is " + std::to_string(size) + " bytes");
  }
  std::string bytes(error ? 0 : size, '\0');
  if (error || !opened.stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    fail(artifact, "cannot be read");
  }
  return bytes;
}

// Of a file that is no archive, where people confuse files: what it is instead, or where the archive ends
// wrongly.
std::string what_it_is(std::string_view bytes, const std::string& otherwise) {
  if (bytes.empty()) return ": it is empty";
  // A safetensors file begins with the length of its header, which is JSON.
  if (bytes.size() > 8 && bytes[8] == '{') return " but holds weights: `lensbox export --weights` takes it";
  if (bytes.starts_with("\xff\xd8\xff") || bytes.starts_with("\x89PNG")) return " but an image";
  return ": " + otherwise;
}

ZipArchive open_archive(const fs::path& artifact, std::string_view bytes) {
  constexpr std::string_view kZipFile = "PK\x03\x04";
  try {
    return ZipArchive(bytes);
  } catch (const ZipError& error) {
    if (bytes.starts_with(kZipFile)) fail(artifact, std::string("damaged or truncated: ") + error.what());
    fail(artifact, "not a TorchScript file" + what_it_is(bytes, error.what()));
  }
}

// torch puts everything below one folder, which it names after the file at the time when it was written.
std::string find_folder(const fs::path& artifact, const ZipArchive& archive) {
  const auto& entries = archive.entries();
  const size_t slash = entries.empty() ? std::string::npos : entries[0].name.find('/');
  if (slash == std::string::npos || slash == 0)
    fail(artifact, "not a TorchScript file: its entries are not below one folder");
  const std::string folder = entries[0].name.substr(0, slash + 1);
  for (const ZipEntry& entry : entries) {
    if (!entry.name.starts_with(folder)) {
      fail(artifact,
           "not a TorchScript file: its entry " + entry.name + " is not below the folder " + folder);
    }
  }
  return folder;
}

// kind: what the file is, for errors.
std::string read_metadata_text(const fs::path& artifact, const ZipArchive& archive, const std::string& folder,
                               const std::string& kind) {
  const ZipEntry* const entry = archive.find(folder + kMetadata);
  if (!entry) {
    fail(artifact, kind + ", but without lensbox.json: write it with `lensbox export`");
  }
  if (entry->size > kMostMetadata) {
    fail(artifact, "its lensbox.json must be at most " + std::to_string(kMostMetadata) + " bytes, is " +
                       std::to_string(entry->size));
  }
  return read_entry(*entry);
}

void check_is_script(const fs::path& artifact, const ZipArchive& archive, const std::string& folder) {
  for (const char* record : {"data.pkl", "version"}) {
    if (!archive.find(folder + record))
      fail(artifact, std::string("not a TorchScript file: it has no ") + record);
  }
  // torch.save writes the same kind of archive, but only TorchScript has a record of constants.
  if (!archive.find(folder + "constants.pkl")) {
    fail(artifact, "not a TorchScript file: it holds tensors, but no code (was it written by torch.save?)");
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether `name` is `folder` and something after it.
bool is_in(std::string_view name, std::string_view folder) {
  return name.starts_with(folder) && name.size() > folder.size();
}

bool is_in_code(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) && is_in(name.substr(0, name.size() - ending.size()), "code/");
}

bool is_code(std::string_view name) {
  return is_in_code(name, ".py");
}

bool is_code_pickle(std::string_view name) {
  return is_in_code(name, ".debug_pkl");
}

// Whether torch.jit.save writes such an entry. torch's reader takes others for these, since it ignores case,
// and knows files of old formats, with code in other places.
bool is_known(std::string_view name) {
  constexpr std::string_view kRecords[] = {"data.pkl",  "constants.pkl", "version",
                                           "byteorder", ".data/version", ".data/serialization_id"};
  return std::ranges::find(kRecords, name) != std::end(kRecords) || is_code(name) || is_code_pickle(name) ||
         is_in(name, "extra/") || (is_in(name, "data/") && is_number(name.substr(5))) ||
         (is_in(name, "constants/") && is_number(name.substr(10)));
}

// torch's loader writes the files of the code into a folder of its own, by these names.
bool is_known_in_package(std::string_view name) {
  constexpr std::string_view kRecords[] = {"archive_format", "archive_version",        "version", "byteorder",
                                           ".data/version",  ".data/serialization_id", kMetadata};
  if (std::ranges::find(kRecords, name) != std::end(kRecords)) return true;
  if (!is_in(name, kCompiledCode)) return false;
  const std::string_view file = name.substr(std::string_view(kCompiledCode).size());
  return continues_identifier(file[0]) && std::ranges::all_of(file, [](char c) {
           return continues_identifier(c) || c == '.' || c == '+' || c == '-';
         });
}

bool is_pickle(std::string_view name) {
  return name == "data.pkl" || name == "constants.pkl" || is_code_pickle(name);
}

void check_sizes(const fs::path& artifact, const ZipArchive& archive, const std::string& folder) {
  uint64_t code = 0, pickles = 0;
  for (const ZipEntry& entry : archive.entries()) {
    const std::string_view name = std::string_view(entry.name).substr(folder.size());
    if (is_code(name)) code += entry.size;
    if (is_pickle(name)) pickles += entry.size;
  }
  for (const auto& [what, size] : {std::pair{"code", code}, std::pair{"pickles", pickles}}) {
    if (size > kMostCode) {
      fail(artifact, "has " + std::to_string(size) + " bytes of " + what + ", at most " +
                         std::to_string(kMostCode) + " are read");
    }
  }
}

void check_pickles(const fs::path& artifact, const ZipArchive& archive, const std::string& folder) {
  const RecordSize record_size = [&](const std::string& name) -> std::optional<uint64_t> {
    const ZipEntry* const entry = archive.find(folder + name);
    if (entry) return entry->size;
    return std::nullopt;
  };
  for (const ZipEntry& entry : archive.entries()) {
    const std::string name = entry.name.substr(folder.size());
    if (!is_known(name)) fail(artifact, "not as torch writes it: it holds the entry " + name);
    if (!is_pickle(name)) continue;
    const auto fault =
        pickle_fault(read_entry(entry), name == "constants.pkl" ? "constants" : "data", record_size);
    if (fault) fail(artifact, "damaged: its entry " + name + ": " + *fault);
  }
}

void check_code(const fs::path& artifact, const ZipArchive& archive, const std::string& folder,
                const std::vector<std::string>& ops) {
  for (const ZipEntry& entry : archive.entries()) {
    const std::string name = entry.name.substr(folder.size());
    if (!is_code(name)) continue;
    const auto fault = code_fault(read_entry(entry), ops);
    if (!fault) continue;
    fail(artifact,
         "has code that a detector does not need: " + name + ", " + *fault +
             ".\n  Loading an artifact runs its code, with all rights of this program. If you know who wrote"
             " this one, load it as trusted (lensbox_runner: --trusted).");
  }
}

// Those that the metadata lists, by name, if they are there.
std::map<std::string, std::string> read_libraries(const ZipArchive& archive, const std::string& folder,
                                                  const Metadata& metadata) {
  std::map<std::string, std::string> libraries;
  for (const CarriedLibrary& library : metadata.libraries) {
    const ZipEntry* const entry = archive.find(folder + kLibraries + library.name);
    if (entry) libraries[library.name] = read_entry(*entry);
  }
  return libraries;
}

// A package as Lensbox writes it: compiled code of detect, lensbox.json, and torch's own records.
void check_package(const fs::path& artifact, const ZipArchive& archive, const std::string& folder) {
  bool has_code = false;
  for (const ZipEntry& entry : archive.entries()) {
    const std::string name = entry.name.substr(folder.size());
    has_code = has_code || (is_in(name, kCompiledCode) && name.ends_with(".so"));
    if (!is_known_in_package(name)) fail(artifact, "not as Lensbox writes it: it holds the entry " + name);
  }
  if (!has_code) {
    fail(artifact, std::string("holds no compiled code: it has no entry ") + kCompiledCode + "*.so");
  }
}

ArtifactFile read_package(const fs::path& path, std::shared_ptr<const std::string> bytes,
                          const ZipArchive& archive, const std::string& folder) {
  if (archive.find(folder + kProgram)) {
    fail(path,
         "an exported program, which is for Python and for compilers: C++ runs what `lensbox export` "
         "writes with --format torchscript or aoti");
  }
  const std::string text = read_metadata_text(path, archive, folder, "a package of torch.export");
  check_package(path, archive, folder);
  Metadata metadata = parse_metadata(text, path);
  if (!metadata.compiled || !metadata.reading.canvas) {
    fail(path,
         "its lensbox.json is damaged: there is no entry compiled, which says for what machine the code "
         "is, or its format version is 1");
  }
  metadata.file_kind = FileKind::kPackage;
  return {std::move(bytes), std::move(metadata)};
}

}  // namespace

ArtifactFile read_artifact_file(const fs::path& path, Trust trust,
                                const std::optional<fs::path>& public_key) {
  const auto bytes = std::make_shared<const std::string>(read_bytes(path));
  if (public_key) require_signature(*bytes, path, *public_key);
  if (looks_like_onnx(*bytes)) {
    OnnxFile file = open_onnx_file(path, *bytes);
    return {bytes, std::move(file.metadata), {}, std::move(file.session)};
  }
  const ZipArchive archive = open_archive(path, *bytes);
  const std::string folder = find_folder(path, archive);
  if (archive.find(folder + kPackageMark)) return read_package(path, bytes, archive, folder);
  check_is_script(path, archive, folder);
  const std::string text = read_metadata_text(path, archive, folder, "a TorchScript file");
  check_sizes(path, archive, folder);
  check_pickles(path, archive, folder);
  Metadata metadata = parse_metadata(text, path);
  if (trust == Trust::kCheckCode) check_code(path, archive, folder, metadata.ops);
  std::map<std::string, std::string> libraries;
  if (trust == Trust::kTrustCode) libraries = read_libraries(archive, folder, metadata);
  return {bytes, std::move(metadata), std::move(libraries)};
}

Metadata read_metadata(const fs::path& artifact, Trust trust, const std::optional<fs::path>& public_key) {
  return read_artifact_file(artifact, trust, public_key).metadata;
}

}  // namespace lensbox
