#include "file/seal.h"

#include <gtest/gtest.h>

#include "helpers.h"

namespace {

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(lensbox::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(lensbox::sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(SealFault, NamesAMissingSeal) {
  for (const std::string& bytes : {std::string(), std::string("text"), std::string(2000, 'x')}) {
    EXPECT_NE(lensbox::seal_fault(bytes).find("does not end with a seal"), std::string::npos);
  }
}

TEST(SealFault, FindsEachChangedBit) {
  for (const std::string& bytes : {sealed_onnx("\x08\x0a and more"), sealed_zip(std::string(22, 'x'))}) {
    EXPECT_EQ(lensbox::seal_fault(bytes), "");
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(lensbox::seal_fault(changed), "") << "bit " << bit;
    }
    EXPECT_NE(lensbox::seal_fault(bytes.substr(1)), "");
    EXPECT_NE(lensbox::seal_fault(bytes.substr(0, bytes.size() - 1)), "");
    EXPECT_NE(lensbox::seal_fault(bytes + " "), "");
  }
}

}  // namespace
