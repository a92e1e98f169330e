// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <ATen/Parallel.h>
#include <spdlog/fmt/fmt.h>

#include "plimsoll/base/error.h"
#include "plimsoll/models/model.h"

#include "torch_commands.h"

namespace plimsoll::cli {
namespace {

Json key_json(const models::KeyInfo& key) {
  Json json = {{"name", key.name}, {"default", key.default_value}, {"meaning", key.meaning}};
  if (key.kind == models::KeyInfo::Kind::kChoice) {
    json["choices"] = key.choices;
  } else {
    json["minimum"] = key.minimum;
    json["maximum"] = key.maximum;
  }
  return json;
}

class ModelsCommand : public Command {
 public:
  std::string name() const override { return "models"; }
  std::string summary() const override {
    return "Lists the models with their keys, defaults and numbers of parameters";
  }
  std::vector<std::string> examples() const override {
    return {"plimsoll models", "plimsoll models resnet:stages=6-32-40-6,image=32 --json -"};
  }
  void declare(CLI::App& app) override {
    app.add_option("model", model_, "Only this one, with these keys")->type_name("MODEL");
  }
  ExitCode run(Console& console, Json& result) override {
    result["threads"] = at::get_num_threads();
    Json list = Json::array();
    if (!model_.empty()) {
      const models::Settings settings = models::parse_model(model_);
      for (const models::ModelInfo& info : models::model_list())
        if (info.name == settings.model()) list.push_back(describe(info, settings, console));
    } else {
      for (const models::ModelInfo& info : models::model_list()) {
        Console::throw_if_interrupted();
        list.push_back(describe(info, models::parse_model(info.name), console));
      }
    }
    result["models"] = std::move(list);
    return kDone;
  }

 private:
  static Json describe(const models::ModelInfo& info, const models::Settings& settings,
                       Console& console) {
    const std::int64_t parameters = models::parameter_count(*models::make_model(settings));
    console.print(fmt::format("{}  {}; {} parameters ({})", settings.canonical(), info.summary,
                              parameters, info.source));
    Json keys = Json::array();
    for (const models::KeyInfo& key : info.keys) {
      console.print(fmt::format("    {}={}  {}", key.name, key.default_value, key.meaning));
      keys.push_back(key_json(key));
    }
    return {{"model", settings.canonical()}, {"summary", info.summary}, {"source", info.source},
            {"parameters", parameters},      {"small", info.small},     {"keys", keys}};
  }

  std::string model_;
};

}  // namespace

std::unique_ptr<Command> make_models_command() { return std::make_unique<ModelsCommand>(); }

}  // namespace plimsoll::cli
