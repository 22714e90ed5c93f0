#include "model/op_library.h"

#include <lensbox/error.h>
#include <torch/library.h>

#include <cstdlib>

#include "file/errors.h"
#include "helpers.h"

// An op of the test's own, for the CPU alone.
TORCH_LIBRARY_FRAGMENT(lensbox_test, library) {
  library.def("double_it(Tensor x, float factor=2.0) -> Tensor");
  library.impl("double_it", c10::DispatchKey::CPU,
               [](const at::Tensor& x, double /*factor*/) { return x.clone(); });
}

namespace {

using lensbox::ArtifactError;

void require(const std::string& schema, c10::Device device = c10::kCPU) {
  lensbox::require_ops({schema}, device, std::nullopt);
}

TEST(RequireOps, AcceptsARegisteredOpAndOneThatGainedAnArgument) {
  EXPECT_NO_THROW(require("lensbox_test::double_it(Tensor x, float factor=2.) -> Tensor"));
  EXPECT_NO_THROW(require("lensbox_test::double_it(Tensor x) -> Tensor"));
}

TEST(RequireOps, NamesTheOpAndTheReason) {
  const auto refused = [](const char* schema, std::initializer_list<const char*> parts) {
    expect_error<ArtifactError>([&] { require(schema); }, parts);
  };
  refused("lensbox_test::halve_it(Tensor x) -> Tensor",
          {"lensbox_test::halve_it", "not registered", "LoadOptions::op_library", "LENSBOX_OPS_LIBRARY"});
  refused("lensbox_test::double_it(Tensor x, int factor) -> Tensor",
          {"another schema", "int factor)", "float factor=2."});
  refused("lensbox_test::double_it(Tensor x, float factor=3.0) -> Tensor", {"another schema"});
  refused("lensbox_test::double_it(oops", {"cannot read", "oops"});
  expect_error<ArtifactError>(
      [] { require("lensbox_test::double_it(Tensor x, float factor=2.0) -> Tensor", {c10::kCUDA, 0}); },
      {"no kernel", "cuda:0"});
}

TEST(MinorVersion, DropsThePatchAndTheKind) {
  EXPECT_EQ(lensbox::minor_version("2.13.0+cpu"), "2.13");
  EXPECT_EQ(lensbox::minor_version("2.13"), "2.13");
}

}  // namespace
