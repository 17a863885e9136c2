#include "aws/dispatch.h"

#include "aws/codec_in.h"
#include "aws/codec_out.h"
#include "aws/errors.h"
#include "aws/gzip.h"
#include "aws/rest_json.h"
#include "aws/validate.h"
#include "base/rand.h"
#include "base/time.h"
#include <errno.h>
#include <time.h>

enum { MAX_TRIES = 64 };

/* One request on its way. */
struct run {
    const struct aws_dispatch *d;
    struct arena *a;
    const struct aws_http *rq;
    struct aws_answer *ans;
    const struct aws_endpoint *ep;
    struct aws_params params;
    struct str action;
    void *input, *output;
    struct rest_json_route route; /* REST-JSON */
};

static struct str new_request_id(struct arena *a)
{
    char hex[33];
    rand_hex(hex, 32);
    hex[12] = '4'; /* RFC 9562 section 5.4 */
    hex[16] = "89ab"[hex[16] & 3];
    struct str id =
        arena_fmt(a, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
    return id.p ? id : STR("00000000-0000-4000-8000-000000000000");
}

static const struct aws_endpoint *endpoint_find(const struct aws_dispatch *d,
                                                struct str signing)
{
    for (size_t i = 0; i < d->n_endpoints; i++) {
        if (str_eqc(signing, d->endpoints[i].service->signing)) {
            return &d->endpoints[i];
        }
    }
    return NULL;
}

/* Whose error form a request gets that named no service: that of its Version or its path, else
 * the query form. */
static const struct aws_service *guess_service(const struct aws_dispatch *d,
                                               const struct aws_http *rq, struct arena *a)
{
    for (size_t i = 0; i < d->n_endpoints; i++) {
        const struct aws_service *s = d->endpoints[i].service;
        struct rest_json_route route;
        if (s->protocol == AWS_PROTOCOL_REST_JSON) {
            if (rest_json_find(s, rq, a, &route, NULL) == 0 && route.op >= 0) {
                return s;
            }
            continue;
        }
        char want[40] = "Version=";
        strncat(want, s->version, sizeof(want) - sizeof("Version="));
        if (str_find_str(rq->body, str_c(want)) >= 0 ||
            str_find_str(rq->query, str_c(want)) >= 0) {
            return s;
        }
    }
    return NULL;
}

/* The same refusal has different names in the two protocols. */
static int auth_dialect(const struct aws_service *s, struct err *err)
{
    bool is_ec2 = s && s->protocol == AWS_PROTOCOL_EC2;
    const char *name = err->name;
    bool is_old = strcmp(name, "SignatureExpired") == 0,
         is_early = strcmp(name, "SignatureNotYetCurrent") == 0;
    if (!is_ec2) {
        err->name = is_old || is_early ? "SignatureDoesNotMatch" : name;
        return err->code;
    }
    bool is_scope = str_has_prefixc(str_c(err->msg), "Credential should be scoped");
    struct err said = ERR_INIT;
    if (is_old || strcmp(name, "ExpiredToken") == 0) {
        fail(&said, err->code, "RequestExpired", "Request has expired.");
    } else if (is_early || strcmp(name, "InvalidClientTokenId") == 0 ||
               strcmp(name, "SignatureDoesNotMatch") == 0) {
        fail(&said, err->code, "AuthFailure", "%s",
             is_scope ? err->msg
                      : "AWS was not able to validate the provided access credentials");
    } else {
        return err->code;
    }
    *err = said;
    return said.code;
}

static int authenticate(struct run *r, struct err *err)
{
    struct sigv4_auth auth;
    struct aws_key key;
    struct aws_call *call = &r->ans->call;
    int rc = sigv4_parse(r->a, r->rq, &auth, err);
    if (rc < 0) {
        call->service = guess_service(r->d, r->rq, r->a);
        return auth_dialect(call->service, err);
    }
    r->ep = endpoint_find(r->d, auth.service);
    call->service = r->ep ? r->ep->service : NULL;
    call->access_key = auth.access_key;
    bool is_json = call->service && call->service->protocol == AWS_PROTOCOL_REST_JSON;
    if (is_json && (rc = rest_json_find(call->service, r->rq, r->a, &r->route, err)) < 0) {
        return rc;
    }
    bool is_global = call->service && (strcmp(call->service->name, "iam") == 0 ||
                                       strcmp(call->service->name, "sts") == 0);
    struct sigv4_opts o = {.find = r->d->key_find,
                           .find_ctx = r->d->key_ctx,
                           .cache = r->d->cache,
                           .region = r->d->region,
                           .global_region = is_global ? STR("us-east-1") : STR_NONE,
                           .may_be_unsigned =
                               is_json && rest_json_takes_bytes(call->service, r->route.op)};
    rc = sigv4_verify(r->a, &o, r->rq, &auth, &key, err);
    if (rc < 0) {
        return auth_dialect(call->service, err);
    }
    call->who = key.who;
    call->account = key.who.account;
    if (!r->ep) {
        return fail(err, -EACCES, "SignatureDoesNotMatch",
                    "Credential should be scoped to correct service, not '%.*s'. ",
                    STR_ARG(auth.service));
    }
    return 0;
}

/* Parameters come in the query string, in the body, or in both. */
static int read_params(struct run *r, struct err *err)
{
    struct str body = r->rq->body, coding = aws_http_header(r->rq, "Content-Encoding");
    if (r->rq->body.n > AWS_MAX_BODY) {
        return fail(err, -E2BIG, "RequestEntityTooLarge",
                    "The request body is larger than %u bytes", AWS_MAX_BODY);
    }
    if (coding.n > 0 && !str_ieqc(coding, "identity")) {
        AUTO_BUF plain;
        buf_init(&plain, AWS_MAX_BODY + 16384);
        int rc = str_ieqc(coding, "gzip") ? gzip_inflate(body, &plain) : -EINVAL;
        if (rc == -E2BIG || plain.n > AWS_MAX_BODY) {
            return fail(err, -E2BIG, "RequestEntityTooLarge",
                        "The request body is larger than %u bytes", AWS_MAX_BODY);
        }
        if (rc < 0) {
            return fail(err, -EINVAL, "MalformedInput",
                        "The request body is not what its Content-Encoding says");
        }
        body = arena_str_dup(r->a, buf_str(&plain));
        if (!body.p) {
            return fail(err, -ENOMEM, "RequestTooLarge",
                        "The request is larger than this service accepts.");
        }
    }
    int rc = aws_params_parse(r->a, &r->params, r->rq->query, err);
    return rc < 0 ? rc : aws_params_parse(r->a, &r->params, body, err);
}

static int find_path(struct run *r, struct err *err)
{
    const struct aws_service *s = r->ep->service;
    struct aws_call *call = &r->ans->call;
    if (r->rq->body.n > AWS_MAX_BODY) {
        return fail(err, -E2BIG, "RequestTooLarge", "The request body is larger than %u bytes",
                    AWS_MAX_BODY);
    }
    if (r->route.op < 0) {
        return fail(err, -ENOENT, "UnknownOperationException",
                    "No operation has this method and path");
    }
    call->op = r->route.op;
    call->op_name = r->action = str_c(aws_name(s, s->ops[call->op].name));
    return 0;
}

static int find_op(struct run *r, struct err *err)
{
    const struct aws_service *s = r->ep->service;
    struct str version = aws_params_get(&r->params, "Version");
    r->action = aws_params_get(&r->params, "Action");
    if (!str_eqc(version, s->version)) {
        return fail(err, -EINVAL, "NoSuchVersion",
                    "The requested version (%.*s) of service %s does not exist",
                    (int)MIN(version.n, (size_t)40), version.p ? version.p : "", s->id);
    }
    if (r->action.n == 0) {
        return fail(err, -EINVAL, "MissingAction",
                    "The request must contain the parameter Action");
    }
    r->ans->call.op = aws_op_find(s, r->action);
    r->ans->call.op_name = r->action;
    return 0;
}

static int authorize(struct run *r, struct err *err)
{
    struct aws_call *call = &r->ans->call;
    static const struct str any[] = {{"*", 1}};
    char now[TIME_ISO_SIZE];
    const struct str *arns = any;
    size_t n_arns = 1;
    if (call->op >= 0) {
        if (strcmp(aws_name(call->service, call->service->ops[call->op].resources), "-") == 0) {
            return 0; /* everybody may ask who they are */
        }
        aws_call_arns(call, r->input, &arns, &n_arns);
    }
    const struct aws_ctx_kv ctx[] = {
        {STR("aws:SourceIp"), call->source_ip},
        {STR("aws:SecureTransport"), call->is_tls ? STR("true") : STR("false")},
        {STR("aws:UserAgent"), call->user_agent},
        {STR("aws:CurrentTime"), str_c(time_iso_s(call->now_ns, now))},
        {STR("aws:RequestedRegion"), call->region},
        {STR("aws:PrincipalArn"), call->who.arn},
        {STR("aws:PrincipalAccount"), call->account},
        {STR("aws:userid"), call->who.user_id},
        {STR("aws:username"), call->who.user_name},
        {STR("ec2:Region"), call->region},
    };
    struct str shown = str_n(r->action.p, MIN(r->action.n, (size_t)128));
    const struct aws_authz z = {
        .who = &call->who,
        .action = arena_fmt(r->a, "%s:%.*s", call->service->name, STR_ARG(shown)),
        .arns = arns,
        .n_arns = n_arns,
        .ctx = ctx,
        .n_ctx = ARRAY_LEN(ctx)};
    return aws_authorize(&z, call->service, r->d->policy, r->d->policy_ctx, r->a, err);
}

static int invalid_action(const struct run *r, struct err *err)
{
    return fail(err, -ENOSYS, "InvalidAction",
                "The action %.*s is not valid for this web service.",
                (int)MIN(r->action.n, (size_t)128), r->action.p);
}

static bool wants_dry_run(const struct aws_service *s, int op, const void *input)
{
    uint16_t in = s->ops[op].in;
    const struct aws_member *m =
        in == AWS_SHAPE_NONE ? NULL : aws_member_by_name(s, &s->shapes[in], STR("DryRun"));
    if (!m || s->shapes[m->shape].type != AWS_T_BOOL) {
        return false;
    }
    const struct opt_bool *b = (const void *)((const char *)input + m->off);
    return b->is_set && b->v;
}

static void *new_struct(struct arena *a, const struct aws_service *s, uint16_t shape)
{
    return arena_xalloc(a, shape == AWS_SHAPE_NONE ? 1 : s->shapes[shape].size);
}

/* Runs the handler; one that lost its transaction begins again, each time a little later. */
static int call_handler(struct run *r, aws_handler_fn fn, struct err *err)
{
    struct aws_call *call = &r->ans->call;
    const struct aws_op *o = &call->service->ops[call->op];
    int rc = -EAGAIN;
    for (unsigned i = 0; i < MAX_TRIES && rc == -EAGAIN; i++) {
        if (i > 0) {
            struct timespec t = {.tv_nsec = (long)(rand_u64() % (MIN(i, 10u) * 1000000u))};
            nanosleep(&t, NULL);
        }
        if (arena_used(r->a) > AWS_ARENA_MAX / 4) {
            break; /* each try leaves its memory behind */
        }
        err_clear(err);
        r->output = new_struct(r->a, call->service, o->out);
        rc = fn(call, r->input, r->output, err);
    }
    if (rc == -EAGAIN) {
        err_clear(err);
        return fail(err, rc, "Unavailable", "Too many changes at once; the last: %.*s",
                    STR_ARG(call->op_name));
    }
    if (rc < 0 && err->code == 0) {
        return fail(err, rc, "InternalError",
                    "The handler of %.*s failed without a reason (%d)", STR_ARG(call->op_name),
                    rc);
    }
    return rc < 0 ? rc : aws_dry_run(call, err);
}

static int encode_json(struct run *r, struct err *err)
{
    struct aws_answer *ans = r->ans;
    struct rest_json_answer j;
    int rc =
        rest_json_encode(ans->call.service, ans->call.op, r->output, r->a, &j, &ans->body, err);
    if (rc < 0) {
        return rc;
    }
    ans->status = j.status;
    ans->content_type = j.is_bytes ? "application/octet-stream" : "application/json";
    for (size_t i = 0; i < j.n && ans->n_headers < AWS_ANSWER_HEADERS; i++) {
        ans->headers[ans->n_headers++] = j.headers[i];
    }
    return 0;
}

static int run(struct run *r, struct err *err)
{
    struct aws_call *call = &r->ans->call;
    struct err in_err = ERR_INIT;
    int rc = authenticate(r, err);
    bool is_json = call->service && call->service->protocol == AWS_PROTOCOL_REST_JSON;
    if (is_json) {
        rc = rc < 0 ? rc : find_path(r, err);
    } else {
        rc = rc < 0 ? rc : read_params(r, err);
        rc = rc < 0 ? rc : find_op(r, err);
    }
    if (rc < 0) {
        return rc;
    }
    const struct aws_service *s = call->service;
    aws_handler_fn fn = call->op < 0 ? NULL : r->ep->handlers[call->op];
    uint16_t in = call->op < 0 ? AWS_SHAPE_NONE : s->ops[call->op].in;
    r->input = new_struct(r->a, s, in);
    int rc_in = !fn       ? 0
                : is_json ? rest_json_decode(s, &r->route, r->rq, r->a, r->input, &in_err)
                          : aws_decode_unchecked(s, in, &r->params, r->a, r->input, &in_err);
    rc = authorize(r, err);
    if (rc < 0) {
        return rc;
    }
    if (!fn) {
        return invalid_action(r, err);
    }
    if (rc_in < 0) {
        *err = in_err;
        return rc_in;
    }
    rc = in == AWS_SHAPE_NONE ? 0 : aws_validate(s, in, r->input, err);
    if (rc < 0) {
        return rc;
    }
    call->is_dry_run = wants_dry_run(s, call->op, r->input);
    rc = call_handler(r, fn, err);
    if (rc == 0 && is_json) {
        return encode_json(r, err);
    }
    return rc < 0 ? rc
                  : aws_encode(s, call->op, r->output, call->request_id, &r->ans->body, err);
}

void aws_dispatch_run(const struct aws_dispatch *d, struct arena *a, const struct aws_http *rq,
                      struct aws_answer *ret)
{
    struct run r = {.d = d, .a = a, .rq = rq, .ans = ret};
    *ret = (struct aws_answer){.status = 200, .content_type = "text/xml;charset=UTF-8"};
    buf_init(&ret->body, AWS_MAX_ANSWER);
    ret->call = (struct aws_call){.arena = a,
                                  .app = d->app,
                                  .request_id = new_request_id(a),
                                  .region = d->region,
                                  .partition = d->partition,
                                  .source_ip = rq->source_ip,
                                  .user_agent = aws_http_header(rq, "User-Agent"),
                                  .is_tls = rq->is_tls,
                                  .now_ns = rq->now_ns,
                                  .op = -1,
                                  .page_key = d->page_key};
    if (run(&r, &ret->err) < 0) {
        struct aws_error_out e = aws_error_show(ret->call.service, &ret->err);
        buf_clear(&ret->body);
        ret->status = e.status;
        if (ret->call.service && ret->call.service->protocol == AWS_PROTOCOL_REST_JSON) {
            ret->content_type = "application/json";
            ret->n_headers = 1;
            ret->headers[0] = (struct http_header){STR("x-amzn-ErrorType"), str_c(e.code)};
        }
        aws_error_body(ret->call.service, &e, ret->call.request_id, &ret->body);
    }
}

void aws_answer_done(struct aws_answer *ans)
{
    buf_done(&ans->body);
}

int aws_endpoint_check(const struct aws_endpoint *e, struct err *err)
{
    const struct aws_service *s = e->service;
    for (uint16_t i = 0; i < s->n_ops; i++) {
        bool is_stated = s->ops[i].state != AWS_OP_NO;
        if (is_stated != (e->handlers[i] != NULL)) {
            return fail(err, -EINVAL, "BadHandlers", "%s:%s %s", s->name,
                        aws_name(s, s->ops[i].name),
                        is_stated ? "has no handler" : "has a handler, but its state is 'no'");
        }
    }
    return 0;
}
