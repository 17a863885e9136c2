/* ostore_object.h — versions of the store (ostore.h): finding one, reading its body,
 *                bringing a new body in.
 * Not here: committing what came (ostore_change.h).
 * Threads:  as in ostore.h.
 * Memory:   results live in the arena given; handles are freed by the function named with them.
 * Errors:   as in ostore.h. */
#pragma once
#include "ostore/ostore_bucket.h"
#include "ostore/record.h"
#include <sys/types.h>

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
