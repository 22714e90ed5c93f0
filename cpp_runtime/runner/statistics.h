#pragma once

#include <vector>

// The value below which `share` (0..1) of the samples lie, interpolated linearly between neighbours. At least
// one sample.
double percentile(std::vector<double> samples, double share);
