#include "model/op_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <lensbox/error.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "file/errors.h"
#include "file/files.h"
#include "file/seal.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "liblensbox_ops.so";
constexpr const char* kOpsVariable = "LENSBOX_OPS_LIBRARY";

std::string how_to_pass(const std::optional<fs::path>& library) {
  if (library) {
    return "The op library loaded is " + library->string() +
           "; name another in LoadOptions::op_library (lensbox_runner: --ops) or " + kOpsVariable + ".";
  }
  return std::string("No op library was given: name one (") + kFileName +
         ") in LoadOptions::op_library (lensbox_runner: "
         "--ops) or " +
         kOpsVariable + ", or put it beside the program or the library.";
}

// Return the folders of the op library: beside the program, in the library folder of its installation, and
// beside the shared library if this code lies in one.
std::vector<fs::path> op_library_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders = {program.parent_path(), program.parent_path() / LENSBOX_LIBRARY_FOLDER};
  Dl_info code;
  if (dladdr(reinterpret_cast<const void*>(&find_op_library), &code) != 0 && code.dli_fname != nullptr) {
    const fs::path library = fs::canonical(code.dli_fname, error);
    if (!error) folders.push_back(library.parent_path());
  }
  return folders;
}

std::string to_string(const c10::FunctionSchema& schema) {
  std::ostringstream text;
  text << schema;
  return text.str();
}

bool has_lensbox_ops() {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("lensbox::")) return true;
  }
  return false;
}

struct OpenLibraries {
  std::mutex mutex;
  std::map<std::string, fs::path> files;  // by SHA-256
  fs::path of_lensbox = "another file";   // the op library of Lensbox
};

OpenLibraries& open_libraries() {
  static OpenLibraries libraries;
  return libraries;
}

bool is_open(const fs::path& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

c10::FunctionSchema parse_schema(const std::string& text) {
  try {
    return torch::jit::parseSchema(text, /*allow_typevars=*/false);
  } catch (const std::exception& error) {
    throw ArtifactError("the artifact lists an op schema that torch cannot read, '" + text.substr(0, 80) +
                        "':\n" + torch_message(error));
  }
}

}  // namespace

std::optional<fs::path> find_op_library(const std::optional<fs::path>& given) {
  if (given) return given;
  const char* const variable = std::getenv(kOpsVariable);
  if (variable != nullptr && *variable != '\0') return fs::path(variable);
  std::error_code error;
  for (const fs::path& folder : op_library_folders()) {
    const fs::path library = folder / kFileName;
    if (fs::exists(library, error)) return library;
  }
  return std::nullopt;
}

std::string op_build_record(std::string_view content) {
  const size_t begin = content.find("lensbox-build version=");
  if (begin == std::string_view::npos) return "";
  return std::string(content.substr(begin, content.find('\0', begin) - begin));
}

std::string torch_version_of(const std::string& record) {
  constexpr std::string_view kTorch = " torch=";
  const size_t torch = record.find(kTorch);
  if (torch == std::string::npos) return "";
  const size_t version = torch + kTorch.size();
  return record.substr(version, record.find(' ', version) - version);
}

std::string_view op_name(std::string_view schema) {
  return schema.substr(0, schema.find_first_of(".("));
}

bool is_op_library_open(const std::string& sha256) {
  OpenLibraries& open = open_libraries();
  const std::lock_guard lock(open.mutex);
  return open.files.contains(sha256);
}

std::string open_op_library(const fs::path& library, const std::string& content) {
  const fs::path path = fs::absolute(library);  // dlopen searches the system's folders for a bare file name
  OpenLibraries& open = open_libraries();
  const std::lock_guard lock(open.mutex);
  if (is_open(path)) return "";
  const std::string hash = sha256(content);
  if (const auto copy = open.files.find(hash); copy != open.files.end()) {
    return "it is a copy of " + copy->second.string() +
           ", which is open in this process; its ops cannot be registered twice";
  }
  if (!op_build_record(content).empty() && has_lensbox_ops()) {
    return "the ops of the namespace lensbox are registered already, by " + open.of_lensbox.string() +
           "; a process can open one op library of Lensbox only";
  }
  try {
    // dlopen is declared as if it never threw, and the compiler would drop this catch block.
    using Open = void* (*)(const char*, int);
    const volatile Open open_library = &dlopen;
    // RTLD_NOW, so that a symbol that this torch lacks is an error here and not a crash in the first call.
    if (open_library(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      return std::string("the linker cannot load it: ") + dlerror();
    }
  } catch (const std::exception& error) {
    return "a static initialiser of the library threw an exception. The linker's lock stays held, so the "
           "process "
           "must end: any later dlopen hangs. The exception:\n" +
           torch_message(error);
  }
  open.files.emplace(hash, path);
  if (!op_build_record(content).empty()) open.of_lensbox = path;
  return "";
}

void load_op_library(const fs::path& library) {
  const std::string where = "op library " + library.string() + ": ";
  std::string content;
  try {
    content = read_file(library, UINT32_MAX);
  } catch (const FileError& error) {
    throw ArtifactError(where + error.what());
  }
  const std::string record = op_build_record(content);
  std::string fault;
  if (!record.empty() && minor_version(torch_version_of(record)) != minor_version(TORCH_VERSION)) {
    fault = "it was built for another version of torch";
  } else {
    fault = open_op_library(library, content);
  }
  if (fault.empty()) return;
  throw ArtifactError(where + fault + "\n  its build record:   " + (record.empty() ? "none" : record) +
                      "\n  this program has:   " + std::string(kTorchDescription));
}

void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                 const std::optional<fs::path>& library) {
  const c10::DispatchKey key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  for (const std::string& text : schemas) {
    const c10::FunctionSchema wanted = parse_schema(text);
    const auto op = c10::Dispatcher::singleton().findSchema(wanted.operator_name());
    if (!op) {
      throw ArtifactError("the artifact needs the op " + wanted.name() + ", which is not registered. " +
                          how_to_pass(library));
    }
    // Not equality: a newer library may have added arguments with defaults.
    if (!op->schema().isBackwardCompatibleWith(wanted)) {
      throw ArtifactError("the op " + wanted.name() +
                          " has another schema than the artifact needs.\n  needed:     " + to_string(wanted) +
                          "\n  registered: " + to_string(op->schema()) + "\n" + how_to_pass(library));
    }
    if (!op->hasComputedKernelForDispatchKey(key)) {
      throw ArtifactError("the op " + wanted.name() + " has no kernel for device " + device.str() + ". " +
                          how_to_pass(library));
    }
  }
}

}  // namespace lensbox
