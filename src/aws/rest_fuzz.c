/* Requests of strangers to S3. Input: "METHOD TARGET\nName: value\n...\n\nBODY".
 * Invariants: memory stays bounded; refusals have codes of S3 and well-formed bodies; what is
 *             accepted names a key of UTF-8 within the limit, and an operation that the table
 *             knows; XML that is accepted says the same when it is written and read again; the
 *             same request gives the same. */
#include "aws/rest.h"
#include "codec/xml.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct aws_service *const s3 = &aws_service_s3;

struct outcome {
    int op, rc;
    struct str xml; /* of the payload */
};

static bool split(struct str in, struct http_header *h, size_t max, struct aws_http *ret)
{
    struct str line, target;
    *ret = (struct aws_http){.query = STR_NONE, .body = STR(""), .headers = h};
    if (!in.p || !str_next(&in, '\n', &line)) {
        return false;
    }
    ret->method = str_cut(line, ' ');
    target = str_skip(line, ret->method.n + 1);
    ret->path = str_cut(target, '?');
    if (ret->path.n < target.n) {
        ret->query = str_skip(target, ret->path.n + 1);
    }
    while (in.p && str_next(&in, '\n', &line) && line.n > 0 && ret->n_headers < max) {
        /* The server lets no control bytes through. */
        for (size_t i = 0; i < line.n; i++) {
            unsigned char c = (unsigned char)line.p[i];
            if ((c < 0x20 && c != '\t') || c == 0x7f) {
                return false;
            }
        }
        h[ret->n_headers].name = str_cut(line, ':');
        h[ret->n_headers].value = str_trim(str_skip(line, h[ret->n_headers].name.n + 1));
        ret->n_headers++;
    }
    ret->body = in.p ? in : STR("");
    return true;
}

static void check_error(const struct err *err, const struct rest_target *t, struct arena *a)
{
    static const struct xml_events none = {NULL, NULL};
    AUTO(rest_answer_done) struct rest_answer ans;
    assert(err->code < 0 && err->name && rest_status(err->name) >= 400 && err->msg[0]);
    rest_answer_init(&ans, a, STR("request"), STR("host"));
    rest_error(err, t, STR("request"), STR("host"), &ans);
    assert(ans.status == rest_status(err->name) && buf_ok(&ans.body));
    assert((ans.body.n == 0) == t->is_head);
    for (size_t i = 0; i < ans.n; i++) {
        assert(str_find(ans.headers[i].value, '\n', 0) < 0);
        assert(str_find(ans.headers[i].value, '\r', 0) < 0);
    }
    if (ans.body.n) {
        struct err said = ERR_INIT;
        int rc = xml_parse(buf_str(&ans.body), &(struct xml_limits){0}, &none, NULL, &said);
        assert(rc == 0);
    }
}

static void check_target(const struct rest_target *t)
{
    assert(t->op >= 0 && t->op <= REST_OP_PREFLIGHT && rest_op_name(t->op)[0]);
    assert(!str_is_set(t->key) || (t->key.n > 0 && t->key.n <= REST_MAX_KEY));
    assert(!str_is_set(t->key) || str_is_set(t->bucket));
    assert(str_utf8_len(t->key) != SIZE_MAX && str_utf8_len(t->bucket) != SIZE_MAX);
    assert(str_find(t->key, '\0', 0) < 0);
}

static void check_needs(const struct rest_target *t, const void *input, struct arena *a)
{
    struct rest_target copy = *t;
    const struct rest_need *needs;
    struct err err = ERR_INIT;
    size_t n = 0;
    int rc = rest_needs(s3, t->op, &copy, input, a, &needs, &n, &err);
    if (rc < 0) {
        check_error(&err, &copy, a);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        assert(str_has_prefixc(needs[i].action, "s3:"));
        assert(str_eqc(needs[i].arn, "*") || str_has_prefixc(needs[i].arn, "arn:aws:s3:::"));
    }
}

/* The payload as XML; read again and written again it is the same. */
static struct str check_payload(const struct aws_op *o, const void *input, struct arena *a)
{
    const struct aws_shape *sh = &s3->shapes[o->in];
    const char *root = aws_name(s3, o->root_in);
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s3->members[sh->first + i];
        const void *v;
        if (!(m->flags & AWS_F_PAYLOAD) || s3->shapes[m->shape].type != AWS_T_STRUCT) {
            continue;
        }
        memcpy(&v, (const char *)input + m->off, sizeof(v));
        if (!v) {
            continue;
        }
        AUTO_BUF one;
        AUTO_BUF two;
        struct err err = ERR_INIT;
        buf_init(&one, 64u << 20);
        buf_init(&two, 64u << 20);
        int rc = rest_encode_xml(s3, m->shape, root, v, &one, &err);
        assert(rc == 0);
        void *back = arena_xalloc(a, s3->shapes[m->shape].size);
        if (one.n > REST_MAX_XML) {
            continue;
        }
        rc = rest_decode_xml(s3, m->shape, root, buf_str(&one), a, back, &err);
        assert(rc == 0);
        rc = rest_encode_xml(s3, m->shape, root, back, &two, &err);
        assert(rc == 0 && str_eq(buf_str(&one), buf_str(&two)));
        return arena_str_dup(a, buf_str(&one));
    }
    return STR("");
}

static struct outcome run(const struct aws_http *rq, struct arena *a)
{
    static const struct str domains[] = {{"s3.test", 7}, {"test", 4}};
    static const struct rest_opts opts = {.domains = domains, .n_domains = 2};
    struct outcome out = {.xml = STR("")};
    struct rest_target t;
    struct err err = ERR_INIT;
    void *input = NULL;
    out.rc = rest_route(&opts, rq, a, &t, &err);
    out.op = t.op;
    if (out.rc == 0) {
        check_target(&t);
        check_needs(&t, NULL, a);
        out.rc = rest_decode(s3, t.op, rq, &t, a, &input, &err);
    }
    assert(arena_used(a) < REST_MAX_DECODED + 64 * (rq->query.n + rq->body.n) + (1u << 20));
    if (out.rc < 0) {
        check_error(&err, &t, a);
        return out;
    }
    if (input) {
        check_needs(&t, input, a);
        out.xml = check_payload(&s3->ops[t.op], input, a);
    }
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *one, *two;
    struct http_header h[64];
    struct aws_http rq;
    if (size > (1u << 16) || !split(str_n((const char *)data, size), h, 64, &rq)) {
        return 0;
    }
    one = one ? one : arena_new(256u << 20);
    two = two ? two : arena_new(256u << 20);
    struct outcome a = run(&rq, one), b = run(&rq, two);
    assert(a.rc == b.rc && a.op == b.op && str_eq(a.xml, b.xml));
    arena_reset(one);
    arena_reset(two);
    return 0;
}
