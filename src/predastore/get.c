/* GetObject and HeadObject. What is in memory is answered by the loop itself; what must be waited
 * for is read by the pool, piece by piece, no faster than the client takes it. */
#include "predastore/front_int.h"

#include "aws/s3_cond.h"
#include "aws/s3_name.h"
#include "aws/s3_range.h"
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "ostore/body.h"

#include <errno.h>

LOG_MODULE("predastore.s3");

#define PIECE      (4 * BODY_PLAIN) /* of a stream: whole blocks, which need no second copy */
#define QUEUE_HIGH (512u * 1024)    /* unsent bytes of one answer */
#define QUEUE_LOW  (192u * 1024)
#define ONE_PIECE \
    (8 * BODY_PLAIN) /* bodies up to here are read whole before the head goes out */

/* Number of parts, from the ETag's "-N"; 0: not multipart. */
static uint64_t n_parts_of(struct str etag)
{
    uint64_t n = 0;
    struct str head = str_cut(etag, '-');
    if (head.n == etag.n || num_u64(str_skip(etag, head.n + 1), S3_PART_MAX, &n) < 0) {
        return 0;
    }
    return n;
}

static void fail_header(struct front_call *fc, const char *name, struct str value)
{
    if (fc->n_fail_headers < ARRAY_LEN(fc->fail_headers)) {
        fc->fail_headers[fc->n_fail_headers++] = (struct http_header){str_c(name), value};
    }
}

static struct str http_time(struct arena *a, uint64_t ns)
{
    char text[TIME_ISO_SIZE];
    return arena_str_dup(a, str_c(time_http(ns, text)));
}

/* A delete marker: not there, or not a thing to read. */
static int refuse_marker(struct front_call *fc, bool is_version, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct orec *rec = &fc->rd.version.rec;
    fail_header(fc, "x-amz-delete-marker", STR("true"));
    fail_header(fc, "x-amz-version-id", s3_version_text(c->arena, rec->version));
    if (!is_version) {
        return fail(err, -ENOENT, "NoSuchKey", "%s", "");
    }
    fail_header(fc, "Last-Modified", http_time(c->arena, rec->time_ns));
    fail_header(fc, "Allow", STR("DELETE"));
    return fail(err, -EINVAL, "MethodNotAllowed", "%s", "");
}

static void answer_304(struct front_call *fc)
{
    struct s3_call *c = &fc->c;
    const struct orec *rec = &fc->rd.version.rec;
    struct str cache = s3_pair(&rec->system, "cache-control");
    struct str expires = s3_pair(&rec->system, "expires");
    rest_header(&c->answer, "ETag", s3_quoted(c->arena, rec->etag));
    rest_header(&c->answer, "Last-Modified", http_time(c->arena, rec->time_ns));
    if (c->bucket->versioning != OSTORE_UNVERSIONED) {
        rest_header(&c->answer, "x-amz-version-id", s3_version_text(c->arena, rec->version));
    }
    if (str_is_set(cache)) {
        rest_header(&c->answer, "Cache-Control", cache);
    }
    if (str_is_set(expires)) {
        rest_header(&c->answer, "Expires", expires);
    }
    c->answer.status = 304;
    front_send(fc);
}

/* What both requests have in common. */
struct wanted {
    struct str version_id, range, checksum_mode;
    struct opt_i64 part_number;
    struct str cache_control, content_disposition, content_encoding, content_language,
        content_type, expires;
};

#define WANTED_FROM(c, in, ret)                                                 \
    do {                                                                        \
        (ret)->version_id = (in)->version_id;                                   \
        (ret)->range = (in)->range;                                             \
        (ret)->checksum_mode = (in)->checksum_mode;                             \
        (ret)->part_number = (in)->part_number;                                 \
        (ret)->cache_control = (in)->response_cache_control;                    \
        (ret)->content_disposition = (in)->response_content_disposition;        \
        (ret)->content_encoding = (in)->response_content_encoding;              \
        (ret)->content_language = (in)->response_content_language;              \
        (ret)->content_type = (in)->response_content_type;                      \
        (ret)->expires = (in)->response_expires.is_set                          \
                             ? http_time((c)->arena, (in)->response_expires.ns) \
                             : STR_NONE;                                        \
    } while (0)

