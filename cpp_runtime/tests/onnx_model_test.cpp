#include "file/onnx_model.h"

#include <gtest/gtest.h>

#include <string>

#include "helpers.h"

namespace {

// Return a field of a protocol buffer with bytes or a message.
std::string field(int number, const std::string& content) {
  std::string bytes;
  for (const size_t value : {static_cast<size_t>(number << 3 | 2), content.size()}) {
    size_t rest = value;
    for (; rest >= 0x80; rest >>= 7) {
      bytes += static_cast<char>(rest | 0x80);
    }
    bytes += static_cast<char>(rest);
  }
  return bytes + content;
}

const std::string kExternal = field(13, field(1, "location") + field(2, "/etc/passwd"));
const std::string kLocation = "\x70\x01";  // data_location: EXTERNAL

TEST(ReadOnnxModel, ReadsTheMetadata) {
  const std::string property = field(14, field(1, "lensbox.json") + field(2, "{}"));
  const auto model =
      lensbox::read_onnx_model("\x08\x0a" + field(14, field(1, "other") + field(2, "x")) + property);
  EXPECT_EQ(model.fault, "");
  EXPECT_EQ(model.metadata, "{}");
  EXPECT_EQ(lensbox::read_onnx_model("\x08\x0a").metadata, std::nullopt);
  EXPECT_NE(lensbox::read_onnx_model(property + property).fault.find("two properties lensbox.json"),
            std::string::npos);
}

TEST(ReadOnnxModel, RefusesExternalDataWhereverATensorMayBe) {
  for (const std::string& data : {kExternal, kLocation}) {
    const std::string attribute = field(5, data);
    const std::string node = field(1, field(5, attribute));
    const std::string models[] = {
        field(7, field(5, data)),                                 // initializer
        field(7, field(15, field(1, data))),                      // sparse_initializer.values
        field(7, field(15, field(2, data))),                      // sparse_initializer.indices
        field(7, node),                                           // attribute.t
        field(7, field(1, field(5, field(10, data)))),            // attribute.tensors
        field(7, field(1, field(5, field(6, field(5, data))))),   // attribute.g
        field(7, field(1, field(5, field(11, node)))),            // attribute.graphs
        field(7, field(1, field(5, field(22, field(1, data))))),  // attribute.sparse_tensor
        field(7, field(1, field(5, field(23, field(1, data))))),  // attribute.sparse_tensors
    };
    for (const std::string& model : models) {
      EXPECT_NE(lensbox::read_onnx_model("\x08\x0a" + model).fault.find("external data"), std::string::npos);
    }
  }
  EXPECT_EQ(lensbox::read_onnx_model(field(7, field(5, field(9, "raw data")))).fault, "");
}

TEST(ReadOnnxModel, RefusesOperatorsBeyondTheStandard) {
  const auto with_domain = [](const std::string& domain) {
    return lensbox::read_onnx_model(field(7, field(1, field(7, domain)))).fault;
  };
  EXPECT_EQ(with_domain(""), "");
  EXPECT_EQ(with_domain("ai.onnx"), "");
  EXPECT_NE(with_domain("com.microsoft").find("of the domain 'com.microsoft'"), std::string::npos);
}

TEST(ReadOnnxModel, RefusesFunctionsAndTraining) {
  for (const int number : {20, 25}) {
    const auto model = lensbox::read_onnx_model("\x08\x0a" + field(number, ""));
    EXPECT_NE(model.fault.find("functions or training information"), std::string::npos);
  }
}

TEST(ReadOnnxModel, RefusesMalformedProtocolBuffers) {
  std::string deep;
  for (int i = 0; i < 60; ++i) {
    deep = field(1, field(5, field(6, deep)));
  }
  for (const std::string& bytes : {std::string("\x0a\x05xx"), std::string(11, '\xff'), std::string("\x0b"),
                                   field(7, "\x0a\xff"), field(7, deep)}) {
    EXPECT_NE(lensbox::read_onnx_model(bytes).fault, "");
  }
}

}  // namespace
