/* imds_tree.h — everything the metadata service can tell about one instance, as a sorted table
 * of paths and values.
 * Not here: tokens, methods, versions (imds.c).
 * Threads:  no state.
 * Memory:   the table and its strings live in the arena.
 * Errors:   -ENOMEM past the arena's limit. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "vpcd/facts.h"

struct imds_leaf {
    struct str path; /* "meta-data/placement/region", below the version */
    struct str value;
    const char *type; /* content type */
};
struct imds_tree {
    struct imds_leaf *v;
    size_t n, cap;
    struct arena *arena;
    bool is_full;
    struct str key_name; /* public-keys lists "0=<name>" */
};
MUST_CHECK int imds_tree_build(const struct facts *f, const struct fact_eni *eni,
                               struct arena *a, struct imds_tree *ret);

/* The leaf at 'path' (no final slash) or NULL. */
const struct imds_leaf *imds_tree_leaf(const struct imds_tree *t, struct str path);
/* Names in the folder 'path' ("" = the top), one a line, folders with a final slash (none at
 * the top, as in AWS). STR_NONE: no such folder. */
struct str imds_tree_list(const struct imds_tree *t, struct str path);
