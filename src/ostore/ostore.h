/* ostore.h — the object store: buckets, versions, uploads; what S3 is built on.
 * Not here: HTTP, XML, signatures, checksums that clients ask for (predastore/).
 * Threads:  any thread may call anything. Calls that say "blocks" belong on a pool. Call-backs
 *           ('done', on_ready) run on threads of the store and must be short: post to your loop.
 * Memory:   results live in the arena given; handles are freed by the function named with them.
 * Errors:   err->name is S3's code where S3 has one: "NoSuchBucket", "NoSuchKey", "NoSuchVersion",
 *           "NoSuchUpload", "PreconditionFailed", "BucketNotEmpty", "BucketAlreadyExists",
 *           "BucketAlreadyOwnedByYou", "InvalidPart", "InvalidPartOrder", "EntityTooSmall",
 *           "ConditionalRequestConflict", "SlowDown" (-EAGAIN: nearly full, too busy),
 *           "InsufficientStorage" (-ENOSPC), "Locked" (-EACCES), "ReadOnly" (-EROFS: damage).
 *
 * Every version is immutable. A change is one record in the log (a group of two for a rename);
 * it is acknowledged when that is durable on all drives of the log and the index shows it.
 * Changes of one key happen one after the other: conditions are checked against what is durable. */
#pragma once
#include "base/time.h"
#include "ostore/drive.h"
#include "ostore/record.h"

struct ostore;
struct keys;

struct ostore_opts {
    struct fault_fs *fs; /* NULL: the system's */
    const char *const *drives;
    unsigned n_drives;
    unsigned k, m;          /* of large bodies; the log has m + 1 copies */
    uint32_t unit;          /* 0 = 128 KiB */
    const char *index_path; /* NULL: <first drive that is there>/index */
    struct keys *keys;      /* for sealing; NULL: only unsealed bodies can be read */
    bool is_sealing;        /* new bodies are sealed */
    uint32_t inline_max;    /* 0 = 128 KiB: larger bodies become files */
    uint32_t segment_size;  /* 0 = 64 MiB */
    uint64_t min_part_size; /* of all parts of an upload but the last; 0 = 5 MiB, 1 = any */
    unsigned near_full_pct, full_pct;
    unsigned n_io_threads;         /* of large writes; 0 = 4 */
    uint64_t (*now_ns)(void *ctx); /* wall clock; NULL: time_wall_ns() */
    void *now_ctx;
    uint64_t
        move_after_ns;     /* a drive is away for so long: its shards go elsewhere; 0 = a day */
    uint64_t heal_look_ns; /* how often healing looks for work, at most 5 s; 0 = that */
    bool is_sync_off;      /* measurements only */
    bool is_index_discarded; /* delete the index and replay everything */
    /* Somebody, by name, accepts that what is damaged in the log is lost (ostore_loss()). The
     * index is made anew. NULL: nobody does, and with damage the store is read-only. */
    const char *accept_loss;
};
MUST_CHECK int ostore_open(const struct ostore_opts *o, struct ostore **ret, struct err *err);
/* The end is near: changes that wait for an index that cannot be written (its drive is full) fail
 * now; the next start finds them in the log. Any thread, before ostore_close(). */
void ostore_hurry(struct ostore *s); /* NULL is fine */
/* Waits for what runs; the index is flushed, so that the next start is quick. */
void ostore_close(struct ostore *s); /* NULL is fine */

/* ---- buckets (held in memory) ---- */

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

/* ---- versions ---- */

/* What there is to know about one version; its record and where it lies. */
struct oversion {
    struct orec rec; /* kind PUT, MARKER or COMPLETE: size, etag, metadata, tags, ... */
    bool is_latest, is_null;
    bool is_first_of_key; /* lists of versions: the newest */
    uint64_t segment;     /* opaque: where the record lies */
    uint32_t off, head_size;
    struct opin *pin; /* opaque: keeps it readable until the arena is reset, or it is opened */
};
#define OVERSION_TEXT_SIZE 33
/* "null" or 32 hex digits; -EINVAL. 'ret' zeros = null. */
const char *oversion_text(const uint8_t version[16], char buf[OVERSION_TEXT_SIZE]);
MUST_CHECK int oversion_parse(struct str text, uint8_t ret[16]);

enum { OSTORE_NOWAIT = 1 /* -EAGAIN instead of waiting for a drive: call again from a pool */ };
/* 'version' NULL: the latest. -ENOENT "NoSuchKey" or "NoSuchVersion". A delete marker is found:
 * rec.kind == OREC_MARKER. */
MUST_CHECK int ostore_get(struct ostore *s, const struct obucket *b, struct str key,
                          const uint8_t *version, unsigned flags, struct arena *a,
                          struct oversion *ret, struct err *err);

/* Reading: a version stays readable while open, whatever is deleted or moved meanwhile. Reads
 * verify every block. One thread at a time. 'v' must outlive it. part: 0 the whole object, else
 * that part of a multipart object (-EINVAL "InvalidPartNumber" when it has no such part; part 1 of
 * others is the whole). */
struct oread;
MUST_CHECK int oread_open(struct ostore *s, const struct oversion *v, unsigned flags,
                          struct oread **ret, struct err *err);
