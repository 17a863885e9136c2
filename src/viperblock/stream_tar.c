#include "base/num.h"
#include "viperblock/stream.h"
#include "viperblock/stream_int.h"
#include <errno.h>

/* POSIX.1-1988 ustar, pax (size only), and GNU: long names, base-256 sizes, old sparse files.
 */
#define BLOCK         512u
#define META_MAX      (1u << 20) /* pax and long-name records */
#define SPARSE_MAX    200000u
#define N_MEMBERS_MAX 10000u
#define SIZE_MAX_TAR  (UINT64_C(1) << 50)

struct piece { /* of a sparse file */
    uint64_t off, n;
};

struct tar_stream {
    struct stream s;
    bool is_ended, has_disk, in_disk;
    uint64_t left;      /* bytes of the member's data that are still in the archive */
    uint64_t pad;       /* and its padding */
    uint64_t pos, size; /* of the disk file as it is read */
    struct piece *pieces;
    size_t n_pieces, idx;
    uint64_t pax_size; /* 0 = none */
    unsigned n_members;
    char name_end[16]; /* end of a long name that was given before its member; "" = none */
};

static int number(const char *p, size_t n, uint64_t *ret)
{
    if ((unsigned char)p[0] == 0x80) { /* GNU: the rest is a big-endian number */
        uint64_t v = 0;
        for (size_t i = 1; i < n; i++) {
            if (v >> 55) {
                return -EINVAL;
            }
            v = v << 8 | (unsigned char)p[i];
        }
        *ret = v;
        return v <= SIZE_MAX_TAR ? 0 : -EINVAL;
    }
    uint64_t v = 0;
    size_t i = 0;
    while (i < n && p[i] == ' ') {
        i++;
    }
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        v = v * 8 + (uint64_t)(p[i] - '0');
        if (v > SIZE_MAX_TAR) {
            return -EINVAL;
        }
    }
    if (i < n && p[i] != ' ' && p[i] != '\0') {
        return -EINVAL;
    }
    *ret = v;
    return 0;
}

static bool is_sum_right(const char *h)
{
    uint64_t want = 0, sum = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        sum += i >= 148 && i < 156 ? (unsigned char)' ' : (unsigned char)h[i];
    }
    return number(h + 148, 8, &want) == 0 && want == sum;
}

/* True for what an OVA or an archive of an image carries beside its disk. */
static bool is_beside(struct str name)
{
    static const char *const ends[] = {".ovf", ".mf",     ".cert",   ".xml",   ".txt",
                                       ".md",  ".json",   ".iso",    ".nvram", ".sig",
                                       ".asc", ".sha256", ".sha512", ".sum"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        size_t n = strlen(ends[i]);
        if (name.n >= n && str_ieqc(str_n(name.p + name.n - n, n), ends[i])) {
            return true;
        }
    }
    return false;
}

static int skip(struct tar_stream *t, uint64_t n, struct err *err)
{
    char buf[8192];
    while (n > 0) {
        size_t part = (size_t)MIN(n, (uint64_t)sizeof(buf));
        int rc = stream_read_full(t->s.in, buf, part, err);
        if (rc <= 0) {
            return rc < 0 ? rc : fail(err, -EINVAL, "BadImage", "the archive is cut short");
        }
        n -= part;
    }
    return 0;
}

static void keep_name(struct tar_stream *t, struct str name)
{
    struct str end = str_skip(name, name.n - MIN(name.n, sizeof(t->name_end) - 1));
    memcpy(t->name_end, end.p, end.n);
    t->name_end[end.n] = '\0';
}

/* Reads the data of a member that says something about the next one. */
static int read_meta(struct tar_stream *t, uint64_t size, char **ret, struct err *err)
{
    if (size > META_MAX) {
        return fail(err, -EINVAL, "BadImage", "a header in the archive is too long");
    }
    size_t n = (size_t)((size + BLOCK - 1) / BLOCK * BLOCK);
    char *buf = calloc(1, n + 1);
    if (!buf) {
        abort();
    }
    int rc = stream_read_full(t->s.in, buf, n, err);
    if (rc < 0 || (rc == 0 && n > 0)) {
        free(buf);
        return rc < 0 ? rc : fail(err, -EINVAL, "BadImage", "the archive is cut short");
    }
    *ret = buf;
    return 0;
}

