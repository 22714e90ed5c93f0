#include "carried_ops.h"

#include <lensbox/error.h>
#include <stdlib.h>
#include <torch/version.h>

#include "expect_error.h"
#include "sha256.h"
#include "temporary_folder.h"

namespace {

using lensbox::ArtifactError;
using lensbox::CarriedLibrary;

#if LENSBOX_OPENSSL

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

TEST_F(CarriedOps, IsNotOpenedWhereTheProcessHasTheOperators) {
  EXPECT_NO_THROW(open(described(), "aten::relu(Tensor self) -> Tensor"));
}

TEST_F(CarriedOps, IsNotOpenedAfterAnotherLibraryOfTheSameOperators) {
  const auto load = [] {
    lensbox::open_carried_libraries("model.pt", {described()}, {{"ops.so", kNoLibrary}},
                                    {"aten::relu(Tensor self) -> Tensor", kUnknownOp});
  };
  expect_error<ArtifactError>(
      load, {"model.pt: carries ops.so, but another library has registered aten::relu in this "
             "process, without lensbox_test::nobody_has_it: load the artifact in a process"});
}

TEST_F(CarriedOps, WithoutAFolderForTemporaryFilesItSaysSo) {
  setenv("TMPDIR", (folder_ / "absent").c_str(), 1);
  expect_error<ArtifactError>([] { open(described()); },
                              {"model.pt: carries ops.so, which cannot be written to a temporary file"});
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(lensbox::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(lensbox::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#else

TEST(Sha256WithoutOpenSsl, SaysWhatToDo) {
  expect_error<ArtifactError>([] { lensbox::sha256(""); }, {"built without OpenSSL", "libssl-dev"});
}

#endif

TEST(ThisPlatform, IsSystemAndProcessorInSmallLetters) {
  const std::string platform = lensbox::this_platform();
  EXPECT_EQ(platform.substr(0, 6), "linux-");
  EXPECT_GT(platform.size(), 6U);
}

}  // namespace