/* Up to n bytes from 'off'; 0 at the end. Blocks unless flags has OSTORE_NOWAIT (-EAGAIN). */
MUST_CHECK ssize_t oread_at(struct oread *r, uint64_t off, void *p, size_t n, unsigned flags,
                            struct err *err);
void oread_close(struct oread *r); /* NULL is fine */
/* Where part 'number' begins and how long it is. Blocks. */
MUST_CHECK int ostore_part_range(struct ostore *s, const struct oversion *v, uint32_t number,
                                 uint64_t *ret_off, uint64_t *ret_n, struct err *err);

/* ---- writing bodies ---- */

struct oput; /* a body on its way in */
struct oput_opts {
    int64_t size; /* expected, -1 = not known */
    /* Sees the bytes in order, exactly once, before they are stored: hashing. Runs on the caller's
     * thread for small bodies, on a store thread for large ones; never two at once. */
    void (*on_bytes)(void *ctx, struct str bytes);
    /* After oput_add() said OPUT_WAIT: room again (any thread). */
    void (*on_ready)(void *ctx);
    void *ctx;
    /* Who sends it: no account and no address gets all of the memory for bodies. STR_NONE: it is
     * not counted for anybody. Borrowed until oput_new() returns. */
    struct str account, address;
    bool is_background; /* copies, uploads of services: yields to others */
};
/* -EAGAIN "SlowDown" near full or too many at once; -ENOSPC "InsufficientStorage". Does not
 * block. */
MUST_CHECK int oput_new(struct ostore *s, const struct oput_opts *o, struct oput **ret,
                        struct err *err);
/* Copies all of the bytes (at most 1 MiB at a time). OPUT_WAIT: taken, but add no more until
 * on_ready().
 * Negative: it has failed. Does not block. */
enum { OPUT_MORE, OPUT_WAIT };
MUST_CHECK int oput_add(struct oput *p, struct str bytes, struct err *err);
/* The same, waiting instead. Blocks. */
MUST_CHECK int oput_add_wait(struct oput *p, struct str bytes, struct err *err);
/* No more bytes. 'done' comes once, when all bytes went through on_bytes and a large body's files
 * are durable (small: at once, on this thread, before it returns). rc 0 or negative. */
void oput_finish(struct oput *p, void (*done)(void *ctx, int rc, const struct err *err),
                 void *ctx);
uint64_t oput_size(const struct oput *p); /* plain bytes so far */
/* Gives up a body that was not committed (also after a failed commit); any time but while
 * 'done' of finish is outstanding. */
void oput_free(struct oput *p);

/* ---- changes ---- */

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

/* ---- lists (all block; at one moment each) ---- */

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

/* ---- the keeper: background work and what an operator asks ---- */

struct ostore_stats {
    uint64_t n_buckets, n_objects, n_versions, n_uploads, n_bytes;
    uint64_t n_put, n_get, n_delete, n_list;
    uint64_t n_syncs, n_commits; /* commits / syncs: how many share one */
    uint64_t log_bytes, log_dead_bytes, n_segments;
    uint64_t file_bytes;
    uint64_t next_lsn;
    bool is_readonly, is_locked;
    char why[160]; /* read-only because */
};
void ostore_stats(struct ostore *s, struct ostore_stats *ret);
struct drives *ostore_drives(struct ostore *s);

/* Scrub: every block of every copy. One at a time; also runs by itself, throttled. */
struct ostore_scrub {
    bool is_running;
    uint64_t started_ns, ended_ns;
    uint64_t n_objects, n_bytes, n_bad, n_repaired, n_lost, n_orphans;
    char last_lost[200]; /* "bucket/key" of the last one that could not be repaired */
};
MUST_CHECK int ostore_scrub_start(struct ostore *s, bool is_repair, struct err *err);
void ostore_scrub_status(struct ostore *s, struct ostore_scrub *ret);
/* Puts the (empty) folder into the place of a lost drive and heals in the background. */
MUST_CHECK int ostore_drive_replace(struct ostore *s, unsigned idx, struct err *err);
/* One turn of compaction, now; for tests and for operators. *ret_freed: bytes given back.
 * Blocks. */
MUST_CHECK int ostore_compact(struct ostore *s, uint64_t *ret_freed, struct err *err);
/* What is lost for good of the log, found by reading all of it: before somebody accepts that. */
struct ostore_loss {
    struct str *what; /* "lsn 17 and 2 more of segment 3 are lost" */
    size_t n_what;
    /* Objects, versions and parts whose records are lost; known only when the index is of before
     * that. Names: the first OSTORE_LOSS_NAMES of them. */
    uint64_t n_objects;
    struct str *names; /* "bucket/key" */
    size_t n_names;
};
#define OSTORE_LOSS_NAMES 1000u
/* Blocks, for as long as it takes to read the log. */
MUST_CHECK int ostore_loss(struct ostore *s, struct arena *a, struct ostore_loss *ret,
                           struct err *err);
/* Asks the root key again (a service that started locked). */
MUST_CHECK int ostore_unlock(struct ostore *s, struct err *err);
