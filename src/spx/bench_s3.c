#include "spx/bench_s3.h"
#include "aws/sigv4.h"
#include "base/file.h"
#include "base/num.h"
#include "base/rand.h"
#include "base/time.h"
#include "codec/base64.h"
#include "crypto/crc.h"
#include "net/http_call.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>

#define BLOCK      ((size_t)1 << 20)
#define MAX_KEY    100
#define CALL_LIMIT (60 * NS_PER_S)
#define UNSIGNED   "UNSIGNED-PAYLOAD"
#define MAX_ARENA  (1u << 20)

struct stream { /* the object: one random block, and in each copy of it its number */
    const struct bench_s3 *b;
    char *block;
    uint64_t pos, base; /* base: bytes of the runs before, for progress */
    const char *what;
    bool is_wrong;
};

struct client {
    const struct bench_s3 *b;
    struct http_caller *http;
    struct str host;
    char bucket[MAX_KEY];
    struct stream s;
};

static void set_number(struct stream *s, uint64_t n)
{
    memcpy(s->block, &n, sizeof(n));
}

static bool advance(struct stream *s, size_t n)
{
    s->pos += n;
    if (s->b->on_progress && (s->pos % (4 * BLOCK) < n || s->pos == s->b->size)) {
        s->b->on_progress(s->b->ctx, s->what, s->base + s->pos, 2 * s->b->size * s->b->n_runs);
    }
    return !s->b->is_stopped || !*s->b->is_stopped;
}

static size_t on_send(void *ctx, char *p, size_t n)
{
    struct stream *s = ctx;
    size_t off = s->pos % BLOCK;
    n = MIN(n, MIN(BLOCK - off, (size_t)(s->b->size - s->pos)));
    set_number(s, s->pos / BLOCK);
    memcpy(p, s->block + off, n);
    return advance(s, n) ? n : 0;
}

static bool on_receive(void *ctx, struct str bytes)
{
    struct stream *s = ctx;
    while (bytes.n) {
        size_t off = s->pos % BLOCK;
        size_t n = MIN(bytes.n, BLOCK - off);
        set_number(s, s->pos / BLOCK);
        s->is_wrong = s->is_wrong || n > s->b->size - MIN(s->b->size, s->pos) ||
                      memcmp(bytes.p, s->block + off, n) != 0;
        if (s->is_wrong || !advance(s, n)) {
            return false;
        }
        bytes = str_skip(bytes, n);
    }
    return true;
}

static uint64_t crc_of_all(struct stream *s)
{
    uint64_t crc = 0;
    for (uint64_t off = 0; off < s->b->size; off += BLOCK) {
        set_number(s, off / BLOCK);
        crc = crc_add(CRC_64NVME, crc, str_n(s->block, MIN(BLOCK, (size_t)(s->b->size - off))));
    }
    return crc;
}

/* The headers that every call has, signed. */
static size_t sign(struct arena *a, const struct client *c, const char *method, struct str path,
                   struct str checksum, struct http_header h[8])
{
    char date[TIME_ISO_SIZE];
    const struct profile_keys *k = &c->b->keys;
    size_t n = 0;
    bool has_sum = str_is_set(checksum), has_token = k->token[0] != 0;
    struct str now = arena_str_dup(a, str_c(time_basic(time_wall_ns(), date)));
    h[n++] = (struct http_header){STR("Host"), c->host};
    if (has_sum) {
        h[n++] = (struct http_header){STR("x-amz-checksum-crc64nvme"), checksum};
    }
    h[n++] = (struct http_header){STR("x-amz-content-sha256"), STR(UNSIGNED)};
    h[n++] = (struct http_header){STR("x-amz-date"), now};
    if (has_token) {
        h[n++] = (struct http_header){STR("x-amz-security-token"), str_c(k->token)};
    }
    struct sigv4_auth auth = {
        .access_key = str_c(k->access_key),
        .date = str_n(now.p, 8),
        .region = str_c(k->region),
        .service = STR("s3"),
        .signed_headers = arena_fmt(a, "host%s;x-amz-content-sha256;x-amz-date%s",
                                    has_sum ? ";x-amz-checksum-crc64nvme" : "",
                                    has_token ? ";x-amz-security-token" : ""),
        .amz_date = now,
        .session_token = STR_NONE,
    };
    struct aws_http rq = {.method = str_c(method),
                          .path = path,
                          .query = STR_NONE,
                          .headers = h,
                          .n_headers = n,
                          .body = STR("")};
    h[n++] =
        (struct http_header){STR("Authorization"), sigv4_sign(a, &rq, str_c(k->secret), &auth,
                                                              SIGV4_S3, STR(UNSIGNED))};
    return n;
}

