#include "aws/rest_int.h"

#include "aws/codec_out.h"
#include "aws/s3_name.h"
#include "aws/xml_out.h"
#include "base/time.h"
#include "codec/base64.h"
#include <errno.h>
#include <inttypes.h>

#define XML_HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"

/* ---- answers ---- */

void rest_answer_init(struct rest_answer *ans, struct arena *a, struct str request_id,
                      struct str host_id)
{
    *ans = (struct rest_answer){.status = 200, .arena = a};
    buf_init(&ans->body, REST_MAX_ANSWER);
    rest_header(ans, "x-amz-request-id", request_id);
    rest_header(ans, "x-amz-id-2", host_id);
}

void rest_answer_done(struct rest_answer *ans)
{
    buf_done(&ans->body);
}

/* Bytes that could end the line or the header. */
static bool is_header_text(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static struct http_header *find_header(struct rest_answer *ans, struct str name)
{
    for (size_t i = 0; i < ans->n; i++) {
        if (str_ieq(ans->headers[i].name, name)) {
            return &ans->headers[i];
        }
    }
    return NULL;
}

/* Doubles from 16 headers. */
static struct http_header *new_header(struct rest_answer *ans)
{
    bool is_full = ans->n == 0 || (ans->n >= 16 && (ans->n & (ans->n - 1)) == 0);
    if (ans->n >= REST_MAX_HEADERS) {
        return NULL;
    }
    if (is_full) {
        struct http_header *v = arena_array(ans->arena, ans->n ? ans->n * 2 : 16, sizeof(*v));
        if (!v) {
            return NULL;
        }
        if (ans->n) {
            memcpy(v, ans->headers, ans->n * sizeof(*v));
        }
        ans->headers = v;
    }
    return &ans->headers[ans->n++];
}

static bool add_header(struct rest_answer *ans, struct str name, struct str value)
{
    struct http_header *h = NULL;
    if (!str_is_set(value) || !is_header_text(value) || !is_header_text(name)) {
        return false;
    }
    h = find_header(ans, name);
    h = h ? h : new_header(ans);
    if (h) {
        *h = (struct http_header){name, value};
    }
    return h != NULL;
}

bool rest_header(struct rest_answer *ans, const char *name, struct str value)
{
    return add_header(ans, str_c(name), value);
}

/* ---- members in headers ---- */

static struct str time_text(const struct aws_shape *sh, const struct aws_member *m, uint64_t ns,
                            struct arena *a)
{
    char text[TIME_ISO_SIZE];
    unsigned ts = ((m->flags & AWS_F_TS) ? m->flags : sh->flags) & AWS_F_TS;
    bool is_iso = ts >> 3 == AWS_TS_ISO;
    return arena_str_dup(a, str_c(is_iso ? time_iso_ms(ns, text) : time_http(ns, text)));
}

static struct str list_text(const struct aws_shape *sh, const struct aws_str_list *l,
                            struct arena *a)
{
    AUTO_BUF out;
    buf_init(&out, 8192);
    for (size_t i = 0; i < l->n; i++) {
        buf_addc(&out, i ? "," : "");
        buf_add(&out, l->v[i]);
    }
    return buf_ok(&out) ? arena_str_dup(a, buf_str(&out)) : STR_NONE;
}

/* STR_NONE when it cannot be said. */
static struct str header_text(const struct aws_shape *sh, const struct aws_member *m,
                              const void *at, struct arena *a)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM: return *(const struct str *)at;
    case AWS_T_BOOL: return ((const struct opt_bool *)at)->v ? STR("true") : STR("false");
    case AWS_T_INT:
    case AWS_T_LONG: return arena_fmt(a, "%" PRId64, ((const struct opt_i64 *)at)->v);
    case AWS_T_TIME: return time_text(sh, m, ((const struct opt_time *)at)->ns, a);
    case AWS_T_LIST: return list_text(sh, at, a);
    case AWS_T_BLOB:
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE:
    case AWS_T_STRUCT:
    case AWS_T_MAP: break; /* no header of S3 has these types */
    }
    return STR_NONE;
}

