#include "shared_library_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>  // ElfW: the kind of ELF of this process, 32 or 64 bits

#include <bit>
#include <cstring>
#include <fstream>
#include <vector>

namespace lensbox {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Section = ElfW(Shdr);

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr unsigned char kByteOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

// Nothing if the file is no ELF file.
std::optional<Header> read_header(const std::filesystem::path& file) {
  Header header{};
  std::ifstream stream(file, std::ios::binary);
  if (!stream.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  return header;
}

bool fits(uint64_t begin, uint64_t size, uint64_t file_size) {
  return begin <= file_size && size <= file_size - begin;
}

// A table of the file, which must lie inside it.
template <class Item>
std::optional<std::vector<Item>> read_table(const std::filesystem::path& file, uint64_t file_size,
                                            uint64_t begin, uint64_t count) {
  if (!fits(begin, count * sizeof(Item), file_size)) return std::nullopt;
  std::vector<Item> table(count);
  std::ifstream stream(file, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(begin));
  stream.read(reinterpret_cast<char*>(table.data()), static_cast<std::streamsize>(count * sizeof(Item)));
  if (!stream) return std::nullopt;
  return table;
}

}  // namespace

std::optional<std::string> shared_library_fault(const std::filesystem::path& library) {
  const std::optional<Header> header = read_header(library);
  if (!header) return std::nullopt;
  const std::optional<Header> own = read_header("/proc/self/exe");
  if (header->e_ident[EI_CLASS] != kClass || header->e_ident[EI_DATA] != kByteOrder ||
      (own && header->e_machine != own->e_machine)) {
    return "it is for another kind of machine";
  }
  if (header->e_type != ET_DYN) return "it is no shared library";
  if (header->e_phnum == 0 || header->e_phentsize != sizeof(Segment) ||
      (header->e_shnum != 0 && header->e_shentsize != sizeof(Section))) {
    return "its header is damaged";
  }
  const uint64_t size = std::filesystem::file_size(library);
  const std::string cut = "it is cut off: the file has " + std::to_string(size) + " bytes, ";
  const auto segments = read_table<Segment>(library, size, header->e_phoff, header->e_phnum);
  if (!segments) return cut + "and its table of segments lies beyond them";
  for (const Segment& segment : *segments) {
    if (!fits(segment.p_offset, segment.p_filesz, size)) return cut + "and a segment goes beyond them";
  }
  const auto sections = read_table<Section>(library, size, header->e_shoff, header->e_shnum);
  if (!sections) return cut + "and its table of sections lies beyond them";
  for (const Section& section : *sections) {
    if (section.sh_type != SHT_NOBITS && !fits(section.sh_offset, section.sh_size, size)) {
      return cut + "and a section goes beyond them";
    }
  }
  return std::nullopt;
}

std::optional<std::string> open_shared_library(const std::filesystem::path& library) {
  if (auto fault = shared_library_fault(library)) return fault;
  // An absolute path, because dlopen searches the system's folders for a bare file name. RTLD_NOW, so that a
  // symbol that this torch lacks is an error here and not a crash in the first call.
  if (dlopen(std::filesystem::absolute(library).c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return std::nullopt;
  }
  const char* const linker_message = dlerror();
  return std::string("the linker cannot load it: ") + linker_message;
}

}  // namespace lensbox