/* One call; any answer but 2xx is an error that shows what the server said. */
static int call(struct client *c, const char *method, const char *key, struct str checksum,
                struct http_call *o, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(MAX_ARENA);
    struct http_header h[8];
    struct http_called got;
    struct str path = arena_fmt(a, "/%s%s%s", c->bucket, key[0] ? "/" : "", key);
    o->method = method;
    o->url = arena_cstr(a, arena_fmt(a, "%s%.*s", c->b->endpoint, STR_ARG(path)));
    o->headers = h;
    o->n_headers = sign(a, c, method, path, checksum, h);
    int r = http_call(c->http, o, &got, err);
    if (r < 0) {
        return r;
    }
    if (got.status / 100 == 2) {
        return 0;
    }
    struct str body = str_c(got.error);
    ptrdiff_t at = str_find_str(body, STR("<Code>"));
    struct str code = at < 0 ? STR("") : str_cut(str_skip(body, (size_t)at + 6), '<');
    return fail(err, -EIO, "CallFailed", "%s %.*s: the server answered %d %.*s", method,
                STR_ARG(path), got.status, STR_ARG(code));
}

static int simple(struct client *c, const char *method, const char *key, struct err *err)
{
    struct http_call o = {.body_size = strcmp(method, "PUT") == 0 ? 0 : -1,
                          .timeout_ns = CALL_LIMIT};
    return call(c, method, key, STR_NONE, &o, err);
}

static uint64_t own_cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static int timed(struct client *c, bool is_put, struct str checksum, struct bench_cost *ret,
                 struct err *err)
{
    const struct bench_s3 *b = c->b;
    struct http_call o = {.body_size = is_put ? (int64_t)b->size : -1,
                          .on_send = on_send,
                          .on_receive = is_put ? NULL : on_receive,
                          .ctx = &c->s};
    c->s.pos = 0;
    c->s.what = is_put ? "writing" : "reading";
    uint64_t server = bench_cpu_ns(b->pids, b->n_pids), client = own_cpu_ns();
    uint64_t begun = time_mono_ns();
    int r = call(c, is_put ? "PUT" : "GET", "object", is_put ? checksum : STR_NONE, &o, err);
    *ret = (struct bench_cost){.wall_ns = time_mono_ns() - begun,
                               .client_ns = own_cpu_ns() - client,
                               .server_ns = bench_cpu_ns(b->pids, b->n_pids) - server};
    c->s.base += b->size;
    if (!is_put && (c->s.is_wrong || (r == 0 && c->s.pos != b->size))) {
        err_clear(err);
        return fail(err, -EBADMSG, "WrongBytes",
                    "what was read is not what was written, near byte %llu",
                    (unsigned long long)c->s.pos);
    }
    return r;
}

static int run_all(struct client *c, struct bench_result *ret, struct err *err)
{
    AUTO_BUF sum;
    uint8_t bytes[CRC_MAX_SIZE];
    size_t n = crc_bytes(CRC_64NVME, crc_of_all(&c->s), bytes);
    int r = 0;
    buf_init(&sum, 100);
    base64_encode(str_n((const char *)bytes, n), &sum);
    for (unsigned i = 0; r == 0 && i < c->b->n_runs; i++) {
        r = timed(c, true, buf_str(&sum), &ret->put[i], err);
        r = r < 0 ? r : timed(c, false, STR_NONE, &ret->get[i], err);
        ret->n_runs += r == 0;
    }
    return r;
}

