#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

// Read an array of numpy.save: float, integer or bool, little-endian, in C order. Throws InputError with the
// file.
at::Tensor read_npy(const std::filesystem::path& file);

// Write a tensor of any device as numpy.save does; bfloat16 becomes float32. Throws InputError with the file.
void write_npy(const std::filesystem::path& file, const at::Tensor& tensor);
