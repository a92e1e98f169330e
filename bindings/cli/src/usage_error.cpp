// SPDX-License-Identifier: Apache-2.0
#include "usage_error.h"

#include <algorithm>
#include <cctype>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "plimsoll/base/nearest_name.h"

namespace plimsoll::cli {
namespace {

bool is_flag(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::string without_command(const CLI::App& program, const std::vector<std::string>& words) {
  std::vector<std::string> commands;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(command->get_name());
  if (words.empty())
    return fmt::format("a command is missing; there are {} (`plimsoll --help` says more)",
                       fmt::join(commands, ", "));
  if (is_flag(words.front()))
    return fmt::format("'{}' stands where the command should; there are {}, and --help, --version",
                       words.front(), fmt::join(commands, ", "));
  return fmt::format("'{}' is no command, the nearest is '{}'; there are {}", words.front(),
                     nearest_name(words.front(), commands), fmt::join(commands, ", "));
}

// "" where every word was understood.
std::string unknown_word(const CLI::App& command, const std::vector<std::string>& words) {
  std::vector<std::string> unknown = command.remaining();
  if (unknown.empty()) unknown = command.get_parent()->remaining();  // what stands behind "--"
  if (unknown.empty()) return "";
  const auto is_unknown = [&](const std::string& word) {
    return std::find(unknown.begin(), unknown.end(), word) != unknown.end();
  };
  // A flag in front of a word: the word may have been its value.
  const auto flag = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return is_flag(word) && is_unknown(word);
  });
  if (flag != words.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    return fmt::format("'{}' is no flag, the nearest is '{}'; `{} --help` lists all", name,
                       nearest_name(name, flags_of(command)),
                       command.get_parent()->get_name() + " " + command.get_name());
  }
  const auto word = std::find_if(words.begin(), words.end(), is_unknown);
  return fmt::format("'{}' is one word too many; leave it out, or write the flag it belongs to",
                     word == words.end() ? unknown.front() : *word);
}

std::string missing_argument(const CLI::App& command, const CLI::ParseError& error) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    std::string name = option->get_name();
    if (option->get_positional())
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char letter) { return std::toupper(letter); });
    return fmt::format("{} is missing; `{} --help` has examples", name,
                       command.get_parent()->get_name() + " " + command.get_name());
  }
  return error.what();
}

// The option that the framework's text is about: its name stands in it as a word.
const CLI::Option* option_in(const CLI::App& command, const std::string& text) {
  const CLI::Option* found = nullptr;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const std::size_t place = text.find(name);
    if (place == std::string::npos) continue;
    const std::size_t end = place + name.size();
    const bool is_whole = end == text.size() || text[end] == ':' || text[end] == ' ';
    if (is_whole && (found == nullptr || name.size() > found->get_name().size())) found = option;
  }
  return found;
}

std::string right_value(const CLI::Option& option) {
  const std::string name = option.get_type_name();  // "INT:INT in [0 - 9]" with a range
  std::string type = name.substr(0, name.find(':'));
  if (type == "INT" || type == "UINT" || type == "N") return "a whole number";
  if (type == "FLOAT" || type == "X") return "a number";
  if (type == "S") return "a number of seconds";
  return type;
}

// "0 to 9" of a text that ends in "not in range 0 to 9" or, of a later CLI11, "[0 - 9]".
std::string range_in(const std::string& text) {
  const std::string words = " not in range ";
  const std::size_t place = text.find(words);
  if (place == std::string::npos) return "";
  std::string range = text.substr(place + words.size());
  std::erase_if(range, [](char letter) { return letter == '[' || letter == ']'; });
  if (const std::size_t dash = range.find(" - "); dash != std::string::npos)
    range.replace(dash, 3, " to ");
  return range;
}

std::string bad_value(const CLI::App& command, const CLI::ParseError& error) {
  std::string text = error.what();
  const CLI::Option* option = option_in(command, text);
  if (option == nullptr) return text;
  const std::string name = option->get_name();
  if (option->get_items_expected_max() == 0)
    return fmt::format("{}: takes no value; write {} alone", name, name);
  const std::vector<std::string> values = option->results();
  if (values.empty())
    return fmt::format("{}: its value is missing; write {} {}", name, name,
                       option->get_type_name());
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return fmt::format("{}: stands {} times ('{}'); write it once", name, values.size(),
                       fmt::join(values, "', '"));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    return fmt::format("{}: '{}' must be {}", name, values.back(), right_value(*option));
  const std::string range = range_in(text);
  if (!range.empty())
    return fmt::format("{}: '{}' must be {} from {}", name, values.back(), right_value(*option),
                       range);
  return text;
}

// "--steps excludes --epochs"
std::string exclusion(const std::string& text) {
  const std::string verb = " excludes ";
  const std::size_t place = text.find(verb);
  if (place == std::string::npos) return text;
  return fmt::format("{} and {} exclude one another; leave one out", text.substr(0, place),
                     text.substr(place + verb.size()));
}

std::string problem_of(const CLI::App& command, const CLI::ParseError& error,
                       const std::vector<std::string>& words) {
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) return exclusion(error.what());
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr &&
      dynamic_cast<const CLI::RequiredError*>(&error) == nullptr)
    return bad_value(command, error);
  // A flag that does not exist may be why something else is missing.
  std::string unknown = unknown_word(command, words);
  return unknown.empty() ? missing_argument(command, error) : unknown;
}

}  // namespace

std::string usage_error(const CLI::App& program, const CLI::ParseError& error,
                        const std::vector<std::string>& words) {
  const auto chosen = program.get_subcommands();
  // What stands in front of a command is why it was not understood.
  const bool has_command =
      !chosen.empty() && !words.empty() && words.front() == chosen.front()->get_name();
  std::string line = program.get_name();
  if (has_command) line += " " + chosen.front()->get_name();
  line += ": " + (has_command ? problem_of(*chosen.front(), error, words)
                              : without_command(program, words));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace plimsoll::cli