int bench_s3_run(struct arena *a, const struct bench_s3 *b, struct bench_result *ret,
                 struct err *err)
{
    AUTO(http_caller_freep) struct http_caller *http = NULL;
    AUTO_FREE char *block = malloc(BLOCK);
    char id[9];
    struct str url = str_c(b->endpoint);
    ptrdiff_t at = str_find_str(url, STR("://"));
    if (!block || at < 0) {
        return fail(err, -EINVAL, "BadEndpoint", "'%s' is no URL of an endpoint", b->endpoint);
    }
    int r = http_caller_new(b->keys.ca_path[0] ? b->keys.ca_path : NULL, &http, err);
    if (r < 0) {
        return r;
    }
    rand_bytes(block, BLOCK);
    rand_hex(id, 8);
    struct client c = {.b = b,
                       .http = http,
                       .host = str_cut(str_skip(url, (size_t)at + 3), '/'),
                       .s = {.b = b, .block = block}};
    snprintf(c.bucket, sizeof(c.bucket), "spx-bench-%s", id);
    *ret = (struct bench_result){0};
    r = simple(&c, "PUT", "", err);
    if (r < 0) {
        return r;
    }
    r = run_all(&c, ret, err);
    struct err e = ERR_INIT; /* the first error is the one to tell */
    int r2 = simple(&c, "DELETE", "object", &e);
    r2 = r2 < 0 ? r2 : simple(&c, "DELETE", "", &e);
    if (r == 0 && r2 < 0) {
        return fail(err, r2, e.name, "%s is left behind: %s", c.bucket, e.msg);
    }
    return r;
}

int bench_disk(const char *dir, uint64_t size, uint64_t *ret_rate, struct err *err)
{
    AUTO_FD fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    AUTO_FREE char *block = malloc(BLOCK);
    if (fd < 0 || !block) {
        return fail(err, -errno, "OpenFailed", "%s: %m", dir);
    }
    rand_bytes(block, BLOCK);
    uint64_t begun = time_mono_ns();
    for (uint64_t off = 0; off < size; off += BLOCK) {
        int r = file_write_all(fd, block, MIN(BLOCK, (size_t)(size - off)));
        if (r < 0) {
            return fail(err, r, "WriteFailed", "%s: %s", dir, strerror(-r));
        }
    }
    if (fdatasync(fd) < 0) {
        return fail(err, -errno, "WriteFailed", "%s: %m", dir);
    }
    uint64_t ns = MAX(time_mono_ns() - begun, (uint64_t)1);
    *ret_rate = (uint64_t)((double)size * 1e9 / (double)ns);
    return 0;
}

/* utime and stime, fields 14 and 15: the 12th and 13th after the ')' that ends the name. */
static uint64_t cpu_of(pid_t pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (n <= 0) {
        return 0;
    }
    struct str rest = str_n(text, (size_t)n), field = STR_NONE;
    size_t end = rest.n;
    while (end && rest.p[end - 1] != ')') {
        end--;
    }
    rest = str_skip(rest, end + 1);
    uint64_t ticks = 0, v = 0;
    for (int i = 3; i <= 15 && str_next(&rest, ' ', &field); i++) {
        if (i >= 14 && num_u64(field, UINT64_MAX, &v) == 0) {
            ticks += v;
        }
    }
    long hz = sysconf(_SC_CLK_TCK);
    return ticks * (NS_PER_S / (uint64_t)(hz > 0 ? hz : 100));
}

uint64_t bench_cpu_ns(const pid_t *pids, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += cpu_of(pids[i]);
    }
    return sum;
}