static void take_wanted(const struct front_call *fc, struct wanted *ret)
{
    *ret = (struct wanted){.range = STR_NONE};
    if (fc->c.t.op == S3_OP_HEAD_OBJECT) {
        const struct s3_head_object_request *in = fc->input;
        WANTED_FROM(&fc->c, in, ret);
    } else {
        const struct s3_get_object_request *in = fc->input;
        WANTED_FROM(&fc->c, in, ret);
    }
}

/* Which bytes: of the whole, of a part, of a range. */
static int choose_range(struct front_call *fc, const struct wanted *w, unsigned flags,
                        struct s3_range *ret, unsigned *ret_part, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct orec *rec = &fc->rd.version.rec;
    struct s3_extra x = {0};
    unsigned part = 0;
    int r = 0;
    if (w->part_number.is_set) {
        r = s3_part_number(arena_fmt(c->arena, "%lld", (long long)w->part_number.v), w->range,
                           &part, err);
    }
    *ret_part = part;
    if (r < 0) {
        return r;
    }
    if (!part) {
        r = s3_range_parse(c->arena, w->range, rec->size, ret, &x, err);
        s3_take_extra(c, &x);
        return r;
    }
    uint64_t n_parts = n_parts_of(rec->etag);
    r = s3_part_check(c->arena, part, n_parts ? (unsigned)n_parts : 1, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    if (n_parts == 0) {
        *ret = (struct s3_range){.is_partial = rec->size > 0, .first = 0, .size = rec->size};
        return 0;
    }
    if (flags & OSTORE_NOWAIT) {
        return -EAGAIN;
    }
    ret->is_partial = true;
    return ostore_part_range(c->store, &fc->rd.version, part, &ret->first, &ret->size, err);
}

/* The checksum of the object, or of the part that was asked for. */
static int find_sum(struct front_call *fc, unsigned part, struct orec_sum *ret, struct err *err)
{
    struct opart_page page = {0};
    *ret = fc->rd.version.rec.sum;
    if (part == 0 || n_parts_of(fc->rd.version.rec.etag) == 0) {
        return 0;
    }
    int r = ostore_version_parts(fc->c.store, &fc->rd.version, part - 1, 1, fc->c.arena, &page,
                                 err);
    *ret = r == 0 && page.n == 1 ? page.v[0].sum : (struct orec_sum){0};
    return r;
}

static void fill_meta(struct s3_call *c, const struct orec_pairs *meta, struct s3_metadata *ret)
{
    AWS_LIST_MAKE(c->arena, ret, meta->n);
    for (size_t i = 0; i < meta->n; i++) {
        ret->v[i].key = meta->v[i].name;
        ret->v[i].value = s3_meta_header_value(c->arena, meta->v[i].value);
    }
}

static inline struct str or_else(struct str a, struct str b)
{
    return str_is_set(a) ? a : b;
}

struct facts { /* of this answer, beside the record */
    const struct wanted *w;
    struct s3_range range;
    unsigned part;
    struct orec_sum sum;
    struct str content_range;
};

#define FILL(out, c, rec, f)                                                                  \
    do {                                                                                      \
        (out)->accept_ranges = STR("bytes");                                                  \
        (out)->last_modified = some_time((rec)->time_ns);                                     \
        (out)->content_length = some_i64((int64_t)(f)->range.size);                           \
        (out)->e_tag = s3_quoted((c)->arena, (rec)->etag);                                    \
        (out)->cache_control =                                                                \
            or_else((f)->w->cache_control, s3_pair(&(rec)->system, "cache-control"));         \
        (out)->content_disposition = or_else((f)->w->content_disposition,                     \
                                             s3_pair(&(rec)->system, "content-disposition")); \
        (out)->content_encoding =                                                             \
            or_else((f)->w->content_encoding, s3_pair(&(rec)->system, "content-encoding"));   \
        (out)->content_language =                                                             \
            or_else((f)->w->content_language, s3_pair(&(rec)->system, "content-language"));   \
        (out)->content_type =                                                                 \
            or_else(or_else((f)->w->content_type, s3_pair(&(rec)->system, "content-type")),   \
                    STR("binary/octet-stream"));                                              \
        (out)->expires = or_else((f)->w->expires, s3_pair(&(rec)->system, "expires"));        \
        (out)->website_redirect_location =                                                    \
            s3_pair(&(rec)->system, "x-amz-website-redirect-location");                       \
        (out)->server_side_encryption = front_sse((c), (rec)->body.is_sealed);                \
        (out)->storage_class = (rec)->storage_class.n ? (rec)->storage_class : STR_NONE;      \
        (out)->content_range = (f)->content_range;                                            \
        (out)->expiration = s3_expiration((c), &fc->rd.version);                              \
        if ((rec)->meta.n) {                                                                  \
            fill_meta((c), &(rec)->meta, &(out)->metadata);                                   \
        }                                                                                     \
        if ((c)->bucket->versioning != OSTORE_UNVERSIONED) {                                  \
            (out)->version_id = s3_version_text((c)->arena, (rec)->version);                  \
        }                                                                                     \
        if ((rec)->tags.n) {                                                                  \
            (out)->tag_count = some_i64((int64_t)(rec)->tags.n);                              \
        }                                                                                     \
        if ((f)->part && n_parts_of((rec)->etag)) {                                           \
            (out)->parts_count = some_i64((int64_t)n_parts_of((rec)->etag));                  \
        }                                                                                     \
        if ((f)->sum.alg != OSUM_NONE) {                                                      \
            S3_SUM_OUT((out), (c)->arena, &(f)->sum, n_parts_of((rec)->etag));                \
            (out)->checksum_type = s3_osum_type(&(rec)->sum); /* also with a part's */        \
        }                                                                                     \
    } while (0)

static int encode_head(struct front_call *fc, const struct facts *f, struct err *err)
{
    struct s3_call *c = &fc->c;
    const struct orec *rec = &fc->rd.version.rec;
    int r = 0;
    if (c->t.op == S3_OP_HEAD_OBJECT) {
        struct s3_head_object_output out = {0};
        FILL(&out, c, rec, f);
        r = rest_encode(&aws_service_s3, c->t.op, &out, c->arena, &c->answer, err);
    } else {
        struct s3_get_object_output out = {0};
        FILL(&out, c, rec, f);
        r = rest_encode(&aws_service_s3, c->t.op, &out, c->arena, &c->answer, err);
    }
    c->answer.status = f->range.is_partial ? 206 : 200;
    return r;
}

/* How an object is sealed is said when it is written; a reader cannot. */
static int refuse_sealing(struct s3_call *c, struct err *err)
{
    struct str sse = aws_http_header(&c->rq, "x-amz-server-side-encryption");
    if (!str_is_set(sse)) {
        return 0;
    }
    rest_extra_add(&c->t.extra, "ArgumentName", STR("x-amz-server-side-encryption"));
    rest_extra_add(&c->t.extra, "ArgumentValue", sse);
    return fail(err, -EINVAL, "InvalidArgument",
                "x-amz-server-side-encryption header is not supported for this operation.");
}

/* Everything up to the first byte. 1: answered. May be run again after -EAGAIN. */
static int prepare(struct front_call *fc, unsigned flags, struct err *err)
{
    struct s3_call *c = &fc->c;
    struct reading *rd = &fc->rd;
    struct wanted w;
    struct facts f = {.w = &w, .content_range = STR_NONE};
    struct s3_cond cond;
    struct s3_extra x = {0};
    uint8_t version[16];
    bool is_version = false;
    take_wanted(fc, &w);
    int r = refuse_sealing(c, err);
    if (r < 0 || (r = s3_version(c, w.version_id, version, &is_version, err)) < 0 ||
        (r = ostore_get(c->store, c->bucket, c->t.key, is_version ? version : NULL, flags,
                        c->arena, &rd->version, err)) < 0) {
        return r;
    }
    if (rd->version.rec.kind == OREC_MARKER) {
        return refuse_marker(fc, is_version, err);
    }
    s3_cond_parse(c->rq.headers, c->rq.n_headers, &cond);
    r = s3_cond_read(&cond, rd->version.rec.etag, rd->version.rec.time_ns, c->now_ns, &x, err);
    s3_take_extra(c, &x);
    if (r < 0) {
        return r;
    }
    if (r == 1) {
        answer_304(fc);
        return 1;
    }
    if ((r = choose_range(fc, &w, flags, &f.range, &f.part, err)) < 0) {
        return r;
    }
    bool is_all = !f.range.is_partial || f.range.size == rd->version.rec.size;
    if (str_eqc(w.checksum_mode, "ENABLED") && (is_all || f.part) &&
        (r = find_sum(fc, f.part, &f.sum, err)) < 0) {
        return r;
    }
    char text[S3_CONTENT_RANGE_SIZE];
    if (f.range.is_partial) {
        f.content_range = arena_str_dup(
            c->arena, str_c(s3_content_range(&f.range, rd->version.rec.size, text)));
    }
    rd->off = f.range.first;
    rd->left = f.range.size;
    fc->head_length = (int64_t)f.range.size;
    if (!c->t.is_head && rd->left > 0 &&
        (r = oread_open(c->store, &rd->version, flags, &rd->r, err)) < 0) {
        return r;
    }
    return encode_head(fc, &f, err);
}

/* The next piece of the body; NULL with negative *ret_n when there is none. */
static struct chunkq_block *read_piece(struct reading *rd, size_t max, unsigned flags,
                                       ssize_t *ret_n, struct err *err)
{
    size_t room = max - (size_t)(rd->off % BODY_PLAIN); /* ends where a block does */
    size_t want = rd->left < room ? (size_t)rd->left : room, n = 0;
    char *p = NULL;
    struct chunkq_block *piece = http_piece_new(want, &p);
    ssize_t k = 0;
    while (n < want) {
        k = oread_at(rd->r, rd->off + n, p + n, want - n, flags, err);
        if (k <= 0) {
            break;
        }
        n += (size_t)k;
    }
    if (n < want) {
        http_piece_free(piece);
        *ret_n = k < 0 ? k : fail(err, -EIO, "InternalError", "the body of a version is short");
        return NULL;
    }
    rd->off += n;
    rd->left -= n;
    *ret_n = (ssize_t)n;
    return piece;
}

static void submit(struct front_call *fc, void (*fn)(void *fc));
static void pump_job(void *ctx);

/* True when the client has gone: the rest of the answer is not owed any more. 'is_job': as a pool
 * thread that goes on; else this thread's part is over for now. */
static bool settle(struct front_call *fc, bool is_job)
{
    struct reading *rd = &fc->rd;
    pthread_mutex_lock(&rd->mu);
    rd->is_job = is_job;
    bool must_abort = rd->is_gone && !rd->is_over;
    bool is_over = rd->is_over || must_abort;
    if (is_over) {
        rd->is_job = false;
        rd->is_over = true;
    }
    pthread_mutex_unlock(&rd->mu);
    if (must_abort) {
        http_abort(fc->req);
    }
    return is_over;
}

static void break_off(struct front_call *fc)
{
    pthread_mutex_lock(&fc->rd.mu);
    fc->rd.is_gone = true;
    pthread_mutex_unlock(&fc->rd.mu);
    (void)settle(fc, false);
}

static void on_drain(struct http_req *req, void *user);

/* Sends on until enough waits to be sent. Says false when a pool thread must go on. */
static bool pump(struct front_call *fc, unsigned flags)
{
    struct reading *rd = &fc->rd;
    for (;;) {
        struct err e = ERR_INIT;
        ssize_t n = 0;
        bool is_job = !(flags & OSTORE_NOWAIT);
        if (settle(fc, is_job)) {
            return true;
        }
        struct chunkq_block *piece = read_piece(rd, PIECE, flags, &n, &e);
        if (!piece && n == -EAGAIN && !is_job) {
            return false;
        }
        if (!piece) {
            log_warn_rl("answer.broken_off", KV_STR("req", fc->c.request_id),
                        KV_STR("bucket", fc->c.bucket->name), KV_U64("at", rd->off),
                        KV_ERR(&e));
            break_off(fc);
            return true;
        }
        bool is_last = rd->left == 0;
        if (is_last) {
            pthread_mutex_lock(&rd->mu);
            rd->is_over = true;
            rd->is_job = false;
            pthread_mutex_unlock(&rd->mu);
        }
        size_t queued = http_body_give(fc->req, piece, (size_t)n, is_last);
        if (is_last) {
            return true;
        }
        if (queued > QUEUE_HIGH) {
            if (!settle(fc, false)) {
                http_on_drain(fc->req, on_drain, QUEUE_LOW);
            }
            return true;
        }
    }
}

static void pump_here(struct front_call *fc)
{
    if (!pump(fc, OSTORE_NOWAIT)) {
        submit(fc, pump_job);
    }
}

static void on_drain(struct http_req *req, void *user)
{
    pump_here(user);
}

static void pump_job(void *ctx)
{
    struct front_call *fc = ctx;
    struct http_req *req = fc->req;
    (void)pump(fc, 0);
    http_req_release(req);
}

/* Head and first piece; the rest follows. Returns -EAGAIN (NOWAIT) before anything was sent. */
static int begin_answer(struct front_call *fc, unsigned flags, struct err *err)
{
    struct s3_call *c = &fc->c;
    struct reading *rd = &fc->rd;
    int64_t size = (int64_t)rd->left;
    if (c->t.is_head) {
        front_send_head(fc, fc->head_length);
        http_body_more(fc->req, STR_NONE, true);
        return 0;
    }
    if (size == 0) {
        front_send(fc);
        return 0;
    }
    ssize_t n = 0;
    struct chunkq_block *piece =
        read_piece(rd, rd->left <= ONE_PIECE ? ONE_PIECE : PIECE, flags, &n, err);
    if (!piece) {
        return (int)n;
    }
    atomic_fetch_add_explicit(&fc->f->bytes_out, (uint64_t)size, memory_order_relaxed);
    bool is_last = rd->left == 0;
    pthread_mutex_lock(&rd->mu);
    rd->is_begun = true;
    rd->is_over = is_last;
    pthread_mutex_unlock(&rd->mu);
    front_send_head(fc, size);
    http_body_give(fc->req, piece, (size_t)n, is_last);
    return is_last ? 0 : 1;
}

/* 1: a stream goes on. */
static int run(struct front_call *fc, unsigned flags)
{
    struct err e = ERR_INIT;
    int r = fc->is_prepared ? 0 : prepare(fc, flags, &e);
    if (r == 1) {
        return 0;
    }
    if (r == 0) {
        fc->is_prepared = true;
        r = begin_answer(fc, flags, &e);
    }
    if (r == -EAGAIN && flags & OSTORE_NOWAIT) {
        return r;
    }
    if (r < 0) {
        front_fail(fc, &e);
        return 0;
    }
    return r;
}

static void run_job(void *ctx)
{
    struct front_call *fc = ctx;
    struct http_req *req = fc->req;
    if (run(fc, 0) == 1) {
        (void)pump(fc, 0);
    }
    http_req_release(req);
}

static void submit(struct front_call *fc, void (*fn)(void *fc))
{
    struct reading *rd = &fc->rd;
    pthread_mutex_lock(&rd->mu);
    rd->is_job = true;
    pthread_mutex_unlock(&rd->mu);
    http_req_hold(fc->req);
    if (pool_submit(fc->c.s3->pool, fn, NULL, NULL, fc) == 0) {
        return;
    }
    if (rd->is_begun) {
        break_off(fc);
    } else {
        struct err e = ERR_INIT;
        fail(&e, -EAGAIN, "SlowDown", "%s", "");
        front_fail(fc, &e);
    }
    http_req_release(fc->req);
}

void get_start(struct front_call *fc)
{
    int r = run(fc, OSTORE_NOWAIT);
    if (r == -EAGAIN) {
        submit(fc, run_job);
    } else if (r == 1) {
        pump_here(fc);
    }
}

/* On the loop's thread. Before the head of the answer is out it is owed, and thrown away; in the
 * middle of a body the reader is told, or the answer is settled here. */
void get_aborted(struct front_call *fc)
{
    struct reading *rd = &fc->rd;
    pthread_mutex_lock(&rd->mu);
    rd->is_gone = true;
    bool is_mine = rd->is_begun && !rd->is_job && !rd->is_over;
    rd->is_over = rd->is_over || is_mine;
    pthread_mutex_unlock(&rd->mu);
    if (is_mine) {
        http_abort(fc->req);
    }
}

void reading_done(struct front_call *fc)
{
    oread_close(fc->rd.r);
    pthread_mutex_destroy(&fc->rd.mu);
}
