#include "predastore/front.h"

#include "base/log.h"
#include "base/rand.h"
#include "base/time.h"
#include "predastore/front_int.h"
#include "predastore/ops.h"
#include "predastore/strangers.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

LOG_MODULE("predastore.s3");

#define KEY_CACHE             1024
#define MAX_CONNS             16384        /* idle ones cost about 30 KiB each */
#define MAX_COLLECTED         (256u << 20) /* XML bodies of all requests together */

#define ROW(op, handler, max) [op] = {.fn = (handler), .body_max = (max)},
static const struct s3_op_row rows[S3_OP_N] = {S3_OPS_API(ROW) S3_OPS_OBJECT(ROW)};
#undef ROW

/* ---- one request ---- */

void front_submit(struct front_call *fc, struct pool *pool, void (*fn)(void *fc))
{
    if (pool_submit(pool, fn, NULL, NULL, fc) < 0) {
        struct err e = ERR_INIT;
        fail(&e, -EAGAIN, "SlowDown", "%s", "");
        front_fail(fc, &e);
    }
}

static int run_handler(struct front_call *fc, void **ret_output, struct err *err)
{
    struct s3_call *c = &fc->c;
    struct intake *in = &fc->in;
    void *input = NULL;
    int r = 0;
    if (in->sink == SINK_XML) {
        s3_sum_begin(&in->sum, &in->want, !in->want.has_md5);
        s3_sum_add(&in->sum, buf_str(&in->xml));
        if ((r = intake_sums(fc, err)) < 0) {
            return r;
        }
        c->rq.body = buf_str(&in->xml);
    }
    if ((r = rest_decode(&aws_service_s3, c->t.op, &c->rq, &c->t, c->arena, &input, err)) < 0 ||
        (r = front_authorize(fc, input, err)) < 0) {
        return r;
    }
    uint16_t out = aws_service_s3.ops[c->t.op].out;
    if (out != AWS_SHAPE_NONE) {
        *ret_output = arena_alloc(c->arena, aws_service_s3.shapes[out].size);
        if (!*ret_output) {
            return fail(err, -ENOMEM, "InternalError", "the arena of a request is full");
        }
    }
    return rows[c->t.op].fn(c, input, *ret_output, err);
}

static void handler_job(void *ctx)
{
    struct front_call *fc = ctx;
    struct err e = ERR_INIT;
    void *output = NULL;
    log_set_request(fc->c.request_id);
    if (run_handler(fc, &output, &e) < 0) {
        front_fail(fc, &e);
    } else {
        front_finish(fc, output);
    }
    log_set_request(STR_NONE);
}

static void preflight(struct front_call *fc)
{
    struct err e = ERR_INIT;
    if (s3_preflight(&fc->c, &e) < 0) {
        front_fail(fc, &e);
    } else {
        front_send(fc);
    }
}

/* GET, HEAD and DELETE of an object: known from the head. */
static int decode_now(struct front_call *fc, struct err *err)
{
    struct s3_call *c = &fc->c;
    void *input = NULL;
    int r = rest_decode(&aws_service_s3, c->t.op, &c->rq, &c->t, c->arena, &input, err);
    fc->input = input;
    return r < 0 ? r : front_authorize(fc, input, err);
}

/* The checksums of CompleteMultipartUpload are the object's, not those of its XML: the body is
 * read without them. The handler sees c->rq.headers, which keep them. */
static int begin_complete(struct front_call *fc, struct err *err)
{
    const struct http_header *all = fc->auth.headers;
    size_t n_all = fc->auth.n_headers, n = 0;
    struct http_header *v = arena_array(fc->c.arena, n_all + 1, sizeof(*v));
    if (!v) {
        return fail(err, -ENOMEM, "InternalError", "the arena of a request is full");
    }
    for (size_t i = 0; i < n_all; i++) {
        if (!s3_sum_by_header(all[i].name) &&
            !str_ieqc(all[i].name, "x-amz-checksum-algorithm") &&
            !str_ieqc(all[i].name, "x-amz-checksum-type")) {
            v[n++] = all[i];
        }
    }
    fc->auth.headers = v;
    fc->auth.n_headers = n;
    int r = intake_begin(fc, SINK_XML, rows[fc->c.t.op].body_max, S3_SUM_NO_DEFAULT,
                         S3_SUM_NONE, err);
    fc->auth.headers = all;
    fc->auth.n_headers = n_all;
    return r;
}

static int begin_others(struct front_call *fc, struct err *err)
{
    int op = fc->c.t.op;
    if (!rows[op].fn) {
        return fail(err, -ENOSYS, "NotImplemented", "%s", "");
    }
    if (!rows[op].body_max) {
        return 0;
    }
    if (op == S3_OP_COMPLETE_MULTIPART_UPLOAD) {
        return begin_complete(fc, err);
    }
    unsigned flags = S3_SUM_NO_DEFAULT | (rest_op_wants_checksum(op) ? S3_SUM_NEED_ONE : 0u);
    return intake_begin(fc, SINK_XML, rows[op].body_max, flags, S3_SUM_NONE, err);
}

