#include "aws/rest_int.h"

#include "aws/s3_name.h"
#include <errno.h>

/* How S3 names what is wrong with a value, where it is not InvalidArgument with a general text.
 */
enum {
    IGNORE_BAD = 1, /* taken as absent */
    ANY_CASE = 2,   /* clients vary */
    EMPTY_IS_BAD = 4,
};
static const struct rule {
    const char *name; /* on the wire, in lower case */
    const char *code, *msg;
    unsigned flags;
} rules[] = {
    {"encoding-type", NULL, "Invalid Encoding Method specified in Request", EMPTY_IS_BAD},
    {"if-modified-since", NULL, NULL, IGNORE_BAD},
    {"if-unmodified-since", NULL, NULL, IGNORE_BAD},
    {"max-buckets", NULL, "Provided max-buckets not an integer or within integer range", 0},
    {"max-keys", NULL, "Provided max-keys not an integer or within integer range", 0},
    {"max-parts", NULL, "Provided max-parts not an integer or within integer range", 0},
    {"max-uploads", NULL, "Provided max-uploads not an integer or within integer range", 0},
    {"part-number-marker", NULL,
     "Provided part-number-marker not an integer or within integer range", 0},
    {"partNumber", NULL, "Part number must be an integer between 1 and 10000, inclusive", 0},
    {"response-expires", NULL, NULL, IGNORE_BAD},
    {"x-amz-checksum-algorithm", "InvalidRequest",
     "Checksum algorithm provided is unsupported. Please try again with any of the valid "
     "types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
     ANY_CASE},
    {"x-amz-checksum-mode", NULL, "Value for x-amz-checksum-mode header is invalid.", ANY_CASE},
    {"x-amz-checksum-type", "InvalidRequest",
     "Value for x-amz-checksum-type header is invalid.", ANY_CASE},
    {"x-amz-copy-source-if-modified-since", NULL, NULL, IGNORE_BAD},
    {"x-amz-copy-source-if-unmodified-since", NULL, NULL, IGNORE_BAD},
    {"x-amz-metadata-directive", NULL, "Unknown metadata directive.", 0},
    {"x-amz-mp-object-size", "InvalidRequest",
     "Value for x-amz-mp-object-size header is invalid.", 0},
    {"x-amz-object-attributes", NULL, "Invalid attribute name specified.", 0},
    {"x-amz-object-lock-legal-hold", NULL, "Legal Hold must be either of 'ON' or 'OFF'", 0},
    {"x-amz-object-lock-mode", NULL, "Unknown wormMode directive.", 0},
    {"x-amz-object-lock-retain-until-date", NULL,
     "The retain until date must be provided in ISO 8601 format", 0},
    {"x-amz-object-ownership", NULL, "Invalid x-amz-object-ownership header", 0},
    {"x-amz-optional-object-attributes", NULL, "Invalid attribute name specified", 0},
    {"x-amz-sdk-checksum-algorithm", "InvalidRequest",
     "Checksum algorithm provided is unsupported. Please try again with any of the valid "
     "types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
     ANY_CASE},
    {"x-amz-server-side-encryption", "InvalidEncryptionAlgorithmError",
     "The encryption request that you specified is not valid. The valid value is AES256.", 0},
    {"x-amz-storage-class", "InvalidStorageClass",
     "The storage class you specified is not valid", 0},
    {"x-amz-tagging-directive", NULL, "Unknown tagging directive.", 0},
};

struct decoder {
    const struct aws_service *s;
    const struct aws_shape *sh; /* of the input */
    struct arena *a;
    struct rest_target *t;
    char *out;
    struct err *err;
    bool has_meta;
};

static int no_memory(struct err *err)
{
    return fail(err, -ENOMEM, "MaxMessageLengthExceeded", "Your request was too large.");
}

