#include "model/op_library.h"

#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <torch/library.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>

#include "helpers.h"

// An op of the test's own, for the CPU alone.
TORCH_LIBRARY_FRAGMENT(lensbox_test, library) {
  library.def("double_it(Tensor x, float factor=2.0) -> Tensor");
  library.impl("double_it", c10::DispatchKey::CPU,
               [](const at::Tensor& x, double /*factor*/) { return x.clone(); });
  library.def("quarter_it(Tensor x, float factor=0.25) -> Tensor");
  library.impl("quarter_it", c10::DispatchKey::CPU,
               [](const at::Tensor& x, double /*factor*/) { return x.clone(); });
}

namespace {

namespace fs = std::filesystem;
using lensbox::ArtifactError;

void require(const std::string& schema, c10::Device device = c10::kCPU) {
  lensbox::require_ops({schema}, device, {"a.so", "b.so"});
}

TEST(RequireOps, NamesTheOpAndTheReason) {
  EXPECT_NO_THROW(require("lensbox_test::double_it(Tensor x, float factor=2.) -> Tensor"));
  EXPECT_NO_THROW(require("lensbox_test::double_it(Tensor x) -> Tensor"));  // it gained an argument since
  const auto refused = [](const char* schema, std::initializer_list<const char*> parts) {
    expect_error<ArtifactError>([&] { require(schema); }, parts);
  };
  refused(
      "lensbox_test::halve_it(Tensor x) -> Tensor",
      {"lensbox_test::halve_it", "not registered", "--ops FILE", "LENSBOX_OPS_LIBRARY; open: a.so, b.so"});
  refused("lensbox_test::double_it(Tensor x, int factor) -> Tensor",
          {"another schema", "int factor)", "float factor=2."});
  refused("lensbox_test::double_it(Tensor x, float factor=3.0) -> Tensor", {"another schema"});
  refused("lensbox_test::double_it(oops", {"cannot read", "oops"});
  expect_error<ArtifactError>(
      [] { require("lensbox_test::double_it(Tensor x, float factor=2.0) -> Tensor", {c10::kCUDA, 0}); },
      {"no kernel", "cuda:0"});
}

TEST(CallOp, RefusesAnOpOfAnotherVersion) {
  const at::Tensor x = at::ones({2});
  EXPECT_TRUE(at::equal(lensbox::call_op("lensbox_test::double_it", x, 2.0).toTensor(), x));
  expect_error<c10::Error>([&] { lensbox::call_op("lensbox_test::double_it", x); },
                           {"lensbox_test::double_it", "takes 2 arguments, got 1"});
  expect_error<c10::Error>([&] { lensbox::call_op("lensbox_test::halve_it", x); }, {"is not registered"});
}

TEST(RequireOps, ReadsNumbersWithPointsUnderADecimalComma) {
  const fs::path folder = fs::path(::testing::TempDir()) / "locales";
  fs::create_directories(folder);
  const std::string make =
      "localedef -i de_DE -f UTF-8 " + (folder / "de_DE.UTF-8").string() + " 2> /dev/null";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "needs localedef and the sources of locales";
  setenv("LOCPATH", folder.c_str(), 1);
  ASSERT_NE(std::setlocale(LC_ALL, "de_DE.UTF-8"), nullptr);
  EXPECT_NO_THROW(require("lensbox_test::quarter_it(Tensor x, float factor=0.25) -> Tensor"));
  EXPECT_STREQ(localeconv()->decimal_point, ",");
  std::setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
}

}  // namespace
