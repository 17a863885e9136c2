/* host.h — what this machine is called and which addresses it has.
 * Not here: certificates (certs.h), the configuration's text (init_text.h).
 * Threads:  none of its own.
 * Memory:   in the arena.
 * Errors:   negative errno and *err; what cannot be found is left out. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "codec/rec.h"

/* Names and addresses under which clients may reach this host, each once, 'first' in front. */
MUST_CHECK int host_names(struct arena *a, const char *first, const char *node,
                          struct str_list *ret, struct err *err);
/* The IPv4 address that packets to the outside leave with; 127.0.0.1 when there is none. */
struct str host_main_ip(struct arena *a);
/* IPv4 name servers of resolv.conf that a guest could ask too (no loopback). */
struct str_list host_name_servers(struct arena *a, const char *resolv_conf_text);
/* True when an address of this host lies in the network; our own links (spx*) do not count. */
bool host_has_address_in(uint32_t net, uint32_t mask);
