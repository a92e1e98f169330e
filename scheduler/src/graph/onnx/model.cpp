// SPDX-License-Identifier: Apache-2.0
// Field numbers are those of the public schema onnx.proto3 (ONNX IR version 3 to 10).
#include "graph/onnx/model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include <protozero/pbf_reader.hpp>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"

namespace plimsoll::graph::onnx {
namespace {

constexpr int kMaxGraphDepth = 8;
// Tensors that decide shapes are short; weights are not looked into.
constexpr std::int64_t kMaxConstantElements = 64;

// One length-delimited message, whose bytes lie inside the file.
using Message = protozero::pbf_reader;

class Parser {
 public:
  Parser(std::string_view bytes, const std::string& file,
         const std::map<std::string, std::int64_t>& dimensions)
      : bytes_(bytes), file_(file), dimensions_(dimensions), position_(bytes.data()) {}

  Model parse() {
    try {
      bool has_graph = false;
      Message message(bytes_.data(), bytes_.size());
      while (message.next()) {
        if (message.tag() == 7 &&
            message.has_wire_type(protozero::pbf_wire_type::length_delimited)) {
          if (has_graph) refuse("the model has a second graph");
          has_graph = true;
          parse_graph(enter(message), model_, 0);
        } else {
          message.skip();
        }
      }
      if (!has_graph) refuse("the model has no graph; is this an ONNX file?");
    } catch (const protozero::exception& error) {
      refuse(fmt::format("is not valid protobuf ({})", error.what()));
    }
    std::erase_if(model_.inputs,
                  [this](const std::string& name) { return model_.initializers.contains(name); });
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw InvalidFile(file_, fmt::format("byte {}", position_ - bytes_.data()), problem);
  }

  // Steps into a message and remembers where it begins, for the next complaint.
  Message enter(Message& outer) {
    const protozero::data_view view = outer.get_view();
    position_ = view.data();
    return Message(view);
  }
  static std::string text(Message& message) {
    const protozero::data_view view = message.get_view();
    return std::string(view.data(), view.size());
  }
  void expect(const Message& message, protozero::pbf_wire_type type) const {
    if (message.wire_type() != type)
      refuse(fmt::format("field {} has wire type {}", message.tag(),
                         static_cast<int>(message.wire_type())));
  }
  void expect_length(const Message& message) const {
    expect(message, protozero::pbf_wire_type::length_delimited);
  }
  void expect_varint(const Message& message) const {
    expect(message, protozero::pbf_wire_type::varint);
  }

  void parse_graph(Message message, Model& model, int depth) {
    if (depth > kMaxGraphDepth)
      refuse(fmt::format("graphs are nested deeper than {}", kMaxGraphDepth));
    while (message.next()) {
      const auto tag = message.tag();
      const bool known = tag == 1 || tag == 5 || (tag >= 11 && tag <= 13);
      if (!known) {
        message.skip();
        continue;
      }
      expect_length(message);
      if (tag == 1) {
        parse_node(enter(message), model, depth);
      } else if (tag == 5) {
        parse_initializer(enter(message), model);
      } else {
        const std::string name = parse_value_info(enter(message), model);
        if (tag == 11) model.inputs.push_back(name);
        if (tag == 12) model.outputs.push_back(name);
      }
    }
  }

  void parse_node(Message message, Model& model, int depth) {
    Node node;
    node.byte = static_cast<std::size_t>(position_ - bytes_.data());
    while (message.next()) {
      const auto tag = message.tag();
      if (tag > 5 && tag != 7) {
        message.skip();
        continue;
      }
      expect_length(message);
      if (tag == 1) node.inputs.push_back(text(message));
      if (tag == 2) node.outputs.push_back(text(message));
      if (tag == 3) node.name = text(message);
      if (tag == 4) node.kind = text(message);
      if (tag == 5) parse_attribute(enter(message), node, depth);
      if (tag == 7) node.domain = text(message);
    }
    model.nodes.push_back(std::move(node));
  }

  void parse_attribute(Message message, Node& node, int depth) {
    std::string name;
    Attribute attribute;
    while (message.next()) {
      switch (message.tag()) {
        case 1:
          expect_length(message);
          name = text(message);
          break;
        case 2:
          expect(message, protozero::pbf_wire_type::fixed32);
          attribute.real = message.get_float();
          break;
        case 3:
          expect_varint(message);
          attribute.integer = message.get_int64();
          break;
        case 4:
          expect_length(message);
          attribute.text = text(message);
          break;
        case 5:
          expect_length(message);
          attribute.tensor = parse_tensor(enter(message)).second;
          break;
        case 6:
        case 11:
          expect_length(message);
          capture_names(enter(message), node, depth + 1);
          break;
        case 8:
          parse_integers(message, attribute.integers);
          break;
        default:
          message.skip();
      }
    }
    node.attributes[name] = std::move(attribute);
  }

