/* store.h — reading records through the gateway's view.
 * Not here: writing (txn.h), finding ids a user named with AWS's errors (find.h).
 * Threads:  any; each call takes the view's lock for itself.
 * Memory:   entries are counted and released when the arena is freed: records stay valid for
 *           the whole request.
 * Errors:   absent is NULL. */
#pragma once
#include "awsgw/gw.h"

struct entries {
    const struct view_entry **v;
    size_t n;
};

/* REC(instance, e): the record of an entry, or NULL. */
#define REC(type, e) ((const struct type *)store_obj(e))
const void *store_obj(const struct view_entry *e);

const struct view_entry *store_key(struct gw *gw, struct arena *a, struct str key);
const struct view_entry *store_spec(struct gw *gw, struct arena *a, const char *kind,
                                    struct str account, struct str id);
const struct view_entry *store_status(struct gw *gw, struct arena *a, const char *kind,
                                      struct str account, struct str id);
/* All entries with a record under the prefix, ascending by key. */
struct entries store_prefix(struct gw *gw, struct arena *a, struct str prefix);
struct entries store_list(struct gw *gw, struct arena *a, const char *kind, struct str account);
/* True when the key is there, record or not (claims). */
bool store_has(struct gw *gw, struct str key);
