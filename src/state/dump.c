#include "state/dump.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/json.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

#define PAGE_ARENA (8u << 20)
#define LINE_MAX_N \
    (6u * KV_MAX_VALUE + 16 * KV_MAX_KEY) /* every byte as \u00xx, and then some */
#define FILE_MAX_N  (UINT64_C(4) << 30)
#define READER_WAIT 30000 /* ms */

/* ---- writing ---- */

/* A pipe whose reader sleeps must not hold the snapshot for ever; as much as PIPE_BUF never
 * blocks after POLLOUT. */
static int write_slowly(int fd, const char *p, size_t n)
{
    while (n) {
        struct pollfd pfd = {.fd = fd, .events = POLLOUT};
        int r = poll(&pfd, 1, READER_WAIT);
        if (r == 0) {
            return -ETIMEDOUT;
        }
        if (r < 0 && errno != EINTR) {
            return -errno;
        }
        ssize_t k = r < 0 ? 0 : write(fd, p, MIN(n, (size_t)PIPE_BUF));
        if (k < 0 && errno != EINTR && errno != EAGAIN) {
            return -errno;
        }
        p += MAX(k, 0);
        n -= (size_t)MAX(k, 0);
    }
    return 0;
}

static int write_out(int fd, bool is_file, struct buf *b, struct err *err)
{
    if (!buf_ok(b)) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for the dump");
    }
    int r = is_file ? file_write_all(fd, b->p, b->n) : write_slowly(fd, b->p, b->n);
    buf_clear(b);
    return r < 0 ? fail(err, r, "WriteFailed", "the dump cannot be written: %s", strerror(-r))
                 : 0;
}

/* "k" or, when it is not UTF-8 text, "k64". */
static void put_bytes(struct jw *w, const char *text_name, const char *b64_name, struct str s)
{
    if (str_utf8_len(s) != SIZE_MAX && !memchr(s.p, '\0', s.n)) {
        jw_str(w, text_name, s);
        return;
    }
    AUTO_BUF b;
    buf_init(&b, 2 * KV_MAX_VALUE);
    base64_encode(s, &b);
    jw_str(w, b64_name, buf_str(&b));
}

static void put_item(struct buf *b, const struct kv_item *item)
{
    struct jw w;
    jw_init(&w, b);
    jw_obj(&w, NULL);
    put_bytes(&w, "k", "k64", item->key);
    put_bytes(&w, "v", "v64", item->value);
    jw_u64(&w, "rev", item->mod_rev);
    if (item->lease) {
        jw_bool(&w, "is_leased", true);
    }
    jw_obj_end(&w);
    buf_add_char(b, '\n');
}

static void put_head(struct buf *b, uint64_t rev)
{
    char iso[TIME_ISO_SIZE];
    struct jw w;
    jw_init(&w, b);
    jw_obj(&w, NULL);
    jw_cstr(&w, "format", "spinifex-state");
    jw_u64(&w, "version", 1);
    jw_u64(&w, "revision", rev);
    jw_cstr(&w, "time", time_iso_s(time_wall_ns(), iso));
    jw_obj_end(&w);
    buf_add_char(b, '\n');
}

