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
#include <system_error>

#include "file/errors.h"
#include "file/files.h"
#include "file/seal.h"
#include "model/machine.h"

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
         ") in LoadOptions::op_library (lensbox_runner: --ops) or " + kOpsVariable +
         ", or put it beside the program or the library.";
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

// Return the record inside Lensbox's own op libraries, such as "lensbox-build version=0.1.0 torch=2.13.0+cpu
// backends=cpu", or "". It is read without loading the library, because a library built for another torch
// often cannot be loaded.
std::string op_build_record(std::string_view content) {
  const size_t begin = content.find("lensbox-build version=");
  if (begin == std::string_view::npos) return "";
  return std::string(content.substr(begin, content.find('\0', begin) - begin));
}

// Return the version of torch in a build record.
std::string torch_version_of(const std::string& record) {
  constexpr std::string_view kTorch = " torch=";
  const size_t torch = record.find(kTorch);
  if (torch == std::string::npos) return "";
  const size_t version = torch + kTorch.size();
  return record.substr(version, record.find(' ', version) - version);
}

// Return "lensbox::giou" of "lensbox::giou(Tensor boxes1, ...) -> Tensor", without the name of an overload.
std::string_view op_name(std::string_view schema) {
  return schema.substr(0, schema.find_first_of(".("));
}

// Return whether a library with this SHA-256 was opened by open_op_library.
bool is_op_library_open(const std::string& sha256) {
  OpenLibraries& open = open_libraries();
  const std::lock_guard lock(open.mutex);
  return open.files.contains(sha256);
}

// Open a shared library of ops with a known content. Returns why it cannot be opened, or "". A library that
// is open already is not opened again; a second copy of it, by content or by Lensbox's namespace, is refused
// before the linker sees it, since registering an op twice throws inside the linker. Thread-safe.
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
           "process must end: any later dlopen hangs. The exception:\n" +
           torch_message(error);
  }
  open.files.emplace(hash, path);
  if (!op_build_record(content).empty()) open.of_lensbox = path;
  return "";
}

[[noreturn]] void fail(const fs::path& artifact, const CarriedLibrary& library, const std::string& reason) {
  fail_artifact(artifact, "carries " + library.name + reason);
}

const std::string& checked(const fs::path& artifact, const CarriedLibrary& library,
                           const std::map<std::string, std::string>& contents) {
  const auto found = contents.find(library.name);
  if (found == contents.end()) fail(artifact, library, ", but holds no entry extra/ops/" + library.name);
  const std::string hash = sha256(found->second);
  if (hash != library.sha256) {
    fail(artifact, library, " with SHA-256 " + library.sha256 + ", but its bytes have " + hash);
  }
  if (library.platform != this_platform()) {
    fail(artifact, library, ", built for " + library.platform + "; this machine is " + this_platform());
  }
  if (minor_version(library.torch_version) != minor_version(TORCH_VERSION)) {
    fail(artifact, library,
         ", built for torch " + library.torch_version + "; this program has " +
             std::string(kTorchDescription) + ", and C++ interfaces change between minor versions");
  }
  return found->second;
}

void open_library(const fs::path& artifact, const CarriedLibrary& library, const std::string& content) {
  try {
    // The linker needs the file only while it opens the library.
    const PrivateFolder folder;
    const fs::path file = folder.path() / library.name;
    write_private_file(file, content);
    if (const std::string fault = open_op_library(file, content); !fault.empty()) {
      fail(artifact, library, ", which cannot be opened: " + fault);
    }
  } catch (const std::system_error& error) {
    fail(artifact, library, std::string(", which cannot be written to a temporary file: ") + error.what());
  }
}

// Return the names of the ops that another library has registered in this process, with commas.
std::string registered_names(const std::vector<std::string>& schemas) {
  const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
  std::vector<std::string> registered;
  for (const std::string& schema : schemas) {
    const std::string name(op_name(schema));
    if (name.starts_with("lensbox::")) continue;
    if (std::ranges::find(names, name, &c10::OperatorName::name) != names.end()) registered.push_back(name);
  }
  return joined(registered);
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

void open_carried_libraries(const fs::path& artifact, const std::vector<CarriedLibrary>& libraries,
                            const std::map<std::string, std::string>& contents,
                            const std::vector<std::string>& schemas) {
  const auto is_open = [](const CarriedLibrary& library) { return is_op_library_open(library.sha256); };
  if (!libraries.empty() && std::ranges::none_of(libraries, is_open)) {
    if (const std::string names = registered_names(schemas); !names.empty()) {
      fail(artifact, libraries.front(),
           ", but another library with another SHA-256 has registered " + names +
               " in this process: load the artifact in a process of its own");
    }
  }
  for (const CarriedLibrary& library : libraries) {
    const std::string& content = checked(artifact, library, contents);
    if (!is_open(library)) open_library(artifact, library, content);
  }
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
    // Do not test equality: a newer library may have added arguments with defaults.
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
