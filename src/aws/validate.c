#include "aws/validate.h"

#include "aws/pattern.h"
#include "base/buf.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- compaction ---- */

static bool is_zero(const unsigned char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static void compact(const struct aws_service *s, const struct aws_shape *sh, void *v);

static void compact_list(const struct aws_service *s, const struct aws_shape *sh,
                         struct aws_any_list *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        unsigned char *el = (unsigned char *)l->v + i * sh->size;
        if (is_zero(el, sh->size)) {
            continue;
        }
        if (n != i) {
            memmove((unsigned char *)l->v + n * sh->size, el, sh->size);
        }
        void *at = (unsigned char *)l->v + n * sh->size;
        compact(s, &s->shapes[sh->elem],
                sh->type == AWS_T_MAP ? (unsigned char *)at + sizeof(struct str) : at);
        n++;
    }
    l->n = n;
}

static void compact(const struct aws_service *s, const struct aws_shape *sh, void *v)
{
    if (sh->type == AWS_T_LIST || sh->type == AWS_T_MAP) {
        compact_list(s, sh, v);
    }
    for (uint16_t i = 0; sh->type == AWS_T_STRUCT && i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        const struct aws_shape *ms = &s->shapes[m->shape];
        void *at = (char *)v + m->off;
        if (ms->type == AWS_T_STRUCT) {
            at = *(void **)at;
        }
        if (at && ms->type >= AWS_T_STRUCT) {
            compact(s, ms, at);
        }
    }
}

void aws_compact(const struct aws_service *s, uint16_t shape, void *v)
{
    compact(s, &s->shapes[shape], v);
}

/* ---- checks ---- */

struct path { /* where a value is: a name, or an index when name is NULL */
    const struct path *up;
    const char *name;
    size_t idx;
};

struct check {
    const struct aws_service *s;
    struct buf msgs; /* query: all that is wrong */
    unsigned n_msgs;
    struct err *err;
};

enum { MAX_MSGS = 10 };

/* EC2 names the first thing that is wrong, the others count and name all. */
static bool tells_all(const struct aws_service *s)
{
    return s->protocol == AWS_PROTOCOL_QUERY || s->protocol == AWS_PROTOCOL_REST_JSON;
}

/* "BlockDeviceMapping.1.Ebs.VolumeSize"; query says "blockDeviceMapping.1.member.ebs". */
static void path_fmt(const struct check *c, const struct path *p, struct buf *out)
{
    if (p->up) {
        path_fmt(c, p->up, out);
        buf_addc(out, ".");
    }
    if (!p->name) {
        buf_fmt(out, "%zu", p->idx + 1);
    } else if (tells_all(c->s) && p->name[0] >= 'A' && p->name[0] <= 'Z') {
        buf_add_char(out, (char)(p->name[0] + 32));
        buf_addc(out, p->name + 1);
    } else {
        buf_addc(out, p->name);
    }
}

/* EC2 spells parameters in messages with a small first letter. */
static void path_lower(const struct check *c, const struct path *p, struct buf *out)
{
    path_fmt(c, p, out);
    if (out->n && out->p[0] >= 'A' && out->p[0] <= 'Z') {
        out->p[0] = (char)(out->p[0] + 32);
    }
}

/* Adds one of several complaints of the query protocol. 'value' NULL: it is absent; "" with
 * is_hidden. */
static int complain(struct check *c, const struct path *p, const char *value, const char *what)
{
    if (c->n_msgs++ >= MAX_MSGS) {
        return 0;
    }
    if (c->n_msgs > 1) {
        buf_addc(&c->msgs, "; ");
    }
    if (!value) {
        buf_addc(&c->msgs, "Value null at '");
    } else if (*value) {
        buf_fmt(&c->msgs, "Value '%s' at '", value);
    } else {
        buf_addc(&c->msgs, "Value at '");
    }
    path_fmt(c, p, &c->msgs);
    buf_fmt(&c->msgs, "' failed to satisfy constraint: %s", what);
    return 0;
}

