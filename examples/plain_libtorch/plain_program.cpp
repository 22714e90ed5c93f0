// plain_program [ARTIFACT]: call a TorchScript artifact with libtorch and the op library, without the C++
// runtime.

#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <iostream>

int main(int argc, char** argv) {
  const c10::InferenceMode no_gradients;
  torch::jit::setGraphExecutorOptimize(false);  // no compiling for each batch size
  torch::jit::Module detector = torch::jit::load(argc > 1 ? argv[1] : "detector.pt");
  const at::Tensor canvases = torch::full({1, 1, 256, 256}, 128, torch::kUInt8);
  const auto found = detector.get_method("detect")({canvases, 0.3, 0.5}).toGenericDict();
  std::cout << found.at("counts").toTensor().item<int64_t>() << " boxes\n";
  return 0;
}