/* A pax record list: only the size is of interest, and sparse files of that kind are refused.
 */
static int read_pax(struct tar_stream *t, uint64_t size, struct err *err)
{
    AUTO_FREE char *buf = NULL;
    int rc = read_meta(t, size, &buf, err);
    if (rc != 0) {
        return rc;
    }
    struct str rest = str_n(buf, (size_t)size);
    while (rest.n > 0) { /* "LENGTH key=value\n", LENGTH counts all of it */
        uint64_t len = 0;
        struct str digits = str_cut(rest, ' ');
        if (digits.n == rest.n || num_u64(digits, rest.n, &len) != 0 || len < digits.n + 2) {
            return fail(err, -EINVAL, "BadImage",
                        "an extended header in the archive is damaged");
        }
        struct str record = str_n(rest.p + digits.n + 1, (size_t)len - digits.n - 2);
        if (str_has_prefixc(record, "GNU.sparse.")) {
            return fail(err, -ENOTSUP, "UnsupportedImage",
                        "the archive holds a sparse file in pax form: pack it without "
                        "--sparse, or with --format=gnu");
        }
        if (str_has_prefixc(record, "size=") &&
            num_u64(str_skip(record, 5), SIZE_MAX_TAR, &t->pax_size) != 0) {
            return fail(err, -EINVAL, "BadImage", "a size in the archive is damaged");
        }
        if (str_has_prefixc(record, "path=")) {
            keep_name(t, record);
        }
        rest = str_skip(rest, (size_t)len);
    }
    return 0;
}

static int add_pieces(struct tar_stream *t, const char *p, size_t n, uint64_t *end,
                      struct err *err)
{
    for (size_t i = 0; i < n; i++, p += 24) {
        struct piece s;
        if (p[0] == '\0' && p[12] == '\0') {
            return 0; /* unused entries end the list */
        }
        if (number(p, 12, &s.off) != 0 || number(p + 12, 12, &s.n) != 0 || s.off < *end ||
            s.off + s.n > t->size || t->n_pieces == SPARSE_MAX) {
            return fail(err, -EINVAL, "BadImage",
                        "the map of a sparse file in the archive is damaged");
        }
        if (t->n_pieces % 1024 == 0) {
            struct piece *bigger = reallocarray(t->pieces, t->n_pieces + 1024, sizeof(*bigger));
            if (!bigger) {
                abort();
            }
            t->pieces = bigger;
        }
        *end = s.off + s.n;
        t->pieces[t->n_pieces++] = s;
    }
    return 0;
}

static int read_sparse_map(struct tar_stream *t, const char *h, struct err *err)
{
    char ext[BLOCK];
    uint64_t end = 0, sum = 0;
    if (number(h + 483, 12, &t->size) != 0) {
        return fail(err, -EINVAL, "BadImage", "a size in the archive is damaged");
    }
    int rc = add_pieces(t, h + 386, 4, &end, err);
    bool has_more = h[482] != 0;
    while (rc == 0 && has_more) {
        int got = stream_read_full(t->s.in, ext, sizeof(ext), err);
        if (got <= 0) {
            return got < 0 ? got : fail(err, -EINVAL, "BadImage", "the archive is cut short");
        }
        has_more = ext[504] != 0;
        rc = add_pieces(t, ext, 21, &end, err);
    }
    for (size_t i = 0; rc == 0 && i < t->n_pieces; i++) {
        sum += t->pieces[i].n;
    }
    if (rc == 0 && sum != t->left) {
        return fail(err, -EINVAL, "BadImage",
                    "the map of a sparse file in the archive is damaged");
    }
    return rc;
}

static int enter_disk(struct tar_stream *t, const char *h, char type, struct err *err)
{
    if (t->has_disk) {
        return fail(err, -ENOTSUP, "UnsupportedImage",
                    "the archive holds more than one disk: unpack it and import one of them");
    }
    t->has_disk = t->in_disk = true;
    t->size = t->left;
    if (type == 'S') {
        return read_sparse_map(t, h, err);
    }
    t->pieces = calloc(1, sizeof(*t->pieces));
    if (!t->pieces) {
        abort();
    }
    t->pieces[0] = (struct piece){0, t->size};
    t->n_pieces = 1;
    return 0;
}

