#include "viperblock/stream.h"
#include "viperblock/imgfmt.h"
#include "viperblock/stream_int.h"
#include <errno.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#define XZ_MEMORY_MAX  (UINT64_C(256) << 20)
#define ZST_WINDOW_LOG 27

void *stream_new(size_t size, struct stream *in,
                 ssize_t (*read)(struct stream *, void *, size_t, struct err *),
                 void (*free_fn)(struct stream *))
{
    struct stream *s = calloc(1, size);
    if (!s) {
        abort();
    }
    s->in = in;
    s->read = read;
    s->free = free_fn;
    return s;
}

ssize_t stream_read(struct stream *s, void *p, size_t n, struct err *err)
{
    return s->read(s, p, n, err);
}

void stream_free(struct stream *s)
{
    while (s) {
        struct stream *in = s->in;
        if (s->free) {
            s->free(s);
        }
        free(s);
        s = in;
    }
}

int stream_read_full(struct stream *s, void *p, size_t n, struct err *err)
{
    for (size_t off = 0; off < n;) {
        ssize_t got = stream_read(s, (char *)p + off, n - off, err);
        if (got < 0) {
            return (int)got;
        }
        if (got == 0) {
            return off == 0 ? 0 : fail(err, -EINVAL, "BadImage", "the file is cut short");
        }
        off += (size_t)got;
    }
    return 1;
}

/* --- descriptor -----------------------------------------------------------------------------
 */

struct fd_stream {
    struct stream s;
    int fd;
    stream_seen_fn seen;
    void *ctx;
};

static ssize_t fd_read(struct stream *s, void *p, size_t n, struct err *err)
{
    struct fd_stream *f = (struct fd_stream *)s;
    ssize_t got;
    do {
        got = read(f->fd, p, n);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return fail(err, -EIO, "ReadFailed", "the image cannot be read: %m");
    }
    if (got > 0 && f->seen) {
        int rc = f->seen(f->ctx, str_n(p, (size_t)got), err);
        if (rc != 0) {
            return rc;
        }
    }
    return got;
}

struct stream *stream_fd(int fd, stream_seen_fn on_read, void *ctx)
{
    struct fd_stream *f = stream_new(sizeof(*f), NULL, fd_read, NULL);
    f->fd = fd;
    f->seen = on_read;
    f->ctx = ctx;
    return &f->s;
}

/* --- peek -----------------------------------------------------------------------------------
 */

struct peek_stream {
    struct stream s;
    size_t n, off;
    char head[IMG_HEAD_SIZE];
};

static ssize_t peek_read(struct stream *s, void *p, size_t n, struct err *err)
{
    struct peek_stream *k = (struct peek_stream *)s;
    if (k->off < k->n) {
        n = MIN(n, k->n - k->off);
        memcpy(p, k->head + k->off, n);
        k->off += n;
        return (ssize_t)n;
    }
    return stream_read(s->in, p, n, err);
}

struct stream *stream_peek(struct stream *in)
{
    struct peek_stream *k = stream_new(sizeof(*k), in, peek_read, NULL);
    return &k->s;
}

int stream_head(struct stream *s, size_t n, struct str *ret, struct err *err)
{
    struct peek_stream *k = (struct peek_stream *)s;
    n = MIN(n, sizeof(k->head));
    while (k->n < n) {
        ssize_t got = stream_read(s->in, k->head + k->n, n - k->n, err);
        if (got < 0) {
            return (int)got;
        }
        if (got == 0) {
            break;
        }
        k->n += (size_t)got;
    }
    *ret = str_n(k->head, k->n);
    return 0;
}

/* --- gzip: members one after the other (RFC 1952 §2.2) ---------------------------------------
 */

struct gz_stream {
    struct stream s;
    z_stream z;
    bool is_open, is_between,
        has_any; /* between: the next byte begins a member, or the file ends */
    unsigned char in[STREAM_CHUNK];
};

static ssize_t gz_read(struct stream *s, void *p, size_t n, struct err *err)
{
    struct gz_stream *g = (struct gz_stream *)s;
    g->z.next_out = p;
    g->z.avail_out = (unsigned)MIN(n, (size_t)1 << 30);
    unsigned want = g->z.avail_out;
    while (g->z.avail_out == want) {
        if (g->z.avail_in == 0) {
            ssize_t got = stream_read(s->in, g->in, sizeof(g->in), err);
            if (got < 0) {
                return got;
            }
            if (got == 0) {
                return g->is_between && g->has_any
                           ? 0
                           : fail(err, -EINVAL, "BadImage", "the gzip file is cut short");
            }
            g->z.next_in = g->in;
            g->z.avail_in = (unsigned)got;
        }
        if (g->is_between) {
            if (g->has_any && g->z.next_in[0] == 0) { /* padding of tapes */
                g->z.next_in++;
                g->z.avail_in--;
                continue;
            }
            if (inflateReset(&g->z) != Z_OK) {
                return fail(err, -EINVAL, "BadImage", "the gzip file is damaged");
            }
            g->is_between = false;
        }
        int rc = inflate(&g->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END) {
            g->is_between = g->has_any = true;
        } else if (rc != Z_OK && rc != Z_BUF_ERROR) {
            return fail(err, -EINVAL, "BadImage", "the gzip file is damaged");
        }
    }
    return (ssize_t)(want - g->z.avail_out);
}

