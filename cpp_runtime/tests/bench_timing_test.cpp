#include "bench_timing.h"

#include <gtest/gtest.h>

namespace {

TEST(Percentile, LiesBetweenNeighbours) {
  const std::vector<double> samples{40, 10, 30, 20};
  EXPECT_EQ(percentile(samples, 0), 10);
  EXPECT_EQ(percentile(samples, 0.5), 25);
  EXPECT_EQ(percentile(samples, 0.9), 37);
  EXPECT_EQ(percentile(samples, 1), 40);
  EXPECT_EQ(percentile({7}, 0.99), 7);
}

}  // namespace
