/* Failures at the n-th request, for every n: lost before and after the store has done it, this
 * process killed, the store killed. Afterwards the work is done again as whoever was cut off
 * would, and every byte of the bucket is accounted for. */
#include "snap/tests/snap_world.h"

#include "base/time.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

static char **args;
static struct world w;

static int setup(void **ctx)
{
    (void)ctx;
    world_init(&w, args);
    return 0;
}

static int teardown(void **ctx)
{
    (void)ctx;
    world_done(&w);
    return 0;
}

enum how { LOST_BEFORE, LOST_AFTER, KILLED_BEFORE, KILLED_AFTER, STORE_KILLED };

static struct fault {
    enum how how;
    unsigned at, n;
    bool has_come;
} fault;

static int on_request(void *ctx, bool is_done, const char *method, const char *key)
{
    bool is_after = fault.how == LOST_AFTER || fault.how == KILLED_AFTER;
    (void)ctx;
    (void)method;
    (void)key;
    if (is_done != is_after || ++fault.n != fault.at) {
        return 0;
    }
    fault.has_come = true;
    if (fault.how == KILLED_BEFORE || fault.how == KILLED_AFTER) {
        raise(SIGKILL);
    }
    if (fault.how == STORE_KILLED) {
        daemon_kill(w.store);
        return 0;
    }
    return -EIO;
}

/* ---- a life of two snapshots, in steps that can be done again ---- */

struct plan {
    char account[16], a[24], b[24], c[24];
    uint8_t n_acked; /* puts that were answered; shared with a child */
    bool is_enc;
};

#define N_STEPS 13

static int begin_again(struct plan *p, const char *id, const char *parent, struct err *err)
{
    struct snap_info i = {.size = 1500ull * SNAP_BLOCK, .is_encrypted = p->is_enc}, got;
    snprintf(i.id, sizeof(i.id), "%s", id);
    snprintf(i.account, sizeof(i.account), "%s", p->account);
    snprintf(i.parent, sizeof(i.parent), "%s", parent);
    int r = snap_begin(w.snap, &i, err);
    return r == -EEXIST ? snap_stat(w.snap, str_c(p->account), str_c(id), &got, NULL) : r;
}

static int put_again(struct plan *p, const char *id, uint64_t block, uint32_t what,
                     struct err *err)
{
    struct snap_info got;
    world_fill(what, w.buf);
    int r = snap_put(w.snap, str_c(id), block, w.buf, NULL, err);
    if (r == -ENOENT) { /* committed, and nobody was told */
        return snap_stat(w.snap, str_c(p->account), str_c(id), &got, NULL);
    }
    return r;
}

static int commit_again(struct plan *p, const char *id, struct err *err)
{
    struct snap_info got;
    int r = snap_commit(w.snap, str_c(id), &got, err);
    return r == -ENOENT ? snap_stat(w.snap, str_c(p->account), str_c(id), &got, NULL) : r;
}

static int step(struct plan *p, unsigned n, struct err *err)
{
    struct str account = str_c(p->account);
    struct snap_info copy = {.is_encrypted = !p->is_enc};
    switch (n) {
    case 0: return begin_again(p, p->a, "", err);
    case 1: return put_again(p, p->a, 3, 1, err);
    case 2: return put_again(p, p->a, 1200, 2, err);
    case 3: return commit_again(p, p->a, err);
    case 4: return begin_again(p, p->b, p->a, err);
    case 5: return put_again(p, p->b, 3, 3, err);
    case 6: return snap_keep(w.snap, account, str_c(p->a), err);
    case 7: return snap_collect(w.snap, account, NULL, err);
    case 8: return commit_again(p, p->b, err);
    case 9: return snap_unkeep(w.snap, account, str_c(p->a), err);
    case 10: return snap_collect(w.snap, account, NULL, err);
    case 11:
        snprintf(copy.id, sizeof(copy.id), "%s", p->c);
        snprintf(copy.account, sizeof(copy.account), "%s", p->account);
        return snap_copy(w.snap, account, str_c(p->b), &copy, NULL, NULL, err);
    default: return snap_collect(w.snap, account, NULL, err);
    }
}

