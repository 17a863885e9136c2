#include "aws/rest_json.h"

#include "aws/rest_int.h"
#include "aws/validate.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/json.h"
#include "codec/uri.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- to the operation ---- */

static const char *const methods[AWS_M_N] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

/* Takes the next part between slashes off the front; false at the end. */
static bool next_part(struct str *path, struct str *ret)
{
    if (path->n == 0 || path->p[0] != '/') {
        return false;
    }
    *path = str_skip(*path, 1);
    *ret = str_cut(*path, '/');
    *path = str_skip(*path, ret->n);
    return true;
}

/* 1: the path has the form of the template; its labels are noted. */
static int match(struct str tmpl, struct str path, struct arena *a, struct rest_json_route *t)
{
    struct str want, have;
    t->n_labels = 0;
    for (;;) {
        bool is_want = next_part(&tmpl, &want), is_have = next_part(&path, &have);
        if (is_want != is_have) {
            return 0;
        }
        if (!is_want) {
            return tmpl.n == 0 && path.n == 0;
        }
        if (want.n < 2 || want.p[0] != '{') {
            if (!str_eq(want, have)) {
                return 0;
            }
            continue;
        }
        struct str value;
        int r = have.n == 0 || t->n_labels == REST_JSON_LABELS
                    ? 1
                    : uri_decode(a, have, URI_PLAIN, &value);
        if (r != 0) {
            return r < 0 ? r : 0;
        }
        t->labels[t->n_labels].name = str_n(want.p + 1, want.n - 2);
        t->labels[t->n_labels++].value = value;
    }
}

int rest_json_find(const struct aws_service *s, const struct aws_http *rq, struct arena *a,
                   struct rest_json_route *ret, struct err *err)
{
    *ret = (struct rest_json_route){.op = -1};
    for (uint16_t i = 0; i < s->n_ops; i++) {
        const struct aws_op *o = &s->ops[i];
        struct str tmpl = str_cut(str_c(aws_name(s, o->uri)), '?');
        if (!str_eqc(rq->method, methods[o->method])) {
            continue;
        }
        int r = match(tmpl, rq->path, a, ret);
        if (r < 0) {
            return fail(err, -EINVAL, "ValidationException", "The path cannot be decoded");
        }
        if (r > 0) {
            ret->op = i;
            return 0;
        }
    }
    ret->n_labels = 0;
    return 0;
}

static const struct aws_member *payload_of(const struct aws_service *s, uint16_t shape)
{
    const struct aws_shape *sh = shape == AWS_SHAPE_NONE ? NULL : &s->shapes[shape];
    for (uint16_t i = 0; sh && i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        if (m->flags & AWS_F_PAYLOAD) {
            return m;
        }
    }
    return NULL;
}

bool rest_json_takes_bytes(const struct aws_service *s, int op)
{
    return op >= 0 && (s->ops[op].rest_flags & AWS_REST_STREAM_IN);
}

/* ---- input ---- */

struct in {
    const struct aws_service *s;
    struct arena *a;
    struct err *err;
    unsigned depth;
};

static int no_memory(struct err *err)
{
    return fail(err, -ENOMEM, "RequestTooLarge",
                "The request is larger than this service accepts.");
}

static int wrong_type(struct in *in, const char *name)
{
    return fail(in->err, -EINVAL, "SerializationException", "The value of %s has a wrong type",
                name);
}

static int set_value(struct in *in, uint16_t shape, const char *name, const struct json *j,
                     void *to);

static int set_struct(struct in *in, uint16_t shape, const struct json *j, void *out)
{
    const struct aws_shape *sh = &in->s->shapes[shape];
    if (json_type(j) != JSON_T_OBJECT) {
        return wrong_type(in, aws_name(in->s, sh->name));
    }
    int r = 0;
    for (uint16_t i = 0; r == 0 && i < sh->n; i++) {
        const struct aws_member *m = &in->s->members[sh->first + i];
        const struct json *v = json_get(j, aws_name(in->s, m->in));
        if (m->loc == AWS_LOC_BODY && v && json_type(v) != JSON_T_NULL) {
            void *to = (char *)out + m->off;
            const struct aws_shape *ms = &in->s->shapes[m->shape];
            if (ms->type == AWS_T_STRUCT && !(*(void **)to = arena_alloc(in->a, ms->size))) {
                return no_memory(in->err);
            }
            r = set_value(in, m->shape, aws_name(in->s, m->name), v,
                          ms->type == AWS_T_STRUCT ? *(void **)to : to);
        }
    }
    return r;
}

