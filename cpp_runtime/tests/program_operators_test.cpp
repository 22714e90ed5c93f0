#include "model/program_operators.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lensbox/torch/program.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "helpers.h"
#include "model/program_numbers.h"

namespace {

TEST(ProgramOperators, AreThoseOfTheTable) {
  for (const char* name : {"aten::relu", "aten::conv2d", "aten::batch_norm"}) {
    EXPECT_EQ(lensbox::find_operator({name, ""}).op.schema().name(), name);
  }
  EXPECT_EQ(lensbox::find_operator({"aten::empty_like", ""}).op.schema().name(), "aten::zeros_like");
  for (const c10::OperatorName& name : std::vector<c10::OperatorName>{{"aten::from_file", ""},
                                                                      {"aten::set_", "source_Tensor"},
                                                                      {"aten::as_strided", ""},
                                                                      {"aten::rand", ""},
                                                                      {"aten::_print", ""},
                                                                      {"aten::relu", "out"},
                                                                      {"inductor::_reinterpret_tensor", ""},
                                                                      {"lensbox_jpeg::read_files", ""},
                                                                      {"example::unknown", ""}}) {
    expect_error<std::runtime_error>([&] { lensbox::find_operator(name); },
                                     {"a program must not call", name.name.c_str()});
  }
}

TEST(ProgramOperators, ForbidsEveryOperatorOutsideTheTable) {
  size_t forbidden = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    try {
      const auto found = lensbox::find_operator(name);
      // Without names of outputs, randomness and files.
      for (const c10::Argument& argument : found.op.schema().arguments()) {
        EXPECT_FALSE(argument.is_out()) << name;
        EXPECT_NE(argument.type()->str(), "Generator?") << name;
      }
    } catch (const std::runtime_error&) {
      ++forbidden;
    }
  }
  EXPECT_GT(forbidden, 2000);
}

TEST(ProgramOperators, LimitsArguments) {
  const lensbox::ProgramOperator norm = lensbox::find_operator({"aten::batch_norm", ""});
  std::vector<c10::IValue> arguments(9, at::ones({1}));
  std::vector<bool> is_known(9, true);
  arguments[5] = true;  // training
  expect_error<std::runtime_error>([&] { norm.check(arguments, is_known); },
                                   {"but with training=False or running_mean=None"});
  arguments[5] = false;
  norm.check(arguments, is_known);
  is_known[5] = false;
  EXPECT_THROW(norm.check(arguments, is_known), std::runtime_error);
  arguments[3] = c10::IValue();  // running_mean
  norm.check(arguments, is_known);
  const lensbox::ProgramOperator deconvolution = lensbox::find_operator({"aten::conv_transpose1d", ""});
  arguments = {at::ones({1}), at::ones({1}), {}, std::vector<int64_t>{1024}};
  deconvolution.check(arguments, std::vector<bool>(4, true));
  arguments[3] = std::vector<int64_t>{1025};
  EXPECT_THROW(deconvolution.check(arguments, std::vector<bool>(4, true)), std::runtime_error);
}

TEST(ProgramOperators, GuardWhatTorchReadsBeyondTensors) {
  const lensbox::OperatorGuard attention =
      lensbox::find_operator({"aten::scaled_dot_product_attention", ""}).guard;
  const at::Tensor four = at::ones({1, 1, 4, 8}), three = at::ones({1, 1, 3, 8});
  attention({three, four, four});
  EXPECT_THROW(attention({four, four, three}), c10::Error);
  const lensbox::OperatorGuard norm =
      lensbox::find_operator({"aten::_native_batch_norm_legit_no_training", ""}).guard;
  const at::Tensor images = at::ones({1, 3, 2}), good = at::ones({3}), bad = at::ones({1});
  norm({images, {}, good, good, good});
  EXPECT_THROW(norm({images, {}, good, good, bad}), c10::Error);
}

TEST(ProgramOperators, HaveAFunctionForEachCalculation) {
  for (const char* name : {"_operator.add", "_operator.or_", "torch.sym_ite", "math.ceil"}) {
    EXPECT_TRUE(lensbox::has_calculation(name)) << name;
    EXPECT_NE(lensbox::find_number_op(name), nullptr) << name;
  }
  EXPECT_FALSE(lensbox::has_calculation("_operator.attrgetter"));
}

// tests/runtime/formats/test_program.py writes the files in LENSBOX_HOSTILE_PROGRAMS, and reads from
// the file `answers` what became of each.
TEST(ProgramOperators, HostileFilesAreRefusedOrCompute) {
  const char* const folder = std::getenv("LENSBOX_HOSTILE_PROGRAMS");
  if (folder == nullptr) GTEST_SKIP() << "LENSBOX_HOSTILE_PROGRAMS names no folder";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".pt2") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::ofstream answers(std::filesystem::path(folder) / "answers");
  const at::Tensor input = at::arange(2 * 3 * 8 * 9, at::kFloat).sin().view({2, 3, 8, 9});
  for (const auto& file : files) {
    answers << file.stem().string() << ' ' << std::flush;  // a crash leaves the name
    try {
      double sum = 0;
      for (const at::Tensor& output : lensbox::Program::load(file).run({input})) {
        sum += output.to(at::kDouble).abs().sum().item<double>();
      }
      answers << sum << std::endl;
    } catch (const std::exception&) {
      answers << "refused" << std::endl;
    }
  }
}

}  // namespace
