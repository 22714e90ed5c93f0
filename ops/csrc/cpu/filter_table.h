// The weights of one pass of `letterbox`, computed once for all rows or columns, and for all images of a
// size.
#pragma once

#include <cstdint>
#include <vector>

namespace lensbox {

class FilterTable {
 public:
  // `input` pixels become `output`.
  FilterTable(int32_t input, int32_t output);

  int32_t input() const { return input_; }
  int32_t output() const { return static_cast<int32_t>(firsts_.size()); }

  // Output pixel i is made of the inputs [first(i), end(i)), and weights(i) holds what each counts. Neither
  // bound ever decreases, and each window begins within or right behind the one before.
  int32_t first(int32_t i) const { return firsts_[i]; }
  int32_t end(int32_t i) const { return firsts_[i] + count(i); }
  int32_t count(int32_t i) const { return static_cast<int32_t>(begins_[i + 1] - begins_[i]); }
  const int32_t* weights(int32_t i) const { return weights_.data() + begins_[i]; }

  // Where the outputs end that depend on none but the inputs before `end`; those before `begin` are known to.
  int32_t ready(int32_t begin, int64_t end) const {
    while (begin < output() && this->end(begin) <= end) {
      ++begin;
    }
    return begin;
  }

  // The most inputs that an output pixel is made of.
  int32_t longest() const { return longest_; }

 private:
  int32_t input_, longest_ = 0;
  std::vector<int32_t> firsts_;
  std::vector<int64_t> begins_;  // of the windows' weights, and where the last ends
  std::vector<int32_t> weights_;
};

}  // namespace lensbox