/* Goes on to the next header; sets in_disk or is_ended. */
static int next_member(struct tar_stream *t, struct err *err)
{
    char h[BLOCK];
    int rc = skip(t, t->left + t->pad, err);
    if (rc != 0) {
        return rc;
    }
    t->left = t->pad = 0;
    rc = stream_read_full(t->s.in, h, sizeof(h), err);
    if (rc < 0) {
        return rc;
    }
    static const char zeros[BLOCK];
    if (rc == 0 || memcmp(h, zeros, sizeof(h)) == 0) {
        t->is_ended = true;
        return t->has_disk ? 0
                           : fail(err, -EINVAL, "BadImage", "there is no disk in the archive");
    }
    uint64_t size = 0;
    if (!is_sum_right(h) || number(h + 124, 12, &size) != 0 || ++t->n_members > N_MEMBERS_MAX) {
        return fail(err, -EINVAL, "BadImage", "a header in the archive is damaged");
    }
    char type = h[156];
    if (type == 'x') {
        return read_pax(t, size, err);
    }
    if (t->pax_size != 0) {
        size = t->pax_size;
        t->pax_size = 0;
    }
    if (type == 'L') {
        AUTO_FREE char *buf = NULL;
        rc = read_meta(t, size, &buf, err);
        if (rc == 0) {
            keep_name(t, str_cut(str_n(buf, (size_t)size), '\0'));
        }
        return rc;
    }
    bool has_data =
        type == '0' || type == '\0' || type == '7' || type == 'S' || type == 'K' || type == 'g';
    t->left = has_data ? size : 0;
    t->pad = (BLOCK - t->left % BLOCK) % BLOCK;
    if (type == 'K' || type == 'g') {
        return t->left <= META_MAX
                   ? 0
                   : fail(err, -EINVAL, "BadImage", "a header in the archive is too long");
    }
    struct str name = t->name_end[0] ? str_c(t->name_end) : str_cut(str_n(h, 100), '\0');
    bool is_disk = has_data && size > 0 && !is_beside(name);
    t->name_end[0] = '\0';
    return is_disk ? enter_disk(t, h, type, err) : 0;
}

static ssize_t tar_read(struct stream *s, void *p, size_t n, struct err *err)
{
    struct tar_stream *t = (struct tar_stream *)s;
    for (;;) {
        while (!t->in_disk && !t->is_ended) {
            int rc = next_member(t, err);
            if (rc != 0) {
                return rc;
            }
        }
        if (t->is_ended) { /* the source is read to its end: its checksum covers all of it */
            char rest[8192];
            ssize_t got;
            while ((got = stream_read(s->in, rest, sizeof(rest), err)) > 0) {}
            return got;
        }
        if (t->pos == t->size) {
            t->in_disk = false;
            continue;
        }
        while (t->idx < t->n_pieces && t->pos >= t->pieces[t->idx].off + t->pieces[t->idx].n) {
            t->idx++;
        }
        const struct piece *d = t->idx < t->n_pieces ? &t->pieces[t->idx] : NULL;
        uint64_t until = d ? (t->pos < d->off ? d->off : d->off + d->n) : t->size;
        size_t want = (size_t)MIN((uint64_t)n, until - t->pos);
        if (!d || t->pos < d->off) {
            memset(p, 0, want);
            t->pos += want;
            return (ssize_t)want;
        }
        ssize_t got = stream_read(s->in, p, want, err);
        if (got <= 0) {
            return got < 0 ? got : fail(err, -EINVAL, "BadImage", "the archive is cut short");
        }
        t->pos += (uint64_t)got;
        t->left -= (uint64_t)got;
        return got;
    }
}

static void tar_free(struct stream *s)
{
    free(((struct tar_stream *)s)->pieces);
}

struct stream *stream_tar(struct stream *in)
{
    struct tar_stream *t = stream_new(sizeof(*t), in, tar_read, tar_free);
    return &t->s;
}
