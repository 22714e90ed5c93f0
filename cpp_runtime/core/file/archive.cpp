#include "file/archive.h"

#include <zlib.h>

#include <new>

// The format: PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16 and 4.5.3.
namespace lensbox {
namespace {

constexpr size_t kHeader = 30;  // bytes of a record's own header, before the name
constexpr size_t kEntry = 46;   // of an entry of the directory, before the name
constexpr size_t kEnd = 22;     // of the end record, before the comment
constexpr size_t kLocator = 20, kEnd64 = 56;
constexpr uint64_t kIn64 = UINT32_MAX;  // the number is in the extra field of 64-bit sizes

uint64_t number_at(std::string_view bytes, size_t place, size_t size) {
  if (place > bytes.size() || size > bytes.size() - place) {
    throw ArchiveError("its directory reaches beyond its end");
  }
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    number |= uint64_t{static_cast<uint8_t>(bytes[place + i])} << 8 * i;
  }
  return number;
}

std::string_view part(std::string_view bytes, uint64_t begin, uint64_t size, const std::string& what) {
  if (begin > bytes.size() || size > bytes.size() - begin) {
    throw ArchiveError(what + " must lie within the file");
  }
  return bytes.substr(begin, size);
}

// Takes the 64-bit numbers of an entry's extra fields, in their order.
class Numbers64 {
 public:
  explicit Numbers64(std::string_view fields) {
    for (size_t at = 0; at + 4 <= fields.size(); at += 4 + number_at(fields, at + 2, 2)) {
      constexpr uint64_t kSizes = 1;
      if (number_at(fields, at, 2) != kSizes) continue;
      numbers_ = part(fields, at + 4, number_at(fields, at + 2, 2), "its 64-bit sizes");
      break;
    }
  }

  // Return `number`, or the next one of 64 bits in its place.
  uint64_t take(uint64_t number) {
    if (number != kIn64 || numbers_.empty()) return number;
    number = number_at(numbers_, 0, 8);
    numbers_.remove_prefix(8);
    return number;
  }

 private:
  std::string_view numbers_;
};

}  // namespace

Archive::Archive(std::string_view bytes) : bytes_(bytes) {
  const size_t end = bytes.rfind("PK\5\6");
  if (end == std::string_view::npos || end + kEnd + number_at(bytes, end + 20, 2) != bytes.size()) {
    throw ArchiveError("it has no directory at its end");
  }
  uint64_t count = number_at(bytes, end + 10, 2), size = number_at(bytes, end + 12, 4),
           begin = number_at(bytes, end + 16, 4), limit = end;
  if (end >= kLocator && bytes.substr(end - kLocator).starts_with("PK\6\7")) {
    limit = number_at(bytes, end - kLocator + 8, 8);
    const std::string_view end64 = part(bytes, limit, kEnd64, "its directory");
    if (!end64.starts_with("PK\6\6")) throw ArchiveError("its directory has no end");
    count = number_at(end64, 32, 8);
    size = number_at(end64, 40, 8);
    begin = number_at(end64, 48, 8);
  }
  read_directory(part(bytes.substr(0, limit), begin, size, "its directory"), count);
  if (!has("version") && !has(".data/version")) throw ArchiveError("it holds no version");
}

void Archive::read_directory(std::string_view directory, uint64_t count) {
  for (; !directory.empty(); --count) {
    const uint64_t name_size = number_at(directory, 28, 2), extra_size = number_at(directory, 30, 2),
                   size = kEntry + name_size + extra_size + number_at(directory, 32, 2);
    const std::string_view bytes = part(directory, 0, size, "its directory");
    if (count == 0 || !bytes.starts_with("PK\1\2")) throw ArchiveError("its directory must have all records");
    Numbers64 numbers(bytes.substr(kEntry + name_size, extra_size));
    Entry entry{number_at(bytes, 10, 2), number_at(bytes, 16, 4), 0, 0, 0};
    entry.size = numbers.take(number_at(bytes, 24, 4));
    entry.packed = numbers.take(number_at(bytes, 20, 4));
    entry.header = numbers.take(number_at(bytes, 42, 4));
    constexpr uint64_t kEncrypted = 1;
    if ((number_at(bytes, 8, 2) & kEncrypted) != 0) throw ArchiveError("a record of it is encrypted");
    const std::string name(bytes.substr(kEntry, name_size));
    if (names_.empty()) folder_ = name.substr(0, name.find('/')) + "/";
    if (!name.starts_with(folder_)) throw ArchiveError("it has more than one folder: " + name);
    names_.push_back(name.substr(folder_.size()));
    entries_.emplace(names_.back(), entry);  // the first of two
    directory.remove_prefix(size);
  }
  if (count != 0) throw ArchiveError("its directory must have all records");
}

const Archive::Entry& Archive::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw ArchiveError("it holds no " + name);
  return found->second;
}

// Return the bytes of a record as they are in the file.
std::string_view Archive::packed(const std::string& name) const {
  const Entry& entry = this->entry(name);
  const std::string what = "the record " + name;
  const std::string_view header = part(bytes_, entry.header, kHeader, what);
  if (!header.starts_with("PK\3\4")) throw ArchiveError(what + " must have a header");
  if (number_at(header, 8, 2) != entry.method) throw ArchiveError(what + " must have one header");
  return part(bytes_, entry.header + kHeader + number_at(header, 26, 2) + number_at(header, 28, 2),
              entry.packed, what);
}

std::string_view Archive::record(const std::string& name) const {
  if (entry(name).method != 0 || entry(name).packed != entry(name).size) {
    throw ArchiveError("the record " + name + " must be stored without compression");
  }
  return packed(name);
}

std::string Archive::inflated(const std::string& name) const {
  constexpr uint64_t kDeflated = 8;
  const Entry& entry = this->entry(name);
  if (entry.method != kDeflated) return std::string(record(name));
  const std::string_view bytes = packed(name);
  std::string text(entry.size, '\0');
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const int outcome = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (outcome != Z_STREAM_END || stream.avail_out != 0) {
    throw ArchiveError("the record " + name + " is damaged: it does not inflate to its size");
  }
  return text;
}

void Archive::check_sums() const {
  for (const std::string& name : names_) {
    const std::string_view bytes = record(name);
    const uint64_t sum = entry(name).sum;
    if (sum != 0 && sum != crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size())) {
      throw ArchiveError("the record " + name + " is damaged: its CRC-32 is not the directory's");
    }
  }
}

}  // namespace lensbox
