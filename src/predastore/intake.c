/* The body of a request: framing off, counted, summed, and into memory or the store. */
#include "predastore/front_int.h"

#include <errno.h>

static int too_large(struct front_call *fc, uint64_t size, uint64_t max, struct err *err)
{
    struct s3_call *c = &fc->c;
    if (fc->in.sink == SINK_XML) {
        return fail(err, -EFBIG, "MaxMessageLengthExceeded", "%s", "");
    }
    rest_extra_add(&c->t.extra, "ProposedSize",
                   arena_fmt(c->arena, "%llu", (unsigned long long)size));
    rest_extra_add(&c->t.extra, "MaxSizeAllowed",
                   arena_fmt(c->arena, "%llu", (unsigned long long)max));
    return fail(err, -EFBIG, "EntityTooLarge", "%s", "");
}

/* Payload bytes that the head promises. */
static int promised(struct front_call *fc, uint64_t *ret, struct err *err)
{
    const struct http_head *h = http_req_head(fc->req);
    if (fc->in.is_chunked) {
        *ret = fc->auth.decoded_length;
        return 0;
    }
    if (h->content_length >= 0) {
        *ret = (uint64_t)h->content_length;
        return 0;
    }
    if (fc->in.sink == SINK_XML) {
        *ret = h->has_body ? UINT64_MAX : 0;
        return 0;
    }
    return fail(err, -EINVAL, "MissingContentLength", "%s", "");
}

int intake_begin(struct front_call *fc, enum front_sink sink, uint64_t max, unsigned sum_flags,
                 enum s3_sum_alg default_alg, struct err *err)
{
    struct intake *in = &fc->in;
    in->sink = sink;
    in->is_chunked = s3_payload_is_chunked(fc->auth.payload);
    int r = promised(fc, &in->expect, err);
    if (r == 0 && in->expect != UINT64_MAX && in->expect > max) {
        r = too_large(fc, in->expect, max, err);
    }
    if (r < 0) {
        return r;
    }
    struct s3_extra x = {0};
    r = s3_sum_want_parse(&fc->auth, sum_flags, default_alg, &in->want, &x, err);
    s3_take_extra(&fc->c, &x);
    if (r < 0 || (in->is_chunked && (r = s3_chunked_init(&in->chunked, &fc->auth, err)) < 0)) {
        return r;
    }
    if (sink == SINK_XML) {
        const struct str owners[SHARE_OWNERS] = {fc->c.who.account, front_address(&fc->c)};
        buf_init(&in->xml, (size_t)max);
        return share_take(fc->f->collected, &in->hold, owners, 0);
    }
    return 0;
}

static void on_bytes(void *ctx, struct str bytes)
{
    struct front_call *fc = ctx;
    s3_sum_add(&fc->in.sum, bytes);
}

static void on_ready(void *ctx)
{
    struct front_call *fc = ctx;
    http_req_resume(fc->req);
}

int intake_open(struct front_call *fc, struct err *err)
{
    struct intake *in = &fc->in;
    const struct oput_opts o = {.size = in->expect == UINT64_MAX ? -1 : (int64_t)in->expect,
                                .on_bytes = on_bytes,
                                .on_ready = on_ready,
                                .ctx = fc,
                                .account = fc->c.who.account,
                                .address = front_address(&fc->c)};
    s3_sum_begin(&in->sum, &in->want, false);
    return oput_new(fc->c.store, &o, &in->put, err);
}

static int collect(struct front_call *fc, struct str bytes, struct err *err)
{
    struct intake *in = &fc->in;
    if (share_more(fc->f->collected, &in->hold, bytes.n) < 0) {
        return fail(err, -EAGAIN, "SlowDown", "%s", "");
    }
    buf_add(&in->xml, bytes);
    if (!buf_ok(&in->xml)) {
        return too_large(fc, in->n_payload, in->xml.max, err);
    }
    return 0;
}

int intake_add(struct front_call *fc, struct str bytes, bool *ret_wait, struct err *err)
{
    struct intake *in = &fc->in;
    in->n_payload += bytes.n;
    if (in->n_payload > S3_OBJECT_MAX) {
        return too_large(fc, in->n_payload, S3_OBJECT_MAX, err);
    }
    if (in->sink == SINK_XML) {
        return collect(fc, bytes, err);
    }
    int r = oput_add(in->put, bytes, err);
    *ret_wait = r == OPUT_WAIT;
    return r < 0 ? r : 0;
}

/* Pieces of payload that a chunk of the framed body holds, as one: the store is asked once, for
 * it may say "no more now". */
static int unframe(struct front_call *fc, struct str chunk, bool *ret_wait, struct err *err)
{
    struct intake *in = &fc->in;
    AUTO_FREE char *p = NULL;
    size_t n = 0, size = chunk.n;
    while (chunk.n) {
        struct str run = STR_NONE;
        int r = s3_chunked_next(&in->chunked, &chunk, &run, err);
        if (r < 0) {
            return r;
        }
        if (run.n && !p && chunk.n == 0) {
            return intake_add(fc, run, ret_wait, err); /* the usual case: nothing to copy */
        }
        if (run.n && !p && !(p = malloc(size))) {
            return fail(err, -ENOMEM, "SlowDown", "%s", "");
        }
        if (run.n) {
            memcpy(p + n, run.p, run.n);
            n += run.n;
        }
    }
    return n ? intake_add(fc, str_n(p, n), ret_wait, err) : 0;
}

enum http_flow intake_body(struct front_call *fc, struct str chunk)
{
    struct intake *in = &fc->in;
    struct err e = ERR_INIT;
    bool is_wait = false;
    int r =
        in->is_chunked ? unframe(fc, chunk, &is_wait, &e) : intake_add(fc, chunk, &is_wait, &e);
    if (r < 0) {
        front_fail(fc, &e);
        return HTTP_MORE;
    }
    return is_wait ? HTTP_PAUSE : HTTP_MORE;
}

int intake_end(struct front_call *fc, struct err *err)
{
    struct intake *in = &fc->in;
    if (in->is_chunked) {
        int r = s3_chunked_end(&in->chunked, err);
        if (r < 0) {
            return r;
        }
    }
    if (in->expect != UINT64_MAX && in->n_payload != in->expect) {
        return fail(err, -EINVAL, "IncompleteBody", "%s", "");
    }
    return 0;
}

int intake_sums(struct front_call *fc, struct err *err)
{
    struct intake *in = &fc->in;
    struct s3_extra x = {0};
    struct str name, value;
    int r = 0;
    for (size_t i = 0;
         in->is_chunked && r == 0 && s3_chunked_trailer(&in->chunked, i, &name, &value); i++) {
        r = s3_sum_trailer(&in->sum, name, value, err);
    }
    if (r == 0) {
        r = s3_sum_end(&in->sum, &fc->sums, fc->c.arena, &x, err);
    }
    s3_take_extra(&fc->c, &x);
    return r;
}

void intake_done(struct front_call *fc)
{
    struct intake *in = &fc->in;
    if (in->put) {
        oput_free(in->put);
    }
    if (in->sink == SINK_XML) {
        buf_done(&in->xml);
        share_give(fc->f->collected, &in->hold);
    }
    if (in->is_chunked) {
        s3_chunked_done(&in->chunked);
    }
    s3_sum_done(&in->sum);
}
