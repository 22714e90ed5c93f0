#include <ATen/ATen.h>
#include <lensbox/error.h>
#include <lensbox/torch/program.h>

#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "commands.h"
#include "file/files.h"
#include "model/machine.h"
#include "streams.h"

namespace {

// --- .npy files: numpy.org/doc/stable/reference/generated/numpy.lib.format.html ---

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "\x93NUMPY\x01";
constexpr size_t kPreamble = 10;  // magic, version 1.0, length of the header
constexpr size_t kAlignment = 64;

const std::map<std::string, at::ScalarType> kTypes{
    {"<f2", at::kHalf},  {"<f4", at::kFloat}, {"<f8", at::kDouble}, {"|u1", at::kByte}, {"|i1", at::kChar},
    {"<i2", at::kShort}, {"<i4", at::kInt},   {"<i8", at::kLong},   {"|b1", at::kBool}};

[[noreturn]] void fail_npy(const fs::path& file, const std::string& reason) {
  throw lensbox::InputError(file.string() + " " + reason);
}

// Read an array of numpy.save: float, integer or bool, little-endian, in C order. Throws InputError with the
// file.
at::Tensor read_npy(const fs::path& file) {
  std::string bytes;
  try {
    bytes = lensbox::read_file(file, UINT32_MAX);
  } catch (const lensbox::FileError& error) {
    fail_npy(file, error.what());
  }
  if (!bytes.starts_with(kMagic) || bytes.size() < kPreamble) {
    fail_npy(file, "must be a .npy file of version 1, as numpy.save writes");
  }
  const size_t length = uint8_t(bytes[8]) + size_t{256} * uint8_t(bytes[9]);
  const std::string header = bytes.substr(kPreamble, length);
  static const std::regex kHeader(
      R"(\{'descr': '([^']+)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \}\s*)");
  std::smatch parts;
  if (header.size() > 1000 || !std::regex_match(header, parts, kHeader) || !kTypes.contains(parts[1])) {
    fail_npy(file, "must hold little-endian numbers in C order, got " + header.substr(0, 100));
  }
  const at::ScalarType type = kTypes.at(parts[1]);
  const auto available = static_cast<double>(bytes.size() - kPreamble - length);
  double needed = static_cast<double>(c10::elementSize(type));
  std::vector<int64_t> sizes;
  const std::string shape = parts[2];
  static const std::regex kSize("[0-9]{1,18}");
  for (std::sregex_iterator size(shape.begin(), shape.end(), kSize), end; size != end; ++size) {
    sizes.push_back(std::stoll(size->str()));
    needed *= static_cast<double>(sizes.back());
  }
  if (needed != available) fail_npy(file, "must have as many numbers as its shape says, (" + shape + ")");
  at::Tensor tensor = at::empty(sizes, type);
  if (tensor.numel() > 0)
    std::memcpy(tensor.mutable_data_ptr(), bytes.data() + kPreamble + length, tensor.nbytes());
  return tensor;
}

// Write a tensor of any device as numpy.save does; bfloat16 becomes float32. Throws InputError with the file.
void write_npy(const fs::path& file, const at::Tensor& tensor) {
  const at::Tensor numbers =
      (tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor).cpu().contiguous();
  std::string descr;
  for (const auto& [name, type] : kTypes) {
    if (type == numbers.scalar_type()) descr = name;
  }
  if (descr.empty())
    fail_npy(file, std::string("cannot hold numbers of the type ") + c10::toString(numbers.scalar_type()));
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : numbers.sizes())
    header += std::to_string(size) + ", ";
  header += "), }";
  header.append(kAlignment - (kPreamble + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  std::ofstream stream(file, std::ios::binary);
  stream << kMagic << '\0' << char(header.size() % 256) << char(header.size() / 256) << header;
  stream.write(static_cast<const char*>(numbers.const_data_ptr()),
               static_cast<std::streamsize>(numbers.nbytes()));
  stream.close();
  if (!stream) fail_npy(file, "cannot be written");
}

}  // namespace

// --- the command ---

void run_program(const ModelOptions& model, const RunOptions& options) {
  const c10::Device device = lensbox::parse_device(model.load.device);
  const auto program =
      lensbox::Program::load(model.artifact, {model.load.device, model.load.op_libraries, options.graph});
  std::vector<at::Tensor> inputs;
  for (const auto& file : options.inputs) {
    inputs.push_back(read_npy(file).to(device));
  }
  const std::vector<at::Tensor> outputs = program.run(inputs);
  if (options.outputs.size() != outputs.size()) {
    throw UsageError("--output must name a file for each of " + std::to_string(outputs.size()) +
                     " outputs, got " + std::to_string(options.outputs.size()));
  }
  nlohmann::ordered_json document = {{"outputs", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    write_npy(options.outputs[i], outputs[i]);
    document["outputs"].push_back({{"file", options.outputs[i].string()},
                                   {"dtype", c10::toString(outputs[i].scalar_type())},
                                   {"shape", outputs[i].sizes().vec()}});
  }
  print_line(document);
}
