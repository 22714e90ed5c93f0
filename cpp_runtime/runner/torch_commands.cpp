#include <ATen/Parallel.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include <iostream>

#include "command_line.h"

namespace {

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

}  // namespace

void add_torch_commands(CLI::App& app, Options& options) {
  add_loss(app, options);
  add_bench(app, options);
  add_run(app, options);
}

bool run_torch_command(const CLI::App& app, const Options& options) {
  at::set_num_threads(options.model.load.threads);
  // print() in an artifact's code would otherwise mix with the JSON.
  torch::jit::setPrintHandler([](const std::string& text) { std::cerr << text; });
  if (app.got_subcommand("loss")) {
    run_loss(options.model, options.loss);
  } else if (app.got_subcommand("bench")) {
    run_bench(options.model, options.bench);
  } else if (app.got_subcommand("run")) {
    run_program(options.model, options.run);
  } else {
    return false;
  }
  return true;
}
