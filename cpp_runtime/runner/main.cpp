// lensbox_runner: runs a Lensbox artifact without Python. JSON on stdout, messages on stderr.

#include <lensbox/error.h>
#include <lensbox/version.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>

#include "command_line.h"
#include "file/errors.h"
#include "streams.h"

namespace {

// --- the command line ---

// Read auto, SIZE or SIZE,OVERLAP.
lensbox::TileSpec parse_tiles(const std::string& text) {
  lensbox::TileSpec spec;
  if (text == "auto") return spec;
  const size_t comma = std::min(text.find(','), text.size());
  int64_t size = 0;
  const bool has_overlap = comma < text.size();
  if (!CLI::detail::lexical_cast(text.substr(0, comma), size) || size < 1 ||
      (has_overlap && !CLI::detail::lexical_cast(text.substr(comma + 1), spec.overlap)) ||
      !(spec.overlap >= 0 && spec.overlap < 1)) {
    throw CLI::ValidationError("--tiles",
                               "must be auto, SIZE or SIZE,OVERLAP, such as 512,0.25, got " + text);
  }
  spec.size = size;
  return spec;
}

void add_detect(CLI::App& app, Options& options) {
  DetectOptions& detect = options.detect;
  CLI::App* const command = add_command(app, options, "detect", "Find objects in photographs or frames");
  CLI::Option* const image =
      command->add_option("--image", detect.images,
                          "JPEG or PNG files, and folders: of a folder, all files whose names end with .jpg, "
                          ".jpeg or .png");
  command->add_flag("--recursive", detect.recursive, "Also read the folders below a folder")->needs(image);
  command
      ->add_option_function<std::vector<std::string>>(
          "--raw", [&detect](const auto& text) { detect.raw = parse_raw_format(text[0], text[1]); },
          "Frames on stdin, one after another without headers: WIDTHxHEIGHT, and gray8, rgb8, bgr8, nv12 or "
          "yuyv")
      ->expected(2);
  command->add_flag("--json-lines", detect.json_lines,
                    "Print one JSON document a line for each file, at once (always so for frames)");
  command->add_option("--score-threshold", detect.files.thresholds.score, "Default: the artifact's")
      ->check(number_from(0, 1));
  command
      ->add_option("--iou-threshold", detect.files.thresholds.iou,
                   "IoU threshold of NMS. Default: the artifact's")
      ->check(number_from(0, 1));
  command
      ->add_option_function<std::string>(
          "--orientation",
          [&detect](const std::string& name) {
            detect.files.orientation =
                name == "exif" ? lensbox::Orientation::kExif : lensbox::Orientation::kStored;
          },
          "exif: turn photographs upright as EXIF says; stored: keep them as stored. Default: the "
          "artifact's")
      ->check(CLI::IsMember({"exif", "stored"}))
      ->needs(image);
  command
      ->add_option_function<std::string>(
          "--tiles", [&detect](const std::string& text) { detect.files.tiles = parse_tiles(text); },
          "Detect small objects in overlapping tiles of large photographs: auto, SIZE or SIZE,OVERLAP")
      ->needs(image);
  command->add_option("--batch", detect.files.batch_size, "Photographs or frames for the detector at a time")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--decode-threads", detect.files.decode_threads,
                   "Threads that read photographs beside the detector")
      ->check(CLI::Range(1, 1024))
      ->needs(image);
  command
      ->add_option_function<std::string>(
          "--decode",
          [&detect](const std::string& name) {
            using lensbox::Decode;
            detect.files.decode = name == "auto"  ? Decode::kAuto
                                  : name == "cpu" ? Decode::kCpu
                                                  : Decode::kGpu;
          },
          "Decoder of JPEG files; auto: the hardware of an H100 or H200 in batches of 16 or more. Default: "
          "cpu")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
      ->needs(image);
  command->add_flag("--capture", detect.capture,
                    "On a GPU, run the detector as a CUDA graph for batches of this size");
}

// Add the subcommands, which write into `options` when the command line is parsed.
void add_commands(CLI::App& app, Options& options) {
  add_command(app, options, "info", "Print the artifact's metadata");
  add_command(app, options, "selftest", "Run the self-test stored in the artifact");
  add_detect(app, options);
#if LENSBOX_WITH_TORCH
  add_torch_commands(app, options);
#endif
}

// --- the process ---

constexpr const char* kExitCodes =
    "Exit codes: 0 success; 2 usage; 3 the artifact or the op library is unusable; 4 bad input; 1 anything "
    "else.\n"
    "The program writes one JSON document to stdout on exit code 0; selftest also on 3, and detect also on "
    "4. "
    "With --json-lines and --raw, detect writes one document per line.";

Outcome run(const CLI::App& app, const Options& options) {
#if LENSBOX_WITH_TORCH
  if (run_torch_command(app, options)) return std::nullopt;
#endif
  if (app.got_subcommand("selftest")) return run_selftest(options.model);
  if (app.got_subcommand("detect")) return run_detect(options.model, options.detect);
  if (app.got_subcommand("info")) run_info(options.model);
  return std::nullopt;
}

// Keep freed memory in this process instead of returning large blocks to the system, whose pages would have
// to be faulted in and zeroed again. Does nothing if the C library is not glibc, or if GLIBC_TUNABLES
// configures malloc. Call this before much memory is in use.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // the limit of mallopt for M_MMAP_THRESHOLD on 64 bits
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos)
    return;
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
#endif
}

std::string version() {
  const auto named = [](const char* name, const std::optional<std::string>& number) {
    return number ? name + (" " + *number) : std::string("without ") + name;
  };
  return "lensbox_runner " LENSBOX_VERSION " (" + named("libtorch", lensbox::libtorch_version()) + ", " +
         named("onnxruntime", lensbox::onnxruntime_version()) + ")";
}

int fail(lensbox::ErrorCode code, const std::string& message) {
  std::cerr << "lensbox_runner: " << message << '\n';
  return static_cast<int>(code);
}

// Name an unknown subcommand; CLI11 itself would only say that a subcommand is required.
std::optional<std::string> unknown_subcommand(const CLI::App& app) {
  if (!app.get_subcommands().empty()) return std::nullopt;
  const std::vector<std::string> unused = app.remaining();
  if (unused.empty() || unused[0].starts_with('-')) return std::nullopt;
  const bool has_torch = lensbox::libtorch_version().has_value();
  return unused[0] + ": it must be info, selftest" +
         (has_torch ? ", detect, loss, bench or run (--help)"
                    : " or detect (--help); loss, bench and run need a build with libtorch");
}

// Return the exit code, unless there is a command to run. Throws UsageError.
std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (const auto name = unknown_subcommand(app)) throw UsageError("there is no subcommand " + *name);
    std::ostringstream help;
    if (app.exit(error, help, std::cerr) != 0) return static_cast<int>(lensbox::ErrorCode::kUsage);
    write_stdout(help.str());
    return 0;
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
  app.option_defaults()->always_capture_default();
  Options options;
  options.model.load.threads = 1;
  add_commands(app, options);
  try {
    if (const auto code = parse(app, argc, argv)) return *code;
    const Outcome outcome = run(app, options);
    return outcome ? static_cast<int>(*outcome) : 0;
  } catch (const ClosedOutput&) {
    return 0;  // the reader has closed the pipe
  } catch (const lensbox::Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::exception& error) {
    return fail(lensbox::ErrorCode::kInternal, lensbox::message_of(error));
  }
}
