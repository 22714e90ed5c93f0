#include <ATen/core/Tensor.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "boxes_json.h"
#include "commands.h"
#include "file/files.h"
#include "file/json.h"
#include "streams.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;  // boxes need 6
constexpr uint64_t kMostBytes = 1 << 28;

Json read_json(const std::string& file, const std::string& argument) {
  try {
    const std::string text = file == "-" ? lensbox::read_stream(STDIN_FILENO, kMostBytes)
                                         : lensbox::read_file(file, kMostBytes, /*also_pipes=*/true);
    return lensbox::parse_strict_json(text, kMaxDepth);
  } catch (const lensbox::FileError& error) {
    throw lensbox::InputError(argument + ": cannot read the file " + file + ": " + error.what());
  } catch (const lensbox::JsonError& error) {
    throw lensbox::InputError(argument + ": " + file + " must hold boxes as JSON: " + error.what());
  }
}

void refuse_to_overwrite(const std::string& option, const std::string& boxes, const std::string& gradient) {
  std::error_code error;  // one of them is not there
  if (boxes == "-" || gradient == "-" || !std::filesystem::equivalent(boxes, gradient, error)) return;
  throw UsageError("--gradient would be written over the file of " + option + ", got '" + gradient + "'");
}

}  // namespace

void run_loss(const ModelOptions& model, const LossOptions& options) {
  if (options.predictions == "-" && options.targets == "-") {
    throw UsageError("only one of --predictions and --targets can be read from stdin");
  }
  refuse_to_overwrite("--predictions", options.predictions, options.gradient);
  refuse_to_overwrite("--targets", options.targets, options.gradient);
  const at::Tensor predictions = parse_boxes(read_json(options.predictions, "predictions"), "predictions");
  const at::Tensor targets = parse_boxes(read_json(options.targets, "targets"), "targets");
  const lensbox::Detector detector = lensbox::Detector::load(model.artifact, model.load);
  if (options.gradient.empty()) {
    const lensbox::Loss loss = compute_loss(detector, predictions, targets);
    print_line({{"loss", loss.value}, {"slots", loss.slots}});
    return;
  }

  const auto [loss, gradient] = loss_and_gradient(detector, predictions, targets);
  Json document = {{"loss", loss.value}, {"slots", loss.slots}};
  if (options.gradient == "-") {
    document["gradient"] = to_json(gradient);
  } else {
    std::ofstream stream(options.gradient);
    stream << to_json(gradient).dump() << std::endl;
    if (!stream) throw lensbox::InputError("gradient: cannot write the file " + options.gradient);
  }
  print_line(document);
}
