#include "base/num.h"
#include "base/time.h"
#include "base/vec.h"
#include "ostore/ostore_world.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>

/* ostore_bench [objects]: rows of what an operation of the store costs, apart from HTTP.
 * Release builds. */

static uint64_t cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NS_PER_S +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

struct mark {
    uint64_t wall, cpu, syncs, commits;
};

static struct mark mark(struct world *w)
{
    struct ostore_stats st;
    ostore_stats(w->s, &st);
    return (struct mark){time_mono_ns(), cpu_ns(), st.n_syncs, st.n_commits};
}

static uint64_t own_cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void row(struct world *w, const char *what, struct mark from, uint64_t n)
{
    struct mark to = mark(w);
    double s = (double)(to.wall - from.wall) / 1e9;
    printf("%-34s %10.0f/s  %8.2f us cpu", what, (double)n / s,
           (double)(to.cpu - from.cpu) / 1e3 / (double)n);
    if (to.syncs > from.syncs) {
        printf("  %6.3f syncs each", (double)(to.syncs - from.syncs) / (double)n);
    }
    printf("\n");
    (void)fflush(stdout);
}

static struct str key_of(uint64_t i, char buf[64])
{
    uint64_t h = i * UINT64_C(0x9e3779b97f4a7c15);
    int n = snprintf(buf, 64, "dir-%03u/%016llx-%08llu", (unsigned)(h >> 54),
                     (unsigned long long)h, (unsigned long long)i);
    return str_n(buf, (size_t)n);
}

struct putter {
    struct world *w;
    const struct obucket *b;
    uint64_t first, n;
    size_t size;
};

/* A put that does not wait: 'depth' of them are under way. */
struct slot {
    struct ochange c;
    char key[64];
    struct flow *f;
};
struct flow {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    VEC(struct slot *) idle;
};

static void slot_done(struct ochange *c)
{
    struct slot *s = c->ctx;
    pthread_mutex_lock(&s->f->lock);
    vec_push(&s->f->idle, s);
    pthread_cond_signal(&s->f->cond);
    pthread_mutex_unlock(&s->f->lock);
}

static void nothing(void *ctx, int rc, const struct err *err)
{
}

