#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "commands.h"

// The values of the command line.
struct Options {
  ModelOptions model;
  DetectOptions detect;
  LossOptions loss;
  BenchOptions bench;
  RunOptions run;
};

CLI::Validator number_from(double least, double most);

// Add a subcommand with the options of all. file: the option of the file, --artifact or --program.
CLI::App* add_command(CLI::App& app, Options& options, const std::string& name,
                      const std::string& description, const std::string& file = "--artifact");

// --- torch_commands.cpp: the subcommands that need libtorch ---

void add_torch_commands(CLI::App& app, Options& options);

// Set up libtorch for the process, and run the subcommand if it is one of these. Returns whether it is.
bool run_torch_command(const CLI::App& app, const Options& options);
