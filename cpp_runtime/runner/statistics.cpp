#include "statistics.h"

#include <algorithm>
#include <cmath>

double percentile(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  const double position = share * static_cast<double>(samples.size() - 1);
  const auto low = static_cast<size_t>(position);
  const size_t high = std::min(low + 1, samples.size() - 1);
  return std::lerp(samples[low], samples[high], position - static_cast<double>(low));
}
