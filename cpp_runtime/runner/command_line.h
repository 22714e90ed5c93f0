#pragma once

#include <CLI/App.hpp>

#include "commands.h"

// What the command line says.
struct Options {
  ModelOptions model;
  DetectOptions detect;
  LossOptions loss;
  BenchOptions bench;
  int threads = 1;
};

// Adds the subcommands, which write into `options` when the command line is parsed.
void add_commands(CLI::App& app, Options& options);