  // A repeated int64, packed or not.
  void parse_integers(Message& message, std::vector<std::int64_t>& values) const {
    if (message.wire_type() == protozero::pbf_wire_type::varint) {
      values.push_back(message.get_int64());
      return;
    }
    expect_length(message);
    for (const std::int64_t value : message.get_packed_int64()) values.push_back(value);
  }

  // What a sub-graph (of If, Loop, Scan) reads from around it are operands of the node that has it.
  void capture_names(Message message, Node& node, int depth) {
    Model inner;
    parse_graph(message, inner, depth);
    std::set<std::string> own;
    for (const auto& [name, tensor] : inner.initializers) own.insert(name);
    for (const std::string& name : inner.inputs) own.insert(name);
    for (const Node& inside : inner.nodes) own.insert(inside.outputs.begin(), inside.outputs.end());
    const auto capture = [&](const std::string& name) {
      if (!name.empty() && !own.contains(name)) node.captured.push_back(name);
    };
    for (const Node& inside : inner.nodes) {
      for (const std::string& name : inside.inputs) capture(name);
      for (const std::string& name : inside.captured) capture(name);
    }
    for (const std::string& name : inner.outputs) capture(name);
  }

  void parse_initializer(Message message, Model& model) {
    auto [name, tensor] = parse_tensor(message);
    if (name.empty()) refuse("an initializer has no name");
    if (!model.initializers.emplace(name, std::move(tensor)).second)
      refuse(fmt::format("a second initializer is named '{}'", name));
  }

  struct TensorBytes {
    protozero::data_view raw;
    std::vector<std::int64_t> integers;
    std::vector<double> reals;
    std::map<std::string, std::string> external;
    bool is_external = false;
  };

  std::pair<std::string, Tensor> parse_tensor(Message message) {
    std::string name;
    Tensor tensor;
    tensor.shape.emplace();
    TensorBytes data;
    while (message.next()) {
      switch (message.tag()) {
        case 1:
          parse_integers(message, *tensor.shape);
          break;
        case 2:
          expect_varint(message);
          tensor.type = message.get_int32();
          break;
        case 4:
          parse_floats(message, data.reals);
          break;
        case 5:
        case 7:
          parse_integers(message, data.integers);
          break;
        case 8:
          expect_length(message);
          name = text(message);
          break;
        case 9:
          expect_length(message);
          data.raw = message.get_view();
          break;
        case 13:
          expect_length(message);
          parse_external(enter(message), data);
          break;
        case 14:
          expect_varint(message);
          data.is_external = message.get_int32() == 1;
          break;
        default:
          message.skip();
      }
    }
    for (const std::int64_t extent : *tensor.shape) {
      if (extent < 0) refuse(fmt::format("tensor '{}' has an extent of {}", name, extent));
    }
    take_values(data, tensor);
    return {name, std::move(tensor)};
  }

  void parse_floats(Message& message, std::vector<double>& values) const {
    if (message.wire_type() == protozero::pbf_wire_type::fixed32) {
      values.push_back(message.get_float());
      return;
    }
    expect_length(message);
    for (const float value : message.get_packed_float()) {
      if (static_cast<std::int64_t>(values.size()) > kMaxConstantElements) break;
      values.push_back(value);
    }
  }

  void parse_external(Message message, TensorBytes& data) const {
    std::string key;
    std::string value;
    while (message.next()) {
      expect_length(message);
      // The tag is asked for first: reading the field ends it.
      const bool is_key = message.tag() == 1;
      (is_key ? key : value) = text(message);
    }
    data.external[key] = value;
  }

  void take_values(TensorBytes& data, Tensor& tensor) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : *tensor.shape) {
      if (extent > kMaxConstantElements) return;
      count *= extent;
      if (count > kMaxConstantElements) return;
    }
    const auto size = static_cast<std::size_t>(count);
    if (data.integers.size() == size && count > 0) tensor.integers = data.integers;
    if (data.reals.size() == size && count > 0) tensor.reals = data.reals;
    if (count == 0 && tensor.type == kInt64) tensor.integers.emplace();
    std::string external;
    if (data.is_external) {
      external = read_external(data, size * 8);
      data.raw = protozero::data_view(external.data(), external.size());
    }
    take_raw<std::int64_t>(data.raw, size, tensor.type == kInt64, tensor.integers);
    take_raw<std::int32_t>(data.raw, size, tensor.type == kInt32, tensor.integers);
    take_raw<float>(data.raw, size, tensor.type == kFloat, tensor.reals);
  }

