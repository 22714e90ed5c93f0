#include <ATen/core/Tensor.h>
#include <lensbox/torch/program.h>

#include "commands.h"
#include "model/machine.h"
#include "npy.h"
#include "streams.h"

ExitCode run_program(const ModelOptions& model, const RunOptions& options) {
  const c10::Device device = lensbox::parse_device(model.load.device);
  const auto program =
      lensbox::Program::load(model.artifact, {model.load.device, model.load.op_libraries, options.graph});
  std::vector<at::Tensor> inputs;
  for (const auto& file : options.inputs) {
    inputs.push_back(read_npy(file).to(device));
  }
  const std::vector<at::Tensor> outputs = program.run(inputs);
  if (options.outputs.size() != outputs.size()) {
    throw UsageError("--output must name a file for each of " + std::to_string(outputs.size()) +
                     " outputs, got " + std::to_string(options.outputs.size()));
  }
  nlohmann::ordered_json document = {{"outputs", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    write_npy(options.outputs[i], outputs[i]);
    document["outputs"].push_back({{"file", options.outputs[i].string()},
                                   {"dtype", c10::toString(outputs[i].scalar_type())},
                                   {"shape", outputs[i].sizes().vec()}});
  }
  print_line(document);
  return ExitCode::kGood;
}
