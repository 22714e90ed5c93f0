// The walk of an ONNX model's protocol buffer, before a runtime parses it. ONNX files are data and may come
// from strangers, with two exceptions: external data, by which a model reads other files or memory, and
// operators outside the standard domains. The op `lensbox_runtime::onnx_metadata` and the C++ runtime share
// this code.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lensbox::onnx {

constexpr std::string_view kMetadataKey = "lensbox.json";
constexpr int kMaxMessageDepth = 100;  // the limit of protobuf's parser

struct ModelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The messages of onnx.proto that hold tensors, and the fields that lead to further such messages.
enum class Message { kModel, kGraph, kNode, kAttribute, kTensor, kSparseTensor, kEntry };

struct Child {
  Message parent;
  uint64_t field;
  Message message;
};

constexpr Child kChildren[] = {
    {Message::kModel, 7, Message::kGraph},              // graph
    {Message::kModel, 14, Message::kEntry},             // metadata_props
    {Message::kGraph, 1, Message::kNode},               // node
    {Message::kGraph, 5, Message::kTensor},             // initializer
    {Message::kGraph, 15, Message::kSparseTensor},      // sparse_initializer
    {Message::kNode, 5, Message::kAttribute},           // attribute
    {Message::kAttribute, 5, Message::kTensor},         // t
    {Message::kAttribute, 6, Message::kGraph},          // g
    {Message::kAttribute, 10, Message::kTensor},        // tensors
    {Message::kAttribute, 11, Message::kGraph},         // graphs
    {Message::kAttribute, 22, Message::kSparseTensor},  // sparse_tensor
    {Message::kAttribute, 23, Message::kSparseTensor},  // sparse_tensors
    {Message::kSparseTensor, 1, Message::kTensor},      // values
    {Message::kSparseTensor, 2, Message::kTensor},      // indices
};

constexpr uint64_t kTraining = 20;      // ModelProto.training_info
constexpr uint64_t kFunctions = 25;     // ModelProto.functions
constexpr uint64_t kDomain = 7;         // NodeProto.domain
constexpr uint64_t kExternalData = 13;  // TensorProto.external_data
constexpr uint64_t kDataLocation = 14;  // TensorProto.data_location: 0 DEFAULT, 1 EXTERNAL

// A field: its number, and its value, a number or the bytes of a string or message.
struct Field {
  uint64_t number;
  uint64_t value = 0;
  std::string_view bytes = {};
  bool has_bytes = false;
};

// Reads the fields of one message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t key = varint();
    Field field{.number = key >> 3};
    // onnxruntime drops the bits beyond 32, and would see another field.
    if (key > UINT32_MAX || field.number == 0) {
      throw ModelError("is damaged or no ONNX model: it has a field without a number");
    }
    switch (key & 7) {
      case 0:
        field.value = varint();
        return field;
      case 1:
        take(8);
        return field;
      case 2:
        field.bytes = take(varint());
        field.has_bytes = true;
        return field;
      case 5:
        take(4);
        return field;
      default:
        throw ModelError("is damaged or no ONNX model: it has a field of an unknown type");
    }
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    throw ModelError("is damaged or no ONNX model: it has a number that does not end");
  }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) {
      throw ModelError("is damaged or no ONNX model: it has a field that reaches beyond its end");
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

// The metadata_props of a model.
struct Properties {
  std::optional<std::string> metadata;
  std::set<std::string_view> keys;  // of all properties
};

// StringStringEntryProto: key (1) and value (2).
inline void read_entry(std::string_view bytes, Properties& properties) {
  std::string_view key;
  std::string_view value;
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == 1 && field->has_bytes) key = field->bytes;
    if (field->number == 2 && field->has_bytes) value = field->bytes;
  }
  if (!properties.keys.insert(key).second)
    throw ModelError("has two properties " + std::string(key.substr(0, 40)));
  if (key == kMetadataKey) properties.metadata = value;
}

inline bool is_standard(std::string_view domain) {
  return domain.empty() || domain == "ai.onnx";
}

inline void walk(Message message, std::string_view bytes, int depth, Properties& properties) {
  if (depth > kMaxMessageDepth) {
    throw ModelError("is nested too deeply: more than " + std::to_string(kMaxMessageDepth) + " levels");
  }
  if (message == Message::kEntry) return read_entry(bytes, properties);
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (message == Message::kTensor &&
        (field->number == kExternalData ||
         (field->number == kDataLocation && (field->has_bytes || field->value != 0)))) {
      throw ModelError("has external data (tensors outside the file), which artifacts must not have");
    }
    if (message == Message::kModel && (field->number == kTraining || field->number == kFunctions)) {
      throw ModelError("has functions or training information, which artifacts must not have");
    }
    if (!field->has_bytes) continue;
    if (message == Message::kNode && field->number == kDomain && !is_standard(field->bytes)) {
      throw ModelError("has operators beyond ONNX's standard ones, of the domain '" +
                       std::string(field->bytes.substr(0, 40)) + "'");
    }
    for (const Child& child : kChildren) {
      if (child.parent == message && child.field == field->number) {
        walk(child.message, field->bytes, depth + 1, properties);
      }
    }
  }
}

// Return the property lensbox.json of a serialized model. Throws ModelError, whose message continues the
// file's name, if any tensor (initializers, attributes, sub-graphs) has external data, if any operator is not
// one of ONNX's standard, if the model has functions or training information, two properties of one key, or a
// malformed field.
inline std::optional<std::string> read_metadata(std::string_view model) {
  Properties properties;
  walk(Message::kModel, model, 0, properties);
  return properties.metadata;
}

}  // namespace lensbox::onnx