static void put_meta(const struct s3_metadata *meta, struct rest_answer *ret)
{
    for (size_t i = 0; i < meta->n; i++) {
        struct str name = meta->v[i].key;
        name = arena_fmt(ret->arena, "x-amz-meta-%.*s", STR_ARG(name));
        if (name.p) {
            add_header(ret, name, s3_meta_header_value(ret->arena, meta->v[i].value));
        }
    }
}

static void put_headers(const struct aws_service *s, const struct aws_shape *sh, const void *v,
                        struct rest_answer *ret)
{
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        const struct aws_shape *ms = &s->shapes[m->shape];
        const void *at = (const char *)v + m->off;
        if (m->loc == AWS_LOC_BODY || !rest_is_set(ms, at)) {
            continue;
        }
        if (m->loc == AWS_LOC_HEADERS) {
            put_meta(at, ret);
        } else if (m->loc == AWS_LOC_STATUS) {
            ret->status = (int)((const struct opt_i64 *)at)->v;
        } else {
            rest_header(ret, aws_name(s, m->out), header_text(ms, m, at, ret->arena));
        }
    }
}

/* ---- bodies ---- */

static int too_large(const struct buf *out, struct err *err)
{
    return fail(err, -EFBIG, "InternalError", "The answer is larger than %zu bytes", out->max);
}

int rest_encode_xml(const struct aws_service *s, uint16_t shape, const char *root,
                    const void *v, struct buf *out, struct err *err)
{
    buf_fmt(out, XML_HEAD "<%s xmlns=\"%s\">", root, s->xmlns);
    aws_encode_struct(s, shape, v, out);
    xml_close(out, root);
    return buf_ok(out) ? 0 : too_large(out, err);
}

/* The one answer whose root element is the value itself; us-east-1 is an empty one. */
static int put_location(const struct aws_service *s, const void *v, struct buf *out,
                        struct err *err)
{
    const struct s3_get_bucket_location_output *loc = v;
    buf_fmt(out, XML_HEAD "<LocationConstraint xmlns=\"%s\">", s->xmlns);
    xml_text(out, loc->location_constraint);
    xml_close(out, "LocationConstraint");
    return buf_ok(out) ? 0 : too_large(out, err);
}

static bool has_body_members(const struct aws_service *s, const struct aws_shape *sh)
{
    for (uint16_t i = 0; i < sh->n; i++) {
        if (s->members[sh->first + i].loc == AWS_LOC_BODY) {
            return true;
        }
    }
    return false;
}

static int put_body(const struct aws_service *s, int op, const void *v, struct rest_answer *ret,
                    struct err *err)
{
    const struct aws_op *o = &s->ops[op];
    const struct aws_shape *sh = &s->shapes[o->out];
    const char *root = aws_name(s, o->wrap);
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        const void *at = (const char *)v + m->off;
        if (!(m->flags & AWS_F_PAYLOAD)) {
            continue;
        }
        if (m->flags & AWS_F_STREAM) {
            ret->is_stream = true;
            return 0;
        }
        if (s->shapes[m->shape].type != AWS_T_STRUCT) {
            buf_add(&ret->body, *(const struct str *)at);
            return buf_ok(&ret->body) ? 0 : too_large(&ret->body, err);
        }
        const void *inner = *(const void *const *)at;
        return inner ? rest_encode_xml(s, m->shape, root, inner, &ret->body, err) : 0;
    }
    if (op == S3_OP_GET_BUCKET_LOCATION) {
        return put_location(s, v, &ret->body, err);
    }
    return has_body_members(s, sh) ? rest_encode_xml(s, o->out, root, v, &ret->body, err) : 0;
}

int rest_encode(const struct aws_service *s, int op, const void *output, struct arena *a,
                struct rest_answer *ret, struct err *err)
{
    const struct aws_op *o = &s->ops[op];
    ret->status = o->status;
    if (o->out == AWS_SHAPE_NONE || !output) {
        return 0;
    }
    put_headers(s, &s->shapes[o->out], output, ret);
    int rc = put_body(s, op, output, ret, err);
    if (rc == 0 && ret->body.n > 0) {
        bool is_text = ret->body.p[0] != '<'; /* a policy */
        rest_header(ret, "Content-Type",
                    is_text ? STR("application/json") : STR("application/xml"));
    }
    return rc;
}
