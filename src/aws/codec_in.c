#include "aws/codec_in.h"

#include "aws/validate.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/base64.h"
#include "codec/uri.h"
#include <errno.h>
#include <math.h>

static int too_large(struct err *err)
{
    return fail(err, -ENOMEM, "RequestTooLarge",
                "The request is larger than this service accepts.");
}

int aws_params_parse(struct arena *a, struct aws_params *ps, struct str form, struct err *err)
{
    struct str name, value;
    while (uri_next_field(&form, &name, &value)) {
        if (ps->n == ps->cap) {
            size_t cap = ps->cap ? ps->cap * 2 : 32;
            struct aws_param *v =
                cap > 2 * AWS_MAX_PARAMS ? NULL : arena_array(a, cap, sizeof(*v));
            if (!v) {
                return too_large(err);
            }
            if (ps->n) {
                memcpy(v, ps->v, ps->n * sizeof(*v));
            }
            ps->v = v;
            ps->cap = cap;
        }
        if (ps->n >= AWS_MAX_PARAMS) {
            return too_large(err);
        }
        struct aws_param *p = &ps->v[ps->n];
        int rc = uri_decode(a, name, URI_PLUS_IS_SPACE, &p->name);
        if (rc == 0) {
            rc = uri_decode(a, str_is_set(value) ? value : STR(""), URI_PLUS_IS_SPACE,
                            &p->value);
        }
        if (rc == -ENOMEM) {
            return too_large(err);
        }
        if (rc < 0) {
            return fail(err, -EINVAL, "MalformedQueryString",
                        "The query string contains a syntax error");
        }
        ps->n++;
    }
    return 0;
}

struct str aws_params_get(const struct aws_params *ps, const char *name)
{
    for (size_t i = ps->n; i > 0; i--) {
        if (str_eqc(ps->v[i - 1].name, name)) {
            return ps->v[i - 1].value;
        }
    }
    return STR_NONE;
}

/* What one parameter is being written to. */
struct walk {
    const struct aws_service *s;
    struct arena *a;
    struct str name; /* whole, for messages */
    struct str value;
    struct err *err;
    unsigned depth;
};

static int unknown(const struct walk *w)
{
    return fail(w->err, -EINVAL, "UnknownParameter", "The parameter %.*s is not recognized",
                STR_ARG(w->name));
}

static int bad_value(const struct walk *w, const char *what)
{
    if (w->s->protocol == AWS_PROTOCOL_EC2) {
        return fail(w->err, -EINVAL, "InvalidParameterValue",
                    "Value (%.*s) for parameter %.*s is invalid. Expected %s.",
                    STR_ARG(w->value), STR_ARG(w->name), what);
    }
    return fail(w->err, -EINVAL, "ValidationError",
                "Value '%.*s' at '%.*s' is not valid: expected %s", STR_ARG(w->value),
                STR_ARG(w->name), what);
}

/* Takes the next part of a dotted name; false when there is none. */
static bool next_part(struct str *rest, struct str *ret)
{
    return rest->n > 0 && str_next(rest, '.', ret) && ret->n > 0;
}

/* Text that can go out again: UTF-8 without control characters (XML 1.0 section 2.2). */
static bool is_text(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 && c != '\t' && c != '\n' && c != '\r') {
            return false;
        }
    }
    return str_utf8_len(s) != SIZE_MAX;
}

static int set_bool(const struct walk *w, struct opt_bool *to)
{
    if (!str_ieqc(w->value, "true") && !str_ieqc(w->value, "false")) {
        return bad_value(w, "true or false");
    }
    *to = some_bool(str_ieqc(w->value, "true"));
    return 0;
}

static int set_f64(const struct walk *w, struct opt_f64 *to)
{
    char text[64];
    if (str_eqc(w->value, "NaN")) {
        *to = some_f64((double)NAN);
        return 0;
    }
    if (str_eqc(w->value, "Infinity") || str_eqc(w->value, "-Infinity")) {
        *to = some_f64(w->value.p[0] == '-' ? (double)-INFINITY : (double)INFINITY);
        return 0;
    }
    if (w->value.n == 0 || w->value.n >= sizeof(text)) {
        return bad_value(w, "a number");
    }
    for (size_t i = 0; i < w->value.n; i++) { /* no hexadecimal, no "inf", no white space */
        if (!strchr("0123456789+-.eE", w->value.p[i])) {
            return bad_value(w, "a number");
        }
        text[i] = w->value.p[i];
    }
    text[w->value.n] = '\0';
    char *end = NULL;
    double v = strtod(text, &end);
    if (*end != '\0' || end == text || !isfinite(v)) {
        return bad_value(w, "a number");
    }
    *to = some_f64(v);
    return 0;
}

