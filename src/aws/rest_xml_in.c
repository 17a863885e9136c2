#include "aws/rest_int.h"

#include "codec/xml.h"
#include <errno.h>

/* An element that is open. */
struct frame {
    uint16_t shape;
    uint16_t flags; /* of its member */
    void *at;       /* a structure, a list, or the place of a scalar */
};

struct reader {
    const struct aws_service *s;
    struct arena *a;
    const char *root;
    struct frame v[REST_MAX_DEPTH];
    unsigned n;
    uint16_t shape; /* of the root */
    void *out;
    size_t used; /* of the arena, before */
    struct err *err;
};

static int malformed(struct err *err)
{
    return fail(err, -EINVAL, "MalformedXML",
                "The XML you provided was not well-formed or did not validate against our "
                "published schema");
}

static int too_large(struct err *err)
{
    return fail(err, -ENOMEM, "MaxMessageLengthExceeded", "Your request was too large.");
}

/* Clients leave the namespace out, or use one of the older forms of it. */
static bool is_our_ns(const struct reader *r, struct str ns)
{
    return ns.n == 0 || str_eqc(ns, r->s->xmlns) ||
           str_eqc(ns, "https://s3.amazonaws.com/doc/2006-03-01/") ||
           str_eqc(ns, "http://s3.amazonaws.com/doc/2006-03-01") ||
           str_eqc(ns, "http://doc.s3.amazonaws.com/2006-03-01") ||
           str_eqc(ns, "http://doc.s3.amazonaws.com/2006-03-01/");
}

static int push(struct reader *r, uint16_t shape, uint16_t flags, void *at)
{
    if (r->n == ARRAY_LEN(r->v)) {
        return malformed(r->err);
    }
    r->v[r->n++] = (struct frame){shape, flags, at};
    return 0;
}

/* xsi:type and nothing else. */
static int read_attrs(struct reader *r, const struct xml_elem_in *el)
{
    const struct frame *f = &r->v[r->n - 1];
    const struct aws_shape *sh = &r->s->shapes[f->shape];
    for (size_t i = 0; i < el->n_attrs; i++) {
        const struct xml_attr *at = &el->attrs[i];
        const struct aws_member *m =
            sh->type == AWS_T_STRUCT ? aws_member_by_in(r->s, sh, at->name) : NULL;
        if (!m || !(m->flags & AWS_F_ATTR)) {
            continue; /* schema locations and the like mean nothing */
        }
        struct str value = arena_str_dup(r->a, at->value);
        if (!value.p) {
            return too_large(r->err);
        }
        if (rest_set_scalar(r->s, &r->s->shapes[m->shape], m->flags, AWS_TS_ISO, value, r->a,
                            (char *)f->at + m->off) != REST_OK) {
            return malformed(r->err);
        }
    }
    return 0;
}

/* An element of a list: 'sh' is the list's shape. */
static int push_item(struct reader *r, const struct aws_shape *sh, void *list)
{
    struct arena *a = r->a;
    if (((const struct aws_str_list *)list)->n >= REST_MAX_ITEMS) {
        return malformed(r->err);
    }
    void *at = rest_list_next(sh, list, a);
    return at ? push(r, sh->elem, 0, at) : too_large(r->err);
}

static int start_member(struct reader *r, const struct frame *top, struct str name)
{
    const struct aws_shape *sh = &r->s->shapes[top->shape];
    const struct aws_member *m = aws_member_by_in(r->s, sh, name);
    if (!m || m->loc != AWS_LOC_BODY || (m->flags & AWS_F_ATTR)) {
        return malformed(r->err);
    }
    const struct aws_shape *ms = &r->s->shapes[m->shape];
    void *at = (char *)top->at + m->off;
    bool is_flat = ms->type == AWS_T_LIST && ((m->flags | ms->flags) & AWS_F_FLAT);
    if (is_flat) {
        return push_item(r, ms, at);
    }
    if (rest_is_set(ms, at)) {
        return malformed(r->err); /* twice */
    }
    if (ms->type == AWS_T_LIST) {
        ((struct aws_str_list *)at)->is_set = true;
    } else if (ms->type == AWS_T_STRUCT) {
        void *v = arena_alloc(r->a, ms->size);
        if (!v) {
            return too_large(r->err);
        }
        *(void **)at = v;
        at = v;
    }
    return push(r, m->shape, m->flags, at);
}