static int missing(struct check *c, const struct path *p)
{
    if (tells_all(c->s)) {
        return complain(c, p, NULL, "Member must not be null");
    }
    AUTO_BUF name;
    buf_init(&name, 512);
    path_fmt(c, p, &name);
    return fail(c->err, -EINVAL, "MissingParameter",
                "The request must contain the parameter %s", buf_cstr(&name));
}

/* Something is wrong with a value that is there. */
static int invalid(struct check *c, const struct path *p, const struct aws_shape *sh,
                   struct str value, const char *ec2, const char *query)
{
    char shown[160];
    bool is_hidden = (sh->flags & AWS_F_SENSITIVE) != 0 || value.n == 0;
    snprintf(shown, sizeof(shown), "%.*s", is_hidden ? 0 : (int)MIN(value.n, (size_t)128),
             value.p ? value.p : "");
    if (tells_all(c->s)) {
        return complain(c, p, shown, query);
    }
    AUTO_BUF name;
    buf_init(&name, 512);
    path_lower(c, p, &name);
    return fail(c->err, -EINVAL, "InvalidParameterValue",
                "Value (%s) for parameter %s is invalid. %s", shown, buf_cstr(&name), ec2);
}

/* A length ("length", list or text) or a value against min and max. */
static int check_range(struct check *c, const struct path *p, const struct aws_shape *sh,
                       double v, struct str shown, const char *what)
{
    const struct aws_limit *l = &c->s->limits[sh->limit];
    if (sh->limit == 0) {
        return 0;
    }
    char ec2[160], query[160];
    bool is_low = l->has_min && !(v >= l->min), is_high = l->has_max && !(v <= l->max);
    if (!is_low && !is_high) {
        return 0;
    }
    double limit = is_low ? l->min : l->max;
    snprintf(ec2, sizeof(ec2), "Expecting a %s %s %.15g.", what,
             is_low ? "greater than or equal to" : "less than or equal to", limit);
    snprintf(query, sizeof(query), "Member must have %s %s than or equal to %.15g", what,
             is_low ? "greater" : "less", limit);
    return invalid(c, p, sh, shown, ec2, query);
}

static int check_enum(struct check *c, const struct path *p, const struct aws_shape *sh,
                      struct str value)
{
    if ((sh->flags & AWS_F_OPEN_ENUM) || aws_enum_has(c->s, sh, value)) {
        return 0;
    }
    AUTO_BUF set;
    buf_init(&set, 512); /* a longer set is cut: the message has an end too */
    buf_addc(&set, "Member must satisfy enum value set: [");
    for (uint16_t i = 0; i < sh->n && set.n < 400; i++) {
        buf_fmt(&set, "%s%s", i ? ", " : "", aws_name(c->s, c->s->enums[sh->first + i]));
    }
    buf_addc(&set, "]");
    return invalid(c, p, sh, value, "It is not one of the values that this parameter can have.",
                   buf_cstr(&set));
}

/* Patterns are the query services' business: EC2 enforces hardly any of its model's. */
static int check_text(struct check *c, const struct path *p, const struct aws_shape *sh,
                      struct str s)
{
    if (sh->limit == 0 || !s.p) {
        return 0;
    }
    const char *pattern = aws_name(c->s, c->s->limits[sh->limit].pattern);
    int rc = check_range(c, p, sh, (double)str_utf8_len(s), s, "length");
    if (rc == 0 && *pattern && tells_all(c->s) &&
        pattern_match(pattern, s) == PATTERN_DIFFERS) {
        char what[256];
        snprintf(what, sizeof(what), "Member must satisfy regular expression pattern: %s",
                 pattern);
        rc = invalid(c, p, sh, s, "", what);
    }
    return rc;
}

static int check(struct check *c, const struct path *p, uint16_t shape, void *v);

