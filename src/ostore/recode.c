#include "ostore/recode.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE ((size_t)1 << 20)

struct recode {
    struct ostore *s;
    const struct file_place *from;
    struct arena *a;
    struct body_codec in, out;
    bool is_in, is_out;
    struct shard_reader *reader;
    struct shard_writer *writer;
    struct file_place to; /* the same place, with the new body */
    bool (*pace)(void *ctx, uint64_t n_bytes);
    void *ctx;
};

bool recode_is_weak(const struct ostore *s, const struct orec_body *body)
{
    return body->k < s->code.k || body->m < s->code.m;
}

static int not_now(struct err *err, const char *why)
{
    return fail(err, -EAGAIN, "NotNow", "%s", why);
}

/* A body that was sealed stays so. */
static int new_body(struct recode *r, struct err *err)
{
    struct ostore *s = r->s;
    bool is_sealed = s->is_sealing || r->from->body.is_sealed;
    pthread_rwlock_rdlock(&s->keys_lock);
    int rc =
        is_sealed && !s->body_keys
            ? not_now(err, "the store is locked")
            : body_codec_new(&r->out, is_sealed ? s->body_keys : NULL, r->a, &r->to.body, err);
    pthread_rwlock_unlock(&s->keys_lock);
    r->is_out = rc == 0;
    return rc;
}

static int open_both(struct recode *r, struct err *err)
{
    struct ostore *s = r->s;
    int rc = ostore_may_grow(s, true, NULL);
    if (rc < 0) {
        return not_now(err, "the store is nearly full or takes no changes");
    }
    rc = ostore_codec(s, &r->from->body, &r->in, err);
    r->is_in = rc == 0;
    if (rc == -EACCES) {
        err_clear(err);
        return not_now(err, "the store is locked");
    }
    rc = rc < 0 ? rc : new_body(r, err);
    rc = rc < 0 ? rc : shard_reader_open(s->shards, &r->from->body, &r->in, &r->reader, err);
    rc = rc < 0 ? rc
                : shard_writer_new(s->shards, &s->code, &r->out, &r->to.body, &r->writer, err);
    if (rc == 0 && recode_is_weak(s, &r->to.body)) {
        return not_now(err, "drives are away again");
    }
    return rc;
}

static int pour(struct recode *r, struct err *err)
{
    uint64_t n_blocks = (r->from->body.stored_size + BODY_BLOCK - 1) / BODY_BLOCK;
    uint64_t size = r->from->body.stored_size - n_blocks * BODY_TRAILER;
    AUTO_FREE char *p = malloc(PIECE);
    if (!p) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a body");
    }
    for (uint64_t off = 0; off < size;) {
        ssize_t n = shard_read(r->reader, size, off, p,
                               (size_t)MIN(size - off, (uint64_t)PIECE), false, err);
        if (n <= 0) {
            return n < 0 ? (int)n : fail(err, -EIO, "BodyLost", "a body is short");
        }
        int rc = shard_writer_add(r->writer, p, (size_t)n, err);
        if (rc < 0) {
            return rc;
        }
        off += (uint64_t)n;
        if (!r->pace(r->ctx, 2 * (uint64_t)n)) {
            return fail(err, -ECANCELED, "Canceled", "the store is closed");
        }
    }
    return shard_writer_finish(r->writer, &r->to.body, err);
}

/* The old files are buried by what the record changes in the index. */
static int commit(struct recode *r, struct err *err)
{
    struct ostore *s = r->s;
    int rc = files_moved(s, &r->to, err);
    if (rc == 0) {
        /* While the writer is there, and from then on by this, a sweep leaves the new files alone,
         * also one that has read the index before the record came. */
        files_note(s, r->to.body.id);
    } else if (rc < 0 && !atomic_load(&s->is_readonly)) { /* else the next start decides */
        shard_remove(s->shards, &r->to.body);
    }
    return rc;
}

int recode_body(struct ostore *s, const struct file_place *f,
                bool (*pace)(void *ctx, uint64_t n_bytes), void *ctx, struct err *err)
{
    struct recode r = {
        .s = s, .from = f, .a = arena_new(4096), .to = *f, .pace = pace, .ctx = ctx};
    r.to.body = (struct orec_body){0};
    int rc = open_both(&r, err);
    rc = rc < 0 ? rc : pour(&r, err);
    rc = rc < 0 ? rc : commit(&r, err);
    shard_writer_free(r.writer);
    shard_reader_free(r.reader);
    if (r.is_in) {
        body_codec_done(&r.in);
    }
    if (r.is_out) {
        body_codec_done(&r.out);
    }
    arena_free(r.a);
    return rc;
}