int dump_write(struct kv *kv, int fd, uint64_t *ret_n, uint64_t *ret_rev, struct err *err)
{
    AUTO(kv_snapshot_closep) struct kv_snapshot *snap = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(PAGE_ARENA);
    AUTO_BUF b, last;
    struct stat st;
    uint64_t n = 0;
    buf_init(&b, 8 * LINE_MAX_N);
    buf_init(&last, KV_MAX_KEY + 1);
    if (fstat(fd, &st) < 0) {
        return fail(err, -errno, "WriteFailed", "%m");
    }
    bool is_file = S_ISREG(st.st_mode);
    int r = kv_snapshot_open(kv, &snap, err);
    for (bool is_first = true, has_more = true; r == 0 && has_more; is_first = false) {
        struct kv_list list = {0};
        arena_reset(a);
        r = kv_snapshot_list(snap, a, is_first ? STR_NONE : buf_str(&last), &list, err);
        if (r < 0) {
            break;
        }
        if (is_first) {
            put_head(&b, list.rev);
        }
        for (size_t i = 0; i < list.n; i++) {
            put_item(&b, &list.v[i]);
        }
        n += list.n;
        has_more = list.has_more;
        *ret_rev = list.rev;
        buf_clear(&last);
        buf_add(&last, list.n ? list.v[list.n - 1].key : STR(""));
        r = write_out(fd, is_file, &b, err);
    }
    if (r == 0) {
        buf_fmt(&b, "{\"end\":true,\"keys\":%llu}\n", (unsigned long long)n);
        r = write_out(fd, is_file, &b, err);
    }
    if (r == 0 && is_file && fsync(fd) < 0) {
        r = fail(err, -errno, "WriteFailed", "the dump cannot be written: %m");
    }
    *ret_n = n;
    return r;
}

/* ---- reading ---- */

struct reader {
    int fd;
    off_t off;
    struct buf b;     /* bytes read and not used */
    size_t used;      /* of b: the line that was given last */
    uint64_t line_no; /* of the line that was given last */
    bool is_eof;
    /* the item that was given last */
    struct arena *a;
    struct buf prev_key;
    uint64_t n, n_leased;
    bool is_end;
};

static int bad_dump(const struct reader *r, const char *why, struct err *err)
{
    return fail(err, -EINVAL, "BadDump", "line %llu of the dump: %s",
                (unsigned long long)r->line_no, why);
}

/* 1 = a line (without its end), 0 = the end of the file. */
static int next_line(struct reader *r, struct str *ret, struct err *err)
{
    buf_drop(&r->b, r->used);
    r->used = 0;
    r->line_no++;
    size_t from = 0;
    for (;;) {
        ptrdiff_t at = str_find(buf_str(&r->b), '\n', from);
        if (at >= 0) {
            *ret = str_n(r->b.p, (size_t)at);
            r->used = (size_t)at + 1;
            return 1;
        }
        from = r->b.n;
        if (r->is_eof) {
            return r->b.n ? bad_dump(r, "it is cut off", err) : 0;
        }
        char *p = r->b.n > LINE_MAX_N ? NULL : buf_reserve(&r->b, 256 << 10);
        if (!p) {
            return bad_dump(r, "too long", err);
        }
        ssize_t n = pread(r->fd, p, 256 << 10, r->off);
        if (n < 0) {
            return fail(err, -errno, "ReadFailed", "the dump cannot be read: %m");
        }
        r->is_eof = n == 0;
        r->off += n;
        buf_commit(&r->b, (size_t)n);
    }
}

static int get_bytes(const struct reader *r, const struct json *j, const char *text_name,
                     const char *b64_name, struct str *ret, struct err *err)
{
    struct str text = json_get_str(j, text_name), b64 = json_get_str(j, b64_name);
    if (str_is_set(text) == str_is_set(b64)) {
        return bad_dump(r, "a key or a value is missing", err);
    }
    AUTO_BUF b;
    buf_init(&b, 2 * KV_MAX_VALUE);
    if (b64.p && base64_decode(b64, &b) < 0) {
        return bad_dump(r, "bad base64", err);
    }
    *ret = arena_str_dup(r->a, b64.p ? buf_str(&b) : text);
    return ret->p ? 0 : bad_dump(r, "too large", err);
}

static int check_item(struct reader *r, const struct kv_item *item, struct err *err)
{
    if (item->key.n == 0 || item->key.n > KV_MAX_KEY || item->value.n > KV_MAX_VALUE) {
        return bad_dump(r, "a key or a value outside the limits", err);
    }
    if (r->n && str_cmp(buf_str(&r->prev_key), item->key) >= 0) {
        return bad_dump(r, "the keys are not in order", err);
    }
    buf_clear(&r->prev_key);
    buf_add(&r->prev_key, item->key);
    r->n++;
    return 0;
}