static void begin(struct front_call *fc)
{
    struct err e = ERR_INIT;
    int r = front_identify(fc, &e);
    if (r == 0) {
        switch (fc->c.t.op) {
        case REST_OP_PREFLIGHT: break;
        case REST_OP_POST_FORM: form_start(fc); return;
        case S3_OP_PUT_OBJECT: put_start(fc); return;
        case S3_OP_UPLOAD_PART: part_start(fc); return;
        case S3_OP_GET_OBJECT:
        case S3_OP_HEAD_OBJECT:
        case S3_OP_DELETE_OBJECT: r = decode_now(fc, &e); break;
        default: r = begin_others(fc, &e); break;
        }
    }
    if (r < 0 && !front_ask_key(fc)) {
        front_fail(fc, &e);
    }
}

void front_begin_again(struct front_call *fc)
{
    struct http_req *req = fc->req;
    s3_auth_done(&fc->auth);
    fc->auth = (struct s3_auth){0};
    fc->c.t = (struct rest_target){.op = REST_OP_NONE};
    http_req_hold(req);
    begin(fc);
    /* An answer has ended the pause; UploadPart goes on by itself. */
    if (fc->c.t.op != S3_OP_UPLOAD_PART && !fc->is_failed) {
        http_req_resume(req);
    }
    http_req_release(req);
}

static void finish_others(struct front_call *fc)
{
    struct err e = ERR_INIT;
    if (fc->in.sink == SINK_XML && intake_end(fc, &e) < 0) {
        front_fail(fc, &e);
        return;
    }
    bool is_bulk = fc->c.t.op == S3_OP_COPY_OBJECT || fc->c.t.op == S3_OP_UPLOAD_PART_COPY;
    front_submit(fc, is_bulk ? fc->c.s3->bulk : fc->c.s3->pool, handler_job);
}

/* ---- call-backs of the HTTP server ---- */

/* 16 hex digits, different for each request of this process and hard to take for another's; no
 * secret (splitmix64 over a counter that starts anywhere). */
