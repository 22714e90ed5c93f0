#include <lensbox/torch/device.h>
#include <lensbox/version.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include "commands.h"
#include "json_output.h"
#include "model.h"

ExitCode run_info(const ModelOptions& model) {
  nlohmann::ordered_json document =
      lensbox::read_metadata(model.artifact, trust(model), model.public_key).document;
  document["runner"] = {
      {"version", LENSBOX_VERSION},
      {"libtorch", TORCH_VERSION},
      {"device", lensbox::parse_device(model.device).str()},
      {"cuda_available", torch::cuda::is_available()},
  };
  print_line(document);
  return ExitCode::kGood;
}
