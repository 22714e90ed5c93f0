#include "model/op_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>
#include <lensbox/error.h>
#include <link.h>
#include <locale.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "backends/call.h"
#include "file/files.h"
#include "model/torch_errors.h"

namespace lensbox {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "liblensbox_ops.so";
constexpr const char* kKernelsName = "liblensbox_kernels.so";
constexpr const char* kOpsVariable = "LENSBOX_OPS_LIBRARY";

// While an object lives, this thread reads numbers with a decimal point, whatever locale the program has set.
// torch's parser of schemas uses strtod, which reads 0.25 as 0 under a locale with a decimal comma.
class NumbersWithPoints {
 public:
  NumbersWithPoints() : plain_(newlocale(LC_NUMERIC_MASK, "C", nullptr)), before_(uselocale(plain_)) {}
  NumbersWithPoints(const NumbersWithPoints&) = delete;
  NumbersWithPoints& operator=(const NumbersWithPoints&) = delete;
  ~NumbersWithPoints() {
    uselocale(before_);
    if (plain_ != nullptr) freelocale(plain_);
  }

 private:
  locale_t plain_, before_;
};

c10::FunctionSchema parse_schema(const std::string& text) {
  const NumbersWithPoints numbers;
  try {
    return torch::jit::parseSchema(text, /*allow_typevars=*/false);
  } catch (const std::exception& error) {
    throw ArtifactError("the artifact lists an op schema that torch cannot read, '" + text.substr(0, 80) +
                        "':\n" + torch_message(error));
  }
}

// Return the record inside Lensbox's own op libraries, such as "lensbox-build version=0.1.0 torch=2.13.0+cpu
// backends=cpu", or "". It is read without loading the library, because a library built for another torch
// often cannot be loaded. mark: the beginning of the record.
std::string build_record(std::string_view content, std::string_view mark) {
  const size_t begin = content.find(mark);
  if (begin == std::string_view::npos) return "";
  return std::string(content.substr(begin, content.find('\0', begin) - begin));
}

// Return the word of a record that names the headers which bindings and kernels share, such as
// "headers=0123456789ab", or "".
std::string headers_in(const std::string& record) {
  const size_t begin = record.find("headers=");
  return begin == std::string::npos ? "" : record.substr(begin, record.find(' ', begin) - begin);
}

// Return the kernels that the linker finds for a library in `folder`, in the order of its search, or nothing.
std::optional<fs::path> find_kernels(const fs::path& folder) {
  fs::path open;
  const auto find = [](dl_phdr_info* object, size_t /*size*/, void* found) {
    if (fs::path(object->dlpi_name).filename() != kKernelsName) return 0;
    *static_cast<fs::path*>(found) = object->dlpi_name;
    return 1;
  };
  if (dl_iterate_phdr(find, &open) != 0) return open;
  const char* const variable = std::getenv("LD_LIBRARY_PATH");
  std::string search = variable != nullptr && *variable != '\0' ? std::string(variable) + ":" : "";
  std::ranges::replace(search, ';', ':');
  std::istringstream folders(search + folder.parent_path().string() + ":" + folder.string());
  std::error_code error;
  for (std::string each; std::getline(folders, each, ':');) {
    const fs::path kernels = fs::path(each) / kKernelsName;
    if (fs::is_regular_file(kernels, error)) return kernels;
  }
  return std::nullopt;
}

// Return a sentence about kernels of another build that the linker finds for an op library, or "". `record`
// is that of the library.
std::string fault_of_kernels(const fs::path& library, const std::string& record) {
  const auto kernels = find_kernels(library.parent_path());
  if (!kernels || headers_in(record).empty()) return "";
  const std::string theirs =
      build_record(read_needed("kernels", *kernels, UINT32_MAX), "lensbox-kernels version=");
  if (headers_in(theirs) == headers_in(record)) return "";
  return "\n  the linker finds the kernels " + kernels->string() + ", built for other bindings (" +
         (theirs.empty() ? "no build record" : theirs) + "): take their folder out of LD_LIBRARY_PATH";
}

// Return the op library of Lensbox: the file in LENSBOX_OPS_LIBRARY if it is set and not empty, else the
// first liblensbox_ops.so beside the program, in the library folder of its installation, and beside the
// shared library if this code lies in one, else nothing.
std::optional<fs::path> find_op_library() {
  const char* const variable = std::getenv(kOpsVariable);
  if (variable != nullptr && *variable != '\0') return fs::path(variable);
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders = {program.parent_path(), program.parent_path() / LENSBOX_LIBRARY_FOLDER};
  Dl_info code;
  if (dladdr(reinterpret_cast<const void*>(&open_op_libraries), &code) != 0 && code.dli_fname != nullptr) {
    const fs::path library = fs::canonical(code.dli_fname, error);
    if (!error) folders.push_back(library.parent_path());
  }
  for (const fs::path& folder : folders) {
    const fs::path library = folder / kFileName;
    if (fs::exists(library, error)) return library;
  }
  return std::nullopt;
}

// Return why the linker cannot open the library, or "". An open library is not opened again. record: "" for a
// library that is not Lensbox's.
std::string open_fault(const fs::path& library, const std::string& record) {
  const fs::path path = fs::absolute(library);  // dlopen searches the system's folders for a bare file name
  if (void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD); handle != nullptr) {
    dlclose(handle);
    return "";
  }
  // Registering an op twice throws inside the linker.
  if (!record.empty() && c10::Dispatcher::singleton().findSchema({"lensbox::giou", ""})) {
    return "the ops of the namespace lensbox are registered already; a process can open one op library of "
           "Lensbox only";
  }
  const NumbersWithPoints numbers;  // the library's initialisers parse schemas
  try {
    // dlopen is declared as if it never threw, and the compiler would drop this catch block.
    using Open = void* (*)(const char*, int);
    const volatile Open open_library = &dlopen;
    // RTLD_NOW, so that a symbol that this torch lacks is an error here and not a crash in the first call.
    if (open_library(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) {
      end_calls_at_exit();
      return "";
    }
    const std::string reason = dlerror();
    return "the linker cannot load it: " + reason + fault_of_kernels(path, record);
  } catch (const std::exception& error) {
    return "a static initialiser of the library threw an exception. The linker's lock stays held, so the "
           "process must end: any later dlopen hangs. The exception:\n" +
           torch_message(error);
  }
}

// The libraries of the user's own ops that the program was told to open.
struct NamedLibraries {
  std::mutex mutex;
  std::set<fs::path> paths;
};

NamedLibraries& named_libraries() {
  static NamedLibraries libraries;
  return libraries;
}

// Return whether a text stands in a file, after no other character of a name and before one of `ends`.
bool holds_name(std::string_view content, std::string_view text, std::string_view ends,
                bool is_begun = true) {
  const auto is_letter = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
  };
  for (size_t at = content.find(text); at != std::string_view::npos; at = content.find(text, at + 1)) {
    const size_t end = at + text.size();
    const bool is_cut = is_begun && at > 0 && is_letter(content[at - 1]);
    if (!is_cut && end < content.size() && ends.find(content[end]) != std::string_view::npos) return true;
  }
  return false;
}