/* 1 = an item, 0 = the trailer. */
static int parse_line(struct reader *r, struct str line, struct kv_item *ret,
                      bool *ret_is_leased, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    if (json_parse(line, &j, NULL) < 0) {
        return bad_dump(r, "not JSON", err);
    }
    if (json_get_bool(j, "end", false)) {
        r->is_end = true;
        return json_get_u64(j, "keys", UINT64_MAX) == r->n
                   ? 0
                   : bad_dump(r, "lines are missing", err);
    }
    *ret = (struct kv_item){0};
    arena_reset(r->a);
    int rc = get_bytes(r, j, "k", "k64", &ret->key, err);
    if (rc == 0) {
        rc = get_bytes(r, j, "v", "v64", &ret->value, err);
    }
    if (rc == 0) {
        rc = check_item(r, ret, err);
    }
    *ret_is_leased = json_get_bool(j, "is_leased", false);
    r->n_leased += *ret_is_leased;
    return rc < 0 ? rc : 1;
}

static int read_head(struct reader *r, struct err *err)
{
    struct str line = STR_NONE;
    int rc = next_line(r, &line, err);
    if (rc < 0) {
        return rc;
    }
    AUTO(json_freep) struct json *j = NULL;
    if (rc == 0 || json_parse(line, &j, NULL) < 0 ||
        !str_eqc(json_get_str(j, "format"), "spinifex-state")) {
        return bad_dump(r, "not a dump of a state of Spinifex", err);
    }
    return json_get_u64(j, "version", 0) == 1
               ? 0
               : bad_dump(r, "written by another version of Spinifex", err);
}

static int next_item(void *ctx, struct kv_item *ret, struct err *err)
{
    struct reader *r = ctx;
    bool is_leased = true;
    while (is_leased) {
        struct str line = STR_NONE;
        int rc = next_line(r, &line, err);
        if (rc == 0) {
            return bad_dump(r, "the end is missing", err);
        }
        if (rc == 1) {
            rc = parse_line(r, line, ret, &is_leased, err);
        }
        if (rc == 0 && next_line(r, &line, err) != 0) {
            return bad_dump(r, "something follows the end", err);
        }
        if (rc <= 0) {
            return rc;
        }
    }
    return 1;
}

static void reader_init(struct reader *r, int fd)
{
    *r = (struct reader){.fd = fd, .a = arena_new(4 * KV_MAX_VALUE)};
    buf_init(&r->b, 2 * LINE_MAX_N);
    buf_init(&r->prev_key, KV_MAX_KEY + 1);
}

static void reader_done(struct reader *r)
{
    buf_done(&r->b);
    buf_done(&r->prev_key);
    arena_free(r->a);
}

/* A first reading of all of it: the store is not touched by what is damaged. */
static int check_all(int fd, struct err *err)
{
    struct reader r;
    struct kv_item item;
    reader_init(&r, fd);
    int rc = read_head(&r, err);
    while (rc == 0 && (rc = next_item(&r, &item, err)) == 1) {
        rc = 0;
        if (r.is_end) {
            break;
        }
    }
    reader_done(&r);
    return rc;
}

int dump_restore(struct kv *kv, int fd, bool is_forced, uint64_t *ret_n, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > FILE_MAX_N) {
        return fail(err, -EINVAL, "BadDump", "a dump is restored from a file of at most 4 GiB");
    }
    int rc = check_all(fd, err);
    if (rc < 0) {
        return rc;
    }
    struct reader r;
    reader_init(&r, fd);
    rc = read_head(&r, err);
    if (rc == 0) {
        rc = kv_replace(kv, is_forced, next_item, &r, err);
    }
    *ret_n = r.n - r.n_leased;
    reader_done(&r);
    return rc;
}