static int on_start(void *ctx, const struct xml_elem_in *el)
{
    struct reader *r = ctx;
    int rc;
    if (arena_used(r->a) - r->used > REST_MAX_DECODED) {
        return too_large(r->err);
    }
    if (!is_our_ns(r, el->ns)) {
        return malformed(r->err);
    }
    if (r->n == 0) {
        rc = str_eqc(el->name, r->root) ? push(r, r->shape, 0, r->out) : malformed(r->err);
        return rc < 0 ? rc : read_attrs(r, el);
    }
    const struct frame top = r->v[r->n - 1];
    const struct aws_shape *sh = &r->s->shapes[top.shape];
    if (sh->type == AWS_T_STRUCT) {
        rc = start_member(r, &top, el->name);
    } else if (sh->type == AWS_T_LIST && str_eqc(el->name, aws_name(r->s, sh->el_in))) {
        rc = push_item(r, sh, top.at);
    } else {
        rc = malformed(r->err);
    }
    return rc < 0 ? rc : read_attrs(r, el);
}

static int check_required(const struct reader *r, const struct frame *f)
{
    const struct aws_shape *sh = &r->s->shapes[f->shape];
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &r->s->members[sh->first + i];
        if ((m->flags & AWS_F_REQUIRED) && m->loc == AWS_LOC_BODY &&
            !rest_is_set(&r->s->shapes[m->shape], (const char *)f->at + m->off)) {
            return malformed(r->err);
        }
    }
    return 0;
}

static int on_end(void *ctx, struct str name, struct str text)
{
    struct reader *r = ctx;
    const struct frame f = r->v[--r->n];
    const struct aws_shape *sh = &r->s->shapes[f.shape];
    if (sh->type == AWS_T_STRUCT) {
        return str_trim(text).n ? malformed(r->err) : check_required(r, &f);
    }
    if (sh->type == AWS_T_LIST || sh->type == AWS_T_MAP) {
        return str_trim(text).n ? malformed(r->err) : 0;
    }
    text = sh->type == AWS_T_STR ? text : str_trim(text);
    bool is_text = sh->type == AWS_T_STR || sh->type == AWS_T_ENUM;
    struct str kept = is_text ? arena_str_dup(r->a, text) : text;
    enum rest_set rc = is_text && !kept.p
                           ? REST_FULL
                           : rest_set_scalar(r->s, sh, f.flags, AWS_TS_ISO, kept, r->a, f.at);
    return rc == REST_OK ? 0 : rc == REST_FULL ? too_large(r->err) : malformed(r->err);
}

int rest_decode_xml(const struct aws_service *s, uint16_t shape, const char *root,
                    struct str body, struct arena *a, void *out, struct err *err)
{
    static const struct xml_events events = {on_start, on_end};
    const struct xml_limits limits = {
        .max_size = REST_MAX_XML, .max_depth = REST_MAX_DEPTH, .max_elements = 250000};
    struct reader r = {.s = s,
                       .a = a,
                       .root = root,
                       .shape = shape,
                       .out = out,
                       .used = arena_used(a),
                       .err = err};
    struct err said = ERR_INIT;
    /* Our call-backs fill *err; what the reader itself says becomes S3's one sentence. */
    int rc = xml_parse(body, &limits, &events, &r, &said);
    if (rc < 0 && said.code < 0) {
        return body.n > REST_MAX_XML ? too_large(err) : malformed(err);
    }
    return rc;
}
