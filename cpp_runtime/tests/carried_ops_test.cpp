#include "model/carried_ops.h"

#include <lensbox/error.h>
#include <stdlib.h>
#include <torch/version.h>

#include "file/seal.h"
#include "helpers.h"
#include "model/machine.h"

namespace {

using lensbox::ArtifactError;
using lensbox::CarriedLibrary;

constexpr const char* kNoLibrary = "no library";
constexpr const char* kUnknownOp = "lensbox_test::nobody_has_it(Tensor x) -> Tensor";

CarriedLibrary described() {
  return {.name = "ops.so",
          .sha256 = lensbox::sha256(kNoLibrary),
          .torch_version = TORCH_VERSION,
          .platform = lensbox::this_platform()};
}

// A test whose temporary files lie in a folder of its own.
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

TEST_F(CarriedOps, WhatTheLinkerRefusesIsNamedAndNothingStays) {
  expect_error<ArtifactError>([] { open(described()); },
                              {"model.pt: carries ops.so, which cannot be opened: the linker", "ops.so"});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CarriedOps, IsRefusedIfAnotherLibraryHasRegisteredItsOps) {
  expect_error<ArtifactError>([] { open(described(), "aten::relu(Tensor self) -> Tensor"); },
                              {"model.pt: carries ops.so, but another library with another SHA-256 has "
                               "registered aten::relu in this process: load the artifact in a process"});
}

TEST_F(CarriedOps, WithoutAFolderForTemporaryFilesItSaysSo) {
  setenv("TMPDIR", (folder_ / "absent").c_str(), 1);
  expect_error<ArtifactError>([] { open(described()); },
                              {"model.pt: carries ops.so, which cannot be written to a temporary file"});
}

}  // namespace
