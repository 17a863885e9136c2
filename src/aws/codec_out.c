#include "aws/codec_out.h"

#include "aws/validate.h"
#include "aws/xml_out.h"
#include "base/time.h"
#include "codec/base64.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void put_f64(struct buf *out, double v, int max_digits)
{
    char text[40];
    if (isnan(v)) {
        buf_addc(out, "NaN");
    } else if (isinf(v)) {
        buf_addc(out, v < 0 ? "-Infinity" : "Infinity");
    } else {
        /* The shortest form that reads back as the same number. */
        for (int digits = max_digits == 9 ? 6 : 15; digits <= max_digits; digits++) {
            snprintf(text, sizeof(text), "%.*g", digits, v);
            double back = strtod(text, NULL);
            if (max_digits == 9 ? (float)back == (float)v : back <= v && back >= v) {
                break;
            }
        }
        buf_addc(out, text);
    }
}

static void put_digits(char *p, unsigned v, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        p[i] = (char)('0' + v % 10);
        v /= 10;
    }
}

/* As time_iso_ms(), without the C library's calendar: a list of 1,000 objects has 1,000 times. */
static void put_iso_ms(uint64_t ns, struct buf *out)
{
    char text[TIME_ISO_SIZE];
    uint64_t sec = ns / NS_PER_S;
    if (sec >= UINT64_C(253402300800)) { /* year 10000 */
        buf_addc(out, time_iso_ms(ns, text));
        return;
    }
    /* Days since 0000-03-01 in eras of 400 years: the leap day is the last of its year. */
    unsigned days = (unsigned)(sec / 86400) + 719468, era = days / 146097, doe = days % 146097;
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    unsigned month = mp < 10 ? mp + 3 : mp - 9, rest = (unsigned)(sec % 86400);
    memcpy(text, "0000-00-00T00:00:00.000Z", 24);
    put_digits(text, yoe + era * 400 + (month <= 2), 4);
    put_digits(text + 5, month, 2);
    put_digits(text + 8, doy - (153 * mp + 2) / 5 + 1, 2);
    put_digits(text + 11, rest / 3600, 2);
    put_digits(text + 14, rest / 60 % 60, 2);
    put_digits(text + 17, rest % 60, 2);
    put_digits(text + 20, (unsigned)(ns % NS_PER_S / NS_PER_MS), 3);
    buf_add(out, str_n(text, 24));
}

static void put_time(const struct aws_service *s, unsigned flags, uint64_t ns, struct buf *out)
{
    char text[TIME_ISO_SIZE];
    switch ((flags & AWS_F_TS) >> 3) {
    case AWS_TS_UNIX: buf_fmt(out, "%" PRIu64, ns / NS_PER_S); break;
    case AWS_TS_RFC822: buf_addc(out, time_http(ns, text)); break;
    default:
        /* EC2 and S3 show milliseconds, always. */
        if (s->protocol == AWS_PROTOCOL_QUERY) {
            buf_addc(out, time_iso_s(ns, text));
        } else {
            put_iso_ms(ns, out);
        }
    }
}

static bool is_set(const struct aws_shape *sh, const void *v)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB: return ((const struct str *)v)->p != NULL;
    case AWS_T_BOOL: return ((const struct opt_bool *)v)->is_set;
    case AWS_T_INT:
    case AWS_T_LONG: return ((const struct opt_i64 *)v)->is_set;
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: return ((const struct opt_f64 *)v)->is_set;
    case AWS_T_TIME: return ((const struct opt_time *)v)->is_set;
    case AWS_T_LIST:
    case AWS_T_MAP: return ((const struct aws_any_list *)v)->is_set;
    case AWS_T_STRUCT: return true; /* the caller looked at the pointer */
    }
    return false;
}

static void put_i64(struct buf *out, int64_t v)
{
    char text[24], *p = text + sizeof(text);
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        *--p = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0) {
        *--p = '-';
    }
    buf_add(out, str_n(p, (size_t)(text + sizeof(text) - p)));
}

static void put_value(const struct aws_service *s, const struct aws_shape *sh, unsigned flags,
                      const void *v, struct buf *out);

/* <Grantee xmlns:xsi="..." xsi:type="CanonicalUser"> */
static void open_with_attrs(const struct aws_service *s, const struct aws_shape *sh,
                            const char *name, const void *v, struct buf *out)
{
    buf_fmt(out, "<%s xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"", name);
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        const struct str *at = (const void *)((const char *)v + m->off);
        if ((m->flags & AWS_F_ATTR) && at->p) {
            buf_fmt(out, " %s=\"", aws_name(s, m->out));
            xml_text(out, *at);
            buf_addc(out, "\"");
        }
    }
    buf_addc(out, ">");
}

/* One element: <name>value</name>, <name/> for an empty value. */
static void put_elem(const struct aws_service *s, const struct aws_shape *sh, unsigned flags,
                     const char *name, const void *v, struct buf *out)
{
    bool is_empty =
        (sh->type >= AWS_T_LIST && ((const struct aws_any_list *)v)->n == 0) ||
        ((sh->type == AWS_T_STR || sh->type == AWS_T_ENUM || sh->type == AWS_T_BLOB) &&
         ((const struct str *)v)->n == 0);
    if (is_empty) {
        xml_empty(out, name);
        return;
    }
    if (sh->type == AWS_T_STRUCT && (sh->flags & AWS_F_HAS_ATTR)) {
        open_with_attrs(s, sh, name, v, out);
    } else {
        xml_open(out, name);
    }
    put_value(s, sh, flags, v, out);
    xml_close(out, name);
}

