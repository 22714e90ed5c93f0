#include "command_line.h"

#include <cmath>

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
                      const std::string& description, const std::string& file) {
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
  command->add_option("--threads", options.model.load.threads, "CPU threads")->check(CLI::Range(1, 1024));
  return command;
}