static int set_list(struct in *in, const struct aws_shape *sh, const char *name,
                    const struct json *j, struct aws_any_list *to)
{
    size_t n = json_len(j);
    if (json_type(j) != JSON_T_ARRAY) {
        return wrong_type(in, name);
    }
    *to = (struct aws_any_list){.is_set = true};
    if (n > AWS_MAX_LIST || !(to->v = arena_array(in->a, n + 1, sh->size))) {
        return no_memory(in->err);
    }
    int r = 0;
    for (; r == 0 && to->n < n; to->n++) {
        r = set_value(in, sh->elem, name, json_at(j, to->n), (char *)to->v + to->n * sh->size);
    }
    return r;
}

static int set_number(struct in *in, const struct aws_shape *sh, const char *name,
                      const struct json *j, struct opt_i64 *to)
{
    int64_t v = json_i64(j, 0);
    bool is_int = sh->type == AWS_T_INT;
    if (json_type(j) != JSON_T_INT || (is_int && (v < INT32_MIN || v > INT32_MAX))) {
        return wrong_type(in, name);
    }
    *to = some_i64(v);
    return 0;
}

static int set_text(struct in *in, const struct aws_shape *sh, const char *name,
                    const struct json *j, struct str *to)
{
    AUTO_BUF plain;
    struct str s = json_str(j);
    buf_init(&plain, s.n + 4);
    if (json_type(j) != JSON_T_STR) {
        return wrong_type(in, name);
    }
    if (sh->type == AWS_T_BLOB) {
        if (base64_decode(s, &plain) < 0) {
            return wrong_type(in, name);
        }
        s = buf_str(&plain);
    }
    *to = arena_str_dup(in->a, s);
    return to->p ? 0 : no_memory(in->err);
}

static int set_value(struct in *in, uint16_t shape, const char *name, const struct json *j,
                     void *to)
{
    const struct aws_shape *sh = &in->s->shapes[shape];
    switch ((enum aws_type)sh->type) {
    case AWS_T_STRUCT: return set_struct(in, shape, j, to);
    case AWS_T_LIST: return set_list(in, sh, name, j, to);
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB: return set_text(in, sh, name, j, to);
    case AWS_T_INT:
    case AWS_T_LONG: return set_number(in, sh, name, j, to);
    case AWS_T_BOOL:
        if (json_type(j) != JSON_T_BOOL) {
            return wrong_type(in, name);
        }
        *(struct opt_bool *)to = some_bool(json_bool(j, false));
        return 0;
    case AWS_T_TIME: /* no service here takes the rest */
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE:
    case AWS_T_MAP: break;
    }
    return wrong_type(in, name);
}

/* A label, a query parameter or a header. */
static int set_param(struct in *in, const struct aws_member *m, struct str text, void *out)
{
    const struct aws_shape *sh = &in->s->shapes[m->shape];
    void *to = (char *)out + m->off;
    if (sh->type == AWS_T_ENUM || sh->type == AWS_T_STR) {
        *(struct str *)to = text.p ? text : STR(""); /* an enum's values: validate.h */
        return 0;
    }
    enum rest_set r = rest_set_scalar(in->s, sh, m->flags, AWS_TS_ISO, text, in->a, to);
    if (r == REST_BAD) {
        return fail(in->err, -EINVAL, "ValidationException",
                    "The value of %s cannot be understood", aws_name(in->s, m->out));
    }
    return r == REST_OK ? 0 : no_memory(in->err);
}

static int read_params(struct in *in, const struct aws_shape *sh,
                       const struct rest_json_route *t, const struct aws_http *rq, void *out)
{
    struct aws_params query = {.v = NULL};
    struct err e = ERR_INIT;
    if (aws_params_parse(in->a, &query, rq->query, &e) < 0) {
        return fail(in->err, -EINVAL, "ValidationException", "%s", e.msg);
    }
    int r = 0;
    for (uint16_t i = 0; r == 0 && i < sh->n; i++) {
        const struct aws_member *m = &in->s->members[sh->first + i];
        struct str value = STR_NONE;
        if (m->loc == AWS_LOC_QUERY) {
            value = aws_params_get(&query, aws_name(in->s, m->in));
        } else if (m->loc == AWS_LOC_HEADER) {
            value = aws_http_header(rq, aws_name(in->s, m->in));
        }
        for (size_t k = 0; m->loc == AWS_LOC_URI && k < t->n_labels; k++) {
            if (str_eqc(t->labels[k].name, aws_name(in->s, m->in))) {
                value = t->labels[k].value;
            }
        }
        r = str_is_set(value) ? set_param(in, m, value, out) : 0;
    }
    return r;
}

