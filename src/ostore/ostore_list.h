/* ostore_list.h — lists of the store (ostore.h): objects, versions, uploads, parts.
 * Not here: one version (ostore_object.h).
 * Threads:  as in ostore.h.
 * Memory:   results live in the arena given.
 * Errors:   as in ostore.h. */
#pragma once
#include "ostore/ostore_object.h"

enum olist_kind { OLIST_OBJECTS, OLIST_VERSIONS, OLIST_UPLOADS };
struct olist_query {
    enum olist_kind kind;
    struct str prefix,
        delimiter;    /* STR_NONE or "": none; a delimiter may be longer than a byte */
    struct str after; /* key marker: begin behind it (and behind its common prefix) */
    const uint8_t
        *after_id; /* with after: version or upload marker: behind that one of the key */
    size_t max;    /* entries and prefixes together; <= 1000 */
    bool is_after_inclusive; /* begin at 'after' itself */
};
struct olist_upload {
    struct str key;
    uint8_t upload[16];
    struct orec rec; /* kind UPLOAD */
};
struct olist_entry {         /* in order; a common prefix or a version or an upload */
    struct str prefix;       /* set: a common prefix, and the rest is not */
    struct oversion version; /* OBJECTS, VERSIONS; rec.parts is left out */
    struct olist_upload upload;
};
struct olist_page {
    struct olist_entry *v;
    size_t n;
    bool is_truncated;
    struct str next;     /* 'after' of the next page: last key, or last common prefix */
    uint8_t next_id[16]; /* VERSIONS, UPLOADS: after_id of the next page */
    bool is_next_id;
};
MUST_CHECK int ostore_list(struct ostore *s, const struct obucket *b,
                           const struct olist_query *q, struct arena *a, struct olist_page *ret,
                           struct err *err);

/* The upload and its parts after number 'after'. -ENOENT "NoSuchUpload". */
struct opart {
    uint32_t number;
    uint64_t size, lsn, time_ns;
    struct str etag;
    struct orec_sum sum;
};
struct opart_page {
    struct orec upload;
    struct opart *v;
    size_t n;
    bool is_truncated;
};
MUST_CHECK int ostore_parts(struct ostore *s, const struct obucket *b, struct str key,
                            const uint8_t upload[16], uint32_t after, size_t max,
                            struct arena *a, struct opart_page *ret, struct err *err);
/* Parts of a completed multipart object. */
MUST_CHECK int ostore_version_parts(struct ostore *s, const struct oversion *v, uint32_t after,
                                    size_t max, struct arena *a, struct opart_page *ret,
                                    struct err *err);
