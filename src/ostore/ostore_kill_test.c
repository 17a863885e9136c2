#include "ostore/ostore_world.h"

#include "base/num.h"
#include "base/time.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process under load is killed again and again. It writes into a pipe what was answered; all of
 * that has to be there afterwards, with its bytes, and nothing that was deleted. */

#define N_KEYS    40u
#define N_THREADS 4u
#define N_ROUNDS  12

struct note {                 /* a key belongs to one thread: its notes are in order */
    uint32_t key, seed, size; /* size UINT32_MAX: deleted */
    uint32_t is_answer;       /* 0: it was asked for */
};

struct worker {
    struct world *w;
    const struct obucket *b;
    int fd;
    uint32_t idx, seed;
};

static void tell(int fd, struct note n)
{
    if (write(fd, &n, sizeof(n)) != (ssize_t)sizeof(n)) {
        _exit(3);
    }
}

static struct str bytes_of(char *mem, uint32_t size, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < size; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        mem[i] = (char)x;
    }
    return str_n(mem, size);
}

static void done_body(void *ctx, int rc, const struct err *err)
{
    atomic_store((atomic_int *)ctx, rc == 0 ? 1 : rc);
}

static int put(struct worker *k, struct str key, struct str body)
{
    struct ochange c = {.kind = OCHANGE_PUT, .bucket = k->b, .cond = OCHANGE_IF_NONE};
    struct oput_opts o = {.size = (int64_t)body.n};
    atomic_int state = 0;
    c.rec.key = key;
    if (oput_new(k->w->s, &o, &c.body, NULL) < 0) {
        return -EAGAIN;
    }
    if (oput_add_wait(c.body, body, NULL) < 0) {
        oput_free(c.body);
        return -EIO;
    }
    oput_finish(c.body, done_body, &state);
    while (atomic_load(&state) == 0) {
        (void)usleep(100);
    }
    int rc = ochange_wait(k->w->s, &c);
    if (rc < 0) {
        oput_free(c.body);
    }
    return rc;
}

static void *work(void *arg)
{
    static const uint32_t sizes[] = {0, 10, 4096, 30000, 200000};
    struct worker *k = arg;
    char *mem = malloc(200000);
    for (uint32_t i = 0;; i++) {
        k->seed = k->seed * 1103515245u + 12345u;
        struct note n = {.key = k->idx + (k->seed >> 8) % (N_KEYS / N_THREADS) * N_THREADS,
                         .seed = k->seed,
                         .size = sizes[(k->seed >> 20) % ARRAY_LEN(sizes)]};
        char key[16];
        (void)snprintf(key, sizeof(key), "key-%u", n.key);
        bool is_delete = i % 7 == 6;
        n.size = is_delete ? UINT32_MAX : n.size;
        tell(k->fd, n);
        struct ochange c = {.kind = OCHANGE_DELETE, .bucket = k->b, .cond = OCHANGE_IF_NONE};
        c.rec.key = str_c(key);
        int rc = is_delete ? ochange_wait(k->w->s, &c)
                           : put(k, str_c(key), bytes_of(mem, n.size, n.seed));
        if (rc < 0) {
            _exit(4);
        }
        n.is_answer = 1;
        tell(k->fd, n);
    }
    return NULL;
}

static void *churn(void *arg)
{
    struct world *w = arg;
    for (;;) {
        uint64_t freed;
        if (ostore_compact(w->s, &freed, NULL) < 0) {
            _exit(5);
        }
        (void)usleep(20000);
    }
    return NULL;
}

/* Every other process writes with a weaker code, which the next one makes good. */
static void options(struct world *w, uint32_t seed)
{
    w->o.inline_max = 16384;
    w->o.segment_size = 1 << 20;
    w->o.k = seed % 2 ? 1 : 2;
    w->o.heal_look_ns = 10 * NS_PER_MS;
}

/* The process that is killed: this program again, for threads of a library do not survive a
 *                             fork. */
