/* rights.h — which service may read and write which keys, and who may call himself by its name.
 * Not here: connections (session.h).
 * Threads:  constant tables.
 * Memory:   none.
 * Errors:   what is not allowed by a line of the table is denied. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <sys/types.h>

enum right { RIGHT_PUT = 1, RIGHT_DELETE = 2 };

/* Index of the service, or -1. The index + 1 is the tag of its leases: never change the order. */
int rights_service(struct str name);
const char *rights_name(int service);
size_t rights_n_services(void);

/* May a process of this uid be that service? uid_base 0 (tests): the name is trusted. */
bool rights_may_be(int service, uid_t uid, uid_t uid_base);
bool rights_may_write(int service, enum right right, struct str key);
/* Of a key, or of all keys with a prefix. */
bool rights_may_read(int service, struct str key, bool is_prefix);
/* Everything, also dump, restore and the leases of others. */
bool rights_is_admin(int service);
