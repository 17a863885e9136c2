/* What is asked of the object store: snap_s3.h over snap_s3_call(). */
#include "snap/snap_s3.h"

#include "base/num.h"
#include "base/time.h"
#include "codec/xml.h"
#include "crypto/crc.h"
#include "snap/snap_s3_int.h"

#include <errno.h>
#include <stdio.h>

#define LIST_MAX   (2u << 20) /* bytes of one page of a list */
#define DELETE_MAX (512u << 10)

int snap_s3_put(struct snap_s3 *c, const struct snap_s3_put *put, struct err *err)
{
    const struct snap_s3_req rq = {.method = "PUT",
                                   .key = put->key,
                                   .headers = put->is_if_none ? "If-None-Match: *\r\n" : NULL,
                                   .body = put->body,
                                   .crc = put->crc};
    return snap_s3_call(c, &rq, NULL, err);
}

int snap_s3_get(struct snap_s3 *c, const char *key, void *p, size_t cap, size_t *ret_n,
                struct err *err)
{
    const struct snap_s3_req rq = {.method = "GET", .key = key, .p = p, .cap = cap};
    struct snap_s3_got got = {0};
    int r = snap_s3_call(c, &rq, &got, err);
    if (r == 0) {
        *ret_n = got.n;
    }
    return r;
}

int snap_s3_get_buf(struct snap_s3 *c, const char *key, struct buf *out, struct err *err)
{
    const struct snap_s3_req rq = {.method = "GET", .key = key, .out = out};
    buf_clear(out);
    return snap_s3_call(c, &rq, NULL, err);
}

int snap_s3_stat(struct snap_s3 *c, const char *key, struct snap_s3_stat *ret, struct err *err)
{
    const struct snap_s3_req rq = {
        .method = "HEAD", .key = key, .headers = "x-amz-checksum-mode: ENABLED\r\n"};
    struct snap_s3_got got = {0};
    int r = snap_s3_call(c, &rq, &got, err);
    if (r < 0) {
        return r;
    }
    if (got.content_length < 0) {
        return fail(err, -EIO, "StoreFailed", "%s has no size", key);
    }
    *ret = (struct snap_s3_stat){
        .size = (uint64_t)got.content_length, .has_crc = got.has_crc, .crc = got.crc};
    return 0;
}

int snap_s3_delete(struct snap_s3 *c, const char *key, struct err *err)
{
    const struct snap_s3_req rq = {.method = "DELETE", .key = key};
    struct err e = ERR_INIT;
    int r = snap_s3_call(c, &rq, NULL, &e);
    return r == 0 || r == -ENOENT ? 0 : fail(err, r, e.name, "%s", e.msg);
}

/* ---- lists ---- */

struct listing {
    struct snap_s3_item *items;
    size_t n;
    struct snap_s3_item now;
    bool is_more, is_broken;
    unsigned n_errors;
    char code[64];
};

static int on_start(void *ctx, const struct xml_elem_in *el)
{
    struct listing *l = ctx;
    if (str_eqc(el->name, "Contents") || str_eqc(el->name, "CommonPrefixes")) {
        l->now = (struct snap_s3_item){.size = 0};
    }
    return 0;
}

static int on_end(void *ctx, struct str name, struct str text)
{
    struct listing *l = ctx;
    bool is_key = str_eqc(name, "Key");
    if (is_key || (str_eqc(name, "Prefix") && text.n)) {
        if (text.n >= sizeof(l->now.key)) {
            return -EINVAL; /* nobody here has written that */
        }
        memcpy(l->now.key, text.p, text.n);
        l->now.key[text.n] = '\0';
    } else if (str_eqc(name, "Size")) {
        return num_u64(text, INT64_MAX, &l->now.size);
    } else if (str_eqc(name, "LastModified")) {
        return time_parse_iso(text, &l->now.mtime_ns);
    } else if (str_eqc(name, "IsTruncated")) {
        l->is_more = str_eqc(text, "true");
    } else if (str_eqc(name, "Contents") || str_eqc(name, "CommonPrefixes")) {
        if (l->n == SNAP_S3_LIST_MAX) {
            return -EINVAL;
        }
        l->items[l->n++] = l->now;
    }
    return 0;
}

