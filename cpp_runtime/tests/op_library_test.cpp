#include <lensbox/error.h>
#include <lensbox/op_library.h>
#include <torch/library.h>

#include <cstdlib>

#include "expect_error.h"
#include "op_build_info.h"
#include "temporary_folder.h"

// An op of the test's own, for the CPU alone.
TORCH_LIBRARY(lensbox_test, library) {
  library.def("double_it(Tensor x, float factor=2.0) -> Tensor");
  library.impl("double_it", c10::DispatchKey::CPU,
               [](const at::Tensor& x, double /*factor*/) { return x.clone(); });
}

namespace {

using lensbox::ArtifactError;
using OpLibrary = TemporaryFolder;

void require(const std::string& schema, c10::Device device = c10::kCPU) {
  lensbox::require_ops({schema}, device, std::nullopt);
}

TEST_F(OpLibrary, AcceptsARegisteredOp) {
  EXPECT_NO_THROW(require("lensbox_test::double_it(Tensor x, float factor=2.) -> Tensor"));
}

TEST_F(OpLibrary, NamesAMissingOpAndTheRemedy) {
  expect_error<ArtifactError>([] { require("lensbox_test::halve_it(Tensor x) -> Tensor"); },
                              {"lensbox_test::halve_it", "not registered", "--ops", "LENSBOX_OPS_LIBRARY"});
}

TEST_F(OpLibrary, NamesTheLibraryThatLacksAnOp) {
  expect_error<ArtifactError>(
      [] { lensbox::require_ops({"lensbox_test::halve_it(Tensor x) -> Tensor"}, c10::kCPU, "some/lib.so"); },
      {"halve_it", "some/lib.so"});
}

TEST_F(OpLibrary, ShowsBothSchemasThatDiffer) {
  expect_error<ArtifactError>([] { require("lensbox_test::double_it(Tensor x, int factor) -> Tensor"); },
                              {"another schema", "int factor)", "float factor=2."});
  expect_error<ArtifactError>(
      [] { require("lensbox_test::double_it(Tensor x, float factor=3.0) -> Tensor"); }, {"another schema"});
}

TEST_F(OpLibrary, NamesTheDeviceThatHasNoKernel) {
  expect_error<ArtifactError>(
      [] { require("lensbox_test::double_it(Tensor x, float factor=2.0) -> Tensor", {c10::kCUDA, 0}); },
      {"no kernel", "cuda:0"});
}

TEST_F(OpLibrary, RefusesASchemaThatIsNone) {
  expect_error<ArtifactError>([] { require("lensbox_test::double_it(oops"); }, {"cannot read", "oops"});
}

TEST_F(OpLibrary, TheGivenFileComesFirstThenTheEnvironment) {
  setenv("LENSBOX_OPS_LIBRARY", "from/environment.so", 1);
  EXPECT_EQ(lensbox::find_op_library("given.so"), "given.so");
  EXPECT_EQ(lensbox::find_op_library(std::nullopt), "from/environment.so");
  setenv("LENSBOX_OPS_LIBRARY", "", 1);
  EXPECT_EQ(lensbox::find_op_library(std::nullopt), std::nullopt);
}

TEST_F(OpLibrary, RefusesAnAbsentFile) {
  expect_error<ArtifactError>([] { lensbox::load_op_library("no/such.so"); }, {"no/such.so", "no such file"});
}

TEST_F(OpLibrary, ShowsTheLinkersWords) {
  const auto library = write("text.so", "this is text, not a library");
  expect_error<ArtifactError>([&] { lensbox::load_op_library(library); },
                              {"text.so", "linker", "this program has", "torch 2."});
}

TEST_F(OpLibrary, RefusesALibraryForAnotherTorch) {
  const std::string record = "lensbox-build version=0.1.0 torch=1.4.0+cu92 backends=cpu,cuda";
  const auto library = write("old.so", "\1\2" + record + std::string("\0more", 5));
  EXPECT_EQ(lensbox::read_op_build_info(library)->record, record);
  expect_error<ArtifactError>([&] { lensbox::load_op_library(library); },
                              {"old.so", "another version of torch", "1.4.0+cu92", "torch 2."});
}

TEST_F(OpLibrary, ALibraryNeedNotHaveABuildRecord) {
  EXPECT_EQ(lensbox::read_op_build_info(write("x.so", "anything")), std::nullopt);
}

TEST(MinorVersion, DropsThePatchAndTheKind) {
  EXPECT_EQ(lensbox::minor_version("2.13.0+cpu"), "2.13");
  EXPECT_EQ(lensbox::minor_version("2.13"), "2.13");
}

}  // namespace
