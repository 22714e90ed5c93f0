// The format: PKWARE's APPNOTE.TXT, sections 4.3.7 and 4.3.12.

#include <caffe2/serialize/inline_container.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "file/artifact_file.h"

namespace lensbox {
namespace {

uint32_t number_at(std::string_view header, size_t place, size_t size) {
  uint32_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    number |= uint32_t{static_cast<uint8_t>(header[place + i])} << 8 * i;
  }
  return number;
}

}  // namespace

std::string_view stored_record(caffe2::serialize::PyTorchStreamReader& archive, std::string_view bytes,
                               const std::string& name) {
  if (!archive.hasRecord(name)) throw std::runtime_error("it holds no " + name);
  const size_t begin = archive.getRecordOffset(name), size = archive.getRecordSize(name);
  if (begin > bytes.size() || size > bytes.size() - begin) {
    throw std::runtime_error("the record " + name + " must lie within the file");
  }
  constexpr size_t kMethod = 8;  // in the header before the record; 0: stored as it is
  if (number_at(bytes.substr(archive.getRecordHeaderOffset(name)), kMethod, 2) != 0) {
    throw std::runtime_error("the record " + name + " must be stored without compression");
  }
  return bytes.substr(begin, size);
}

void check_sums(caffe2::serialize::PyTorchStreamReader& archive, std::string_view bytes) {
  const std::vector<std::string> names = archive.getAllRecords();  // in the order of the directory
  std::vector<std::string_view> records;
  size_t end = 0;
  for (const std::string& name : names) {
    records.push_back(stored_record(archive, bytes, name));
    end = std::max<size_t>(end, records.back().end() - bytes.begin());
  }
  constexpr size_t kEntry = 46;  // bytes, before the name
  std::string_view directory = bytes.substr(std::min(bytes.find("PK\1\2", end), bytes.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    if (directory.size() < kEntry) throw std::runtime_error("its directory must have all records");
    const uint32_t sum = number_at(directory, 16, 4);
    const auto* const data = reinterpret_cast<const Bytef*>(records[i].data());
    if (sum != 0 && sum != crc32_z(0, data, records[i].size())) {
      throw std::runtime_error("the record " + names[i] + " is damaged: its CRC-32 is not the directory's");
    }
    const size_t length =
        kEntry + number_at(directory, 28, 2) + number_at(directory, 30, 2) + number_at(directory, 32, 2);
    directory.remove_prefix(std::min(length, directory.size()));
  }
}

}  // namespace lensbox
