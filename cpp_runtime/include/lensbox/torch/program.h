#pragma once

// Exported programs: the .pt2 files of torch.export, run without Python. docs/programs.md explains them.

#include <ATen/core/Tensor.h>
#include <lensbox/api.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lensbox {

// Options of Program::load.
struct ProgramOptions {
  // "cpu", "cuda" (the first GPU), "cuda:N", or "auto" (the first GPU if there is one, else the CPU).
  std::string device = "cpu";
  // Shared libraries whose ops register themselves with torch, as in LoadOptions.
  std::vector<std::filesystem::path> op_libraries = {};
  // The name of the graph; empty: the only one, or "model", the name that torch.export.save gives.
  std::string graph = "";
};

// A graph of a file that torch.export.save or package_pt2 wrote: a list of operators, called one after
// another through torch's dispatcher. Exported programs are data: they call the operators of one table
// (docs/programs.md, "Operators") and of the libraries in op_libraries. Copies share the weights; the last
// one waits for the work that it gave to a GPU. Const methods are thread-safe.
//
//   const lensbox::Program program = lensbox::Program::load("resnet18.pt2");
//   const at::Tensor scores = program.run({image})[0];
//
// The file may come from any machine: the weights and every device in the graph become options.device. A file
// traced for one batch size takes this size only; torch.export.Dim makes sizes free.
class LENSBOX_API Program {
 public:
  // Map the file, move its weights to the device, and look up every operator. On the CPU the weights stay in
  // the mapped file, which must not change meanwhile. Throws ArtifactError, with the name, for whatever a run
  // could not compute: an operator that is not in the table or not registered, a kind of argument, a
  // subgraph, a changed buffer, another major version of the schema than 8; and for a damaged file. Throws
  // DeviceError.
  static Program load(const std::filesystem::path& file, const ProgramOptions& options = {});

  // Compute the outputs, flattened as the inputs are. The inputs must have the dtypes and sizes of the graph
  // and be on the device; they are not copied. Computes in inference mode on the current stream, without
  // waiting for a GPU, so a CUDA graph can capture it. Throws InputError for other inputs; torch's exceptions
  // pass, with the name of the node.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;

  // The graph and its weights.
  class Graph;
  explicit Program(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {}

 private:
  std::shared_ptr<const Graph> graph_;
};

}  // namespace lensbox
