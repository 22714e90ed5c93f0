// lensbox_runner: runs a Lensbox artifact without Python. JSON on stdout, messages on stderr.

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <lensbox/error.h>
#include <lensbox/version.h>
#include <malloc.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>

#include "command_line.h"
#include "commands.h"
#include "streams.h"

namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 good; 2 usage; 3 the artifact or the op library is unusable; 4 bad input; 1 anything "
    "else.\n"
    "Exactly one JSON document is written to stdout with 0, by selftest with 3, and by detect with 4; by "
    "detect with --json-lines, --raw and --video one a line.";

ExitCode run(const CLI::App& app, const Options& options) {
  at::set_num_threads(options.threads);
  if (app.got_subcommand("info")) return run_info(options.model);
  if (app.got_subcommand("selftest")) return run_selftest(options.model);
  if (app.got_subcommand("detect")) return run_detect(options.model, options.detect);
  if (app.got_subcommand("bench")) return run_bench(options.model, options.bench);
  return run_loss(options.model, options.loss);
}

// Keep freed memory in this process instead of returning large blocks to the system, whose pages would have
// to be faulted in and zeroed again. Does nothing if the C library is not glibc, or if GLIBC_TUNABLES
// configures malloc. Call this before much memory is in use.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // that mallopt takes for M_MMAP_THRESHOLD on 64 bits
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos)
    return;
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
#endif
}

void send_prints_to_stderr() {
  // print() in an artifact's code would otherwise mix with the JSON.
  torch::jit::setPrintHandler([](const std::string& text) { std::cerr << text; });
}

std::string version() {
  const auto onnxruntime = lensbox::onnxruntime_version();
  return "lensbox_runner " LENSBOX_VERSION " (libtorch " TORCH_VERSION +
         (onnxruntime ? ", onnxruntime " + *onnxruntime : std::string()) + ")";
}

int fail(ExitCode code, const std::string& message) {
  std::cerr << "lensbox_runner: " << message << '\n';
  return static_cast<int>(code);
}

// Name an unknown subcommand; CLI11 itself would only say that a subcommand is required.
std::optional<std::string> unknown_subcommand(const CLI::App& app) {
  if (!app.get_subcommands().empty()) return std::nullopt;
  const std::vector<std::string> unused = app.remaining();
  if (unused.empty() || unused[0].starts_with('-')) return std::nullopt;
  return unused[0] + ": it must be info, selftest, detect, loss or bench (--help)";
}

// Name the first unknown option; CLI11 lists all unexpected words, backwards.
std::optional<std::string> unknown_option(const CLI::App& app) {
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (word.starts_with("--")) return word + " (--help has all)";
  }
  return std::nullopt;
}

// Return the exit code, unless there is a command to run. Throws UsageError.
std::optional<ExitCode> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (const auto name = unknown_subcommand(app)) throw UsageError("there is no subcommand " + *name);
    if (const auto name = unknown_option(app)) throw UsageError("there is no option " + *name);
    std::ostringstream help;
    if (app.exit(error, help, std::cerr) != 0) return ExitCode::kUsage;
    write_stdout(help.str());
    return ExitCode::kGood;
  }
}

}  // namespace

int main(int argc, char** argv) {
  reserve_closed_streams();
  keep_freed_memory();
  CLI::App app{"Runs a Lensbox artifact without Python.", "lensbox_runner"};
  app.footer(kExitCodes);
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  Options options;
  add_commands(app, options);
  send_prints_to_stderr();
  try {
    if (const auto code = parse(app, argc, argv)) return static_cast<int>(*code);
    return static_cast<int>(run(app, options));
  } catch (const ClosedOutput&) {
    return static_cast<int>(ExitCode::kGood);  // the reader has closed the pipe
  } catch (const UsageError& error) {
    return fail(ExitCode::kUsage, error.what());
  } catch (const lensbox::Error& error) {
    return fail(static_cast<ExitCode>(error.code()), error.what());
  } catch (const c10::Error& error) {
    return fail(ExitCode::kOther, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(ExitCode::kOther, error.what());
  }
}
