#include "model/op_library.h"

#include <dlfcn.h>
#include <lensbox/error.h>
#include <torch/library.h>

#include <cstdlib>
#include <exception>
#include <iterator>

#include "expect_error.h"
#include "file/errors.h"
#include "temporary_folder.h"

// An op of the test's own, for the CPU alone.
TORCH_LIBRARY_FRAGMENT(lensbox_test, library) {
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
  expect_error<ArtifactError>(
      [] { require("lensbox_test::halve_it(Tensor x) -> Tensor"); },
      {"lensbox_test::halve_it", "not registered", "LoadOptions::op_library", "LENSBOX_OPS_LIBRARY"});
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

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A shared library that every process here has.
std::string some_library() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&std::terminate), &info);
  return bytes_of(info.dli_fname);
}

TEST_F(OpLibrary, RefusesACopyOfALibraryThatIsOpen) {
  const auto first = write("first.so", some_library());
  const auto second = write("second.so", some_library());
  lensbox::load_op_library(first);
  lensbox::load_op_library(first);
  expect_error<ArtifactError>([&] { lensbox::load_op_library(second); },
                              {"second.so: it is a copy of ", "first.so"});
}

TEST_F(OpLibrary, RefusesALibraryForAnotherTorch) {
  const std::string record = "lensbox-build version=0.1.0 torch=1.4.0+cu92 backends=cpu,cuda";
  const auto library = write("old.so", "\1\2" + record + std::string("\0more", 5));
  expect_error<ArtifactError>([&] { lensbox::load_op_library(library); },
                              {"old.so", "another version of torch", "1.4.0+cu92", "torch 2."});
}

TEST(OpBuildRecord, IsReadFromTheFile) {
  const std::string record = "lensbox-build version=0.1.0 torch=1.4.0+cu92 backends=cpu";
  EXPECT_EQ(lensbox::op_build_record("\1\2" + record + std::string("\0more", 5)), record);
  EXPECT_EQ(lensbox::torch_version_of(record), "1.4.0+cu92");
  EXPECT_EQ(lensbox::op_build_record("anything"), "");
}

TEST(MinorVersion, DropsThePatchAndTheKind) {
  EXPECT_EQ(lensbox::minor_version("2.13.0+cpu"), "2.13");
  EXPECT_EQ(lensbox::minor_version("2.13"), "2.13");
}

}  // namespace
