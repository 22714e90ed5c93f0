#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// A file is no zip archive of torch, or one with damage. The message is the reason alone.
struct ArchiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The directory of an archive of torch, a zip file in memory whose records lie in one folder. torch and
// Python's zipfile read the same directory: the last one of the file, whose end record, with its comment,
// ends the file. All methods throw ArchiveError.
class Archive {
 public:
  // bytes: must outlive the archive.
  explicit Archive(std::string_view bytes);

  // Return the names of the records without their folder, in the order of the directory.
  const std::vector<std::string>& names() const { return names_; }

  bool has(const std::string& name) const { return entries_.contains(name); }

  // Return the bytes that a record has, uncompressed.
  uint64_t size(const std::string& name) const { return entry(name).size; }

  // Return the bytes of a record, which must be stored without compression, as torch does.
  std::string_view record(const std::string& name) const;

  // Return a record that may be deflated, as other zip writers do. Not more than `size` bytes are made.
  std::string inflated(const std::string& name) const;

  // Compare all records with their CRC-32 in the directory, at which torch's reader does not look. An archive
  // that was written without (torch.serialization.set_crc32_options) has zeros there, which pass.
  void check_sums() const;

 private:
  struct Entry {
    uint64_t method, sum, packed, size, header;  // header: the offset of the record's own header
  };

  const Entry& entry(const std::string& name) const;
  std::string_view packed(const std::string& name) const;
  void read_directory(std::string_view directory, uint64_t count);

  std::string_view bytes_;
  std::string folder_;  // with its slash
  std::vector<std::string> names_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lensbox
