// lensbox_runner: runs a Lensbox artifact without Python. JSON on stdout, messages on stderr.

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <lensbox/error.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>

#include "annotation_paths.h"
#include "commands.h"

namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 good; 2 usage; 3 the artifact or the op library is unusable; 4 bad input; 1 anything "
    "else.\n"
    "Exactly one JSON document is written to stdout with 0, by selftest with 3, and by detect with 4.";

const CLI::Validator kFraction(
    [](std::string& text) {
      double value = NAN;
      return CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1
                 ? std::string()
                 : "must be a number from 0 to 1, got " + text;
    },
    "0..1");

struct Options {
  ModelOptions model;
  DetectOptions detect;
  LossOptions loss;
  int threads = 1;
};

CLI::App* add_command(CLI::App& app, Options& options, const std::string& name,
                      const std::string& description) {
  CLI::App* const command = app.add_subcommand(name, description);
  command->add_option("--artifact", options.model.artifact, "The TorchScript artifact")->required();
  command->add_option(
      "--ops", options.model.op_library,
      "The op library, liblensbox_ops.so. Default: the environment variable LENSBOX_OPS_LIBRARY, "
      "else the one beside this program");
  command
      ->add_option("--device", options.model.device,
                   "cpu, cuda, cuda:N, or auto (the first GPU if there is one, else the CPU)")
      ->capture_default_str();
  command->add_flag("--trusted", options.model.trusted,
                    "Load the artifact's code whatever it does: only for files of your own");
  command->add_option("--threads", options.threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  return command;
}

void add_commands(CLI::App& app, Options& options) {
  add_command(app, options, "info", "Print what the artifact says about itself");
  add_command(app, options, "selftest", "Run the self-test stored in the artifact");

  CLI::App* const detect = add_command(app, options, "detect", "Find objects in photographs");
  detect->add_option("--image", options.detect.images, "JPEG or PNG files")->required();
  detect->add_option(
      "--annotate", options.detect.annotate,
      "Also write the image with the boxes drawn: a .png file, or a folder with a slash at the end");
  detect->add_option("--score-threshold", options.detect.score_threshold, "Default: the artifact's")
      ->check(kFraction);
  detect->add_option("--iou-threshold", options.detect.iou_threshold, "Of NMS. Default: the artifact's")
      ->check(kFraction);
  detect
      ->add_option_function<std::string>(
          "--orientation",
          [&options](const std::string& name) {
            options.detect.orientation =
                name == "exif" ? lensbox::Orientation::kExif : lensbox::Orientation::kStored;
          },
          "exif: turn photographs upright as EXIF says; stored: leave them as they lie. Default: the "
          "artifact's")
      ->check(CLI::IsMember({"exif", "stored"}));
  detect->add_option("--batch", options.detect.batch, "Photographs for the detector at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  detect
      ->add_option("--decode-threads", options.detect.decode_threads,
                   "Threads that read photographs beside the detector")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  detect->add_flag("--capture", options.detect.capture,
                   "On a GPU, run the detector as a CUDA graph for batches of this size");

  CLI::App* const loss =
      add_command(app, options, "loss", "Evaluate the artifact's loss of boxes against boxes");
  const std::string forms =
      " as JSON: [N][4], [B][N][4], {\"boxes\": ...}, or the output of detect; - is stdin";
  loss->add_option("--predictions", options.loss.predictions, "Boxes" + forms)->required();
  loss->add_option("--targets", options.loss.targets, "Boxes" + forms)->required();
}

Outcome run(const CLI::App& app, const Options& options) {
  at::set_num_threads(options.threads);
  if (app.got_subcommand("info")) return run_info(options.model);
  if (app.got_subcommand("selftest")) return run_selftest(options.model);
  if (app.got_subcommand("detect")) return run_detect(options.model, options.detect);
  return run_loss(options.model, options.loss);
}

void send_prints_to_stderr() {
  // print() in an artifact's code would otherwise mix with the JSON.
  torch::jit::setPrintHandler([](const std::string& text) { std::cerr << text; });
}

int fail(ExitCode code, const std::string& message) {
  std::cerr << "lensbox_runner: " << message << '\n';
  return static_cast<int>(code);
}

// CLI11 itself would only say that a subcommand is required.
std::optional<std::string> unknown_subcommand(const CLI::App& app) {
  if (!app.get_subcommands().empty()) return std::nullopt;
  const std::vector<std::string> unused = app.remaining();
  if (unused.empty() || unused[0].starts_with('-')) return std::nullopt;
  return unused[0] + ": it must be info, selftest, detect or loss (--help)";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs a Lensbox artifact without Python.", "lensbox_runner"};
  app.footer(kExitCodes);
  app.set_version_flag("--version",
                       "lensbox_runner " LENSBOX_RUNTIME_VERSION " (libtorch " TORCH_VERSION ")");
  app.require_subcommand(1);
  Options options;
  add_commands(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const auto name = unknown_subcommand(app))
      return fail(ExitCode::kUsage, "there is no subcommand " + *name);
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }

  send_prints_to_stderr();
  try {
    const Outcome outcome = run(app, options);
    // File names need not be UTF-8; JSON must be.
    std::cout << outcome.document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    if (!std::cout) return fail(ExitCode::kOther, "cannot write to stdout");
    return static_cast<int>(outcome.code);
  } catch (const UsageError& error) {
    return fail(ExitCode::kUsage, error.what());
  } catch (const lensbox::DeviceError& error) {
    return fail(ExitCode::kUsage, error.what());
  } catch (const lensbox::ArtifactError& error) {
    return fail(ExitCode::kArtifact, error.what());
  } catch (const lensbox::InputError& error) {
    return fail(ExitCode::kInput, error.what());
  } catch (const c10::Error& error) {
    return fail(ExitCode::kOther, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(ExitCode::kOther, error.what());
  }
}
