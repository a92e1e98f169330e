// SPDX-License-Identifier: Apache-2.0
#include "plimsoll/train/checkpoint.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>
#include <torch/types.h>
#include <zlib.h>

#include "plimsoll/base/error.h"
#include "plimsoll/base/output_file.h"

namespace plimsoll::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "PLIMSOLL RUN 1\n";
constexpr std::uint64_t kLargestHeader = std::uint64_t{1} << 28;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::uint32_t extend_crc(std::uint32_t crc, const void* bytes, std::size_t count) {
  return static_cast<std::uint32_t>(crc32_z(crc, static_cast<const unsigned char*>(bytes), count));
}

class Writer {
 public:
  explicit Writer(const std::filesystem::path& path) : file_(path, "--save") {}
  void write(const void* bytes, std::size_t count) {
    crc_ = extend_crc(crc_, bytes, count);
    file_.write(bytes, count);
  }
  void commit() {
    file_.write(&crc_, sizeof crc_);
    file_.commit();
  }

 private:
  OutputFile file_;
  std::uint32_t crc_ = 0;
};

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path.string()) {
    file_.reset(std::fopen(path_.c_str(), "rb"));
    if (!file_)
      throw InvalidFile(path_, "", fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  void read(void* bytes, std::size_t count, const std::string& what) {
    const std::uint32_t crc = crc_;
    const std::size_t got = std::fread(bytes, 1, count, file_.get());
    if (got < count && std::ferror(file_.get()) != 0) {
      refuse(fmt::format("cannot be read: {}", std::strerror(errno)),
             static_cast<std::int64_t>(got));
    }
    if (got < count) {
      refuse(fmt::format("the file ends here, expected {} bytes more of {}", count - got, what),
             static_cast<std::int64_t>(got));
    }
    crc_ = extend_crc(crc, bytes, count);
    position_ += static_cast<std::int64_t>(count);
  }
  std::uint32_t crc() const { return crc_; }
  [[noreturn]] void refuse(const std::string& problem, std::int64_t beyond = 0) const {
    throw InvalidFile(path_, fmt::format("byte {}", position_ + beyond), problem);
  }

 private:
  std::string path_;
  File file_;
  std::uint32_t crc_ = 0;
  std::int64_t position_ = 0;
};

// What has to agree between the saved run and the one that takes it up.
Json identity(const Trainer& trainer, const std::string& data_name) {
  const TrainOptions& options = trainer.options();
  return {{"model", trainer.canonical_model()},
          {"optimizer", static_cast<int>(options.optimizer)},
          {"weight_decay", options.weight_decay},
          {"autocast_bf16", options.autocast_bf16},
          {"data", data_name},
          {"batch", options.batch},
          {"seed", options.seed}};
}

std::vector<NamedTensor> saved_tensors(const Trainer& trainer) {
  std::vector<NamedTensor> kept;
  for (NamedTensor& item : trainer.tensors())
    if (item.name.rfind("gradient ", 0) != 0) kept.push_back(std::move(item));
  return kept;
}

Json read_header(Reader& reader) {
  std::string magic(kMagic.size(), '\0');
  reader.read(magic.data(), magic.size(), "the first line");
  if (magic != kMagic) reader.refuse("the file does not begin with 'PLIMSOLL RUN 1'");
  std::uint64_t length = 0;
  reader.read(&length, sizeof length, "the header's length");
  if (length > kLargestHeader) reader.refuse(fmt::format("a header of {} bytes", length));
  std::string text(length, '\0');
  reader.read(text.data(), text.size(), "the header");
  Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || !header.contains("run") || !header.contains("tensors"))
    reader.refuse("the header is damaged");
  return header;
}

void check_identity(const Json& saved, const Json& wanted, const std::string& path) {
  for (const auto& [key, value] : wanted.items()) {
    if (saved.contains(key) && saved[key] == value) continue;
    throw InvalidArgument(fmt::format("--resume: '{}' is a run with {} = {}, not {}", path, key,
                                      saved.value(key, Json()).dump(), value.dump()));
  }
}

std::vector<NamedTensor> read_tensors(Reader& reader, const Json& list) {
  std::vector<NamedTensor> tensors;
  for (const Json& item : list) {
    const auto sizes = item.at("sizes").get<std::vector<std::int64_t>>();
    const auto type = static_cast<c10::ScalarType>(item.at("type").get<int>());
    const torch::Tensor tensor = torch::empty(sizes, type);
    reader.read(tensor.data_ptr(), tensor.nbytes(), item.at("name").get<std::string>());
    tensors.push_back({item.at("name").get<std::string>(), tensor});
  }
  return tensors;
}

}  // namespace

void save_run(const Trainer& trainer, const std::string& data_name,
              const std::filesystem::path& path) {
  const std::vector<NamedTensor> tensors = saved_tensors(trainer);
  Json list = Json::array();
  for (const NamedTensor& item : tensors) {
    list.push_back({{"name", item.name},
                    {"type", static_cast<int>(item.tensor.scalar_type())},
                    {"sizes", item.tensor.sizes().vec()}});
  }
  const std::string header = Json{
      {"run", identity(trainer, data_name)},
      {"steps_done", trainer.steps_done()},
      {"counters", trainer.optimizer_counters()},
      {"tensors", list}}.dump();
  Writer writer(path);
  writer.write(kMagic.data(), kMagic.size());
  const std::uint64_t length = header.size();
  writer.write(&length, sizeof length);
  writer.write(header.data(), header.size());
  for (const NamedTensor& item : tensors) {
    // One tensor at a time through an operator: what a session evicted comes back for it.
    const torch::Tensor copy = item.tensor.detach().clone(at::MemoryFormat::Contiguous);
    writer.write(copy.const_data_ptr(), copy.nbytes());
  }
  writer.commit();
}

void resume_run(Trainer& trainer, const std::string& data_name, const std::filesystem::path& path) {
  Reader reader(path);
  const Json header = read_header(reader);
  check_identity(header["run"], identity(trainer, data_name), path.string());
  std::vector<NamedTensor> tensors;
  try {
    tensors = read_tensors(reader, header["tensors"]);
    const std::uint32_t expected = reader.crc();
    std::uint32_t stored = 0;
    reader.read(&stored, sizeof stored, "the checksum");
    if (stored != expected) reader.refuse("the checksum does not fit: the file is damaged");
    trainer.restore(header.at("steps_done").get<std::int64_t>(), tensors,
                    header.at("counters").get<std::vector<std::int64_t>>());
  } catch (const Json::exception&) {
    reader.refuse("the header is damaged");
  } catch (const c10::Error&) {  // sizes or types that no tensor has
    reader.refuse("the header is damaged");
  }
}

}  // namespace plimsoll::train
