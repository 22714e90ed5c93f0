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
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>

#include "commands.h"
#include "streams.h"

namespace {

// --- the command line ---

// The values of the command line.
struct Options {
  ModelOptions model;
  DetectOptions detect;
  LossOptions loss;
  BenchOptions bench;
  RunOptions run;
  int threads = 1;
};

// CLI::Range accepts NaN in any range.
CLI::Validator number_from(double least, double most) {
  const std::string range = CLI::detail::to_string(least) + " to " + CLI::detail::to_string(most);
  const auto fault = [=](std::string& text) {
    double value = NAN;
    return CLI::detail::lexical_cast(text, value) && value >= least && value <= most
               ? std::string()
               : "must be a number from " + range + ", got " + text;
  };
  return {fault, range};
}

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

CLI::App* add_command(CLI::App& app, Options& options, const std::string& name,
                      const std::string& description, const std::string& file = "--artifact") {
  CLI::App* const command = app.add_subcommand(name, description);
  command
      ->add_option(
          file, options.model.artifact,
          file == "--artifact"
              ? "The artifact: a TorchScript file, a program, an ONNX file, or a package of machine code"
              : "The program: a .pt2 file of torch.export.save")
      ->required();
  command
      ->add_option(
          "--ops", options.model.load.op_libraries,
          "A shared library with ops, opened before the artifact; give the option again for another. "
          "Without Lensbox's own, liblensbox_ops.so, the program opens the file in the environment "
          "variable LENSBOX_OPS_LIBRARY, else the library beside this program")
      ->allow_extra_args(false);
  command->add_option("--device", options.model.load.device,
                      "cpu, cuda, cuda:N, or auto (the first GPU if there is one, else the CPU)");
  if (file == "--artifact") {
    command->add_option("--public-key", options.model.load.public_key,
                        "A PEM file with an Ed25519 public key; accept only artifacts signed with this key");
  }
  command->add_option("--threads", options.threads, "CPU threads")->check(CLI::Range(1, 1024));
  return command;
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
          "Frames on stdin, one after another without headers: WIDTHxHEIGHT, and gray8, rgb8, bgr8 or nv12")
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

void add_loss(CLI::App& app, Options& options) {
  CLI::App* const command =
      add_command(app, options, "loss", "Evaluate the artifact's loss of boxes against boxes");
  const std::string forms =
      " as JSON: [N][4], [B][N][4], {\"boxes\": ...}, or the output of detect; - is stdin";
  command->add_option("--predictions", options.loss.predictions, "Boxes" + forms)->required();
  command->add_option("--targets", options.loss.targets, "Boxes" + forms)->required();
  command->add_option("--gradient", options.loss.gradient,
                      "Also write the gradient with respect to the predictions, as nested arrays: to a file, "
                      "or - for the key \"gradient\" on stdout");
}

void add_bench(CLI::App& app, Options& options) {
  CLI::App* const command = add_command(app, options, "bench", "Time the detector on this machine");
  command->add_option("--batch-sizes", options.bench.batch_sizes, "Images at a time, as 1,8,32")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  command->add_option("--seconds", options.bench.seconds, "Seconds to measure each figure")
      ->check(number_from(0.001, 3600));
  command
      ->add_option("--callers", options.bench.callers,
                   "Threads that call the detector at the same time, for images per second")
      ->check(CLI::Range(1, 64));
  command->add_flag("--capture", options.bench.capture, "On a GPU, run the detector as a CUDA graph");
}

void add_run(CLI::App& app, Options& options) {
  CLI::App* const command = add_command(app, options, "run", "Run any program of torch.export", "--program");
  command->add_option("--graph", options.run.graph, "Default: the only graph of the file, or model");
  command->add_option("--input", options.run.inputs, "The inputs in their order, as .npy files");
  command->add_option("--output", options.run.outputs, "The .npy files to write, one for each output");
}

// Add the subcommands, which write into `options` when the command line is parsed.
void add_commands(CLI::App& app, Options& options) {
  add_command(app, options, "info", "Print the artifact's metadata");
  add_command(app, options, "selftest", "Run the self-test stored in the artifact");
  add_detect(app, options);
  add_loss(app, options);
  add_bench(app, options);
  add_run(app, options);
}

// --- the process ---

constexpr const char* kExitCodes =
    "Exit codes: 0 success; 2 usage; 3 the artifact or the op library is unusable; 4 bad input; 1 anything "
    "else.\n"
    "The program writes one JSON document to stdout on exit code 0; selftest also on 3, and detect also on "
    "4. "
    "With --json-lines and --raw, detect writes one document per line.";

Outcome run(const CLI::App& app, const Options& options) {
  at::set_num_threads(options.threads);
  if (app.got_subcommand("selftest")) return run_selftest(options.model);
  if (app.got_subcommand("detect")) return run_detect(options.model, options.detect);
  if (app.got_subcommand("info")) run_info(options.model);
  if (app.got_subcommand("loss")) run_loss(options.model, options.loss);
  if (app.got_subcommand("bench")) run_bench(options.model, options.bench);
  if (app.got_subcommand("run")) run_program(options.model, options.run);
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

void send_prints_to_stderr() {
  // print() in an artifact's code would otherwise mix with the JSON.
  torch::jit::setPrintHandler([](const std::string& text) { std::cerr << text; });
}

std::string version() {
  const auto onnxruntime = lensbox::onnxruntime_version();
  return "lensbox_runner " LENSBOX_VERSION " (libtorch " TORCH_VERSION +
         (onnxruntime ? ", onnxruntime " + *onnxruntime : ", without onnxruntime") + ")";
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
  return unused[0] + ": it must be info, selftest, detect, loss, bench or run (--help)";
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
  add_commands(app, options);
  send_prints_to_stderr();
  try {
    if (const auto code = parse(app, argc, argv)) return *code;
    const Outcome outcome = run(app, options);
    return outcome ? static_cast<int>(*outcome) : 0;
  } catch (const ClosedOutput&) {
    return 0;  // the reader has closed the pipe
  } catch (const lensbox::Error& error) {
    return fail(error.code(), error.what());
  } catch (const c10::Error& error) {
    return fail(lensbox::ErrorCode::kInternal, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(lensbox::ErrorCode::kInternal, error.what());
  }
}
