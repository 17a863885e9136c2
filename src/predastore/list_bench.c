/* What a list of 1,000 keys costs: store, handler and XML, in CPU time of this process.
 *   predastore_list_bench [keys (1000000)] [folder (a temporary one)] */
#include "predastore/ops.h"

#include "base/num.h"
#include "base/time.h"
#include "testkit/tmpdir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define BUCKET    "bench"
#define IN_FLIGHT 4096u
#define ROUNDS    200u

struct filler {
    pthread_mutex_t mu;
    pthread_cond_t cond;
    unsigned n_left;
};
struct put {
    struct ochange change;
    char key[40];
};

static double cpu_s(void)
{
    struct timespec ts; /* of the list itself: RocksDB may settle in the background */
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s: %s\n", what, e->name ? e->name : "", e->msg);
    exit(1);
}

static void on_done(struct ochange *c)
{
    struct filler *f = c->ctx;
    if (c->rc < 0) {
        die("put", &c->err);
    }
    pthread_mutex_lock(&f->mu);
    f->n_left--;
    pthread_cond_signal(&f->cond);
    pthread_mutex_unlock(&f->mu);
}

/* Keys in folders of 1,000: "d0000123/k000456". */
static void fill(struct ostore *s, const struct obucket *b, uint64_t n_keys)
{
    struct filler f = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct put *v = calloc(IN_FLIGHT, sizeof(*v));
    if (!v) {
        abort();
    }
    for (uint64_t at = 0; at < n_keys; at += IN_FLIGHT) {
        unsigned n = (unsigned)(n_keys - at < IN_FLIGHT ? n_keys - at : IN_FLIGHT);
        f.n_left = n;
        for (unsigned i = 0; i < n; i++) {
            snprintf(v[i].key, sizeof(v[i].key), "d%07llu/k%06llu",
                     (unsigned long long)((at + i) / 1000),
                     (unsigned long long)((at + i) % 1000));
            v[i].change = (struct ochange){.kind = OCHANGE_PUT,
                                           .bucket = b,
                                           .cond = OCHANGE_IF_NONE,
                                           .target_cond = OCHANGE_IF_NONE,
                                           .done = on_done,
                                           .ctx = &f};
            v[i].change.rec.key = str_c(v[i].key);
            v[i].change.rec.etag = STR("d41d8cd98f00b204e9800998ecf8427e");
            v[i].change.rec.account = b->account;
            ochange_start(s, &v[i].change);
        }
        pthread_mutex_lock(&f.mu);
        while (f.n_left > 0) {
            pthread_cond_wait(&f.cond, &f.mu);
        }
        pthread_mutex_unlock(&f.mu);
    }
    free(v);
}

/* One list as the service does it, without HTTP. */
static size_t list_once(struct s3 *s3, const struct obucket *b, struct str after,
                        struct str delimiter)
{
    AUTO(arena_freep) struct arena *a = arena_new(S3_ARENA_MAX);
    struct s3_call c = {.s3 = s3, .store = s3->store, .arena = a, .bucket = b};
    struct err e = ERR_INIT;
    const struct s3_list_objects_v2_request in = {.bucket = b->name,
                                                  .start_after = after,
                                                  .delimiter = delimiter,
                                                  .encoding_type = STR("url")};
    struct s3_list_objects_v2_output out = {0};
    rest_answer_init(&c.answer, a, STR("0123456789ABCDEF"), STR("host"));
    if (op_list_objects_v2(&c, &in, &out, &e) < 0 ||
        rest_encode(&aws_service_s3, S3_OP_LIST_OBJECTS_V2, &out, a, &c.answer, &e) < 0) {
        die("list", &e);
    }
    size_t n = c.answer.body.n;
    rest_answer_done(&c.answer);
    return n;
}

static void measure(struct s3 *s3, const struct obucket *b, uint64_t n_keys, const char *name,
                    struct str delimiter, double target_ms)
{
    size_t bytes = 0;
    char after[40];
    double start = cpu_s();
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t at = (uint64_t)i * 7919 * 1000 % (n_keys > 2000 ? n_keys - 1000 : 1);
        snprintf(after, sizeof(after), "d%07llu/k%06llu", (unsigned long long)(at / 1000),
                 (unsigned long long)(at % 1000));
        bytes += list_once(s3, b, delimiter.n ? STR_NONE : str_c(after), delimiter);
    }
    double ms = (cpu_s() - start) * 1000 / ROUNDS;
    printf("%-36s %8.3f ms CPU  %7zu bytes  (target %.0f ms: %s)\n", name, ms, bytes / ROUNDS,
           target_ms, ms <= target_ms ? "ok" : "MISSED");
}

int main(int argc, char **argv)
{
    uint64_t n_keys = 1000000;
    struct tmpdir dir;
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    if (argc > 1 && num_u64(str_c(argv[1]), 100000000, &n_keys) < 0) {
        fprintf(stderr, "usage: %s [keys] [folder]\n", argv[0]);
        return 2;
    }
    tmpdir_init(&dir, "list");
    const char *drive = argc > 2 ? argv[2] : tmpdir_path(&dir, "d", path);
    if (argc < 3 && mkdir(drive, 0700) < 0) {
        perror(drive);
        return 1;
    }
    struct ostore_opts o = {.drives = &drive, .n_drives = 1, .k = 1, .is_sync_off = true};
    struct s3 s3 = {.region = STR("us-east-1"), .host_id = STR("bench")};
    const struct obucket *b = NULL;
    if (ostore_open(&o, &s3.store, &e) < 0 ||
        ostore_bucket_create(s3.store, STR(BUCKET), STR("123456789012"), s3.region, &e) < 0 ||
        ostore_bucket(s3.store, STR(BUCKET), &b, &e) < 0) {
        die("store", &e);
    }
    uint64_t t = time_mono_ns();
    fill(s3.store, b, n_keys);
    printf("%llu keys put in %.1f s\n", (unsigned long long)n_keys,
           (double)(time_mono_ns() - t) / 1e9);
    measure(&s3, b, n_keys, "list 1,000 of all keys", STR_NONE, 10);
    measure(&s3, b, n_keys, "list 1,000 common prefixes", STR("/"), 20);
    obucket_unref(b);
    ostore_close(s3.store);
    o.is_index_discarded = true;
    if (ostore_open(&o, &s3.store, &e) < 0 ||
        ostore_bucket(s3.store, STR(BUCKET), &b, &e) < 0) {
        die("replay", &e);
    }
    printf("right after a replay of everything:\n");
    measure(&s3, b, n_keys, "list 1,000 of all keys", STR_NONE, 10);
    measure(&s3, b, n_keys, "list 1,000 common prefixes", STR("/"), 20);
    obucket_unref(b);
    ostore_close(s3.store);
    tmpdir_done(&dir);
    return 0;
}
