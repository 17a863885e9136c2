/* Who sends a request, what it is about, and may they: the one place, before anything is done. */
#include "predastore/front_int.h"

#include "aws/s3_auth2.h"
#include "base/log.h"
#include "model/config.h"

#include <arpa/inet.h>
#include <errno.h>

#define SOURCE_HEADER "X-Spx-Source-Ip" /* of relayed requests; only of our own relay */

static bool has_credentials(const struct s3_call *c)
{
    return str_is_set(aws_http_header(&c->rq, "Authorization")) ||
           (str_is_set(c->rq.query) &&
            (str_find_str(c->rq.query, STR("X-Amz-Signature=")) >= 0 ||
             str_find_str(c->rq.query, STR("Signature=")) >= 0));
}

/* The unix socket: two services of this node, told apart by their users, and nobody else. */
static int identify_peer(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    uid_t uid = 0, base = fc->f->o.uid_base;
    struct str source = aws_http_header(&c->rq, SOURCE_HEADER);
    int r = http_req_peer_uid(fc->req, &uid);
    if (r < 0) {
        return fail(err, r, "AccessDenied", "%s", "");
    }
    bool is_relay = base ? uid == base + CONFIG_UID_AWSGW : str_is_set(source);
    bool is_service = base ? uid == base + CONFIG_UID_VIPERBLOCK : uid == getuid() || uid == 0;
    if (is_relay) {
        fc->kind = FRONT_RELAYED;
        c->rq.source_ip = str_is_set(source) ? source : STR("");
        c->rq.is_tls = true; /* between the client and the relay */
        return 0;
    }
    if (is_service) {
        fc->kind = has_credentials(c) ? FRONT_CLIENT : FRONT_SYSTEM;
        return 0;
    }
    return fail(err, -EACCES, "AccessDenied", "%s", "");
}

int front_bucket(const struct s3_call *c, struct str name, struct str owner,
                 const struct obucket **ret, struct err *err)
{
    const struct obucket *b = NULL;
    int r = ostore_bucket(c->store, name, &b, err);
    if (r < 0) {
        return r;
    }
    bool is_ours = str_eq(b->account, c->who.account);
    if (!is_ours || (str_is_set(owner) && !str_eq(owner, b->account))) {
        obucket_unref(b);
        return fail(err, -EACCES, "AccessDenied", "%s", "");
    }
    *ret = b;
    return 0;
}

static void be_system(struct s3_call *c)
{
    c->is_system = true;
    c->who = (struct aws_principal){
        .account = STR(S3_SYSTEM_ACCOUNT),
        .arn = STR("arn:aws:iam::" S3_SYSTEM_ACCOUNT ":service/viperblock"),
        .user_id = STR("viperblock"),
        .user_name = STR("viperblock")};
}

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    struct front_call *fc = ctx;
    int r = fc->f->sig.find(fc->f->sig.find_ctx, a, access_key, ret, err);
    if (r == -ENOENT) {
        fc->unknown_key = arena_str_dup(fc->c.arena, access_key);
    }
    return r;
}

static int authenticate(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    struct sigv4_opts sig = fc->f->sig;
    sig.find = find_key;
    sig.find_ctx = fc;
    if (fc->kind == FRONT_SYSTEM) {
        be_system(c);
        fc->auth = (struct s3_auth){.payload = S3_PAYLOAD_UNSIGNED,
                                    .headers = c->rq.headers,
                                    .n_headers = c->rq.n_headers};
        return 0;
    }
    struct s3_extra x = {0};
    struct str vhost_bucket = c->t.is_vhost ? c->t.bucket : STR_NONE;
    int r = s3_auth2_is(&c->rq)
                ? s3_auth2_head(c->arena, &sig, &c->rq, vhost_bucket, &fc->auth, &x, err)
                : s3_auth_head(c->arena, &sig, &c->rq, &fc->auth, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    c->who = fc->auth.who;
    c->rq.headers = fc->auth.headers;
    c->rq.n_headers = fc->auth.n_headers;
    return 0;
}

static bool wants_no_bucket(int op)
{
    return op == S3_OP_CREATE_BUCKET || op == S3_OP_LIST_BUCKETS;
}

int front_identify(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    c->rq.source_ip = http_req_peer_text(fc->req, c->arena);
    int r = fc->kind == FRONT_CLIENT ? 0 : identify_peer(fc, err);
    if (r < 0 || (r = rest_route(&fc->f->rest, &c->rq, c->arena, &c->t, err)) < 0) {
        return r;
    }
    if (c->t.op == REST_OP_PREFLIGHT || c->t.op == REST_OP_POST_FORM) {
        return 0; /* both have their own way */
    }
    if ((r = authenticate(fc, err)) < 0) {
        return r;
    }
    if (!wants_no_bucket(c->t.op) && str_is_set(c->t.bucket)) {
        struct str owner = aws_http_header(&c->rq, "x-amz-expected-bucket-owner");
        if ((r = front_bucket(c, c->t.bucket, owner, &c->bucket, err)) < 0) {
            return r;
        }
    }
    if (fc->auth.is_anonymous || (c->is_system && wants_no_bucket(c->t.op))) {
        return fail(err, -EACCES, "AccessDenied", "%s", "");
    }
    if (!rest_is_there(c->t.op)) {
        return fail(err, -ENOSYS, "NotImplemented", "%s", "");
    }
    return 0;
}

struct str front_address(const struct s3_call *c)
{
    struct str ip = c->rq.source_ip;
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a;
    if (!ip.n || ip.n >= sizeof(text) || str_find(ip, ':', 0) < 0) {
        return ip.n ? ip : STR_NONE;
    }
    memcpy(text, ip.p, ip.n);
    text[ip.n] = 0;
    if (inet_pton(AF_INET6, text, &a) != 1) {
        return ip;
    }
    return arena_str_dup(c->arena, str_n((const char *)a.s6_addr, 8)); /* as net/http_peers.h */
}

int front_authorize(struct front_call *fc, const void *input, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct rest_need *needs = NULL;
    size_t n = 0;
    if (c->is_system) {
        return 0;
    }
    int r = rest_needs(&aws_service_s3, c->t.op, &c->t, input, c->arena, &needs, &n, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct aws_ctx_kv ctx[] = {
            {STR("aws:SourceIp"), c->rq.source_ip},
            {STR("aws:SecureTransport"), c->rq.is_tls ? STR("true") : STR("false")}};
        const struct aws_authz z = {.who = &c->who,
                                    .action = needs[i].action,
                                    .arns = &needs[i].arn,
                                    .n_arns = 1,
                                    .ctx = ctx,
                                    .n_ctx = ARRAY_LEN(ctx)};
        r = aws_authorize(&z, &aws_service_s3, fc->f->o.policy, NULL, c->arena, err);
    }
    return r;
}