// Open a library. Returns whether it is an op library of Lensbox. Throws ArtifactError.
bool open_op_library(const fs::path& library) {
  const std::string where = "op library " + library.string() + ": ";
  const std::string record =
      build_record(read_needed("op library", library, UINT32_MAX), "lensbox-build version=");
  const bool is_of_lensbox = !record.empty();
  const std::string this_torch = " torch=" + minor_version(TORCH_VERSION) + ".";
  const bool fits = !is_of_lensbox || record.find(this_torch) != std::string::npos;
  const std::string fault = fits ? open_fault(library, record) : "it was built for another version of torch";
  if (fault.empty()) return is_of_lensbox;
  throw ArtifactError(where + fault + "\n  its build record:   " + (is_of_lensbox ? record : "none") +
                      "\n  this program has:   " + std::string(kTorchDescription));
}

}  // namespace

std::vector<fs::path> open_op_libraries(std::vector<fs::path> libraries) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  bool has_own = false;
  for (const fs::path& library : libraries) {
    if (open_op_library(library)) {
      has_own = true;
    } else {
      const std::lock_guard named_lock(named_libraries().mutex);
      named_libraries().paths.insert(fs::absolute(library));
    }
  }
  if (const auto own = has_own ? std::nullopt : find_op_library()) {
    open_op_library(*own);
    libraries.push_back(*own);
  }
  return libraries;
}

bool is_of_named_library(const std::string& name) {
  using namespace std::string_view_literals;
  const size_t colons = name.find("::");
  if (colons == std::string::npos) return false;
  const std::string space = name.substr(0, colons), function = name.substr(colons + 2);
  const std::lock_guard lock(named_libraries().mutex);
  return std::ranges::any_of(named_libraries().paths, [&](const fs::path& library) {
    const std::string content = read_needed("op library", library, UINT32_MAX);
    return holds_name(content, name, "(.\0 "sv) ||
           (holds_name(content, space, "\0"sv, false) && holds_name(content, function, "(.\0"sv));
  });
}

void require_ops(const std::vector<std::string>& schemas, c10::Device device,
                 const std::vector<fs::path>& libraries) {
  const std::string advice =
      "load its library with --ops FILE (LoadOptions::op_libraries), or Lensbox's with " +
      std::string(kOpsVariable) + "; open: " +
      (libraries.empty() ? "none"
                         : c10::Join(", ", std::vector<std::string>(libraries.begin(), libraries.end())));
  const c10::DispatchKey key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  for (const std::string& text : schemas) {
    const c10::FunctionSchema wanted = parse_schema(text);
    const auto op = c10::Dispatcher::singleton().findSchema(wanted.operator_name());
    const std::string name = "the op " + wanted.name();
    if (!op) throw ArtifactError("the artifact needs " + name + ", which is not registered: " + advice);
    // Do not test equality: a newer library may have added arguments with defaults.
    if (!op->schema().isBackwardCompatibleWith(wanted)) {
      throw ArtifactError(name + " has another schema than the artifact needs: " + advice +
                          "\n  needed:     " + c10::str(wanted) +
                          "\n  registered: " + c10::str(op->schema()));
    }
    if (!op->hasComputedKernelForDispatchKey(key)) {
      throw ArtifactError(name + " has no kernel for device " + device.str() + ": " + advice);
    }
  }
}

}  // namespace lensbox
