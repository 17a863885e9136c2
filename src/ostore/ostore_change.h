/* ostore_change.h — changes of the store (ostore.h): one each, with conditions, durable
 *                when it is answered.
 * Not here: bodies (ostore_object.h), buckets (ostore_bucket.h).
 * Threads:  as in ostore.h.
 * Memory:   a struct ochange and what it points to are the caller's until done() was called.
 * Errors:   as in ostore.h. */
#pragma once
#include "ostore/ostore_object.h"

enum ochange_kind {
    OCHANGE_PUT,    /* rec: all but lsn, version, body; 'body' */
    OCHANGE_DELETE, /* of 'key': as the bucket's versioning says; with is_version: that version */
    OCHANGE_TAGS,   /* rec.tags of the latest, or of the version */
    OCHANGE_RENAME,   /* key -> rec.new_key; unversioned buckets only */
    OCHANGE_UPLOAD,   /* begin: metadata as of PUT; ret_rec.upload */
    OCHANGE_PART,     /* rec.upload, part_number, size, etag, sum; 'body' */
    OCHANGE_COMPLETE, /* rec.upload, rec.etag, sum, parts as chosen (ostore_parts() gave them) */
    OCHANGE_ABORT,    /* rec.upload */
};
struct ochange_if {
    struct str match;      /* ETag without quotes, "*" = there is one, STR_NONE = do not care */
    struct str none_match; /* the same; "*": there must be none */
    uint64_t mtime_s;      /* != 0: of the present version (If-Match-Last-Modified-Time) */
    int64_t size; /* >= 0: of the present version; set -1 for none (see OCHANGE_IF_NONE) */
    uint64_t lsn; /* != 0: the version's (origin) lsn: for lifecycle */
};
#define OCHANGE_IF_NONE \
    ((struct ochange_if){.match = STR_NONE, .none_match = STR_NONE, .size = -1})

/* One change. The caller owns it and what it points to until done() was called. */
struct ochange {
    enum ochange_kind kind;
    const struct obucket *bucket;
    struct orec rec; /* what it says; see above which members */
    bool is_version; /* rec.version names one version */
    struct ochange_if cond;
    struct ochange_if target_cond;   /* RENAME: of new_key */
    struct oput *body;               /* PUT, PART: taken when the change succeeds */
    void (*done)(struct ochange *c); /* a thread of the store; NULL with ochange_wait() */
    void *ctx;
    /* results */
    int rc;
    struct err err;
    uint64_t lsn, time_ns;
    uint8_t version[16];  /* PUT, COMPLETE, DELETE that made a marker */
    bool is_version_made; /* the bucket is versioned: show the id */
    bool is_marker;       /* DELETE: made or removed a delete marker */
    bool
        is_repeated; /* COMPLETE: it was complete already; version, time, rec.etag are of then */
    char repeated_etag[129]; /* where rec.etag is then */
};
void ochange_start(struct ostore *s,
                   struct ochange *c); /* done() comes once, maybe before it returns */
int ochange_wait(struct ostore *s, struct ochange *c); /* blocks; returns c->rc */
