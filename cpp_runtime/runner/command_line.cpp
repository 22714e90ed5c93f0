#include "command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>

namespace {

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

CLI::App* add_command(CLI::App& app, Options& options, const std::string& name,
                      const std::string& description) {
  CLI::App* const command = app.add_subcommand(name, description);
  command
      ->add_option("--artifact", options.model.artifact,
                   "The artifact: a TorchScript file, an ONNX file, or a package of machine code")
      ->required();
  command
      ->add_option(
          "--ops", options.model.op_libraries,
          "The op library, liblensbox_ops.so, and given again, one with ops of your own. Default: the "
          "environment variable LENSBOX_OPS_LIBRARY, else the one beside this program")
      ->allow_extra_args(false);
  command
      ->add_option("--device", options.model.device,
                   "cpu, cuda, cuda:N, or auto (the first GPU if there is one, else the CPU)")
      ->capture_default_str();
  command->add_option("--public-key", options.model.public_key,
                      "Refuse an artifact that the owner of this key, a PEM file, did not sign");
  command->add_option("--threads", options.threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  return command;
}

void add_detect(CLI::App& app, Options& options) {
  DetectOptions& detect = options.detect;
  CLI::App* const command = add_command(app, options, "detect", "Find objects in photographs or frames");
  CLI::Option* const image =
      command->add_option("--image", detect.images,
                          "JPEG or PNG files, and folders: of a folder, all files whose names end with .jpg, "
                          ".jpeg or .png");
  command->add_flag("--recursive", detect.recursive, "Also look into the folders below a folder")
      ->needs(image);
  command
      ->add_option_function<std::vector<std::string>>(
          "--raw", [&detect](const auto& text) { detect.raw = parse_raw_format(text[0], text[1]); },
          "Frames on stdin, one after another without headers: WIDTHxHEIGHT, and gray8, rgb8, bgr8 or nv12")
      ->expected(2);
  command->add_option("--video", detect.video, "Frames of a video file, or of the camera with that number");
  command->add_flag("--json-lines", detect.json_lines,
                    "Print one JSON document a line for each file, at once (always so for frames)");
  command->add_option("--score-threshold", detect.thresholds.score, "Default: the artifact's")
      ->check(number_from(0, 1));
  command->add_option("--iou-threshold", detect.thresholds.iou, "Of NMS. Default: the artifact's")
      ->check(number_from(0, 1));
  command
      ->add_option_function<std::string>(
          "--orientation",
          [&detect](const std::string& name) {
            detect.orientation = name == "exif" ? lensbox::Orientation::kExif : lensbox::Orientation::kStored;
          },
          "exif: turn photographs upright as EXIF says; stored: leave them as they lie. Default: the "
          "artifact's")
      ->check(CLI::IsMember({"exif", "stored"}))
      ->needs(image);
  command->add_option("--batch", detect.batch, "Photographs or frames for the detector at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--decode-threads", detect.decode_threads,
                   "Threads that read photographs beside the detector")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
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
                      "Also write the gradient with respect to the predictions, in nested arrays of their "
                      "shape: a file, or - for the key \"gradient\" on stdout");
}

void add_bench(CLI::App& app, Options& options) {
  CLI::App* const command = add_command(app, options, "bench", "Time the detector on this machine");
  command->add_option("--batch-sizes", options.bench.batch_sizes, "Images at a time, as 1,8,32")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--seconds", options.bench.seconds, "Measure each figure for so long")
      ->check(number_from(0.001, 3600))
      ->capture_default_str();
  command
      ->add_option("--callers", options.bench.callers,
                   "Threads that call the detector at a time where images per second are counted")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_flag("--capture", options.bench.capture, "On a GPU, run the detector as a CUDA graph");
}

}  // namespace

void add_commands(CLI::App& app, Options& options) {
  add_command(app, options, "info", "Print what the artifact says about itself");
  add_command(app, options, "selftest", "Run the self-test stored in the artifact");
  add_detect(app, options);
  add_loss(app, options);
  add_bench(app, options);
}
