/* ostore_bucket.h — buckets of the store (ostore.h): one moment of each, and changing them.
 * Not here: objects (ostore_object.h).
 * Threads:  as in ostore.h.
 * Memory:   snapshots are counted: obucket_unref() each.
 * Errors:   as in ostore.h. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct ostore;

enum ostore_versioning { OSTORE_UNVERSIONED, OSTORE_ENABLED, OSTORE_SUSPENDED };
/* Configurations kept as bytes for the layer above; numbers are part of the format. */
enum obucket_conf {
    OCONF_VERSIONING = 1, /* one byte: enum ostore_versioning; the store itself obeys it */
    OCONF_TAGS = 2,
    OCONF_CORS = 3,
    OCONF_LIFECYCLE = 4,
    OCONF_ENCRYPTION = 5,
    OCONF_OWNERSHIP = 6,
    OCONF_PAYMENT = 7,
    OCONF_ACCELERATE = 8,
    /* reserved: policy 16, acl 17, public access block 18, object lock 19, website 20,
     * notification 21, logging 22, replication 23 */
    OCONF_MAX = 32
};
struct obucket { /* one moment of a bucket: never changes; counted references */
    uint64_t number;
    struct str name, account, region;
    uint64_t create_ns;
    enum ostore_versioning versioning;
    struct str conf[OCONF_MAX]; /* STR_NONE: not set */
    /* counters, when it was asked for */
    uint64_t n_objects,
        n_bytes; /* current versions; all stored plain bytes, old versions and parts too */
};
/* -ENOENT "NoSuchBucket". */
MUST_CHECK int ostore_bucket(struct ostore *s, struct str name, const struct obucket **ret,
                             struct err *err);
const struct obucket *obucket_ref(const struct obucket *b);
void obucket_unref(const struct obucket *b); /* NULL is fine */
/* Names in order after 'after' with 'prefix'; account STR_NONE: of all. References in the arena's
 * list: unref each. */
struct obucket_list {
    const struct obucket **v;
    size_t n;
    bool is_truncated;
};
MUST_CHECK int ostore_bucket_list(struct ostore *s, struct str account, struct str prefix,
                                  struct str after, size_t max, struct arena *a,
                                  struct obucket_list *ret, struct err *err);
/* Blocks. Names are not checked here (system buckets have names that S3 refuses). A limit of
 * buckets per account is the caller's. */
MUST_CHECK int ostore_bucket_create(struct ostore *s, struct str name, struct str account,
                                    struct str region, struct err *err);
/* 'number': of the bucket that is meant; one that was made since under the same name is not
 * ("NoSuchBucket"). 0: whichever has the name. */
MUST_CHECK int ostore_bucket_delete(struct ostore *s, struct str name, uint64_t number,
                                    struct err *err);
/* 'bytes' STR_NONE removes it; at most 512 KiB. */
MUST_CHECK int ostore_bucket_configure(struct ostore *s, struct str name, uint64_t number,
                                       enum obucket_conf which, struct str bytes,
                                       struct err *err);
