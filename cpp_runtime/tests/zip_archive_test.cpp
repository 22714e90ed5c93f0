#include "zip_archive.h"

#include <caffe2/serialize/inline_container.h>
#include <zlib.h>

#include <random>

#include "expect_error.h"

namespace {

using lensbox::ZipArchive;
using lensbox::ZipError;

// What torch writes: zip64 end records, padding before the data, descriptors behind them.
std::string archive_of_torch() {
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  const std::string code(300, 'c');
  writer.writeRecord("code/a.py", code.data(), code.size(), /*compress=*/true);
  writer.writeRecord("data/0", "tensor", 6);
  writer.writeRecord("empty", "", 0);
  writer.writeEndOfFile();
  return bytes;
}

std::string little_endian(uint64_t value, int size) {
  std::string text;
  for (int i = 0; i < size; ++i) {
    text += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return text;
}

struct File {
  std::string name;
  std::string data;  // stored as it is
  int method = 0;
  std::string local_name{};  // else the name
  uint32_t attributes = 0;
  uint64_t size = UINT64_MAX;  // else that of the data
};

// What Python's zipfile writes: no zip64, no descriptors.
std::string archive_of(const std::vector<File>& files, const std::string& gap = "") {
  std::string bytes;
  std::string directory;
  for (const File& file : files) {
    const uint32_t crc = crc32_z(0, reinterpret_cast<const Bytef*>(file.data.data()), file.data.size());
    const uint64_t size = file.size == UINT64_MAX ? file.data.size() : file.size;
    const std::string common = little_endian(20, 2) + little_endian(0, 2) + little_endian(file.method, 2) +
                               little_endian(0, 4) + little_endian(crc, 4) +
                               little_endian(file.data.size(), 4) + little_endian(size, 4);
    directory += "PK\x01\x02" + little_endian(20, 2) + common + little_endian(file.name.size(), 2) +
                 little_endian(0, 8) + little_endian(file.attributes, 4) + little_endian(bytes.size(), 4) +
                 file.name;
    const std::string local = file.local_name.empty() ? file.name : file.local_name;
    bytes += "PK\x03\x04" + common + little_endian(local.size(), 2) + little_endian(0, 2) + local + file.data;
  }
  bytes += gap;
  const std::string end = "PK\x05\x06" + little_endian(0, 4) + little_endian(files.size(), 2) +
                          little_endian(files.size(), 2) + little_endian(directory.size(), 4) +
                          little_endian(bytes.size(), 4) + little_endian(0, 2);
  return bytes + directory + end;
}

void expect_refused(const std::string& bytes, std::initializer_list<const char*> parts) {
  expect_error<ZipError>([&] { ZipArchive{bytes}; }, parts);
}

std::vector<std::pair<std::string, std::string>> contents(const std::string& bytes) {
  std::vector<std::pair<std::string, std::string>> found;
  const ZipArchive archive(bytes);
  for (const auto& entry : archive.entries()) {
    found.emplace_back(entry.name, read_entry(entry));
  }
  return found;
}

TEST(ZipArchive, ReadsWhatTorchWrites) {
  const std::string bytes = archive_of_torch();
  const ZipArchive archive(bytes);
  const auto* const code = archive.find("archive/code/a.py");
  ASSERT_NE(code, nullptr);
  EXPECT_TRUE(code->is_deflated);
  EXPECT_EQ(read_entry(*code), std::string(300, 'c'));
  EXPECT_EQ(read_entry(*archive.find("archive/data/0")), "tensor");
  EXPECT_EQ(read_entry(*archive.find("archive/empty")), "");
  EXPECT_EQ(archive.find("archive/data"), nullptr);
}

TEST(ZipArchive, ReadsWhatOthersWrite) {
  const std::string bytes = archive_of({{.name = "a/b", .data = "one"}, {.name = "a/c", .data = "two"}});
  EXPECT_EQ(contents(bytes),
            (std::vector<std::pair<std::string, std::string>>{{"a/b", "one"}, {"a/c", "two"}}));
}

TEST(ZipArchive, AFlippedBitIsRefusedOrChangesNothing) {
  const std::string bytes = archive_of_torch();
  const auto expected = contents(bytes);
  size_t refused = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    try {
      EXPECT_EQ(contents(flipped), expected) << "bit " << bit;
    } catch (const ZipError&) {
      ++refused;
    }
  }
  // The rest are times, versions and padding.
  EXPECT_GT(refused, 8 * bytes.size() / 2);
}

TEST(ZipArchive, RefusesEveryTruncation) {
  const std::string bytes = archive_of_torch();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(ZipArchive{std::string_view(bytes).substr(0, size)}, ZipError) << size;
  }
  expect_refused(bytes + '\0', {"zip end record"});
}

TEST(ZipArchive, NoGarbageGetsThrough) {
  std::mt19937 random(1);
  const std::string bytes = archive_of_torch();
  const auto expected = contents(bytes);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = bytes;
    for (int k = 0; k < 4; ++k) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    try {
      EXPECT_EQ(contents(changed), expected);
    } catch (const ZipError&) {
    }
  }
}

TEST(ZipArchive, RefusesTwoEntriesOfOneName) {
  expect_refused(archive_of({{.name = "a/b", .data = "1"}, {.name = "a/b", .data = "2"}}), {"two", "a/b"});
  // torch's reader does not tell them apart.
  expect_refused(archive_of({{.name = "a/b", .data = "1"}, {.name = "a/B", .data = "2"}}), {"two", "a/B"});
}

TEST(ZipArchive, RefusesAnotherNameBeforeTheData) {
  expect_refused(archive_of({{.name = "a/b", .data = "1", .local_name = "a/c"}}), {"a/b", "another way"});
}

TEST(ZipArchive, RefusesWhatIsNoFile) {
  expect_refused(archive_of({{.name = "a/", .data = ""}}), {"name"});
  expect_refused(archive_of({{.name = "a/\xff", .data = ""}}), {"name"});
  // torch would leave the memory for the content as it is.
  expect_refused(archive_of({{.name = "a/b", .data = "1", .attributes = 0x10}}), {"a/b", "folder"});
}

TEST(ZipArchive, RefusesOtherMethods) {
  expect_refused(archive_of({{.name = "a/b", .data = "1", .method = 12}}), {"a/b", "neither"});
}

TEST(ZipArchive, RefusesBytesThatBelongToNoEntry) {
  expect_refused(archive_of({{.name = "a/b", .data = "1"}}, "gap"), {"belong to none"});
  expect_refused("before" + archive_of({{.name = "a/b", .data = "1"}}), {"directory"});
}

TEST(ZipArchive, BoundsWhatEntriesInflateTo) {
  expect_refused(archive_of({{.name = "a/b", .data = "1", .method = 8, .size = 0xfffffff0}}),
                 {"4294967280 bytes", "67108864"});
  expect_refused(archive_of({{.name = "a/b", .data = "1", .method = 8, .size = 1000}}), {"inflated", "1000"});
}

TEST(ZipArchive, RefusesWhatIsNone) {
  expect_refused("", {"too short"});
  expect_refused(std::string(100, 'x'), {"no zip end record"});
}

}  // namespace
