/* POST of an object by a browser's form: its fields come first and say who sends it and what
 * for; only then the store is opened for the file. */
#include "predastore/front_int.h"

#include "aws/xml_out.h"
#include "codec/uri.h"

#include <errno.h>

/* Beside the file: fields, boundaries, headers of parts. */
#define FORM_REST (64u << 10)

static int begin(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct http_head *h = http_req_head(fc->req);
    struct str type = aws_http_header(&c->rq, "Content-Type");
    if (h->content_length < 0 && !h->is_chunked) {
        return fail(err, -EINVAL, "MissingContentLength", "%s", "");
    }
    if (h->content_length > (int64_t)(S3_OBJECT_MAX + FORM_REST)) {
        return fail(err, -EFBIG, "EntityTooLarge", "%s", "");
    }
    return s3_form_new(type, &fc->form, err);
}

void form_start(struct front_call *fc)
{
    struct err e = ERR_INIT;
    fc->in.sink = SINK_FORM;
    if (begin(fc, &e) < 0) {
        front_fail(fc, &e);
    }
}

/* The fields are complete: who, may they, and what is it. */
static int check_fields(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    struct s3_extra x = {0};
    void *input = NULL;
    int r = s3_form_auth(c->arena, &fc->f->sig, fc->form, c->now_ns, &fc->auth, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    c->who = fc->auth.who;
    if ((r = front_bucket(c, c->t.bucket, STR_NONE, &c->bucket, err)) < 0) {
        return r;
    }
    if (fc->auth.is_anonymous) {
        return fail(err, -EACCES, "AccessDenied", "%s", "");
    }
    x.n = 0;
    r = s3_form_check(c->arena, fc->form, c->t.bucket, c->now_ns, &fc->upload, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    c->rq.headers = fc->auth.headers = fc->upload.headers;
    c->rq.n_headers = fc->auth.n_headers = fc->upload.n_headers;
    c->t.key = fc->upload.key;
    c->t.op = S3_OP_PUT_OBJECT; /* what it is from here on, but for the answer */
    if ((r = rest_decode(&aws_service_s3, c->t.op, &c->rq, &c->t, c->arena, &input, err)) < 0 ||
        (r = front_authorize(fc, input, err)) < 0) {
        return r;
    }
    c->t.op = REST_OP_POST_FORM;
    s3_change_init(c, &fc->change, OCHANGE_PUT);
    if ((r = s3_take_all(c, &fc->change.rec, err)) < 0 ||
        (str_is_set(fc->upload.tagging_xml) &&
         (r = s3_take_tags_xml(c, fc->upload.tagging_xml, &fc->change.rec, err)) < 0)) {
        return r;
    }
    x.n = 0;
    r = s3_sum_want_parse(&fc->auth, 0, S3_SUM_CRC64NVME, &fc->in.want, &x, err);
    s3_take_extra(c, &x);
    return r < 0 ? r : intake_open(fc, err);
}

static int add_file(struct front_call *fc, struct str bytes, bool *ret_wait, struct err *err)
{
    struct s3_call *c = &fc->c;
    struct s3_extra x = {0};
    int r =
        s3_form_size_check(c->arena, &fc->upload, fc->in.n_payload + bytes.n, false, &x, err);
    s3_take_extra(c, &x);
    return r < 0 ? r : intake_add(fc, bytes, ret_wait, err);
}

/* The runs of a chunk are put together: the store is asked once, for it may say "no more now". */
static int take(struct front_call *fc, struct str chunk, bool *ret_wait, struct err *err)
{
    AUTO_FREE char *p = NULL;
    size_t n = 0, cap = chunk.n + FORM_REST;
    while (chunk.n) {
        struct str run = STR_NONE;
        int r = s3_form_next(fc->form, &chunk, &run, err);
        if (r == 0 && s3_form_state(fc->form) != S3_FORM_FIELDS && !fc->is_form_checked) {
            fc->is_form_checked = true;
            r = check_fields(fc, err);
        }
        if (r < 0) {
            return r;
        }
        if (!run.n) {
            continue;
        }
        if (!p && !(p = malloc(cap))) {
            return fail(err, -ENOMEM, "SlowDown", "%s", "");
        }
        if (run.n > cap - n) {
            return fail(err, -EINVAL, "MalformedPOSTRequest", "%s", "");
        }
        memcpy(p + n, run.p, run.n);
        n += run.n;
    }
    return n ? add_file(fc, str_n(p, n), ret_wait, err) : 0;
}

enum http_flow form_body(struct front_call *fc, struct str chunk)
{
    struct err e = ERR_INIT;
    bool is_wait = false;
    if (take(fc, chunk, &is_wait, &e) < 0) {
        front_fail(fc, &e);
        return HTTP_MORE;
    }
    return is_wait ? HTTP_PAUSE : HTTP_MORE;
}

static struct str location(struct s3_call *c)
{
    AUTO_BUF out;
    /* Of the request: c->rq has the fields of the form by now. */
    struct str host = http_req_head(CONTAINER_OF(c, struct front_call, c)->req)->host;
    buf_init(&out, 8192);
    buf_fmt(&out, "%s://%.*s/", c->rq.is_tls ? "https" : "http",
            STR_ARG(str_is_set(host) ? host : c->t.host));
    if (!c->t.is_vhost) {
        uri_encode(c->t.bucket, URI_PLAIN, &out);
        buf_add_char(&out, '/');
    }
    uri_encode(c->t.key, URI_KEEP_SLASH, &out);
    return arena_str_dup(c->arena, buf_str(&out));
}

static void add_body(struct s3_call *c, struct str where, struct str etag)
{
    struct buf *b = &c->answer.body;
    buf_addc(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse>");
    xml_elem(b, "Location", where);
    xml_elem(b, "Bucket", c->t.bucket);
    xml_elem(b, "Key", c->t.key);
    xml_elem(b, "ETag", etag);
    buf_addc(b, "</PostResponse>");
    rest_header(&c->answer, "Content-Type", STR("application/xml"));
}

static void answer(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    struct orec *rec = &fc->change.rec;
    struct str etag = s3_quoted(c->arena, rec->etag), where = location(c);
    struct str sse = front_sse(c, false);
    rest_header(&c->answer, "ETag", etag);
    struct str version = s3_made_version(c->arena, &fc->change);
    if (str_is_set(version)) {
        rest_header(&c->answer, "x-amz-version-id", version);
    }
    if (str_is_set(sse)) {
        rest_header(&c->answer, "x-amz-server-side-encryption", sse);
    }
    if (rec->sum.alg != OSUM_NONE) {
        rest_header(&c->answer, s3_sum_header((enum s3_sum_alg)rec->sum.alg),
                    s3_osum_text(c->arena, &rec->sum, 0));
        rest_header(&c->answer, "x-amz-checksum-type", s3_osum_type(&rec->sum));
    }
    if (str_is_set(fc->upload.redirect)) {
        rest_header(&c->answer, "Location",
                    s3_form_redirect(c->arena, &fc->upload, c->t.bucket, etag));
        c->answer.status = 303;
    } else {
        rest_header(&c->answer, "Location", where);
        c->answer.status = fc->upload.success_status;
        if (c->answer.status == 201) {
            add_body(c, where, etag);
        }
    }
    front_send(fc);
}

void form_end(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    struct err e = ERR_INIT;
    struct s3_extra x = {0};
    int r = s3_form_end(fc->form, &e);
    if (r == 0 && !fc->is_form_checked) {
        r = fail(&e, -EINVAL, "IncorrectNumberOfFilesInPostRequest", "%s", "");
    }
    if (r == 0) {
        r = s3_form_size_check(c->arena, &fc->upload, fc->in.n_payload, true, &x, &e);
        s3_take_extra(c, &x);
    }
    if (r < 0) {
        front_fail(fc, &e);
        return;
    }
    put_commit(fc, answer);
}