static void gz_free(struct stream *s)
{
    inflateEnd(&((struct gz_stream *)s)->z);
}

struct stream *stream_gz(struct stream *in)
{
    struct gz_stream *g = stream_new(sizeof(*g), in, gz_read, gz_free);
    if (inflateInit2(&g->z, 16 + MAX_WBITS) != Z_OK) {
        abort();
    }
    g->is_between = true;
    return &g->s;
}

/* --- xz -------------------------------------------------------------------------------------
 */

struct xz_stream {
    struct stream s;
    lzma_stream z;
    bool is_ended;
    unsigned char in[STREAM_CHUNK];
};

static ssize_t xz_read(struct stream *s, void *p, size_t n, struct err *err)
{
    struct xz_stream *x = (struct xz_stream *)s;
    x->z.next_out = p;
    x->z.avail_out = n;
    lzma_action action = LZMA_RUN;
    while (x->z.avail_out == n && !x->is_ended) {
        if (x->z.avail_in == 0 && action == LZMA_RUN) {
            ssize_t got = stream_read(s->in, x->in, sizeof(x->in), err);
            if (got < 0) {
                return got;
            }
            x->z.next_in = x->in;
            x->z.avail_in = (size_t)got;
            action = got == 0 ? LZMA_FINISH : LZMA_RUN;
        }
        lzma_ret rc = lzma_code(&x->z, action);
        if (rc == LZMA_STREAM_END) {
            x->is_ended = true;
        } else if (rc == LZMA_MEMLIMIT_ERROR) {
            return fail(err, -ENOTSUP, "UnsupportedImage",
                        "the xz file needs more than 256 MiB of memory to unpack");
        } else if (rc != LZMA_OK) {
            return fail(err, -EINVAL, "BadImage", "the xz file is damaged or cut short");
        }
    }
    return (ssize_t)(n - x->z.avail_out);
}

static void xz_free(struct stream *s)
{
    lzma_end(&((struct xz_stream *)s)->z);
}

struct stream *stream_xz(struct stream *in)
{
    struct xz_stream *x = stream_new(sizeof(*x), in, xz_read, xz_free);
    if (lzma_stream_decoder(&x->z, XZ_MEMORY_MAX, LZMA_CONCATENATED) != LZMA_OK) {
        abort();
    }
    return &x->s;
}

/* --- zstd -----------------------------------------------------------------------------------
 */

struct zst_stream {
    struct stream s;
    ZSTD_DStream *z;
    ZSTD_inBuffer in;
    size_t hint; /* 0: a frame ended exactly here */
    bool has_any;
    unsigned char buf[STREAM_CHUNK];
};

static ssize_t zst_read(struct stream *s, void *p, size_t n, struct err *err)
{
    struct zst_stream *z = (struct zst_stream *)s;
    ZSTD_outBuffer out = {p, n, 0};
    while (out.pos == 0) {
        if (z->in.pos == z->in.size) {
            ssize_t got = stream_read(s->in, z->buf, sizeof(z->buf), err);
            if (got < 0) {
                return got;
            }
            if (got == 0) {
                return z->hint == 0 && z->has_any
                           ? 0
                           : fail(err, -EINVAL, "BadImage", "the zstd file is cut short");
            }
            z->in = (ZSTD_inBuffer){z->buf, (size_t)got, 0};
        }
        size_t rc = ZSTD_decompressStream(z->z, &out, &z->in);
        if (ZSTD_isError(rc)) {
            return fail(err, -EINVAL, "BadImage", "the zstd file is damaged: %s",
                        ZSTD_getErrorName(rc));
        }
        z->hint = rc;
        z->has_any = true;
    }
    return (ssize_t)out.pos;
}

static void zst_free(struct stream *s)
{
    ZSTD_freeDStream(((struct zst_stream *)s)->z);
}

struct stream *stream_zst(struct stream *in)
{
    struct zst_stream *z = stream_new(sizeof(*z), in, zst_read, zst_free);
    z->z = ZSTD_createDStream();
    if (!z->z ||
        ZSTD_isError(ZSTD_DCtx_setParameter(z->z, ZSTD_d_windowLogMax, ZST_WINDOW_LOG))) {
        abort();
    }
    z->hint = 1;
    return &z->s;
}
