#include "zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>

#include "utf8.h"

namespace lensbox {
namespace {

// Names as in the format's description, PKWARE's APPNOTE.TXT, section 4.3.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDataDescriptor = 0x08074b50;
constexpr uint32_t kDirectoryHeader = 0x02014b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr uint32_t kEnd = 0x06054b50;

constexpr uint64_t kZip64EndSize = 56;
constexpr uint64_t kZip64LocatorSize = 20;
constexpr uint64_t kEndSize = 22;

constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;

// Bits 1 and 2 tell how hard the compressor tried, bit 11 that the name is UTF-8.
constexpr uint16_t kHasDescriptor = 1 << 3;
constexpr uint16_t kKnownFlags = 1 << 1 | 1 << 2 | kHasDescriptor | 1 << 11;

constexpr uint32_t kDosFolder = 0x10;  // torch gives such an entry no content, whatever its size says

constexpr uint64_t kAlwaysAllowed = uint64_t{64} << 20;

[[noreturn]] void fail(const std::string& reason) {
  throw ZipError(reason);
}

// Little-endian numbers, one after another.
class Cursor {
 public:
  Cursor(std::string_view bytes, uint64_t position, const char* what)
      : bytes_(bytes), position_(position), what_(what) {}

  std::string_view take(uint64_t size) {
    if (position_ > bytes_.size() || size > bytes_.size() - position_) {
      fail(std::string("its ") + what_ + " goes beyond its end");
    }
    const std::string_view taken = bytes_.substr(position_, size);
    position_ += size;
    return taken;
  }

  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }

  void expect(uint32_t signature) {
    const uint64_t at = position_;
    if (u32() != signature) fail(std::string("there is no ") + what_ + " at byte " + std::to_string(at));
  }

  uint64_t position() const { return position_; }

 private:
  uint64_t number(int size) {
    const std::string_view taken = take(size);
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; --i) {
      value = value << 8 | static_cast<unsigned char>(taken[i]);
    }
    return value;
  }

  std::string_view bytes_;
  uint64_t position_;
  const char* what_;
};

struct Directory {
  uint64_t entries;
  uint64_t begin;
  uint64_t end;
};

struct EndRecord {
  uint64_t entries;
  uint64_t size;
  uint64_t begin;
};

// The part of the end records that the 32-bit and the 64-bit one have in common.
template <class Count, class Size>
EndRecord read_end_fields(Count count, Size size) {
  const uint64_t entries_on_this_disk = count();
  const EndRecord record{.entries = count(), .size = size(), .begin = size()};
  if (entries_on_this_disk != record.entries) fail("it is one of several disks");
  return record;
}

void expect_first_disk(uint64_t this_disk, uint64_t directory_disk) {
  if (this_disk != 0 || directory_disk != 0) fail("it is one of several disks");
}

EndRecord read_zip64_end(std::string_view bytes, uint64_t locator_begin) {
  Cursor locator(bytes, locator_begin, "zip64 locator");
  locator.expect(kZip64Locator);
  const uint32_t disk = locator.u32();
  const uint64_t begin = locator.u64();
  const uint32_t disks = locator.u32();
  if (disk != 0 || disks != 1) fail("it is one of several disks");
  if (locator_begin < kZip64EndSize || begin != locator_begin - kZip64EndSize) {
    fail("its zip64 end record is not where its locator says");
  }
  Cursor record(bytes, begin, "zip64 end record");
  record.expect(kZip64End);
  if (record.u64() != kZip64EndSize - 12) fail("its zip64 end record has an unknown size");
  record.take(4);  // versions made by and needed
  const uint32_t this_disk = record.u32();
  expect_first_disk(this_disk, record.u32());
  return read_end_fields([&] { return record.u64(); }, [&] { return record.u64(); });
}

