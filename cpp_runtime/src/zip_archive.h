#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lensbox {

// The bytes are no zip archive, or not one of the strict kind that ZipArchive reads; the message says why.
struct ZipError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file in a zip archive.
struct ZipEntry {
  std::string name;
  bool is_deflated;
  uint32_t crc;           // of the content
  uint64_t size;          // of the content
  std::string_view data;  // as it lies in the archive
};

// A zip archive in memory, read so strictly that two readers cannot see two different archives in it. torch's
// own reader takes much on trust: checksums, the copy of each entry's description that lies before its data,
// names that differ in case alone.
//
// The archive must fill the whole buffer: entries one after another, the directory, in any order of its own,
// and the end records, with no gap, no overlap and no comment at the end. Both what torch and what
// Python's zipfile write are like this; entries of 4 GiB or more are not supported. Every entry is stored or
// deflated, not encrypted; is described alike in the directory and before its data; has a name that no other
// has (torch ignores case, so does this); and has the right checksum. Together the entries are at most max(64
// MiB, 4 times the archive) when inflated.
class ZipArchive {
 public:
  // `bytes` must outlive the archive. Throws ZipError.
  explicit ZipArchive(std::string_view bytes);

  const std::vector<ZipEntry>& entries() const { return entries_; }

  // The entry of this name, or nullptr.
  const ZipEntry* find(std::string_view name) const;

 private:
  std::vector<ZipEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;  // indices of entries_
};

// The content of an entry, inflated if need be and compared with its checksum. Throws ZipError.
std::string read_entry(const ZipEntry& entry);

}  // namespace lensbox