static int check_list(struct check *c, const struct path *p, const struct aws_shape *sh,
                      const struct aws_any_list *l)
{
    char shown[40];
    snprintf(shown, sizeof(shown), "%zu entries", l->n);
    int rc = l->is_set ? check_range(c, p, sh, (double)l->n, str_c(shown), "length") : 0;
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        char *el = (char *)l->v + i * sh->size;
        struct path here = {.up = p, .idx = i};
        if (sh->type == AWS_T_MAP) {
            rc = check(c, &here, sh->key, el);
            el += sizeof(struct str);
        }
        if (rc == 0) {
            rc = check(c, &here, sh->elem, el);
        }
    }
    return rc;
}

static bool is_absent(const struct aws_shape *sh, const void *at, bool is_empty_absent)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB: return !((const struct str *)at)->p;
    case AWS_T_BOOL: return !((const struct opt_bool *)at)->is_set;
    case AWS_T_INT:
    case AWS_T_LONG: return !((const struct opt_i64 *)at)->is_set;
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: return !((const struct opt_f64 *)at)->is_set;
    case AWS_T_TIME: return !((const struct opt_time *)at)->is_set;
    case AWS_T_STRUCT: return !*(void *const *)at;
    case AWS_T_LIST:
    case AWS_T_MAP: {
        const struct aws_any_list *l = at;
        return !l->is_set || (is_empty_absent && l->n == 0);
    }
    }
    return true;
}

static int check_struct(struct check *c, const struct path *p, const struct aws_shape *sh,
                        void *v)
{
    /* EC2 cannot send an empty list at all, so an empty required one is a missing one. */
    bool is_ec2 = c->s->protocol == AWS_PROTOCOL_EC2;
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &c->s->members[sh->first + i];
        const struct aws_shape *ms = &c->s->shapes[m->shape];
        void *at = (char *)v + m->off;
        struct path here = {.up = p, .name = aws_name(c->s, m->in)};
        int rc = 0;
        if (is_absent(ms, at, is_ec2)) {
            rc = (m->flags & AWS_F_REQUIRED) && !(m->flags & AWS_F_TOKEN) ? missing(c, &here)
                                                                          : 0;
        } else {
            rc = check(c, &here, m->shape, ms->type == AWS_T_STRUCT ? *(void **)at : at);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int check(struct check *c, const struct path *p, uint16_t shape, void *v)
{
    const struct aws_shape *sh = &c->s->shapes[shape];
    char shown[32];
    switch ((enum aws_type)sh->type) {
    case AWS_T_STRUCT: return check_struct(c, p, sh, v);
    case AWS_T_LIST:
    case AWS_T_MAP: return check_list(c, p, sh, v);
    case AWS_T_ENUM: return check_enum(c, p, sh, *(const struct str *)v);
    case AWS_T_STR: return check_text(c, p, sh, *(const struct str *)v);
    case AWS_T_BLOB: {
        struct str s = *(const struct str *)v;
        return check_range(c, p, sh, (double)s.n, STR(""), "length");
    }
    case AWS_T_INT:
    case AWS_T_LONG: {
        struct opt_i64 i = *(const struct opt_i64 *)v;
        snprintf(shown, sizeof(shown), "%" PRId64, i.v);
        return i.is_set ? check_range(c, p, sh, (double)i.v, str_c(shown), "value") : 0;
    }
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: {
        struct opt_f64 d = *(const struct opt_f64 *)v;
        snprintf(shown, sizeof(shown), "%.15g", d.v);
        return d.is_set ? check_range(c, p, sh, d.v, str_c(shown), "value") : 0;
    }
    case AWS_T_BOOL:
    case AWS_T_TIME: break;
    }
    return 0;
}

int aws_validate(const struct aws_service *s, uint16_t shape, void *v, struct err *err)
{
    struct check c = {.s = s, .err = err};
    buf_init(&c.msgs, ERR_MSG_MAX * 4);
    int rc = check_struct(&c, NULL, &s->shapes[shape], v);
    if (rc == 0 && c.n_msgs > 0) {
        rc = fail(err, -EINVAL, "ValidationError", "%u validation error%s detected: %s",
                  c.n_msgs, c.n_msgs == 1 ? "" : "s", buf_ok(&c.msgs) ? buf_cstr(&c.msgs) : "");
    }
    buf_done(&c.msgs);
    return rc;
}
