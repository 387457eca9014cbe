// doctor.cpp -- `flashspan doctor`: what this machine has, what is missing, and the command that installs it.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/device.hpp"
#include "flashspan/inspect.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"

namespace flashspan::tool {
namespace {

constexpr std::size_t longest_detail = 100;  // characters of a detail in text; JSON has it whole

std::string shortened(const std::string& text) {
  if (text.size() <= longest_detail) return text;
  return text.substr(0, text.find_last_of(" ,", longest_detail)) + " ...";
}

struct DoctorOptions {
  std::optional<std::string> cache_dir;
  bool json = false;
};

ExitCode run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = examine_machine(options.cache_dir);
  const std::vector<Device> devices = available_devices();
  if (options.json) {
    Json report{{"findings", Json::array()}, {"devices", Json::array()}};
    for (const Finding& finding : findings) report["findings"].push_back(to_json(finding));
    for (const Device device : devices) report["devices"].push_back(to_string(device));
    print_json(report);
  } else {
    std::size_t width = 0;
    for (const Finding& finding : findings) width = std::max(width, finding.subject.size());
    for (const Finding& finding : findings) {
      std::printf("%-7s %-*s  %s\n", finding.ok ? "ok" : "missing", static_cast<int>(width), finding.subject.c_str(),
                  shortened(finding.detail).c_str());
      if (!finding.remedy.empty()) std::printf("%*s-> %s\n", static_cast<int>(width) + 10, "", finding.remedy.c_str());
    }
    std::printf("usable devices:");
    for (const Device device : devices) std::printf(" %s", to_string(device).c_str());
    std::printf("%s\n", devices.empty() ? " none" : "");
  }
  return devices.empty() ? ExitCode::no_device : ExitCode::ok;
}

}  // namespace

void add_doctor(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command = application.add_subcommand("doctor", "What this machine has, and how to get what is missing");
  auto options = std::make_shared<DoctorOptions>();
  add_cache_dir_option(*command, options->cache_dir);
  add_json_option(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run_doctor(*options); }; });
}

}  // namespace flashspan::tool
