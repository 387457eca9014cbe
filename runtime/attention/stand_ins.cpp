#include "runtime/attention/stand_ins.hpp"

#include <exception>
#include <string>

#include "codegen/kernel/tile_config.hpp"
#include "runtime/attention/user_text.hpp"

namespace flashspan::attention {
namespace {

const std::string any_mask = "any mask";

/// Whether the kernel is there now.
bool compile_quietly(KernelProvider& kernels, const kernel::KernelSpec& spec, const OwnedText& text) {
  try {
    return kernels.get(spec, text.view()).has_value();  // a failure is logged there, and the stand-in goes on serving
  } catch (const std::exception&) {
    return false;  // thrown by a log sink of the caller's: there is nobody to tell
  }
}

}  // namespace

Result<void> StandIns::make() {
  for (const kernel::KernelSpec& spec : kernels_->loaded_specs()) {
    const auto general = kernel::interpreted_of(spec);
    if (!general) continue;
    if (auto made = kernels_->get(*general, {&any_mask, nullptr}); !made) return made.error();
  }
  return {};
}

Result<KernelProvider::Provided> StandIns::serve(const kernel::KernelSpec& spec, const UserText& text) {
  const auto general = kernel::interpreted_of(spec);
  // Without a stand-in the call is refused, as it would be under MissPolicy::refuse.
  auto served = kernels_->get(general ? *general : spec, text, MissPolicy::refuse);
  if (!served) return served;
  if (general && queued_->add(spec)) {
    kernels_->warn(spec.summary() + ": calls are served by " + general->summary() + ", slower, until it is compiled");
    queue_.add(
        [kernels = kernels_, queued = queued_, spec, owned = OwnedText(text)] {
          if (compile_quietly(*kernels, spec, owned)) queued->remove(spec);
        },
        Urgency::ahead);
  }
  return served;
}

std::shared_ptr<const ReadyKernel> StandIns::find(const kernel::KernelSpec& spec) const {
  const auto general = kernel::interpreted_of(spec);
  return general ? kernels_->find(*general) : nullptr;
}

bool StandIns::Queued::contains(const kernel::KernelSpec& spec) {
  const std::scoped_lock lock(mutex_);
  return specs_.contains(spec);
}

bool StandIns::Queued::add(const kernel::KernelSpec& spec) {
  const std::scoped_lock lock(mutex_);
  return specs_.insert(spec).second;
}

void StandIns::Queued::remove(const kernel::KernelSpec& spec) {
  const std::scoped_lock lock(mutex_);
  specs_.erase(spec);
}

}  // namespace flashspan::attention