static void put_entry(const struct aws_service *s, const struct aws_shape *sh, const char *name,
                      const char *el, struct buf *out)
{
    xml_open(out, name);
    put_elem(s, &s->shapes[sh->key], 0, aws_name(s, sh->el_in), el, out);
    put_elem(s, &s->shapes[sh->elem], 0, aws_name(s, sh->el_out), el + sizeof(struct str), out);
    xml_close(out, name);
}

static void put_list(const struct aws_service *s, const struct aws_shape *sh, const char *name,
                     const struct aws_any_list *l, struct buf *out)
{
    for (size_t i = 0; i < l->n; i++) {
        const char *el = (const char *)l->v + i * sh->size;
        if (sh->type == AWS_T_MAP) {
            put_entry(s, sh, name, el, out);
        } else {
            put_elem(s, &s->shapes[sh->elem], 0, name, el, out);
        }
    }
}

static void put_value(const struct aws_service *s, const struct aws_shape *sh, unsigned flags,
                      const void *v, struct buf *out)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM: xml_text(out, *(const struct str *)v); break;
    case AWS_T_BLOB: base64_encode(*(const struct str *)v, out); break;
    case AWS_T_BOOL: buf_addc(out, ((const struct opt_bool *)v)->v ? "true" : "false"); break;
    case AWS_T_INT:
    case AWS_T_LONG: put_i64(out, ((const struct opt_i64 *)v)->v); break;
    case AWS_T_FLOAT: put_f64(out, ((const struct opt_f64 *)v)->v, 9); break;
    case AWS_T_DOUBLE: put_f64(out, ((const struct opt_f64 *)v)->v, 17); break;
    case AWS_T_TIME:
        put_time(s, (flags & AWS_F_TS) ? flags : sh->flags, ((const struct opt_time *)v)->ns,
                 out);
        break;
    case AWS_T_LIST: put_list(s, sh, aws_name(s, sh->el_out), v, out); break;
    case AWS_T_MAP: put_list(s, sh, "entry", v, out); break;
    case AWS_T_STRUCT: aws_encode_struct(s, (uint16_t)(sh - s->shapes), v, out); break;
    }
}

static void put_member(const struct aws_service *s, const struct aws_member *m, const void *v,
                       struct buf *out)
{
    const struct aws_shape *ms = &s->shapes[m->shape];
    const void *at = (const char *)v + m->off;
    if (m->loc != AWS_LOC_BODY || (m->flags & AWS_F_ATTR)) {
        return; /* REST: a header, or written with its element's tag */
    }
    if (ms->type == AWS_T_STRUCT) {
        at = *(const void *const *)at;
    }
    if (!at || !is_set(ms, at)) {
        return;
    }
    bool is_list = ms->type >= AWS_T_LIST;
    if (is_list && ((m->flags | ms->flags) & AWS_F_FLAT)) {
        put_list(s, ms, aws_name(s, m->out), at, out);
    } else {
        put_elem(s, ms, m->flags, aws_name(s, m->out), at, out);
    }
}

void aws_encode_struct(const struct aws_service *s, uint16_t shape, const void *v,
                       struct buf *out)
{
    const struct aws_shape *sh = &s->shapes[shape];
    for (uint16_t i = 0; i < sh->n; i++) {
        put_member(s, &s->members[sh->first + i], v, out);
    }
}

/* DescribeXAttribute shows the one attribute that was asked for; the other Describes show their
 * sets even when empty. */
static bool shows_empty_sets(struct str op)
{
    return str_has_prefixc(op, "Describe") && !str_has_suffix(op, STR("Attribute"));
}

static void put_empty_sets(const struct aws_service *s, uint16_t shape, const void *v,
                           struct buf *out)
{
    const struct aws_shape *sh = &s->shapes[shape];
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        const struct aws_any_list *l = (const void *)((const char *)v + m->off);
        if (s->shapes[m->shape].type == AWS_T_LIST && !l->is_set) {
            xml_empty(out, aws_name(s, m->out));
        }
    }
}

int aws_encode(const struct aws_service *s, int op, const void *v, struct str request_id,
               struct buf *out, struct err *err)
{
    const struct aws_op *o = &s->ops[op];
    const char *name = aws_name(s, o->name);
    bool is_ec2 = s->protocol == AWS_PROTOCOL_EC2;
    buf_addc(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    buf_fmt(out, "<%sResponse xmlns=\"%s%s\">", name, s->xmlns, is_ec2 ? "/" : "");
    if (is_ec2) {
        xml_elem(out, "requestId", request_id);
    }
    if (o->out != AWS_SHAPE_NONE) {
        const char *wrap = aws_name(s, o->wrap);
        if (*wrap) {
            xml_open(out, wrap);
        }
        aws_encode_struct(s, o->out, v, out);
        if (is_ec2 && shows_empty_sets(str_c(name))) {
            put_empty_sets(s, o->out, v, out);
        }
        if (*wrap) {
            xml_close(out, wrap);
        }
    } else if (is_ec2) {
        xml_elemc(out, "return", "true");
    }
    if (!is_ec2) {
        xml_open(out, "ResponseMetadata");
        xml_elem(out, "RequestId", request_id);
        xml_close(out, "ResponseMetadata");
    }
    buf_fmt(out, "</%sResponse>", name);
    if (!buf_ok(out)) {
        return fail(err, -EFBIG, "InternalError", "The answer is larger than %zu bytes",
                    out->max);
    }
    return 0;
}
