#include "model/op_library.h"

#include <lensbox/error.h>
#include <stdlib.h>
#include <torch/library.h>
#include <torch/version.h>

#include "file/seal.h"
#include "helpers.h"
#include "model/machine.h"

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

using lensbox::CarriedLibrary;

constexpr const char* kNoLibrary = "no library";
constexpr const char* kUnknownOp = "lensbox_test::nobody_has_it(Tensor x) -> Tensor";

CarriedLibrary described() {
  return {.name = "ops.so",
          .sha256 = lensbox::sha256(kNoLibrary),
          .torch_version = TORCH_VERSION,
          .platform = lensbox::this_platform()};
}

// A test with a separate folder for temporary files.
class CarriedOps : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    setenv("TMPDIR", folder_.c_str(), 1);
  }

  void TearDown() override {
    unsetenv("TMPDIR");
    TemporaryFolder::TearDown();
  }
};

void open(const CarriedLibrary& library, const std::string& schema = kUnknownOp) {
  lensbox::open_carried_libraries("model.pt", {library}, {{"ops.so", kNoLibrary}}, {schema});
}

TEST_F(CarriedOps, RefusesALibraryThatDoesNotFit) {
  const auto refused = [](auto change, std::initializer_list<const char*> parts) {
    CarriedLibrary library = described();
    change(library);
    expect_error<ArtifactError>([&] { open(library); }, parts);
  };
  refused([](CarriedLibrary& library) { library.name = "other.so"; },
          {"model.pt: carries other.so, but holds no entry extra/ops/other.so"});
  refused([](CarriedLibrary& library) { library.sha256 = std::string(64, '0'); },
          {"carries ops.so with SHA-256 0000", "but its bytes have ", lensbox::sha256(kNoLibrary).c_str()});
  refused([](CarriedLibrary& library) { library.platform = "linux-riscv64"; },
          {"built for linux-riscv64; this machine is ", lensbox::this_platform().c_str()});
  refused([](CarriedLibrary& library) { library.torch_version = "1.9.0"; },
          {"built for torch 1.9.0; this program has torch 2."});
}

TEST_F(CarriedOps, NamesTheLinkersReasonAndRemovesTheFile) {
  expect_error<ArtifactError>([] { open(described()); },
                              {"model.pt: carries ops.so, which cannot be opened: the linker", "ops.so"});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CarriedOps, IsRefusedIfAnotherLibraryHasRegisteredItsOps) {
  expect_error<ArtifactError>([] { open(described(), "aten::relu(Tensor self) -> Tensor"); },
                              {"model.pt: carries ops.so, but another library with another SHA-256 has "
                               "registered aten::relu in this process: load the artifact in a process"});
}

TEST_F(CarriedOps, NamesAMissingFolderForTemporaryFiles) {
  setenv("TMPDIR", (folder_ / "absent").c_str(), 1);
  expect_error<ArtifactError>([] { open(described()); },
                              {"model.pt: carries ops.so, which cannot be written to a temporary file"});
}

}  // namespace