static int item_cmp(const void *a, const void *b)
{
    const struct snap_s3_item *x = a, *y = b;
    return strcmp(x->key, y->key);
}

int snap_s3_list(struct snap_s3 *c, const char *prefix, const char *after, bool is_folders,
                 struct snap_s3_item *items, size_t *ret_n, bool *ret_more, struct err *err)
{
    static const struct xml_events ev = {.on_start = on_start, .on_end = on_end};
    static const struct xml_limits limits = {.max_size = LIST_MAX};
    char query[512];
    AUTO_BUF out;
    struct listing l = {.items = items};
    /* Nothing that is asked for here needs percent signs (snap_block.h). */
    snprintf(query, sizeof(query), "list-type=2&max-keys=%u&prefix=%s%s%s%s", SNAP_S3_LIST_MAX,
             prefix, is_folders ? "&delimiter=%2F" : "", after[0] ? "&start-after=" : "",
             after);
    buf_init(&out, LIST_MAX);
    const struct snap_s3_req rq = {.method = "GET", .key = "", .query = query, .out = &out};
    struct err e = ERR_INIT;
    int r = snap_s3_call(c, &rq, NULL, err);
    if (r < 0) {
        return r;
    }
    if (xml_parse(buf_str(&out), &limits, &ev, &l, &e) < 0) {
        return fail(err, -EIO, "StoreFailed", "a list cannot be understood: %s", e.msg);
    }
    qsort(items, l.n, sizeof(*items), item_cmp);
    *ret_n = l.n;
    *ret_more = l.is_more && l.n > 0;
    return 0;
}

/* ---- many at once ---- */

static int on_error_end(void *ctx, struct str name, struct str text)
{
    struct listing *l = ctx;
    /* Gone already, or written anew in the meantime: both are as they should be. */
    if (str_eqc(name, "Code") && !str_eqc(text, "NoSuchKey") &&
        !str_eqc(text, "PreconditionFailed")) {
        l->n_errors++;
        snprintf(l->code, sizeof(l->code), "%.*s", STR_ARG(text));
    }
    return 0;
}

static int on_nothing(void *ctx, const struct xml_elem_in *el)
{
    (void)ctx;
    (void)el;
    return 0;
}

int snap_s3_delete_many(struct snap_s3 *c, const struct snap_s3_item *items, size_t n,
                        struct err *err)
{
    static const struct xml_events ev = {.on_start = on_nothing, .on_end = on_error_end};
    static const struct xml_limits limits = {.max_size = LIST_MAX};
    struct listing l = {.n = 0};
    AUTO_BUF body, out;
    buf_init(&body, DELETE_MAX);
    buf_init(&out, LIST_MAX);
    buf_addc(&body, "<Delete><Quiet>true</Quiet>");
    for (size_t i = 0; i < n; i++) {
        char when[TIME_ISO_SIZE];
        buf_fmt(&body, "<Object><Key>%s</Key><LastModifiedTime>%s</LastModifiedTime></Object>",
                items[i].key, time_http(items[i].mtime_ns, when));
    }
    buf_addc(&body, "</Delete>");
    if (n == 0) {
        return 0;
    }
    if (n > SNAP_S3_DELETE_MAX || !buf_ok(&body)) {
        return fail(err, -EINVAL, "StoreFailed", "too many keys at once");
    }
    const struct snap_s3_req rq = {.method = "POST",
                                   .key = "",
                                   .query = "delete",
                                   .body = buf_str(&body),
                                   .crc = (uint32_t)crc_add(CRC_32C, 0, buf_str(&body)),
                                   .out = &out};
    struct err e = ERR_INIT;
    int r = snap_s3_call(c, &rq, NULL, err);
    if (r == 0 && xml_parse(buf_str(&out), &limits, &ev, &l, &e) < 0) {
        r = fail(err, -EIO, "StoreFailed", "an answer cannot be understood: %s", e.msg);
    }
    if (r == 0 && l.n_errors) {
        r = fail(err, -EAGAIN, "StoreUnavailable", "%u keys stay where they are: %s",
                 l.n_errors, l.code);
    }
    return r;
}
