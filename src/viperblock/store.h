/* store.h — the store of snapshots as the service holds it: opened when it is first needed.
 * Not here: what is stored (snap/snap.h).
 * Threads:  any.
 * Memory:   the store is borrowed until store_free().
 * Errors:   -EAGAIN "StoreUnavailable" while there is none. */
#pragma once
#include "base/err.h"

struct vb;
struct store;
struct snap_store;
struct store *store_new(void);
void store_free(struct store *s); /* NULL is fine */
MUST_CHECK int store_get(struct vb *vb, struct snap_store **ret, struct err *err);