/* Seconds since 1970 with an optional fraction. */
static int parse_unix(struct str s, uint64_t *ret_ns)
{
    struct str whole = str_cut(s, '.'), frac = str_skip(s, whole.n + 1);
    uint64_t sec = 0, ns = 0;
    if (num_u64(whole, UINT64_MAX / NS_PER_S - 1, &sec) < 0 || (whole.n < s.n && frac.n == 0)) {
        return -EINVAL;
    }
    for (size_t i = 0; i < 9; i++) {
        char c = i < frac.n ? frac.p[i] : '0';
        if (c < '0' || c > '9') {
            return -EINVAL;
        }
        ns = ns * 10 + (uint64_t)(c - '0');
    }
    *ret_ns = sec * NS_PER_S + ns;
    return frac.n > 9 ? -EINVAL : 0;
}

static int set_time(const struct walk *w, unsigned flags, struct opt_time *to)
{
    unsigned ts = (flags & AWS_F_TS) >> 3;
    uint64_t ns = 0;
    int rc = -EINVAL;
    if (ts == AWS_TS_RFC822) {
        rc = time_parse_http(w->value, &ns);
    } else if (ts != AWS_TS_UNIX) {
        rc = time_parse_iso(w->value, &ns);
    }
    if (rc < 0 && ts != AWS_TS_ISO && ts != AWS_TS_RFC822) {
        rc = parse_unix(w->value, &ns);
    }
    if (rc < 0) {
        return bad_value(w, "a time such as 2026-11-30T14:49:10Z");
    }
    *to = some_time(ns);
    return 0;
}

static int set_blob(const struct walk *w, struct str *to)
{
    AUTO_BUF out;
    buf_init(&out, w->value.n + 4);
    if (base64_decode(w->value, &out) < 0) {
        return bad_value(w, "base64");
    }
    *to = arena_str_dup(w->a, buf_str(&out));
    return to->p ? 0 : too_large(w->err);
}

static int set_scalar(const struct walk *w, const struct aws_shape *sh, unsigned flags,
                      void *to)
{
    int64_t i = 0;
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
        if (!is_text(w->value)) {
            return fail(w->err, -EINVAL,
                        w->s->protocol == AWS_PROTOCOL_EC2 ? "InvalidParameterValue"
                                                           : "ValidationError",
                        "The parameter %.*s contains characters that are not allowed",
                        STR_ARG(w->name));
        }
        *(struct str *)to = w->value;
        return 0;
    case AWS_T_BOOL: return set_bool(w, to);
    case AWS_T_INT:
        if (num_i64(w->value, INT32_MIN, INT32_MAX, &i) < 0) {
            return bad_value(w, "an integer");
        }
        *(struct opt_i64 *)to = some_i64(i);
        return 0;
    case AWS_T_LONG:
        if (num_i64(w->value, INT64_MIN, INT64_MAX, &i) < 0) {
            return bad_value(w, "an integer");
        }
        *(struct opt_i64 *)to = some_i64(i);
        return 0;
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: return set_f64(w, to);
    case AWS_T_TIME:
        return set_time(w, flags | (sh->flags & (flags & AWS_F_TS ? 0u : AWS_F_TS)), to);
    case AWS_T_BLOB: return set_blob(w, to);
    case AWS_T_STRUCT:
    case AWS_T_LIST:
    case AWS_T_MAP: break;
    }
    return unknown(w);
}

/* Capacity that a list of n elements has: a power of two, at least 4. */
static size_t cap_for(size_t n)
{
    size_t cap = 4;
    while (cap < n) {
        cap *= 2;
    }
    return n ? cap : 0;
}

/* The element 'idx' (from 1), growing the list. */
static int list_at(const struct walk *w, const struct aws_shape *sh, struct aws_any_list *l,
                   struct str part, void **ret)
{
    uint64_t idx = 0;
    int rc = num_u64(part, UINT32_MAX, &idx);
    if (rc == -EINVAL || (rc == 0 && idx == 0)) {
        return unknown(w);
    }
    if (rc < 0 || idx > AWS_MAX_LIST || idx > l->n + AWS_MAX_LIST_AHEAD) {
        return fail(w->err, -EINVAL,
                    w->s->protocol == AWS_PROTOCOL_EC2 ? "InvalidParameterValue"
                                                       : "ValidationError",
                    "The parameter %.*s is out of range: lists have at most %u entries without "
                    "large gaps",
                    STR_ARG(w->name), AWS_MAX_LIST);
    }
    if (idx > cap_for(l->n)) {
        void *v = arena_array(w->a, cap_for(idx), sh->size);
        if (!v) {
            return too_large(w->err);
        }
        if (l->n) {
            memcpy(v, l->v, l->n * sh->size);
        }
        l->v = v;
    }
    l->n = idx > l->n ? idx : l->n;
    l->is_set = true;
    *ret = (char *)l->v + (idx - 1) * sh->size;
    return 0;
}

static int set(struct walk *w, uint16_t shape, unsigned flags, void *to, bool is_member,
               struct str rest);