static int child(const char *dir, int fd, uint32_t seed)
{
    struct world world = {0}, *w = &world;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    world_paths(w, dir, 2, 1);
    options(w, seed);
    if (ostore_open(&w->o, &w->s, &w->err) < 0) {
        (void)fprintf(stderr, "open: %s\n", w->err.msg);
        return 2;
    }
    struct worker k[N_THREADS];
    pthread_t t;
    const struct obucket *b = NULL;
    if (ostore_bucket(w->s, STR("load"), &b, NULL) < 0) {
        _exit(2);
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        k[i] = (struct worker){.w = w, .b = b, .fd = fd, .idx = i, .seed = seed * 31 + i};
        if (pthread_create(&t, NULL, work, &k[i]) != 0) {
            _exit(2);
        }
    }
    (void)churn(w);
    return 0;
}

struct known { /* of a key */
    struct note acked, asked;
    bool is_acked, is_asked;
};

static bool is_as(struct world *w, const struct obucket *b, struct str key,
                  const struct note *n)
{
    struct str got;
    int rc = world_read(w, b, key, NULL, &got, NULL);
    if (n->size == UINT32_MAX) {
        return rc == -ENOENT;
    }
    char *mem = arena_xalloc(w->a, (size_t)n->size + 1);
    struct str want = bytes_of(mem, n->size, n->seed);
    return rc == 0 && str_eq(got, want);
}

static void check(struct world *w, struct known *k)
{
    struct ostore_stats st;
    const struct obucket *b = world_bucket(w, "load");
    ostore_stats(w->s, &st);
    assert_false(st.is_readonly);
    for (unsigned i = 0; i < N_KEYS; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "key-%u", i);
        struct note none = {.size = UINT32_MAX};
        const struct note *acked = k[i].is_acked ? &k[i].acked : &none;
        bool is_old = is_as(w, b, str_c(key), acked);
        bool is_new = k[i].is_asked && is_as(w, b, str_c(key), &k[i].asked);
        if (!is_old && !is_new) {
            fail_msg("%s: neither what was answered (%u bytes) nor what was asked for", key,
                     acked->size);
        }
        if (is_new && !is_old) { /* it counts from now on */
            k[i].acked = k[i].asked;
            k[i].is_acked = true;
        }
        k[i].is_asked = false;
        arena_reset(w->a);
    }
    obucket_unref(b);
}

static void killed_under_load_again_and_again(void **state)
{
    struct world w;
    struct known known[N_KEYS] = {0};
    world_init(&w, 2, 1);
    options(&w, 0);
    world_open(&w);
    obucket_unref(world_bucket(&w, "load"));
    world_close(&w);
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        (void)fflush(stdout);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            char fd[16], seed[16];
            (void)snprintf(fd, sizeof(fd), "%d", fds[1]);
            (void)snprintf(seed, sizeof(seed), "%u", round + 1);
            (void)execl("/proc/self/exe", "ostore_kill_test", w.dir.path, fd, seed,
                        (char *)NULL);
            _exit(6);
        }
        close(fds[1]);
        uint64_t ms = 300 + (round * 7919) % 900;
        /* The pipe is read while it fills, or the process would wait for us. */
        uint64_t end = time_mono_ns() + ms * NS_PER_MS;
        bool is_killed = false;
        uint64_t n_answers = 0;
        struct note n;
        while (read(fds[0], &n, sizeof(n)) == (ssize_t)sizeof(n)) {
            assert_true(n.key < N_KEYS);
            struct known *k = &known[n.key];
            n_answers += n.is_answer;
            if (n.is_answer) {
                k->acked = n;
                k->is_acked = true;
                k->is_asked = false;
            } else {
                k->asked = n;
                k->is_asked = true;
            }
            if (!is_killed && time_mono_ns() > end) {
                assert_int_equal(kill(pid, SIGKILL), 0);
                is_killed = true;
            }
        }
        close(fds[0]);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            fail_msg("round %u: the process ended by itself: %x", round, (unsigned)status);
        }
        print_message("round %u: %llu answers\n", round, (unsigned long long)n_answers);
        assert_true(n_answers > 0);
        w.o.is_index_discarded = round % 3 == 2;
        world_open(&w);
        check(&w, known);
        world_close(&w);
        w.o.is_index_discarded = false;
    }
    world_done(&w);
}

int main(int argc, char **argv)
{
    uint64_t fd = 0, seed = 0;
    if (argc == 4 && num_u64(str_c(argv[2]), 1000, &fd) == 0 &&
        num_u64(str_c(argv[3]), UINT32_MAX, &seed) == 0) {
        return child(argv[1], (int)fd, (uint32_t)seed);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(killed_under_load_again_and_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