  template <typename Raw, typename Out>
  static void take_raw(const protozero::data_view& raw, std::size_t count, bool applies,
                       std::optional<std::vector<Out>>& out) {
    static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");
    if (!applies || count == 0 || raw.size() < count * sizeof(Raw)) return;
    out.emplace();
    for (std::size_t i = 0; i < count; ++i) {
      Raw value;
      std::memcpy(&value, raw.data() + i * sizeof(Raw), sizeof(Raw));
      out->push_back(static_cast<Out>(value));
    }
  }

  // The first bytes of an external tensor; empty where they cannot be read: only a shape that
  // depends on them will miss them.
  std::string read_external(const TensorBytes& data, std::size_t most) const {
    const auto location = data.external.find("location");
    if (location == data.external.end()) return "";
    const std::filesystem::path name(location->second);
    // Only files below the model's own folder.
    for (const auto& part : name) {
      if (name.is_absolute() || part == "..") return "";
    }
    std::ifstream stream(std::filesystem::path(file_).parent_path() / name, std::ios::binary);
    const auto offset = data.external.find("offset");
    if (offset != data.external.end())
      stream.seekg(std::strtoll(offset->second.c_str(), nullptr, 10));
    std::string bytes(most, '\0');
    stream.read(bytes.data(), static_cast<std::streamsize>(most));
    bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
    return bytes;
  }

  std::string parse_value_info(Message message, Model& model) {
    std::string name;
    Tensor tensor;
    std::string symbol;
    while (message.next()) {
      if (message.tag() == 1) {
        expect_length(message);
        name = text(message);
      } else if (message.tag() == 2) {
        expect_length(message);
        Message type = enter(message);
        while (type.next()) {
          if (type.tag() != 1) {
            type.skip();
            continue;
          }
          expect_length(type);
          parse_tensor_type(enter(type), tensor, symbol);
        }
      } else {
        message.skip();
      }
    }
    if (!symbol.empty()) model.symbolic[name] = symbol;
    model.declared[name] = std::move(tensor);
    return name;
  }

  void parse_tensor_type(Message message, Tensor& tensor, std::string& symbol) {
    while (message.next()) {
      if (message.tag() == 1) {
        expect_varint(message);
        tensor.type = message.get_int32();
      } else if (message.tag() == 2) {
        expect_length(message);
        parse_shape(enter(message), tensor, symbol);
      } else {
        message.skip();
      }
    }
  }

  void parse_shape(Message message, Tensor& tensor, std::string& symbol) {
    Shape shape;
    while (message.next()) {
      if (message.tag() != 1) {
        message.skip();
        continue;
      }
      expect_length(message);
      Message dimension = enter(message);
      std::optional<std::int64_t> extent;
      std::string parameter = "?";
      while (dimension.next()) {
        if (dimension.tag() == 1) {
          expect_varint(dimension);
          extent = dimension.get_int64();
        } else if (dimension.tag() == 2) {
          expect_length(dimension);
          parameter = text(dimension);
        } else {
          dimension.skip();
        }
      }
      const auto given = dimensions_.find(parameter);
      if (!extent && given != dimensions_.end()) extent = given->second;
      // Some exporters write -1 or 0 for "any".
      if (extent && *extent >= 0) {
        shape.push_back(*extent);
      } else {
        symbol = parameter;
      }
    }
    if (symbol.empty()) tensor.shape = std::move(shape);
  }

  std::string_view bytes_;
  const std::string& file_;
  const std::map<std::string, std::int64_t>& dimensions_;
  const char* position_;
  Model model_;
};

}  // namespace

int element_bits(std::int32_t type) {
  switch (type) {
    case 2:   // uint8
    case 3:   // int8
    case 9:   // bool
    case 17:  // four kinds of float8
    case 18:
    case 19:
    case 20:
      return 8;
    case 4:   // uint16
    case 5:   // int16
    case 10:  // float16
    case 16:  // bfloat16
      return 16;
    case 1:   // float
    case 6:   // int32
    case 12:  // uint32
      return 32;
    case 7:   // int64
    case 11:  // double
    case 13:  // uint64
    case 14:  // complex64
      return 64;
    case 15:  // complex128
      return 128;
    case 21:  // uint4
    case 22:  // int4
    case 23:  // float4
      return 4;
    default:
      return 0;
  }
}

Model parse_model(std::string_view bytes, const std::string& file,
                  const std::map<std::string, std::int64_t>& dimensions) {
  return Parser(bytes, file, dimensions).parse();
}

}  // namespace plimsoll::graph::onnx
