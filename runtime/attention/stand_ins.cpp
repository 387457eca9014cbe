#include "runtime/attention/stand_ins.hpp"

#include <exception>
#include <string>

#include "codegen/kernel/tile_config.hpp"
#include "runtime/attention/user_text.hpp"

namespace flashspan::attention {
namespace {

const std::string any_mask = "any mask";

void compile_quietly(KernelProvider& kernels, const kernel::KernelSpec& spec, const OwnedText& text) {
  try {
    (void)kernels.get(spec, text.view());  // a failure is logged there, and the stand-in goes on serving
  } catch (const std::exception&) {
    return;  // thrown by a log sink of the caller's: there is nobody to tell
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
  if (general && note(spec)) {
    kernels_->warn(spec.summary() + ": calls are served by " + general->summary() + ", slower, until it is compiled");
    queue_.add([kernels = kernels_, spec, owned = OwnedText(text)] { compile_quietly(*kernels, spec, owned); },
               Urgency::ahead);
  }
  return served;
}

std::shared_ptr<const ReadyKernel> StandIns::find(const kernel::KernelSpec& spec) const {
  const auto general = kernel::interpreted_of(spec);
  return general ? kernels_->find(*general) : nullptr;
}

bool StandIns::is_queued(const kernel::KernelSpec& spec) {
  const std::scoped_lock lock(mutex_);
  return queued_.contains(spec);
}

bool StandIns::note(const kernel::KernelSpec& spec) {
  const std::scoped_lock lock(mutex_);
  return queued_.insert(spec).second;
}

}  // namespace flashspan::attention
