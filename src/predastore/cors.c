/* Cross-origin rules of a bucket: kept, shown, and put to use on every answer to a browser. */
#include "predastore/front_int.h"
#include "predastore/ops.h"

#include "aws/s3_cors.h"
#include "predastore/rules.h"

#include <errno.h>

int cors_convert(struct arena *a, const struct s3_cors_configuration *in, struct s3_cors *ret,
                 struct err *err)
{
    if (in->cors_rules.n > S3_CORS_RULES_MAX) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    struct s3_cors_entry *v = arena_array(a, in->cors_rules.n + 1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "MalformedXML", "%s", "");
    }
    for (size_t i = 0; i < in->cors_rules.n; i++) {
        const struct s3_cors_rule *r = &in->cors_rules.v[i];
        v[i] = (struct s3_cors_entry){.id = r->id,
                                      .methods = r->allowed_methods,
                                      .origins = r->allowed_origins,
                                      .headers = r->allowed_headers,
                                      .expose = r->expose_headers,
                                      .max_age_s = r->max_age_seconds};
    }
    *ret = (struct s3_cors){.rules = v, .n_rules = in->cors_rules.n};
    return 0;
}

/* Requests that were refused before their bucket was looked up get headers too: a browser shows
 * the error to the page only then. */
static const struct obucket *bucket_of(const struct s3_call *c)
{
    const struct obucket *b = c->bucket ? obucket_ref(c->bucket) : NULL;
    if (!b && c->t.bucket.n && ostore_bucket(c->store, c->t.bucket, &b, NULL) < 0) {
        return NULL;
    }
    return b;
}

static void add_headers(struct rest_answer *ans, const struct http_header *v, size_t n,
                        struct arena *a)
{
    for (size_t i = 0; i < n; i++) {
        rest_header(ans, arena_cstr(a, v[i].name), v[i].value);
    }
}

int s3_preflight(struct s3_call *c, struct err *err)
{
    const struct obucket *b = bucket_of(c);
    const struct s3_cors *rules = NULL;
    struct s3_extra x = {0};
    const struct http_header *v = NULL;
    size_t n = 0;
    if (!b && c->t.bucket.n) {
        struct str method = aws_http_header(&c->rq, "access-control-request-method");
        rest_extra_add(&c->t.extra, "Method", method.n ? method : c->rq.method);
        rest_extra_add(&c->t.extra, "ResourceType", STR("BUCKET"));
        return fail(err, -EACCES, "AccessForbidden", "CORSResponse: Bucket not found");
    }
    int r = b ? rules_cors(c->s3->rules, b, c->arena, &rules, err) : 0;
    if (r >= 0) {
        r = s3_cors_preflight(c->arena, rules, aws_http_header(&c->rq, "origin"),
                              aws_http_header(&c->rq, "access-control-request-method"),
                              aws_http_header(&c->rq, "access-control-request-headers"), &v, &n,
                              &x, err);
    }
    s3_take_extra(c, &x);
    if (x.n) { /* it was refused */
        rest_extra_add(&c->t.extra, "ResourceType", c->t.key.n ? STR("OBJECT") : STR("BUCKET"));
    }
    if (r == 0) {
        add_headers(&c->answer, v, n, c->arena);
    }
    obucket_unref(b);
    return r;
}

void s3_cors_headers(const struct s3_call *c, struct rest_answer *ans)
{
    /* As they were sent: c->rq has the fields of a form in their place. */
    const struct http_head *sent =
        http_req_head(CONTAINER_OF((void *)(uintptr_t)c, struct front_call, c)->req);
    struct str origin = http_header_get(sent, "origin");
    struct str method = http_header_get(sent, "access-control-request-method");
    const struct s3_cors *rules = NULL;
    const struct http_header *v = NULL;
    size_t n = 0;
    if (!origin.n || c->t.op == REST_OP_PREFLIGHT) {
        return;
    }
    const struct obucket *b = bucket_of(c);
    if (b && rules_cors(c->s3->rules, b, c->arena, &rules, NULL) == 1 &&
        s3_cors_simple(c->arena, rules, origin, method.n ? method : c->rq.method, &v, &n,
                       NULL) == 0) {
        add_headers(ans, v, n, c->arena);
    }
    obucket_unref(b);
}

int op_put_bucket_cors(struct s3_call *c, const void *input, void *output, struct err *err)
{
    const struct s3_put_bucket_cors_request *in = input;
    struct s3_cors rules;
    if (!in->cors_configuration) {
        return fail(err, -EINVAL, "MalformedXML", "%s", "");
    }
    int r = cors_convert(c->arena, in->cors_configuration, &rules, err);
    if (r < 0 || (r = s3_cors_check(&rules, err)) < 0) {
        return r;
    }
    return conf_put(c, &conf_cors, in->cors_configuration, err);
}

int op_get_bucket_cors(struct s3_call *c, const void *input, void *output, struct err *err)
{
    struct s3_get_bucket_cors_output *out = output;
    struct s3_cors_configuration conf = {0};
    if (!conf_is_set(c->bucket, &conf_cors)) {
        rest_extra_add(&c->t.extra, "BucketName", c->bucket->name);
        return fail(err, -ENOENT, "NoSuchCORSConfiguration", "%s", "");
    }
    int r = conf_get(c->arena, c->bucket, &conf_cors, &conf, err);
    out->cors_rules = conf.cors_rules;
    return r;
}

int op_delete_bucket_cors(struct s3_call *c, const void *input, void *output, struct err *err)
{
    return conf_remove(c, &conf_cors, err);
}
