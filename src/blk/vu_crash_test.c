/* The server dies at every point of a request's life, and at random ones, under a frontend
 * that checks every byte and every completion; and servers that are wrong on purpose are found
 * out. */
#include "base/time.h"
#include "blk/vu.h"
#include "blk/vu_mutant.h"
#include "blk/vu_test_world.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#define DEPTH    32u
#define SIZE     (16u << 20)
#define SIZE_ARG "size=16777216"

static const char *server_exe, *mutants_exe;
static _Atomic uint64_t rng = 88172645463325252u; /* who keeps the server alive draws too */

static uint64_t rnd(uint64_t n)
{
    uint64_t x = rng;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    rng = x;
    return x % n;
}

struct plan {
    unsigned n_queues;
    bool has_event_idx, has_indirect;
    enum vu_crash at; /* NONE: killed from outside */
    enum vu_mutant mutant;
    unsigned n_crashes;
    uint64_t every; /* requests between crashes, about */
};

/* Starts the server again whenever it died, until told to stop. */
struct keeper {
    struct vu_world *w;
    const struct plan *plan;
    bool is_stopped, is_over, is_bad; /* is_over: enough crashes */
    unsigned n_crashes;
};

static void start_server(struct keeper *k)
{
    char queues[32], crash[32], n[32], mutant[32];
    bool is_last = k->n_crashes >= k->plan->n_crashes || k->plan->at == VU_CRASH_NONE;
    (void)snprintf(queues, sizeof(queues), "queues=%u", k->plan->n_queues);
    (void)snprintf(crash, sizeof(crash), "crash=%u", is_last ? 0u : (unsigned)k->plan->at);
    (void)snprintf(n, sizeof(n), "crash-n=%u",
                   (unsigned)(1 + k->plan->every / 2 + rnd(k->plan->every)));
    (void)snprintf(mutant, sizeof(mutant), "mutant=%u", (unsigned)k->plan->mutant);
    const char *const options[] = {SIZE_ARG, queues, crash, n, mutant, NULL};
    vu_world_start(k->w, options);
}

static void nap(uint64_t ms)
{
    struct timespec ts = {0, (long)(NS_PER_MS * ms)};
    nanosleep(&ts, NULL);
}

/* The servers die with this thread: it stays until the test is over. */
static void *keep(void *ctx)
{
    struct keeper *k = ctx;
    int status = 0;
    start_server(k);
    while (!__atomic_load_n(&k->is_stopped, __ATOMIC_ACQUIRE)) {
        if (k->n_crashes >= k->plan->n_crashes) {
            __atomic_store_n(&k->is_over, true, __ATOMIC_RELEASE);
            nap(2);
            continue;
        }
        if (k->plan->at == VU_CRASH_NONE) {
            nap(5 + rnd(60));
            vu_world_kill(k->w);
        } else if (!vu_world_is_dead(k->w, &status)) {
            nap(1);
            continue;
        } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 137) {
            k->is_bad = true; /* it died of something else */
            break;
        }
        k->n_crashes++;
        start_server(k);
    }
    if (k->w->pid > 0) {
        vu_world_kill(k->w);
    }
    return NULL;
}