static int set_list(struct walk *w, const struct aws_shape *sh, unsigned flags,
                    struct aws_any_list *l, struct str rest)
{
    struct str part;
    if (rest.n == 0) { /* "Foo=": an empty list */
        l->is_set = true;
        return w->value.n == 0 ? 0 : unknown(w);
    }
    bool is_flat = w->s->protocol == AWS_PROTOCOL_EC2 || ((flags | sh->flags) & AWS_F_FLAT);
    if (!is_flat && (!next_part(&rest, &part) || !str_eqc(part, aws_name(w->s, sh->el_in)))) {
        return unknown(w);
    }
    void *el = NULL;
    if (!next_part(&rest, &part)) {
        return unknown(w);
    }
    int rc = list_at(w, sh, l, part, &el);
    return rc < 0 ? rc : set(w, sh->elem, 0, el, false, rest);
}

static int set_map(struct walk *w, const struct aws_shape *sh, unsigned flags,
                   struct aws_any_list *l, struct str rest)
{
    struct str part;
    if (rest.n == 0) {
        l->is_set = true;
        return w->value.n == 0 ? 0 : unknown(w);
    }
    bool is_flat = ((flags | sh->flags) & AWS_F_FLAT) != 0;
    if (!is_flat && (!next_part(&rest, &part) || !str_eqc(part, "entry"))) {
        return unknown(w);
    }
    void *el = NULL;
    if (!next_part(&rest, &part)) {
        return unknown(w);
    }
    int rc = list_at(w, sh, l, part, &el);
    if (rc < 0) {
        return rc;
    }
    if (!next_part(&rest, &part)) {
        return unknown(w);
    }
    if (str_eqc(part, aws_name(w->s, sh->el_in))) {
        return set(w, sh->key, 0, el, false, rest);
    }
    if (str_eqc(part, aws_name(w->s, sh->el_out))) {
        return set(w, sh->elem, 0, (char *)el + sizeof(struct str), false, rest);
    }
    return unknown(w);
}

static int set_struct(struct walk *w, const struct aws_shape *sh, void *to, struct str rest)
{
    struct str part;
    if (rest.n == 0) { /* "Foo=": a structure without members */
        return w->value.n == 0 ? 0 : unknown(w);
    }
    if (!next_part(&rest, &part)) {
        return unknown(w);
    }
    const struct aws_member *m = aws_member_by_in(w->s, sh, part);
    if (!m) {
        return unknown(w);
    }
    return set(w, m->shape, m->flags, (char *)to + m->off, true, rest);
}

static int set(struct walk *w, uint16_t shape, unsigned flags, void *to, bool is_member,
               struct str rest)
{
    const struct aws_shape *sh = &w->s->shapes[shape];
    if (++w->depth > AWS_MAX_DEPTH) {
        return unknown(w);
    }
    switch ((enum aws_type)sh->type) {
    case AWS_T_STRUCT:
        if (is_member) {
            void **p = to;
            if (!*p && !(*p = arena_alloc(w->a, sh->size))) {
                return too_large(w->err);
            }
            to = *p;
        }
        return set_struct(w, sh, to, rest);
    case AWS_T_LIST: return set_list(w, sh, flags, to, rest);
    case AWS_T_MAP: return set_map(w, sh, flags, to, rest);
    default: return rest.n ? unknown(w) : set_scalar(w, sh, flags, to);
    }
}

static bool is_protocol_param(struct str name)
{
    static const char *const names[] = {"Action",    "Version",         "AWSAccessKeyId",
                                        "Signature", "SignatureMethod", "SignatureVersion",
                                        "Timestamp", "Expires",         "SecurityToken"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (str_eqc(name, names[i])) {
            return true;
        }
    }
    return str_has_prefixc(name, "X-Amz-");
}

int aws_decode_unchecked(const struct aws_service *s, uint16_t shape,
                         const struct aws_params *ps, struct arena *a, void *out,
                         struct err *err)
{
    static const struct aws_shape no_members = {.type = AWS_T_STRUCT};
    const struct aws_shape *sh = shape == AWS_SHAPE_NONE ? &no_members : &s->shapes[shape];
    size_t used = arena_used(a);
    for (size_t i = 0; i < ps->n; i++) {
        if (arena_used(a) - used >
            AWS_MAX_DECODED) { /* a few parameters can name large lists of large structures */
            return too_large(err);
        }
        struct walk w = {
            .s = s, .a = a, .name = ps->v[i].name, .value = ps->v[i].value, .err = err};
        /* An operation may have a member of that name of its own (Expires, Version). */
        if (is_protocol_param(w.name) && !aws_member_by_in(s, sh, w.name)) {
            continue;
        }
        int rc = w.name.n == 0 || w.name.p[w.name.n - 1] == '.'
                     ? unknown(&w)
                     : set_struct(&w, sh, out, w.name);
        if (rc < 0) {
            return rc;
        }
    }
    if (shape != AWS_SHAPE_NONE) {
        aws_compact(s, shape, out);
    }
    return 0;
}

int aws_decode(const struct aws_service *s, uint16_t shape, const struct aws_params *ps,
               struct arena *a, void *out, struct err *err)
{
    int rc = aws_decode_unchecked(s, shape, ps, a, out, err);
    return rc < 0 || shape == AWS_SHAPE_NONE ? rc : aws_validate(s, shape, out, err);
}
