#include "onnx_file.h"

#include <lensbox/error.h>
#include <lensbox/torch/artifact.h>
#include <lensbox/version.h>

#include <string>

#include "expect_error.h"
#include "sha256.h"
#include "temporary_folder.h"

namespace {

using lensbox::ArtifactError;

constexpr std::string_view kModel = "\x08\x0a and whatever else a model has";

TEST(LooksLikeOnnx, GoesByTheFirstByte) {
  EXPECT_TRUE(lensbox::looks_like_onnx(kModel));
  EXPECT_FALSE(lensbox::looks_like_onnx("PK\x03\x04"));
  EXPECT_FALSE(lensbox::looks_like_onnx(""));
}

TEST(SealFault, NamesAMissingSeal) {
  for (const std::string& bytes : {std::string(), std::string(kModel), std::string(2000, '\x08')}) {
    EXPECT_NE(lensbox::seal_fault(bytes).find("does not end with its lensbox.sha256"), std::string::npos);
  }
}

#if LENSBOX_OPENSSL

std::string sealed(std::string_view model) {
  return std::string(model) + "\x72\x52\x0a\x0elensbox.sha256\x12\x40" + lensbox::sha256(model);
}

TEST(SealFault, FindsEachChangedByte) {
  const std::string bytes = sealed(kModel);
  EXPECT_EQ(lensbox::seal_fault(bytes), "");
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_NE(lensbox::seal_fault(changed), "") << "byte " << i;
  }
  EXPECT_NE(lensbox::seal_fault(bytes.substr(1)), "");
  EXPECT_NE(lensbox::seal_fault(bytes.substr(0, bytes.size() - 1)), "");
  EXPECT_NE(lensbox::seal_fault(bytes + " "), "");
  EXPECT_EQ(lensbox::seal_fault(sealed("")), "");
}

using OnnxFile = TemporaryFolder;

TEST_F(OnnxFile, SaysWhatItNeeds) {
  const std::filesystem::path path = write("detector.onnx", sealed(kModel));
  const auto load = [&] { lensbox::Artifact::load(path, c10::kCPU); };
#if LENSBOX_WITH_ONNX
  expect_error<ArtifactError>(load, {"detector.onnx: cannot be loaded by onnxruntime 1."});
  EXPECT_TRUE(lensbox::onnxruntime_version());
#else
  expect_error<ArtifactError>(load, {"detector.onnx: an ONNX file, which needs onnxruntime",
                                     "built without it", "-DLENSBOX_ONNX=ON"});
  EXPECT_FALSE(lensbox::onnxruntime_version());
#endif
}

#endif

}  // namespace