/* 0, or what the load ended with; the reason in err. */
static int crash_run(const char *exe, const struct plan *p, uint64_t hang_ns,
                     struct vu_verify_result *ret, struct err *err)
{
    struct vu_world w;
    struct vu_oracle *oracle = NULL;
    struct vu_client *client = NULL;
    pthread_t thread;
    vu_world_init(&w, exe, "vu-crash");
    struct keeper k = {.w = &w, .plan = p};
    assert_int_equal(pthread_create(&thread, NULL, keep, &k), 0);
    struct vu_client_opts co = {.path = w.sock,
                                .n_queues = p->n_queues,
                                .queue_size = 128,
                                .mem_size = (uint64_t)p->n_queues * DEPTH * VU_ORACLE_BLOCK,
                                .has_inflight = true,
                                .has_event_idx = p->has_event_idx,
                                .has_indirect = p->has_indirect};
    assert_int_equal(vu_oracle_new(SIZE / VU_ORACLE_BLOCK, p->at, &oracle, NULL), 0);
    int rc = vu_client_new(&co, &client, err);
    struct vu_verify_opts o = {.client = client,
                               .n_queues = p->n_queues,
                               .depth = DEPTH,
                               .block = VU_ORACLE_BLOCK,
                               .size = SIZE,
                               .read_pct = 40,
                               .flush_pct = 2,
                               .zeroes_pct = 3,
                               .discard_pct = 1,
                               .duration_ns = 60 * NS_PER_S,
                               .seed = rnd(1000),
                               .oracle = oracle,
                               .has_resets = true,
                               .hang_ns = hang_ns,
                               .is_stopped = &k.is_over};
    if (rc == 0) {
        rc = vu_verify_run(&o, ret, err);
    }
    if (rc == 0) {
        rc = vu_verify_all(&o, err);
    }
    __atomic_store_n(&k.is_stopped, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_false(k.is_bad);
    vu_client_free(client);
    vu_oracle_free(oracle);
    vu_world_done(&w);
    return rc;
}

static void run_matrix(enum vu_crash at)
{
    for (unsigned i = 0; i < 8; i++) {
        struct plan p = {.n_queues = (i & 1) ? 4 : 1,
                         .has_event_idx = (i & 2) != 0,
                         .has_indirect = (i & 4) != 0,
                         .at = at,
                         .n_crashes = 5,
                         .every = 600};
        struct vu_verify_result r;
        struct err err = ERR_INIT;
        int rc = crash_run(server_exe, &p, 10 * NS_PER_S, &r, &err);
        if (rc < 0) {
            fail_msg("point %d, %u queues, event index %d, indirect %d: %s", (int)at,
                     p.n_queues, p.has_event_idx, p.has_indirect, err.msg);
        }
        assert_true(r.n_resets >= p.n_crashes);
    }
}

static void test_dies_when_logged(void **state)
{
    run_matrix(VU_CRASH_LOGGED);
}
static void test_dies_when_done(void **state)
{
    run_matrix(VU_CRASH_DONE);
}
static void test_dies_when_published(void **state)
{
    run_matrix(VU_CRASH_PUBLISHED);
}
static void test_dies_half_way_through_the_flags(void **state)
{
    run_matrix(VU_CRASH_HALF);
}
static void test_dies_before_the_interrupt(void **state)
{
    run_matrix(VU_CRASH_CLEARED);
}

static void test_storm_of_kills(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct plan p = {.n_queues = i ? 4 : 2,
                         .has_event_idx = true,
                         .has_indirect = i == 0,
                         .at = VU_CRASH_NONE,
                         .n_crashes = 30,
                         .every = 1};
        struct vu_verify_result r;
        struct err err = ERR_INIT;
        if (crash_run(server_exe, &p, 10 * NS_PER_S, &r, &err) < 0) {
            fail_msg("%s", err.msg);
        }
        print_message("kill -9: %llu reads, %llu writes, %llu reconnects, longest %llu ms\n",
                      (unsigned long long)r.n_reads, (unsigned long long)r.n_writes,
                      (unsigned long long)r.n_resets,
                      (unsigned long long)(r.longest_ns / NS_PER_MS));
    }
}

/* The tests above would see it if the server were wrong: each defect, where it hurts. */
static void test_defects_are_found(void **state)
{
    static const struct {
        const char *name;
        enum vu_mutant mutant;
        enum vu_crash at;
    } all[] = {{"no log of requests", VU_MUTANT_NO_INFLIGHT, VU_CRASH_LOGGED},
               {"no repair of torn batches", VU_MUTANT_NO_REPAIR, VU_CRASH_PUBLISHED},
               {"nothing is done again", VU_MUTANT_NO_RESUBMIT, VU_CRASH_LOGGED},
               {"no interrupt at the start", VU_MUTANT_NO_CALL, VU_CRASH_CLEARED}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct plan p = {.n_queues = 1,
                         .has_event_idx = true,
                         .has_indirect = true,
                         .at = all[i].at,
                         .mutant = all[i].mutant,
                         .n_crashes = 10,
                         .every = 600};
        struct vu_verify_result r;
        struct err err = ERR_INIT;
        int rc = crash_run(mutants_exe, &p, 2 * NS_PER_S, &r, &err);
        if (rc == 0) {
            fail_msg("a server with a defect passed: %s", all[i].name);
        }
        print_message("%s: %s\n", all[i].name, err.msg);
    }
    struct plan p = {.n_queues = 1,
                     .has_event_idx = true,
                     .has_indirect = true,
                     .at = VU_CRASH_PUBLISHED,
                     .n_crashes = 3,
                     .every = 600};
    struct vu_verify_result r;
    struct err err = ERR_INIT;
    if (crash_run(mutants_exe, &p, 10 * NS_PER_S, &r, &err) < 0) {
        fail_msg("the same program without a defect: %s", err.msg);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        return 2;
    }
    server_exe = argv[1];
    mutants_exe = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dies_when_logged),
        cmocka_unit_test(test_dies_when_done),
        cmocka_unit_test(test_dies_when_published),
        cmocka_unit_test(test_dies_half_way_through_the_flags),
        cmocka_unit_test(test_dies_before_the_interrupt),
        cmocka_unit_test(test_storm_of_kills),
        cmocka_unit_test(test_defects_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