/* What must be there in the end. */
static void check_end(struct plan *p)
{
    static struct oracle o;
    oracle_init(&o, p->account);
    for (unsigned i = 0; i < 2; i++) {
        struct oracle_snap *x = oracle_new(&o, NULL, i == 1 ? !p->is_enc : p->is_enc, 1500);
        assert_non_null(x);
        snprintf(x->id, sizeof(x->id), "%s", i == 1 ? p->c : p->b);
        x->blocks[3] = 3;
        x->blocks[1200] = 2;
        x->state = O_VISIBLE;
        oracle_check_snap(&w, &o, x);
    }
    o.has_keys = true;
    oracle_check_keys(&w, &o);
    oracle_done(&o);
}

static void plan_make(struct plan *p, unsigned serial, bool is_enc)
{
    *p = (struct plan){.is_enc = is_enc};
    snprintf(p->account, sizeof(p->account), "%012u", serial);
    snprintf(p->a, sizeof(p->a), "snap-a%u", serial);
    snprintf(p->b, sizeof(p->b), "snap-b%u", serial);
    snprintf(p->c, sizeof(p->c), "snap-c%u", serial);
}

static void arm(enum how how, unsigned at)
{
    fault = (struct fault){.how = how, .at = at};
    w.opts.on_request = on_request;
    world_reopen(&w);
}

static void disarm(void)
{
    w.opts.on_request = NULL;
    world_reopen(&w);
}

static void finish(struct plan *p, unsigned from)
{
    for (unsigned i = from; i < N_STEPS; i++) {
        struct err e = ERR_INIT;
        if (step(p, i, &e) < 0) {
            fail_msg("step %u, again: %s %s", i, e.name, e.msg);
        }
    }
    check_end(p);
}

/* Every request once; whoever asked is told that it failed, and begins anew with what is
 * there. */
static void every_request_lost(enum how how, unsigned serial, bool is_enc)
{
    for (unsigned at = 1;; at++) {
        struct plan p;
        unsigned i = 0;
        plan_make(&p, serial + at, is_enc);
        arm(how, at);
        for (int r = 0; i < N_STEPS; i += r == 0) {
            struct err e = ERR_INIT;
            r = step(&p, i, &e);
            if (r < 0) {
                assert_true(fault.has_come);
                assert_int_equal(r, -EAGAIN);
                break;
            }
        }
        bool has_come = fault.has_come;
        disarm();
        finish(&p, i);
        if (!has_come) {
            assert_true(at > 30);
            return;
        }
    }
}

static void test_every_request_lost_before(void **ctx)
{
    (void)ctx;
    every_request_lost(LOST_BEFORE, 1000, false);
}

static void test_every_request_lost_after(void **ctx)
{
    (void)ctx;
    every_request_lost(LOST_AFTER, 2000, true);
}

/* ---- kill -9 ---- */

static void child(struct plan *p, uint8_t *done)
{
    for (unsigned i = 0; i < N_STEPS; i++) {
        if (step(p, i, NULL) < 0) {
            _exit(1);
        }
        *done = (uint8_t)(i + 1);
    }
    _exit(0);
}