static const struct rule *rule_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (strcmp(rules[i].name, name) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

static int bad_value(struct decoder *d, const struct aws_member *m, const struct rule *r,
                     struct str value)
{
    /* Error bodies are XML and short. */
    const char *name = aws_name(d->s, m->out);
    rest_extra_add(&d->t->extra, "ArgumentName", str_c(name));
    rest_extra_add(&d->t->extra, "ArgumentValue",
                   str_n(value.p, MIN(value.n, (size_t)REST_MAX_KEY)));
    const char *code = r && r->code ? r->code : "InvalidArgument";
    if (r && r->msg) {
        return fail(d->err, -EINVAL, code, "%s", r->msg);
    }
    return fail(d->err, -EINVAL, code, "The value of %s is not valid.", name);
}

/* A header that comes twice counts as one whose values are joined, as it was signed. */
static int join(struct decoder *d, struct str more, struct str *to)
{
    char *p = arena_alloc(d->a, to->n + more.n + 2);
    if (!p) {
        return no_memory(d->err);
    }
    memcpy(p, to->p, to->n);
    p[to->n] = ',';
    if (more.n) {
        memcpy(p + to->n + 1, more.p, more.n);
    }
    *to = str_n(p, to->n + 1 + more.n);
    return 0;
}

/* The model's spelling of an enum's value that differs in case only. */
static struct str right_case(const struct decoder *d, const struct aws_shape *ms,
                             struct str text)
{
    for (uint16_t i = 0; ms->type == AWS_T_ENUM && i < ms->n; i++) {
        const char *v = aws_name(d->s, d->s->enums[ms->first + i]);
        if (str_ieqc(text, v)) {
            return str_c(v);
        }
    }
    return text;
}

static int set_list(struct decoder *d, const struct aws_member *m, struct str text, void *to)
{
    const struct aws_shape *ms = &d->s->shapes[m->shape], *es = &d->s->shapes[ms->elem];
    struct str rest = text, one;
    while (str_next(&rest, ',', &one)) {
        one = str_trim(one);
        void *at = rest_list_next(ms, to, d->a);
        if (!at) {
            return no_memory(d->err);
        }
        if (rest_set_scalar(d->s, es, 0, AWS_TS_RFC822, one, d->a, at) != REST_OK) {
            return bad_value(d, m, rule_of(aws_name(d->s, m->in)), one);
        }
    }
    return 0;
}

static int set_member(struct decoder *d, const struct aws_member *m, struct str text)
{
    const struct aws_shape *ms = &d->s->shapes[m->shape];
    void *to = d->out + m->off;
    if (ms->type == AWS_T_STR) {
        if (rest_is_set(ms, to)) {
            return join(d, text, to);
        }
        *(struct str *)to = text.p ? text : STR("");
        return 0;
    }
    if (ms->type == AWS_T_LIST) {
        return set_list(d, m, text, to);
    }
    const struct rule *r = text.n == 0 ? rule_of(aws_name(d->s, m->in)) : NULL;
    if (r && (r->flags & EMPTY_IS_BAD)) {
        return bad_value(d, m, r, text);
    }
    if (text.n == 0) {
        return 0; /* "max-keys=": as if it were not there */
    }
    enum rest_set rc = rest_set_scalar(d->s, ms, m->flags, AWS_TS_RFC822, text, d->a, to);
    if (rc == REST_BAD) {
        r = rule_of(aws_name(d->s, m->in));
        if (r && (r->flags & ANY_CASE)) {
            rc = rest_set_scalar(d->s, ms, m->flags, AWS_TS_RFC822, right_case(d, ms, text),
                                 d->a, to);
        }
    }
    if (rc == REST_OK || (rc == REST_BAD && r && (r->flags & IGNORE_BAD))) {
        return 0;
    }
    return rc == REST_FULL ? no_memory(d->err) : bad_value(d, m, r, text);
}

/* ---- where members come from ---- */

#define META_PREFIX "x-amz-meta-"

static int read_header(struct decoder *d, const struct http_header *h)
{
    char low[80];
    if (h->name.n >= sizeof(low)) {
        return 0; /* no header of the model is so long; metadata is read elsewhere */
    }
    for (size_t i = 0; i < h->name.n; i++) {
        char c = h->name.p[i];
        low[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    const struct aws_member *m = aws_member_by_in(d->s, d->sh, str_n(low, h->name.n));
    return m && m->loc == AWS_LOC_HEADER ? set_member(d, m, h->value) : 0;
}

static int read_headers(struct decoder *d, const struct aws_http *rq)
{
    for (size_t i = 0; i < rq->n_headers; i++) {
        const struct http_header *h = &rq->headers[i];
        if (h->name.n >= sizeof(META_PREFIX) - 1 &&
            str_ieqc(str_n(h->name.p, sizeof(META_PREFIX) - 1), META_PREFIX)) {
            d->has_meta = true;
            continue;
        }
        int rc = read_header(d, h);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_meta(struct decoder *d, const struct aws_http *rq)
{
    const struct aws_member *m = aws_member_by_in(d->s, d->sh, STR(META_PREFIX));
    struct s3_meta meta = {0};
    if (!d->has_meta || !m || m->loc != AWS_LOC_HEADERS) {
        return 0;
    }
    int rc = s3_meta_parse(d->a, rq->headers, rq->n_headers, &meta, &d->t->extra, d->err);
    if (rc < 0) {
        return rc;
    }
    struct s3_metadata *to = (void *)(d->out + m->off);
    to->v = arena_array(d->a, meta.n + 1, sizeof(*to->v));
    if (!to->v) {
        return no_memory(d->err);
    }
    to->n = meta.n;
    to->is_set = true;
    for (size_t i = 0; i < meta.n; i++) {
        to->v[i] = (struct s3_metadata_pair){.key = meta.v[i].key, .value = meta.v[i].value};
    }
    return 0;
}

static int read_query(struct decoder *d)
{
    for (size_t i = 0; i < d->t->query.n; i++) {
        const struct aws_param *p = &d->t->query.v[i];
        const struct aws_member *m = aws_member_by_in(d->s, d->sh, p->name);
        if (!m || m->loc != AWS_LOC_QUERY) {
            continue;
        }
        if (str_utf8_len(p->value) == SIZE_MAX) {
            rest_extra_add(&d->t->extra, "ArgumentName", str_c(aws_name(d->s, m->out)));
            return fail(d->err, -EINVAL, "InvalidArgument", "The value of %s is not UTF-8.",
                        aws_name(d->s, m->out));
        }
        if (d->s->shapes[m->shape].type == AWS_T_STR) {
            *(struct str *)(void *)(d->out + m->off) = p->value; /* the last one counts */
            continue;
        }
        int rc = set_member(d, m, p->value);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static void read_uri(struct decoder *d)
{
    const struct aws_member *b = aws_member_by_in(d->s, d->sh, STR("Bucket")),
                            *k = aws_member_by_in(d->s, d->sh, STR("Key"));
    if (b && b->loc == AWS_LOC_URI) {
        *(struct str *)(void *)(d->out + b->off) = d->t->bucket;
    }
    if (k && k->loc == AWS_LOC_URI) {
        *(struct str *)(void *)(d->out + k->off) = d->t->key;
    }
}

/* The XML or the text of the body. */
static int read_body(struct decoder *d, const struct aws_op *o,
                     const struct aws_member *payload, struct str body)
{
    const char *root = aws_name(d->s, o->root_in);
    if (payload && (payload->flags & AWS_F_STREAM)) {
        return 0;
    }
    if (!payload) {
        return *root ? rest_decode_xml(d->s, o->in, root, body, d->a, d->out, d->err) : 0;
    }
    if (str_trim(body).n == 0) {
        return (payload->flags & AWS_F_REQUIRED)
                   ? fail(d->err, -EINVAL, "MissingRequestBodyError", "Request Body is empty")
                   : 0;
    }
    const struct aws_shape *ms = &d->s->shapes[payload->shape];
    void *at = d->out + payload->off;
    if (ms->type != AWS_T_STRUCT) {
        *(struct str *)at = body;
        return 0;
    }
    void *v = arena_alloc(d->a, ms->size);
    if (!v) {
        return no_memory(d->err);
    }
    *(void **)at = v;
    return rest_decode_xml(d->s, payload->shape, root, body, d->a, v, d->err);
}

static int missing(struct decoder *d, const struct aws_member *m)
{
    const char *name = aws_name(d->s, m->out);
    if (m->loc == AWS_LOC_HEADER) {
        rest_extra_add(&d->t->extra, "MissingHeaderName", str_c(name));
        return fail(d->err, -EINVAL, "InvalidRequest",
                    "Missing required header for this request: %s", name);
    }
    rest_extra_add(&d->t->extra, "ArgumentName", str_c(name));
    return fail(d->err, -EINVAL, "InvalidArgument",
                "Missing required parameter for this request: %s", name);
}

int rest_decode(const struct aws_service *s, int op, const struct aws_http *rq,
                struct rest_target *t, struct arena *a, void **ret_input, struct err *err)
{
    *ret_input = NULL;
    if (op < 0 || op >= (int)s->n_ops || s->ops[op].in == AWS_SHAPE_NONE) {
        return 0;
    }
    const struct aws_op *o = &s->ops[op];
    const struct aws_member *payload = NULL;
    struct decoder d = {.s = s, .sh = &s->shapes[o->in], .a = a, .t = t, .err = err};
    d.out = arena_alloc(a, d.sh->size);
    if (!d.out) {
        return no_memory(err);
    }
    read_uri(&d);
    int rc = read_headers(&d, rq);
    rc = rc < 0 ? rc : read_query(&d);
    rc = rc < 0 ? rc : read_meta(&d, rq);
    for (uint16_t i = 0; rc == 0 && i < d.sh->n; i++) {
        const struct aws_member *m = &s->members[d.sh->first + i];
        if (m->flags & AWS_F_PAYLOAD) {
            payload = m;
        } else if ((m->flags & AWS_F_REQUIRED) && m->loc != AWS_LOC_BODY &&
                   !rest_is_set(&s->shapes[m->shape], d.out + m->off)) {
            rc = missing(&d, m);
        }
    }
    rc = rc < 0 ? rc : read_body(&d, o, payload, rq->body);
    if (rc == 0) {
        *ret_input = d.out;
    }
    return rc;
}
