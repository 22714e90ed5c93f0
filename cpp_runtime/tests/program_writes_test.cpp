// What a run must not change: compared by storage, because schemas do not say all.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <lensbox/error.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "helpers.h"
#include "model/program.h"

namespace {

using lensbox::GraphNode;
using lensbox::kMustNotChange;
using Places = std::vector<size_t>;

GraphNode node_of(const char* op, std::vector<c10::IValue> arguments = {}, const char* overload = "") {
  GraphNode node{.name = "the_node", .op = c10::Dispatcher::singleton().findSchema({op, overload})};
  node.arguments = std::move(arguments);
  node.arguments.resize(node.op->schema().arguments().size());
  node.written = written_arguments(node);
  return node;
}

TEST(WrittenArguments, AreThoseOfTheSchemaAndRunningStatistics) {
  EXPECT_EQ(node_of("aten::relu").written, Places{});
  EXPECT_EQ(node_of("aten::relu_").written, Places{0});
  EXPECT_EQ(node_of("aten::add", {}, "out").written, Places{3});
  EXPECT_EQ(node_of("aten::_foreach_add_", {}, "Scalar").written, Places{0});
  EXPECT_EQ(node_of("aten::unbind_copy", {}, "int_out").written, Places{2});
  const auto norm = [](bool is_training) {
    return node_of("aten::batch_norm", {{}, {}, {}, {}, {}, is_training, 0.1, 1e-5, false}).written;
  };
  EXPECT_EQ(norm(true), (Places{3, 4}));
  EXPECT_EQ(norm(false), Places{});
  EXPECT_EQ(node_of("aten::instance_norm", {{}, {}, {}, {}, {}, true, 0.1, 1e-5, false}).written,
            (Places{3, 4}));
}

TEST(StoragesOfConstants, AreThoseThatTheGraphHolds) {
  const at::Tensor weight = at::ones({8, 4, 3, 3}), bias = at::ones({8}), indices = at::ones({2}, at::kLong);
  const at::Tensor output = at::ones({2});
  const std::vector<int64_t> ones{1, 1};
  lensbox::Program::Graph graph;
  graph.value_count = 3;
  const auto taking = [](GraphNode node, int value, int result) {
    node.filled = {{0, c10::TensorType::get(), false, {{value, {}}}}};
    node.results = {{false, {result}}};
    return node;
  };
  graph.nodes = {
      taking(node_of("aten::conv2d", {{}, weight, bias, ones, ones, ones, 1}), 0, 1),
      taking(node_of("aten::index", {{}, c10::List<std::optional<at::Tensor>>({indices})}, "Tensor"), 1, 2)};
  graph.outputs = {{2, {}}, {-1, output}};
  const auto storages = [&](const std::vector<at::Tensor>& tensors) {
    std::unordered_set<const void*> all;
    for (const at::Tensor& tensor : tensors)
      all.insert(lensbox::storage_of(tensor));
    return all;
  };
  EXPECT_EQ(storages_of_constants(graph), storages({weight, bias, indices, output}));

  // oneDNN packs the weight, whose memory is free then for the results of runs.
  fuse_convolutions(graph, {true, true, false});
  const bool is_packed = graph.nodes[0].op->schema().name() != "aten::conv2d";
  ASSERT_EQ(is_packed, at::globalContext().userEnabledMkldnn());
  const auto held = storages_of_constants(graph);
  EXPECT_EQ(held.contains(lensbox::storage_of(weight)), !is_packed);
  for (const at::Tensor& tensor : {bias, indices, output})
    EXPECT_TRUE(held.contains(lensbox::storage_of(tensor)));
}

TEST(CheckWritten, ComparesStorages) {
  const at::Tensor weight = at::ones({4, 3}), input = at::ones({4}), own = at::ones({4});
  const std::unordered_set<const void*> weights{lensbox::storage_of(weight)};
  const GraphNode relu = node_of("aten::relu_"), many = node_of("aten::_foreach_add_", {}, "Scalar");
  const auto check = [&](const GraphNode& node, const c10::IValue& written) {
    return [&node, &weights, &input, written] { check_written(node, {written, 1}, weights, {input}); };
  };
  check(relu, own)();
  check(relu, weight.clone())();
  check(relu, {})();
  check(many, c10::List<at::Tensor>({own, own}))();
  // Whatever gave the tensor: a view, a no-op that no schema calls a view, an op in a list.
  for (const at::Tensor& given : {weight, weight.t()[1], weight.detach(), weight.expand({2, 4, 3}),
                                  at::dropout(weight, 0.5, false), weight.to(at::kFloat), weight.contiguous(),
                                  weight.reshape({-1}), input, input.view({2, 2}), input.alias()}) {
    expect_error<lensbox::ArtifactError>(check(relu, given), {"the_node", kMustNotChange});
    expect_error<lensbox::ArtifactError>(check(many, c10::List<at::Tensor>({own, given})),
                                         {"the_node", kMustNotChange});
  }
}

}  // namespace
