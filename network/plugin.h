/* plugin.h -- the one symbol that the shared object of the network exports. */
#pragma once

/* Raised whenever Network or anything it passes changes layout; a plug-in of another number is refused. */
#define FLASHSPAN_NETWORK_PLUGIN_ABI 2
#define FLASHSPAN_NETWORK_PLUGIN_ENTRY "flashspan_network"

/* Signature of the entry: a new flashspan::network::Network* (owned by the caller), or null if abi differs. */
typedef void* (*flashspan_network_entry)(int abi);
