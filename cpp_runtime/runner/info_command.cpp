#include <lensbox/torch/device.h>
#include <lensbox/version.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <utility>

#include "commands.h"
#include "json_output.h"
#include "model.h"

ExitCode run_info(const ModelOptions& model) {
  lensbox::Metadata metadata = lensbox::read_metadata(model.artifact, trust(model), model.public_key);
  nlohmann::ordered_json document = std::move(metadata.document);
  document["runner"] = {
      {"version", LENSBOX_VERSION},
      {"libtorch", TORCH_VERSION},
      {"device", lensbox::parse_device(model.device).str()},
      {"cuda_available", torch::cuda::is_available()},
  };
  if (metadata.file_kind == lensbox::FileKind::kOnnx) {
    document["runner"]["onnxruntime"] = lensbox::onnxruntime_version().value_or("");
  }
  print_line(document);
  return ExitCode::kGood;
}
