#include "captured_detect.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace {

using lensbox::CapturedDetect;
using lensbox::Found;

// Stands in for a GPU: remembers which graph was replayed.
class CountingGraphs final : public lensbox::DetectGraphs {
 public:
  explicit CountingGraphs(std::vector<int64_t>& replayed) : replayed_(replayed) {}

  Found replay(int64_t batch_size, const at::Tensor& canvases) override {
    replayed_.push_back(batch_size);
    return {canvases, canvases, canvases};
  }

 private:
  std::vector<int64_t>& replayed_;
};

class Captured : public testing::Test {
 protected:
  static at::Tensor canvases(int64_t batch, int64_t side = 4) {
    return at::zeros({batch, 1, side, side}, at::kByte);
  }

  std::vector<int64_t> replayed_;
  CapturedDetect captured_{{8, 1, 4}, 0.5, 0.25, canvases(1), std::make_unique<CountingGraphs>(replayed_)};
};

TEST_F(Captured, ABatchGoesToTheNextSize) {
  for (int64_t batch = 1; batch <= 8; ++batch) {
    const auto found = captured_.run(canvases(batch), 0.5, 0.25);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->boxes.size(0), batch);
  }
  EXPECT_EQ(replayed_, (std::vector<int64_t>{1, 4, 4, 4, 8, 8, 8, 8}));
}

TEST_F(Captured, WhatWasNotRecordedIsNotReplayed) {
  EXPECT_FALSE(captured_.run(canvases(9), 0.5, 0.25));
  EXPECT_FALSE(captured_.run(canvases(1), 0.4, 0.25));
  EXPECT_FALSE(captured_.run(canvases(1), 0.5, 0.3));
  EXPECT_FALSE(captured_.run(canvases(1, 5), 0.5, 0.25));
  EXPECT_FALSE(captured_.run(canvases(1).to(at::kFloat), 0.5, 0.25));
  EXPECT_FALSE(captured_.run(canvases(1).to(at::kMeta), 0.5, 0.25));
  EXPECT_TRUE(replayed_.empty());
}

}  // namespace