static void fill(struct world *w, const struct obucket *b, uint64_t first, uint64_t n,
                 size_t size, unsigned depth)
{
    struct flow f = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct slot *slots = calloc(depth, sizeof(*slots));
    struct str bytes = world_bytes(w, size, 1);
    for (unsigned i = 0; i < depth; i++) {
        slots[i].f = &f;
        vec_push(&f.idle, &slots[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
        pthread_mutex_lock(&f.lock);
        while (f.idle.n == 0) {
            pthread_cond_wait(&f.cond, &f.lock);
        }
        struct slot *s = f.idle.v[--f.idle.n];
        pthread_mutex_unlock(&f.lock);
        s->c = (struct ochange){.kind = OCHANGE_PUT,
                                .bucket = b,
                                .cond = OCHANGE_IF_NONE,
                                .done = slot_done,
                                .ctx = s};
        s->c.rec.key = key_of(first + i, s->key);
        s->c.rec.etag = STR("00112233445566778899aabbccddeeff");
        struct oput_opts o = {.size = (int64_t)size};
        if (size > 0) {
            assert_int_equal(oput_new(w->s, &o, &s->c.body, NULL), 0);
            assert_int_equal(oput_add(s->c.body, bytes, NULL), OPUT_MORE);
            oput_finish(s->c.body, nothing, NULL);
        }
        ochange_start(w->s, &s->c);
    }
    pthread_mutex_lock(&f.lock);
    while (f.idle.n < depth) {
        pthread_cond_wait(&f.cond, &f.lock);
    }
    pthread_mutex_unlock(&f.lock);
    vec_free(&f.idle);
    free(slots);
}

static void *put_many(void *arg)
{
    struct putter *p = arg;
    struct str bytes = STR_NONE;
    char *mem = calloc(1, p->size);
    bytes = str_n(mem, p->size);
    for (uint64_t i = 0; i < p->n; i++) {
        char key[64];
        struct ochange c = {.kind = OCHANGE_PUT, .bucket = p->b, .cond = OCHANGE_IF_NONE};
        c.rec.key = key_of(p->first + i, key);
        c.rec.etag = STR("00112233445566778899aabbccddeeff");
        struct oput_opts o = {.size = (int64_t)p->size};
        assert_int_equal(oput_new(p->w->s, &o, &c.body, NULL), 0);
        assert_int_equal(oput_add(c.body, bytes, NULL), OPUT_MORE);
        oput_finish(c.body, nothing, NULL);
        assert_int_equal(ochange_wait(p->w->s, &c), 0);
    }
    free(mem);
    return NULL;
}

static void puts_by(struct world *w, const struct obucket *b, const char *what,
                    unsigned threads, uint64_t each, uint64_t *next)
{
    pthread_t t[64];
    struct putter p[64];
    struct mark from = mark(w);
    for (unsigned i = 0; i < threads; i++) {
        p[i] = (struct putter){w, b, *next, each, 4096};
        *next += each;
        assert_int_equal(pthread_create(&t[i], NULL, put_many, &p[i]), 0);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(t[i], NULL);
    }
    row(w, what, from, threads * each);
}

static void read_all(struct world *w, const struct obucket *b, uint64_t n_keys, uint64_t n,
                     bool is_read)
{
    struct arena *a = arena_new(65536);
    struct mark from = mark(w);
    char buf[4096];
    uint64_t waits = 0;
    for (uint64_t i = 0; i < n; i++) {
        char key[64];
        struct oversion v;
        struct oread *r = NULL;
        arena_reset(a);
        struct str k = key_of((i * 7919) % n_keys, key);
        unsigned flags = OSTORE_NOWAIT;
        if (ostore_get(w->s, b, k, NULL, flags, a, &v, NULL) == -EAGAIN) {
            flags = 0;
            waits++;
            assert_int_equal(ostore_get(w->s, b, k, NULL, 0, a, &v, NULL), 0);
        }
        if (!is_read) {
            continue;
        }
        assert_int_equal(oread_open(w->s, &v, flags, &r, NULL), 0);
        ssize_t got = oread_at(r, 0, buf, sizeof(buf), flags, NULL);
        if (got == -EAGAIN) {
            waits++;
            got = oread_at(r, 0, buf, sizeof(buf), 0, NULL);
        }
        assert_int_equal(got, 4096);
        oread_close(r);
    }
    row(w, is_read ? "get and read 4 KiB" : "get", from, n);
    if (waits) {
        printf("    (%llu of %llu had to wait)\n", (unsigned long long)waits,
               (unsigned long long)n);
    }
    arena_free(a);
}

static void lists(struct world *w, const struct obucket *b)
{
    struct arena *a = arena_new((size_t)16 << 20);
    for (int turn = 0; turn < 2; turn++) {
        struct mark from = mark(w);
        uint64_t own = own_cpu_ns();
        for (unsigned i = 0; i < 50; i++) {
            char after[32];
            (void)snprintf(after, sizeof(after), "dir-%03u/", i * 20);
            struct olist_query q = {
                .max = 1000, .after = str_c(after), .is_after_inclusive = true};
            if (turn == 1) {
                q.delimiter = STR("/");
                q.after = STR_NONE;
            }
            struct olist_page page;
            arena_reset(a);
            assert_int_equal(ostore_list(w->s, b, &q, a, &page, NULL), 0);
            assert_true(page.n > 0);
        }
        row(w, turn ? "list 1,000 prefixes" : "list 1,000 keys", from, 50);
        /* RocksDB may settle in the background meanwhile. */
        printf("%-34s %23.2f us cpu\n", "  of that the list itself",
               (double)(own_cpu_ns() - own) / 1e3 / 50);
    }
    arena_free(a);
}

static void open_bench(struct world *w, bool is_sync_off)
{
    world_init(w, 1, 0);
    w->o.is_sync_off = is_sync_off;
    w->o.inline_max = 131072;
    world_open(w);
}

static void put_rows(bool is_sync_off)
{
    struct world w;
    uint64_t next = 0;
    open_bench(&w, is_sync_off);
    const struct obucket *b = world_bucket(&w, "bench");
    puts_by(&w, b, is_sync_off ? "put 4 KiB, 1 thread, no sync" : "put 4 KiB, 1 thread", 1,
            2000, &next);
    puts_by(&w, b, is_sync_off ? "put 4 KiB, 64 threads, no sync" : "put 4 KiB, 64 threads", 64,
            1000, &next);
    if (!is_sync_off) {
        read_all(&w, b, next, 200000, false);
        read_all(&w, b, next, 200000, true);
    }
    obucket_unref(b);
    world_done(&w);
}

int main(int argc, char **argv)
{
    uint64_t n = 1000000;
    struct world w;
    if (argc > 1 && num_u64(str_c(argv[1]), UINT64_C(100000000), &n) < 0) {
        return 2;
    }
    if (argc < 3) { /* with any second argument: only the rows of many objects */
        put_rows(false);
        put_rows(true);
    }
    open_bench(&w, true);
    const struct obucket *b = world_bucket(&w, "many");
    struct mark from = mark(&w);
    fill(&w, b, 0, n, 0, 512);
    row(&w, "put, empty, many at once, no sync", from, n);
    lists(&w, b);
    obucket_unref(b);
    uint64_t begin = time_mono_ns();
    world_close(&w);
    printf("close: %.2f s\n", (double)(time_mono_ns() - begin) / 1e9);
    begin = time_mono_ns();
    world_open(&w);
    printf("start with the index, %llu objects: %.2f s\n", (unsigned long long)n,
           (double)(time_mono_ns() - begin) / 1e9);
    world_close(&w);
    w.o.is_index_discarded = true;
    begin = time_mono_ns();
    uint64_t cpu = cpu_ns();
    world_open(&w);
    double s = (double)(time_mono_ns() - begin) / 1e9;
    printf("replay of everything: %.2f s, %.0f records/s, %.2f us cpu each\n", s, (double)n / s,
           (double)(cpu_ns() - cpu) / 1e3 / (double)n);
    b = world_bucket(&w, "many");
    lists(&w, b);
    obucket_unref(b);
    world_done(&w);
    return 0;
}
