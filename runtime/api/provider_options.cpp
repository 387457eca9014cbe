#include "runtime/api/provider_options.hpp"

#include "runtime/api/process_metrics.hpp"

namespace flashspan::api {

attention::ProviderOptions provider_options(const Settings& settings, const std::optional<std::filesystem::path>& cache,
                                            const LogSink& log) {
  attention::ProviderOptions options;
  options.dump_directories = dump_folders(settings, cache);
  options.log = log;
  if (settings.dump_dir) options.dump_all = *settings.dump_dir;
  options.metrics = process_metrics();
  return options;
}

}  // namespace flashspan::api
