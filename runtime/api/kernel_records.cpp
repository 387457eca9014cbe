// kernel_records.cpp -- sums and maxima over a module's entry points.
#include "runtime/api/kernel_records.hpp"

#include <algorithm>

namespace flashspan::api {

KernelRecord record_of(const attention::KernelMetadata& metadata, const cache::KernelKey& key,
                       const std::string& outcome, mask::LoweringKind lowering) {
  KernelRecord record;
  record.spec = metadata.summary;
  record.key = key.to_text();
  record.outcome = outcome;
  record.lowering = to_string(lowering);
  record.compile_ms = metadata.report.milliseconds;
  for (const backend::EntryReport& entry : metadata.report.entries) {
    record.registers = std::max(record.registers, entry.registers);
    record.shared_bytes = std::max(record.shared_bytes, entry.shared_bytes);
    record.spill_bytes += entry.spill_bytes;
  }
  return record;
}

}  // namespace flashspan::api