Directory find_directory(std::string_view bytes) {
  if (bytes.size() < kEndSize) fail("it is too short");
  const uint64_t end_begin = bytes.size() - kEndSize;
  Cursor cursor(bytes, end_begin, "zip end record");
  cursor.expect(kEnd);
  const uint16_t this_disk = cursor.u16();
  expect_first_disk(this_disk, cursor.u16());
  const EndRecord end = read_end_fields([&] { return cursor.u16(); }, [&] { return cursor.u32(); });
  if (cursor.u16() != 0) fail("it has a comment at its end");

  EndRecord used = end;
  uint64_t directory_end = end_begin;
  constexpr uint64_t kZip64Size = kZip64EndSize + kZip64LocatorSize;
  if (end_begin >= kZip64Size &&
      Cursor(bytes, end_begin - kZip64LocatorSize, "zip64 locator").u32() == kZip64Locator) {
    used = read_zip64_end(bytes, end_begin - kZip64LocatorSize);
    directory_end = end_begin - kZip64Size;
    if (used.entries != end.entries || used.size != end.size || used.begin != end.begin) {
      fail("its two end records differ");
    }
  }
  if (used.begin > directory_end || used.size != directory_end - used.begin) {
    fail("its directory does not end where its end record begins");
  }
  return {used.entries, used.begin, directory_end};
}

void check_name(std::string_view name) {
  const auto is_odd = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (name.empty() || name.back() == '/' || std::ranges::any_of(name, is_odd) || !is_utf8(name)) {
    fail("it has an entry whose name is no file's");
  }
}

// A description of an entry, from the directory or from before the data.
struct Description {
  uint16_t flags;
  uint16_t method;
  uint32_t crc;
  uint32_t compressed_size;
  uint32_t size;
  uint16_t name_length;
  uint16_t extra_length;
};

Description read_description(Cursor& cursor) {
  cursor.u16();  // version needed
  Description description{};
  description.flags = cursor.u16();
  description.method = cursor.u16();
  cursor.u32();  // time and date
  description.crc = cursor.u32();
  description.compressed_size = cursor.u32();
  description.size = cursor.u32();
  description.name_length = cursor.u16();
  description.extra_length = cursor.u16();
  return description;
}

struct DirectoryEntry {
  Description description;
  std::string_view name;
  uint64_t begin;  // of the local header
};

DirectoryEntry read_directory_entry(Cursor& cursor) {
  cursor.expect(kDirectoryHeader);
  cursor.u16();  // version made by
  DirectoryEntry entry{};
  entry.description = read_description(cursor);
  const uint16_t comment_length = cursor.u16();
  const uint16_t disk = cursor.u16();
  cursor.u16();  // internal attributes
  const uint32_t attributes = cursor.u32();
  entry.begin = cursor.u32();
  entry.name = cursor.take(entry.description.name_length);
  cursor.take(entry.description.extra_length);
  cursor.take(comment_length);
  check_name(entry.name);

  const Description& said = entry.description;
  const auto refuse = [&](const char* why) { fail("its entry " + std::string(entry.name) + " " + why); };
  constexpr uint32_t kInZip64 = std::numeric_limits<uint32_t>::max();
  if (said.flags & ~kKnownFlags) refuse("is encrypted, or of another unknown kind");
  if (said.method != kStored && said.method != kDeflated) refuse("is neither stored nor deflated");
  if (disk != 0) refuse("is on another disk");
  if (attributes & kDosFolder) refuse("is marked as a folder");
  if (said.size == kInZip64 || said.compressed_size == kInZip64 || entry.begin == kInZip64) {
    refuse("is 4 GiB or more, or lies beyond 4 GiB");
  }
  if (said.method == kStored && said.size != said.compressed_size) refuse("is stored with two sizes");
  return entry;
}

void expect_descriptor(std::string_view bytes, uint64_t begin, const DirectoryEntry& entry) {
  Cursor cursor(bytes, begin, "data descriptor");
  cursor.expect(kDataDescriptor);
  const uint32_t crc = cursor.u32();
  const uint32_t compressed_size = cursor.u32();
  const uint32_t size = cursor.u32();
  const Description& said = entry.description;
  if (crc != said.crc || compressed_size != said.compressed_size || size != said.size) {
    fail("the directory describes the entry " + std::string(entry.name) +
         " in another way than its descriptor");
  }
}

