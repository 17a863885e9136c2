/* snap_mark.h — what the snapshots, kept roots and uploads of an account need: names of pages,
 *           names
 * of blocks, of one range at a time.
 * Not here: what is done about it (snap_collect.c).
 * Threads:  one at a time, under collect_mu.
 * Memory:   snap_roots_done() frees.
 * Errors:   -EBADMSG when something that is needed cannot be read; or, when it is only looked
 *           at ('usage'), counted there. -ESTALE: something went that something new may need:
 *           look again. */
#pragma once
#include "snap/snap_int.h"

struct snap_root {
    char id[24];
    bool is_kept;
    struct snap_upload *upload; /* a reference; NULL: a manifest */
};
struct snap_roots {
    struct snap_root *v;
    size_t n, cap;
    uint64_t n_begun; /* of the store, when this was looked up */
    size_t n_manifests, n_kept, n_pending;
};
/* Looks which there are; uploads first: one that ends meanwhile is seen once or twice. */
MUST_CHECK int snap_roots_look(struct snap_store *s, struct str account, struct snap_roots *ret,
                               struct err *err);
void snap_roots_done(struct snap_store *s, struct snap_roots *r);

struct snap_mark {
    struct snap_store *s;
    struct str account;
    struct snap_roots *roots;
    struct snap_usage *usage; /* NULL: what cannot be read is an error */
};
/* Adds to 'live' (begun for the range) the names of pages. */
MUST_CHECK int snap_mark_pages(const struct snap_mark *m, struct snap_names *live,
                               struct err *err);
/* The same with blocks; 'pages' is used. */
MUST_CHECK int snap_mark_blocks(const struct snap_mark *m, struct snap_names *live,
                                struct snap_names *pages, struct err *err);