static void killed_at_every_request(enum how how, unsigned serial, bool is_enc)
{
    uint8_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(done != MAP_FAILED);
    for (unsigned at = 1;; at++) {
        struct plan p;
        int status = 0;
        plan_make(&p, serial + at, is_enc);
        arm(how, at);
        *done = 0;
        pid_t pid = fork();
        if (pid == 0) {
            child(&p, done);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        disarm();
        finish(&p, *done);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            assert_true(at > 30);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
    }
    munmap(done, 4096);
}

static void test_killed_before_every_request(void **ctx)
{
    (void)ctx;
    killed_at_every_request(KILLED_BEFORE, 3000, true);
}

static void test_killed_after_every_request(void **ctx)
{
    (void)ctx;
    killed_at_every_request(KILLED_AFTER, 4000, false);
}

/* The store dies at every third request, and comes again. */
static void test_store_killed(void **ctx)
{
    (void)ctx;
    for (unsigned at = 2;; at += 3) {
        struct plan p;
        unsigned i = 0;
        plan_make(&p, 5000 + at, at & 1);
        arm(STORE_KILLED, at);
        while (i < N_STEPS && step(&p, i, NULL) == 0) {
            i++;
        }
        bool has_come = fault.has_come;
        if (has_come) {
            struct err e = ERR_INIT;
            if (daemon_restart(w.store, &e) < 0) {
                fail_msg("%s", e.msg);
            }
        }
        disarm();
        finish(&p, i);
        if (!has_come) {
            return;
        }
    }
}

/* ---- a collection beside uploads ---- */

struct racer {
    pthread_t thread;
    char account[16];
    unsigned no;
    _Atomic bool *is_over;
    unsigned n;
};

/* The same few contents over and over: what one gives up the next one stores again. */
static uint32_t content(const struct racer *r, unsigned k)
{
    return 1 + (r->n * 7 + k * 5 + r->no) % 24;
}

static void *race(void *ctx)
{
    struct racer *r = ctx;
    void *buf = malloc(SNAP_BLOCK), *got = malloc(SNAP_BLOCK);
    char last[24] = "";
    while (!*r->is_over) {
        struct snap_info i = {.size = 100ull * SNAP_BLOCK};
        snprintf(i.id, sizeof(i.id), "snap-%u-%u", r->no, r->n++);
        memcpy(i.account, r->account, sizeof(i.account));
        if (r->n % 3 && last[0]) {
            memcpy(i.parent, last, sizeof(i.parent));
        }
        struct err e = ERR_INIT;
        int x = snap_begin(w.snap, &i, &e);
        if (last[0]) {
            x = x < 0 ? x : snap_delete(w.snap, str_c(r->account), str_c(last), &e);
        }
        for (unsigned k = 0; x == 0 && k < 4; k++) {
            world_fill(content(r, k), buf);
            x = snap_put(w.snap, str_c(i.id), k, buf, NULL, &e);
        }
        x = x < 0 ? x : snap_commit(w.snap, str_c(i.id), NULL, &e);
        for (unsigned k = 0; x == 0 && k < 4; k++) {
            world_fill(content(r, k), buf);
            x = snap_get(w.snap, str_c(r->account), str_c(i.id), k, got, &e);
            if (x == 0 && memcmp(buf, got, SNAP_BLOCK) != 0) {
                x = -1;
            }
        }
        if (x < 0) {
            print_error("%s: %d %s\n", i.id, x, e.msg);
            free(buf);
            free(got);
            return ctx;
        }
        memcpy(last, i.id, sizeof(last));
    }
    (void)!snap_delete(w.snap, str_c(r->account), str_c(last), NULL);
    free(buf);
    free(got);
    return NULL;
}

/* What a collection does takes a while: others come in between. */
static int slow_down(void *ctx, bool is_done, const char *method, const char *key)
{
    (void)ctx;
    if (!is_done && (strcmp(method, "POST") == 0 ||
                     (strcmp(method, "GET") == 0 && str_has_prefixc(str_c(key), "m/")))) {
        usleep(method[0] == 'P' ? 20000 : 3000);
    }
    return 0;
}

static void test_collect_beside_uploads(void **ctx)
{
    struct racer r[3];
    _Atomic bool is_over = false;
    struct snap_usage u = {0};
    uint64_t n_freed = 0, end = time_mono_ns() + 12 * NS_PER_S;
    (void)ctx;
    struct err failed = ERR_INIT;
    w.opts.collect_names = 4;
    w.opts.on_request = slow_down;
    world_reopen(&w);
    for (unsigned i = 0; i < 3; i++) {
        r[i] = (struct racer){.no = i, .is_over = &is_over, .account = "787878787878"};
        assert_int_equal(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
    }
    while (time_mono_ns() < end && !failed.code) {
        struct err e = ERR_INIT;
        int x = snap_collect(w.snap, STR("787878787878"), &u, &e);
        if (x < 0 && x != -EAGAIN) {
            failed = e;
        }
        n_freed += u.n_freed_blocks + u.n_freed_pages;
    }
    is_over = true;
    for (unsigned i = 0; i < 3; i++) {
        void *bad = NULL;
        pthread_join(r[i].thread, &bad);
        if (bad && !failed.code) {
            fail(&failed, -EIO, "Race", "a snapshot was damaged");
        }
    }
    if (failed.code) {
        fail_msg("%s", failed.msg);
    }
    print_message("%u snapshots, %llu objects freed beside them\n", r[0].n + r[1].n + r[2].n,
                  (unsigned long long)n_freed);
    assert_int_equal(snap_collect(w.snap, STR("787878787878"), &u, NULL), 0);
    assert_int_equal(u.bytes, 0);
    assert_true(n_freed > 0 && r[0].n > 3);
    w.opts.collect_names = 0;
    w.opts.on_request = NULL;
    world_reopen(&w);
}

/* A snapshot goes in the moment in which a collection wants to read it, and another has just
 * begun from it: nothing of that is freed. */
static struct swap {
    struct plan p;
    bool is_on, is_done;
} swap;

static int swap_roots(void *ctx, bool is_done, const char *method, const char *key)
{
    (void)ctx;
    if (swap.is_on && !is_done && strcmp(method, "GET") == 0 &&
        str_has_prefixc(str_c(key), "m/")) {
        swap.is_on = false;
        assert_int_equal(begin_again(&swap.p, swap.p.b, swap.p.a, NULL), 0);
        assert_int_equal(snap_delete(w.snap, str_c(swap.p.account), str_c(swap.p.a), NULL), 0);
        swap.is_done = true;
    }
    return 0;
}

static void test_root_goes_while_it_is_read(void **ctx)
{
    static struct oracle o;
    struct snap_usage u;
    (void)ctx;
    plan_make(&swap.p, 6000, false);
    w.opts.on_request = swap_roots;
    world_reopen(&w);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(step(&swap.p, i, NULL), 0);
    }
    swap.is_on = true;
    assert_int_equal(snap_collect(w.snap, str_c(swap.p.account), &u, NULL), 0);
    assert_true(swap.is_done);
    assert_int_equal(u.n_freed_blocks + u.n_freed_pages, 0);
    assert_int_equal(snap_commit(w.snap, str_c(swap.p.b), NULL, NULL), 0);
    oracle_init(&o, swap.p.account);
    struct oracle_snap *x = oracle_new(&o, NULL, false, 1500);
    assert_non_null(x);
    snprintf(x->id, sizeof(x->id), "%s", swap.p.b);
    x->blocks[3] = 1;
    x->blocks[1200] = 2;
    x->state = O_VISIBLE;
    oracle_check_snap(&w, &o, x);
    oracle_check_keys(&w, &o);
    oracle_done(&o);
    w.opts.on_request = NULL;
    world_reopen(&w);
}

/* A deletion whose answer was lost happens much later: what was stored anew meanwhile stays. */
static int lose_deletion(void *ctx, bool is_done, const char *method, const char *key)
{
    (void)ctx;
    (void)key;
    return !is_done && strcmp(method, "POST") == 0 ? -EIO : 0;
}

static void test_late_deletion(void **ctx)
{
    struct plan p;
    char prefix[SNAP_KEY_MAX];
    static struct snap_s3_item items[SNAP_S3_LIST_MAX];
    size_t n = 0;
    bool is_more = false;
    struct str account = STR("000000007000");
    (void)ctx;
    plan_make(&p, 7000, false);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(step(&p, i, NULL), 0);
    }
    assert_int_equal(snap_delete(w.snap, account, str_c(p.a), NULL), 0);
    snprintf(prefix, sizeof(prefix), "b/%s/", p.account);
    assert_int_equal(snap_s3_list(w.s3, prefix, "", false, items, &n, &is_more, NULL), 0);
    assert_int_equal(n, 2);
    w.opts.on_request = lose_deletion;
    world_reopen(&w);
    assert_int_equal(snap_collect(w.snap, account, NULL, NULL), -EAGAIN);
    usleep(1100000); /* of another second */
    assert_int_equal(begin_again(&p, p.b, "", NULL), 0);
    assert_int_equal(put_again(&p, p.b, 3, 1, NULL), 0);
    assert_int_equal(put_again(&p, p.b, 4, 2, NULL), 0);
    assert_int_equal(snap_commit(w.snap, str_c(p.b), NULL, NULL), 0);
    assert_int_equal(snap_s3_delete_many(w.s3, items, n, NULL), 0);
    assert_int_equal(snap_get(w.snap, account, str_c(p.b), 3, w.buf, NULL), 0);
    assert_int_equal(snap_get(w.snap, account, str_c(p.b), 4, w.buf, NULL), 0);
    w.opts.on_request = NULL;
    world_reopen(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_request_lost_before),
        cmocka_unit_test(test_every_request_lost_after),
        cmocka_unit_test(test_killed_before_every_request),
        cmocka_unit_test(test_killed_after_every_request),
        cmocka_unit_test(test_collect_beside_uploads),
        cmocka_unit_test(test_root_goes_while_it_is_read),
        cmocka_unit_test(test_late_deletion),
        cmocka_unit_test(test_store_killed),
    };
    if (argc < 4) {
        return 2;
    }
    args = argv;
    return cmocka_run_group_tests(tests, setup, teardown);
}
