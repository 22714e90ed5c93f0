// The graphs of an artifact that is a program: detect, and the loss with its gradient.

#include <ATen/ATen.h>
#include <lensbox/torch/program.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>

#include "model/methods.h"
#include "model/program.h"

namespace lensbox {
namespace {

Program graph_of(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                 const char* name, c10::Device device) {
  // Weights on the CPU stay in these bytes. Nothing writes to them: a graph that changes a buffer is refused.
  char* const data = const_cast<char*>(bytes->data());
  const auto size = static_cast<int64_t>(bytes->size());
  const at::Tensor file = at::from_blob(data, {size}, [bytes](void*) {}, at::dtype(at::kByte));
  return read_program(artifact, file, name, device);
}

// The loss of a graph, whose outputs are the loss and, if it has one, the gradient.
struct GraphLoss : torch::autograd::Function<GraphLoss> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& predictions,
                            const at::Tensor& targets, const Program& graph) {
    const auto batch = [](const at::Tensor& boxes) {
      return boxes.detach().to(at::kDouble).reshape({-1, boxes.size(-2), boxes.size(-1)});
    };
    const std::vector<at::Tensor> found = graph.run({batch(predictions), batch(targets)});
    // Autograd takes no tensors of inference mode.
    const auto own = [&](const at::Tensor& result) { return result.clone().to(predictions.scalar_type()); };
    at::Tensor value = own(found.at(0));
    if (found.size() > 1) {
      context->save_for_backward({own(found[1]).reshape(predictions.sizes())});
    } else {
      context->mark_non_differentiable({value});
    }
    return value;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list outer) {
    return {outer[0] * context->get_saved_variables()[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

DetectCode load_detect_graph(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                             c10::Device device) {
  return [graph = graph_of(artifact, std::move(bytes), "detect", device)](
             const at::Tensor& canvases, double score_threshold, double iou_threshold) {
    // Always on the CPU, where the ops read the thresholds without waiting for the device.
    const auto number = [](double value) { return at::scalar_tensor(value, at::dtype(at::kDouble)); };
    return graph.run({canvases, number(score_threshold), number(iou_threshold)});
  };
}

LossCode load_loss_graph(const std::filesystem::path& artifact, std::shared_ptr<const std::string> bytes,
                         c10::Device device) {
  return [graph = graph_of(artifact, std::move(bytes), "loss", device)](const at::Tensor& predictions,
                                                                        const at::Tensor& targets) {
    return GraphLoss::apply(predictions, targets, graph);
  };
}

}  // namespace lensbox