static void new_request_id(struct front *f, struct s3_call *c)
{
    static const char digits[] = "0123456789ABCDEF";
    uint64_t v =
        f->id_base + UINT64_C(0x9e3779b97f4a7c15) *
                         atomic_fetch_add_explicit(&f->n_requests, 1, memory_order_relaxed);
    v = (v ^ (v >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ (v >> 27)) * UINT64_C(0x94d049bb133111eb);
    v ^= v >> 31;
    char *p = arena_xalloc(c->arena, 17);
    for (int i = 0; i < 16; i++, v >>= 4) {
        p[i] = digits[v & 15];
    }
    c->request_id = str_n(p, 16);
}

static void on_head(void *ctx, struct http_req *req, const struct http_head *head,
                    void **ret_user)
{
    struct front_door *door = ctx;
    struct front_call *fc = calloc(1, sizeof(*fc));
    if (!fc) {
        abort();
    }
    struct s3_call *c = &fc->c;
    fc->f = door->f;
    fc->req = req;
    fc->kind = door->is_unix ? FRONT_RELAYED : FRONT_CLIENT;
    fc->in.expect = UINT64_MAX;
    pthread_mutex_init(&fc->rd.mu, NULL);
    c->s3 = door->f->s3;
    c->store = c->s3->store;
    c->arena = arena_new(S3_ARENA_MAX);
    c->now_ns = time_wall_ns();
    c->t.op = REST_OP_NONE;
    c->rq = (struct aws_http){.method = head->method,
                              .path = head->path,
                              .query = head->query,
                              .headers = head->headers,
                              .n_headers = head->n_headers,
                              .is_tls = head->is_tls,
                              .now_ns = c->now_ns};
    new_request_id(fc->f, c);
    rest_answer_init(&c->answer, c->arena, c->request_id, c->s3->host_id);
    *ret_user = fc;
    begin(fc);
}

static enum http_flow on_body(struct http_req *req, void *user, struct str chunk)
{
    struct front_call *fc = user;
    if (fc->is_failed) {
        return HTTP_MORE;
    }
    atomic_fetch_add_explicit(&fc->f->bytes_in, chunk.n, memory_order_relaxed);
    switch (fc->in.sink) {
    case SINK_XML:
    case SINK_STORE: return intake_body(fc, chunk);
    case SINK_FORM: return form_body(fc, chunk);
    default: return HTTP_MORE;
    }
}

static void on_end(struct http_req *req, void *user, struct str body)
{
    struct front_call *fc = user;
    switch (fc->c.t.op) {
    case REST_OP_PREFLIGHT: preflight(fc); break;
    case REST_OP_POST_FORM: form_end(fc); break;
    case S3_OP_PUT_OBJECT:
    case S3_OP_UPLOAD_PART: put_end(fc); break;
    case S3_OP_GET_OBJECT:
    case S3_OP_HEAD_OBJECT: get_start(fc); break;
    case S3_OP_DELETE_OBJECT: delete_start(fc); break;
    default: finish_others(fc); break;
    }
}

static void on_abort(struct http_req *req, void *user)
{
    get_aborted(user);
}

static void on_done(struct http_req *req, void *user)
{
    struct front_call *fc = user;
    reading_done(fc);
    intake_done(fc);
    s3_form_free(fc->form);
    s3_auth_done(&fc->auth);
    rest_answer_done(&fc->c.answer);
    obucket_unref(fc->c.bucket);
    arena_free(fc->c.arena);
    free(fc);
}

/* ---- the service ---- */

/* Each operation that the tables call there has exactly one way to be done. */
static int check_rows(struct err *err)
{
    for (int op = 0; op < S3_OP_N; op++) {
        bool is_stream = op == S3_OP_PUT_OBJECT || op == S3_OP_UPLOAD_PART ||
                         op == S3_OP_GET_OBJECT || op == S3_OP_HEAD_OBJECT ||
                         op == S3_OP_DELETE_OBJECT;
        bool is_there = rows[op].fn || is_stream;
        if (is_there != rest_is_there(op) || (rows[op].fn && is_stream)) {
            return fail(err, -EINVAL, "BadTable",
                        "%s: its state in s3.ops and its handler differ", rest_op_name(op));
        }
    }
    return 0;
}

static int make_server(struct front *f, struct front_door *door, const char *name,
                       struct tls_server *tls, unsigned n_loops, struct err *err)
{
    static const struct http_handler handler = {.on_head = on_head,
                                                .on_body = on_body,
                                                .on_end = on_end,
                                                .on_abort = on_abort,
                                                .on_done = on_done};
    const struct http_server_opts o = {.name = name,
                                       .n_loops = n_loops,
                                       .tls = tls,
                                       .max_conns = MAX_CONNS,
                                       .max_conns_per_ip =
                                           door->is_unix ? MAX_CONNS : f->o.max_conns_per_ip,
                                       .server_header = "Spinifex"};
    door->f = f;
    return http_server_new(&o, &handler, door, &door->server, err);
}

int front_new(const struct front_opts *o, struct front **ret, struct err *err)
{
    int r = check_rows(err);
    if (r < 0) {
        return r;
    }
    struct front *f = calloc(1, sizeof(*f));
    if (!f) {
        abort();
    }
    f->o = *o;
    f->s3 = o->s3;
    f->collected = shares_new(MAX_COLLECTED);
    f->strangers = strangers_new();
    f->id_base = rand_u64();
    f->rest = (struct rest_opts){.domains = o->domains, .n_domains = o->n_domains};
    f->sig = (struct sigv4_opts){.find = o->key_find,
                                 .find_ctx = o->key_ctx,
                                 .cache = sigv4_cache_new(KEY_CACHE),
                                 .region = o->s3->region,
                                 .global_region = STR("us-east-1"),
                                 .service = STR("s3"),
                                 .flags = SIGV4_S3 | S3_FORM_OLD_SIGNATURE};
    f->local.is_unix = true;
    if ((r = make_server(f, &f->tls, "predastore", o->tls, o->n_loops, err)) < 0 ||
        (r = make_server(f, &f->local, "predastore-local", NULL, 1, err)) < 0) {
        front_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

int front_listen(struct front *f, uint16_t port, struct err *err)
{
    return http_server_listen(f->tls.server, NULL, port, err);
}

uint16_t front_port(const struct front *f)
{
    return http_server_port(f->tls.server);
}

/* Anybody may connect: who it is, is asked per request. */
int front_listen_unix(struct front *f, const char *path, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(a.sun_path)) {
        return fail(err, -ENAMETOOLONG, "ListenFailed", "%s: the path is too long", path);
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (unlink(path) < 0 && errno != ENOENT) ||
        bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, 0666) < 0 ||
        listen(fd, 1024) < 0) {
        return fail(err, -errno, "ListenFailed", "%s: %m", path);
    }
    f->unix_path = strdup(path);
    return http_server_listen_fd(f->local.server, steal_fd(&fd), err);
}

void front_drain(struct front *f, uint64_t timeout_ns)
{
    http_server_drain(f->tls.server, timeout_ns);
    http_server_drain(f->local.server, timeout_ns);
}

void front_free(struct front *f)
{
    if (!f) {
        return;
    }
    http_server_free(f->tls.server);
    http_server_free(f->local.server);
    if (f->unix_path) {
        unlink(f->unix_path);
        free(f->unix_path);
    }
    sigv4_cache_free(f->sig.cache);
    shares_free(f->collected);
    strangers_free(f->strangers);
    free(f);
}

void front_stats(const struct front *f, struct front_stats *ret)
{
    *ret = (struct front_stats){.n_requests = atomic_load(&f->n_requests),
                                .n_errors_4xx = atomic_load(&f->n_4xx),
                                .n_errors_5xx = atomic_load(&f->n_5xx),
                                .bytes_in = atomic_load(&f->bytes_in),
                                .bytes_out = atomic_load(&f->bytes_out)};
}
