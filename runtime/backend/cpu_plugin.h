/* cpu_plugin.h -- the one symbol that the CPU shared object exports. LLVM stays hidden behind it. */
#pragma once

/* Raised whenever Backend or anything it passes changes layout; a plug-in of another number is refused. */
#define FLASHSPAN_CPU_PLUGIN_ABI 5
#define FLASHSPAN_CPU_PLUGIN_ENTRY "flashspan_cpu_backend"

/* Signature of the entry: a new flashspan::backend::Backend* (owned by the caller), or null if abi differs. */
typedef void* (*flashspan_cpu_backend_entry)(int abi);
