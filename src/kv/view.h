/* view.h — a copy in memory of some prefixes of the store, kept up to date by watches.
 * Not here: writing (kv_txn()). The prefixes of one view may not overlap.
 * Threads:  any. Between view_lock() and view_unlock() (shared, may nest) nothing changes and
 *           objects stay valid; view_ref() keeps an object longer, also beyond the view.
 * Memory:   objects belong to the view and are counted; a value is parsed once: 'parse'
 *           gives, 'free' takes.
 * Errors:   a value that 'parse' refuses is logged, kept as NULL object, and never dropped
 *           silently (view_n_bad()). */
#pragma once
#include "base/omap.h"
#include "kv/kv.h"

struct view;

struct view_entry { /* an immutable version of one key */
    struct str key;
    uint64_t mod_rev;
    void *obj;      /* what 'parse' gave */
    int refs_;      /* private */
    uint64_t list_; /* private: number of the list that it was last seen in */
};

struct view_ops {
    /* NULL and *err: the value is bad. NULL alone: not a record, kept without an object. */
    void *(*parse)(struct str key, struct str value, struct err *err);
    void (*free)(struct str key, void *obj);
    /* May be NULL. Called on the kv's thread, without the lock, after the change is visible.
     * 'old' or 'now' NULL = created, deleted. */
    void (*on_change)(void *ctx, const struct view_entry *old, const struct view_entry *now);
    void (*on_sync)(void *ctx, uint64_t rev); /* may be NULL: a batch ended */
};

/* Starts watches on the prefixes and waits (at most timeout_ns) until the first full copy is
 * there. */
MUST_CHECK int view_open(struct kv *kv, const char *const *prefixes, size_t n_prefixes,
                         const struct view_ops *ops, void *ctx, uint64_t timeout_ns,
                         struct view **ret, struct err *err);
void view_close(struct view *v);

/* Waits until the view shows revision 'rev' or newer (a caller's own write). -ETIMEDOUT. */
MUST_CHECK int view_wait(struct view *v, uint64_t rev, uint64_t timeout_ns);

void view_lock(struct view *v); /* shared; do not block while you hold it */
void view_unlock(struct view *v);
/* Under the lock: the entry or NULL. */
const struct view_entry *view_get(struct view *v, struct str key);
/* Under the lock: the ordered map of entries (values are struct view_entry *), for
 * omap_foreach_prefix(). */
const struct omap *view_map(struct view *v);
const struct view_entry *view_ref(const struct view_entry *e);
void view_unref(const struct view_entry *e);
size_t view_n_bad(struct view *v);