int rest_json_decode(const struct aws_service *s, const struct rest_json_route *t,
                     const struct aws_http *rq, struct arena *a, void *out, struct err *err)
{
    struct in in = {.s = s, .a = a, .err = err};
    uint16_t shape = s->ops[t->op].in;
    AUTO(json_freep) struct json *j = NULL;
    struct err e = ERR_INIT;
    if (shape == AWS_SHAPE_NONE) {
        return 0;
    }
    int r = read_params(&in, &s->shapes[shape], t, rq, out);
    if (r < 0) {
        return r;
    }
    const struct aws_member *p = payload_of(s, shape);
    if (p) {
        *(struct str *)(void *)((char *)out + p->off) = rq->body.p ? rq->body : STR("");
        return 0;
    }
    if (str_trim(rq->body).n == 0) {
        return 0;
    }
    if (json_parse(rq->body, &j, &e) < 0) {
        return fail(err, -EINVAL, "SerializationException", "The body is not JSON: %s", e.msg);
    }
    return set_struct(&in, shape, j, out);
}

/* ---- output ---- */

struct out {
    const struct aws_service *s;
    struct jw w;
};

static void put_value(struct out *o, uint16_t shape, const char *name, const void *at);

static void put_struct(struct out *o, uint16_t shape, const char *name, const void *v)
{
    const struct aws_shape *sh = &o->s->shapes[shape];
    jw_obj(&o->w, name);
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &o->s->members[sh->first + i];
        const struct aws_shape *ms = &o->s->shapes[m->shape];
        const void *at = (const char *)v + m->off;
        if (m->loc == AWS_LOC_BODY && !(m->flags & AWS_F_PAYLOAD) && rest_is_set(ms, at)) {
            put_value(o, m->shape, aws_name(o->s, m->out),
                      ms->type == AWS_T_STRUCT ? *(const void *const *)at : at);
        }
    }
    jw_obj_end(&o->w);
}

static void put_value(struct out *o, uint16_t shape, const char *name, const void *at)
{
    const struct aws_shape *sh = &o->s->shapes[shape];
    char text[48];
    switch ((enum aws_type)sh->type) {
    case AWS_T_STRUCT: put_struct(o, shape, name, at); break;
    case AWS_T_LIST: {
        const struct aws_any_list *l = at;
        jw_arr(&o->w, name);
        for (size_t i = 0; i < l->n; i++) {
            put_value(o, sh->elem, NULL, (const char *)l->v + i * sh->size);
        }
        jw_arr_end(&o->w);
        break;
    }
    case AWS_T_STR:
    case AWS_T_ENUM: jw_str(&o->w, name, *(const struct str *)at); break;
    case AWS_T_INT:
    case AWS_T_LONG: jw_i64(&o->w, name, ((const struct opt_i64 *)at)->v); break;
    case AWS_T_BOOL: jw_bool(&o->w, name, ((const struct opt_bool *)at)->v); break;
    case AWS_T_TIME: { /* seconds since 1970 */
        uint64_t ms = ((const struct opt_time *)at)->ns / NS_PER_MS;
        snprintf(text, sizeof(text), "%" PRIu64 ".%03u", ms / 1000, (unsigned)(ms % 1000));
        jw_raw(&o->w, name, str_c(text));
        break;
    }
    case AWS_T_BLOB: /* none is in JSON */
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE:
    case AWS_T_MAP: jw_null(&o->w, name); break;
    }
}

static int put_header(const struct aws_service *s, const struct aws_member *m, const void *at,
                      struct arena *a, struct rest_json_answer *ret)
{
    const struct aws_shape *ms = &s->shapes[m->shape];
    bool is_number = ms->type == AWS_T_INT || ms->type == AWS_T_LONG;
    struct str v = is_number ? arena_fmt(a, "%" PRId64, ((const struct opt_i64 *)at)->v)
                             : *(const struct str *)at;
    if (!v.p || ret->n == REST_JSON_HEADERS) {
        return -ENOMEM;
    }
    ret->headers[ret->n++] = (struct http_header){str_c(aws_name(s, m->out)), v};
    return 0;
}

int rest_json_encode(const struct aws_service *s, int op, const void *output, struct arena *a,
                     struct rest_json_answer *ret, struct buf *body, struct err *err)
{
    const struct aws_op *o = &s->ops[op];
    struct out out = {.s = s};
    int r = 0;
    *ret = (struct rest_json_answer){.status = o->status};
    jw_init(&out.w, body);
    if (o->out == AWS_SHAPE_NONE) {
        buf_addc(body, "{}");
        return 0;
    }
    const struct aws_shape *sh = &s->shapes[o->out];
    for (uint16_t i = 0; r == 0 && i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        const void *at = (const char *)output + m->off;
        if (m->loc == AWS_LOC_HEADER && rest_is_set(&s->shapes[m->shape], at)) {
            r = put_header(s, m, at, a, ret);
        }
    }
    const struct aws_member *p = payload_of(s, o->out);
    if (p) {
        ret->is_bytes = true;
        buf_add(body, *(const struct str *)(const void *)((const char *)output + p->off));
    } else {
        put_struct(&out, o->out, NULL, output);
    }
    return r < 0 || !buf_ok(body)
               ? fail(err, -ENOMEM, "InternalError", "an answer is too large")
               : 0;
}