// Reads an entry that begins at `position`, and moves `position` behind it.
ZipEntry read_local_entry(std::string_view bytes, const DirectoryEntry& entry, uint64_t& position) {
  const Description& said = entry.description;
  const auto refuse = [&](const char* why) { fail("its entry " + std::string(entry.name) + " " + why); };
  if (entry.begin != position) refuse("does not begin where the one before it ends");
  Cursor cursor(bytes, position, "local header");
  cursor.expect(kLocalHeader);
  const Description local = read_description(cursor);
  const bool has_descriptor = said.flags & kHasDescriptor;
  const bool is_blank = local.crc == 0 && local.compressed_size == 0 && local.size == 0;
  const bool is_same =
      local.crc == said.crc && local.compressed_size == said.compressed_size && local.size == said.size;
  if (local.flags != said.flags || local.method != said.method ||
      !(is_same || (has_descriptor && is_blank)) || cursor.take(local.name_length) != entry.name) {
    refuse("is described in another way before its data than in the directory");
  }
  cursor.take(local.extra_length);
  const std::string_view data = cursor.take(said.compressed_size);
  position = cursor.position();
  if (has_descriptor) {
    expect_descriptor(bytes, position, entry);
    position += 16;
  }
  return {.name = std::string(entry.name),
          .is_deflated = said.method == kDeflated,
          .crc = said.crc,
          .size = said.size,
          .data = data};
}

std::vector<ZipEntry> read_entries(std::string_view bytes) {
  const Directory directory = find_directory(bytes);
  const std::string_view before_end = bytes.substr(0, directory.end);
  const std::string_view before_directory = bytes.substr(0, directory.begin);
  Cursor cursor(before_end, directory.begin, "directory");
  std::vector<DirectoryEntry> described;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    described.push_back(read_directory_entry(cursor));
  }
  std::ranges::sort(described, {}, &DirectoryEntry::begin);
  std::vector<ZipEntry> entries;
  uint64_t position = 0;
  for (const DirectoryEntry& entry : described) {
    entries.push_back(read_local_entry(before_directory, entry, position));
  }
  if (cursor.position() != directory.end || position != directory.begin) {
    fail("there are bytes between its entries and its end that belong to none");
  }
  return entries;
}

std::string in_lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

void check_names_differ(const std::vector<ZipEntry>& entries) {
  std::set<std::string> names;
  for (const ZipEntry& entry : entries) {
    if (!names.insert(in_lower_case(entry.name)).second) fail("it has two entries named " + entry.name);
  }
}

void check_total_size(const std::vector<ZipEntry>& entries, uint64_t archive_size) {
  uint64_t total = 0;
  for (const ZipEntry& entry : entries) {
    total += entry.size;
  }
  const uint64_t limit = std::max(kAlwaysAllowed, 4 * archive_size);
  if (total > limit) {
    fail("its entries are " + std::to_string(total) + " bytes when inflated, more than " +
         std::to_string(limit));
  }
}

std::string inflate_entry(const ZipEntry& entry) {
  std::string content(entry.size, '\0');
  z_stream stream{};
  // Negative: deflated data as they are in a zip archive, without zlib's header.
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(entry.data.data()));
  stream.avail_in = static_cast<uInt>(entry.data.size());
  stream.next_out = reinterpret_cast<Bytef*>(content.data());
  stream.avail_out = static_cast<uInt>(content.size());
  const int status = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (status != Z_STREAM_END || stream.avail_in != 0 || stream.avail_out != 0) {
    fail("its entry " + entry.name + " cannot be inflated to its size of " + std::to_string(entry.size) +
         " bytes");
  }
  return content;
}

void check_crc(const ZipEntry& entry, std::string_view content) {
  if (crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) != entry.crc) {
    fail("its entry " + entry.name + " has a wrong checksum");
  }
}

}  // namespace

ZipArchive::ZipArchive(std::string_view bytes) : entries_(read_entries(bytes)) {
  check_names_differ(entries_);
  check_total_size(entries_, bytes.size());
  for (size_t index = 0; index < entries_.size(); ++index) {
    by_name_.emplace(entries_[index].name, index);
  }
  for (const ZipEntry& entry : entries_) {
    if (entry.is_deflated) {
      read_entry(entry);
    } else {
      check_crc(entry, entry.data);
    }
  }
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::string read_entry(const ZipEntry& entry) {
  std::string content = entry.is_deflated ? inflate_entry(entry) : std::string(entry.data);
  check_crc(entry, content);
  return content;
}

}  // namespace lensbox
