#include "blk/blk.h"

#include "base/test.h"
#include "base/time.h"
#include "blk/blk_file.h"
#include "blk/blk_int.h"
#include "blk/blk_pool.h"
#include "blk/blk_world.h"
#include "testkit/tmpdir.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

static struct blk_queue *new_queue(const struct blk_queue_opts *o)
{
    struct world w;
    world_queue(&w, o);
    return w.q;
}

/* ---- messages ---- */

#define N_POSTERS 4
#define N_POSTS   5000u

struct post {
    struct blk_msg m; /* first */
    struct poster *by;
    unsigned n;
};
struct poster {
    struct blk_queue *q;
    struct post posts[N_POSTS];
    unsigned n_seen;
};

static void post_seen(struct blk_msg *m)
{
    struct post *p = (struct post *)(void *)m;
    assert_int_equal(p->n, p->by->n_seen); /* in the order of their thread */
    p->by->n_seen++;
}

static void *post_all(void *ctx)
{
    struct poster *p = ctx;
    for (unsigned i = 0; i < N_POSTS; i++) {
        p->posts[i] = (struct post){.m = {.fn = post_seen}, .by = p, .n = i};
        blk_queue_post(p->q, &p->posts[i].m);
        if (i % 64 == 0) { /* lets the queue fall asleep now and then */
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
    return NULL;
}

/* The queue sleeps without limit: a post that does not wake it hangs the test. */
static void test_every_post_arrives(void **state)
{
    static struct poster posters[N_POSTERS];
    struct blk_queue *q = new_queue(NULL);
    pthread_t t[N_POSTERS];
    memset(posters, 0, sizeof(posters));
    for (size_t i = 0; i < N_POSTERS; i++) {
        posters[i].q = q;
        assert_int_equal(pthread_create(&t[i], NULL, post_all, &posters[i]), 0);
    }
    for (unsigned n = 0; n < N_POSTERS * N_POSTS;) {
        assert_true(blk_queue_run(q, UINT64_MAX) >= 0);
        n = 0;
        for (size_t i = 0; i < N_POSTERS; i++) {
            n += posters[i].n_seen;
        }
    }
    for (size_t i = 0; i < N_POSTERS; i++) {
        pthread_join(t[i], NULL);
    }
    blk_queue_free(q);
}

/* ---- timers ---- */

struct timer_log {
    struct blk_queue *q;
    uint64_t want_ns[8];
    unsigned order[8], n;
};
struct timer_ctx {
    struct timer_log *log;
    unsigned id;
};

static void timer_fired(void *ctx)
{
    struct timer_ctx *t = ctx;
    assert_true(time_mono_ns() >= t->log->want_ns[t->id]); /* never early */
    t->log->order[t->log->n++] = t->id;
}

static void test_timers_in_order(void **state)
{
    static const unsigned ms[] = {30, 10, 20, 10, 0, 25};
    static const unsigned want[] = {4, 1, 3, 2, 5, 0};
    struct timer_log log = {.q = new_queue(NULL)};
    struct timer_ctx ctx[ARRAY_LEN(ms)];
    uint64_t now = time_mono_ns();
    for (unsigned i = 0; i < ARRAY_LEN(ms); i++) {
        ctx[i] = (struct timer_ctx){&log, i};
        log.want_ns[i] = now + ms[i] * NS_PER_MS;
        blk_queue_at(log.q, log.want_ns[i], timer_fired, &ctx[i]);
    }
    while (log.n < ARRAY_LEN(ms)) {
        assert_true(blk_queue_run(log.q, UINT64_MAX) >= 0);
    }
    assert_memory_equal(log.order, want, sizeof(want));
    assert_true(time_mono_ns() - now < 1000 * NS_PER_MS);
    blk_queue_free(log.q);
}

static void timer_sets_itself(void *ctx)
{
    struct timer_log *log = ctx;
    if (++log->n < 100) {
        blk_queue_at(log->q, 0, timer_sets_itself, log);
    }
}

/* One that sets itself again, due at once, has one turn per turn. */
static void test_a_timer_does_not_hold_up_the_turn(void **state)
{
    struct timer_log log = {.q = new_queue(NULL)};
    blk_queue_at(log.q, 0, timer_sets_itself, &log);
    assert_true(blk_queue_run(log.q, 0) > 0);
    assert_true(log.n <= 2);
    while (log.n < 100) {
        assert_true(blk_queue_run(log.q, UINT64_MAX) > 0);
    }
    blk_queue_free(log.q);
}

static void test_a_wait_ends(void **state)
{
    struct blk_queue *q = new_queue(NULL);
    assert_int_equal(blk_queue_run(q, 0), 0);
    uint64_t t = time_mono_ns();
    while (blk_queue_run(q, 20 * NS_PER_MS) > 0) {}
    t = time_mono_ns() - t;
    assert_true(t >= 20 * NS_PER_MS && t < 2000 * NS_PER_MS);
    assert_true(blk_queue_now(q) <= time_mono_ns());
    blk_queue_free(q);
}

/* ---- eventfds ---- */

static void counted(void *ctx)
{
    ++*(unsigned *)ctx;
}

static void signal_fd(int fd)
{
    uint64_t one = 1;
    assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

static void run_until(struct blk_queue *q, const unsigned *n, unsigned want)
{
    for (int i = 0; i < 1000 && *n < want; i++) {
        assert_true(blk_queue_run(q, 10 * NS_PER_MS) >= 0);
    }
    assert_int_equal(*n, want);
}

static void eventfd_flags(int flags)
{
    struct blk_queue *q = new_queue(NULL);
    int fd = eventfd(0, EFD_CLOEXEC | flags);
    unsigned n = 0, id = 0;
    assert_int_equal(blk_queue_watch(q, fd, counted, &n, &id), 0);
    assert_int_equal(blk_queue_run(q, 0), 0);
    for (unsigned i = 1; i <= 50; i++) { /* nobody reads it between */
        signal_fd(fd);
        run_until(q, &n, i);
    }
    blk_queue_unwatch(q, id);
    signal_fd(fd);
    close(fd); /* at once: the ring holds the file itself */
    for (int i = 0; i < 5; i++) {
        (void)blk_queue_run(q, NS_PER_MS);
    }
    assert_int_equal(n, 50);
    blk_queue_free(q);
}

static void test_eventfds(void **state)
{
    eventfd_flags(0);
    eventfd_flags(EFD_NONBLOCK); /* as QEMU makes them */
}

static void test_an_eventfd_that_was_signalled_before(void **state)
{
    struct blk_queue *q = new_queue(NULL);
    int fd = eventfd(3, EFD_CLOEXEC);
    unsigned n = 0, id = 0;
    assert_int_equal(blk_queue_watch(q, fd, counted, &n, &id), 0);
    run_until(q, &n, 1);
    blk_queue_unwatch(q, id);
    close(fd);
    blk_queue_free(q);
}

static void test_many_watches_come_and_go(void **state)
{
    struct blk_queue *q = new_queue(NULL);
    for (int round = 0; round < 20; round++) {
        int fds[BLK_MAX_WATCHES];
        unsigned ids[BLK_MAX_WATCHES], n[BLK_MAX_WATCHES] = {0}, extra = 0, id = 0;
        for (size_t i = 0; i < BLK_MAX_WATCHES; i++) {
            fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
            /* The places of the last round come back as their polls end. */
            while (blk_queue_watch(q, fds[i], counted, &n[i], &ids[i])) {
                assert_true(blk_queue_run(q, NS_PER_MS) >= 0);
            }
        }
        assert_int_equal(blk_queue_watch(q, fds[0], counted, &extra, &id), -EMFILE);
        for (size_t i = 0; i < BLK_MAX_WATCHES; i++) {
            signal_fd(fds[i]);
            run_until(q, &n[i], 1);
        }
        for (size_t i = 0; i < BLK_MAX_WATCHES; i++) {
            blk_queue_unwatch(q, ids[i]);
            close(fds[i]);
        }
    }
    blk_queue_free(q);
}

/* ---- pools ---- */

struct waiter {
    struct blk_queue *q;
    struct blk_req *got;
    unsigned *order, *n, id;
};

static void wants_req(void *ctx)
{
    struct waiter *w = ctx;
    w->got = blk_req_get(w->q);
    if (!w->got) {
        blk_queue_wait(w->q, wants_req, w);
        return;
    }
    w->order[(*w->n)++] = w->id;
}

static void test_who_waits_longest_is_first(void **state)
{
    struct blk_queue *q = new_queue(&(struct blk_queue_opts){.n_reqs = 8});
    struct blk_req *held[8];
    unsigned order[4], n = 0;
    struct waiter w[4];
    for (size_t i = 0; i < 8; i++) {
        held[i] = blk_req_get(q);
        assert_non_null(held[i]);
        assert_ptr_equal(held[i]->q, q);
    }
    assert_null(blk_req_get(q));
    for (unsigned i = 0; i < 4; i++) {
        w[i] = (struct waiter){.q = q, .order = order, .n = &n, .id = i};
        blk_queue_wait(q, wants_req, &w[i]);
    }
    assert_int_equal(blk_queue_run(q, 0), 0); /* nothing came back: nobody is asked */
    for (unsigned i = 0; i < 4; i++) {
        blk_req_put(held[i]);
        assert_true(blk_queue_run(q, UINT64_MAX) > 0);
        assert_int_equal(n, i + 1);
        assert_int_equal(order[i], i);
    }
    for (size_t i = 0; i < 4; i++) {
        blk_req_put(w[i].got);
        blk_req_put(held[4 + i]);
    }
    blk_queue_free(q);
}

static void test_front_ends_leave_something_for_layers(void **state)
{
    struct blk_queue *q = new_queue(&(struct blk_queue_opts){.n_reqs = 8, .n_buffers = 8});
    struct blk_req *r[64];
    void *b[64];
    size_t n_r = 0, n_b = 0;
    for (int tier = BLK_FRONT; tier < BLK_TIER_N; tier++) {
        size_t before_r = n_r, before_b = n_b;
        while ((r[n_r] = blk_req_get_tier(q, (enum blk_tier)tier))) {
            n_r++;
        }
        while ((b[n_b] = blk_buffer_get_tier(q, (enum blk_tier)tier))) {
            memset(b[n_b], tier, BLK_BUFFER);
            assert_int_equal((uintptr_t)b[n_b] % 4096, 0);
            n_b++;
        }
        assert_true(tier == BLK_BOTTOM || n_r > before_r);
        assert_true(n_b > before_b);
    }
    assert_int_equal(n_b, 8);
    while (n_r > 0) {
        blk_req_put(r[--n_r]);
    }
    while (n_b > 0) {
        blk_buffer_put(q, b[--n_b]);
    }
    void *small = blk_buffer_get_size(q, BLK_FRONT, BLK_PAGE);
    void *big = blk_buffer_get_size(q, BLK_FRONT, BLK_SMALL + 1);
    assert_true(small && big);
    blk_buffer_put(q, small);
    blk_buffer_put(q, big);
    blk_queue_free(q);
}

/* How many pages of the buffers have memory. */
static unsigned resident(void *const *b, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char pages[BLK_BUFFER / 4096];
        assert_int_equal(mincore(b[i], BLK_BUFFER, pages), 0);
        for (size_t k = 0; k < sizeof(pages); k++) {
            sum += pages[k] & 1;
        }
    }
    return sum;
}

static void test_memory_of_unused_buffers_goes_back(void **state)
{
    struct blk_queue *q = new_queue(&(struct blk_queue_opts){.n_buffers = 8});
    void *b[8];
    for (size_t i = 0; i < 8; i++) {
        b[i] = blk_buffer_get_tier(q, BLK_BOTTOM);
        memset(b[i], 1, BLK_BUFFER);
    }
    for (size_t i = 8; i-- > 0;) {
        blk_buffer_put(q, b[i]);
    }
    assert_int_equal(resident(b, 8), 8 * BLK_BUFFER / 4096);
    uint64_t end = time_mono_ns() + 3 * BLK_TRIM_NS;
    while (time_mono_ns() < end) { /* one is used all the time and stays */
        void *one = blk_buffer_get_tier(q, BLK_BOTTOM);
        assert_ptr_equal(one, b[0]);
        *(volatile char *)one = 2;
        blk_buffer_put(q, one);
        assert_true(blk_queue_run(q, 50 * NS_PER_MS) >= 0);
    }
    assert_int_equal(resident(b, 1), BLK_BUFFER / 4096);
    assert_int_equal(resident(b, 8), BLK_BUFFER / 4096);
    unsigned n = 0; /* idle now: it wakes up for that, and the second time not any more */
    blk_queue_at(q, time_mono_ns() + 4 * BLK_TRIM_NS, counted, &n);
    while (n == 0) {
        assert_true(blk_queue_run(q, UINT64_MAX) >= 0);
    }
    assert_int_equal(resident(b, 8), 0);
    blk_queue_free(q);
}

/* ---- requests ---- */

struct again {
    struct world *w;
    struct blk_req *r;
    struct iovec iov;
    char p[512];
    unsigned n, max;
};

static void again_done(struct blk_req *r, int rc)
{
    struct again *a = r->ctx;
    assert_int_equal(rc, 0);
    if (++a->n < a->max) {
        blk_submit(a->w->top, r);
    }
}

static void nop(struct blk_msg *m)
{
    m->next = m; /* seen */
}

/* A done() that always has more to do does not keep the queue from its messages. */
static void test_requests_that_follow_each_other(void **state)
{
    struct world w;
    struct err err = ERR_INIT;
    world_queue(&w, NULL);
    assert_int_equal(blk_mem_new(1 << 20, &w.top, &err), 0);
    struct again a = {.w = &w, .max = 100000};
    a.iov = (struct iovec){a.p, sizeof(a.p)};
    a.r = blk_req_get(w.q);
    a.r->op = BLK_READ;
    a.r->off = 0;
    a.r->len = 512;
    a.r->iov = &a.iov;
    a.r->n_iov = 1;
    a.r->done = again_done;
    a.r->ctx = &a;
    blk_submit(w.top, a.r);
    assert_int_equal(a.n, 0);
    assert_true(blk_queue_run(w.q, UINT64_MAX) > 0);
    assert_true(a.n > 0 && a.n < 100);
    struct blk_msg m = {.fn = nop};
    blk_queue_post(w.q, &m);
    assert_true(blk_queue_run(w.q, UINT64_MAX) > 0);
    assert_ptr_equal(m.next, &m);
    while (a.n < a.max) {
        assert_true(blk_queue_run(w.q, UINT64_MAX) > 0);
    }
    blk_req_put(a.r);
    world_done_all(&w);
}

/* More requests than the ring may carry: the rest waits its turn. */
static void test_a_shallow_ring(void **state)
{
    struct world w;
    struct tmpdir dir;
    char path[PATH_MAX];
    struct err err = ERR_INIT;
    tmpdir_init(&dir, "blkqueue");
    AUTO_FD fd = open(tmpdir_path(&dir, "f", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    world_queue(&w, &(struct blk_queue_opts){.depth = 4, .n_reqs = 256});
    struct blk_file_opts fo = {.fd = fd, .size = 1 << 20};
    assert_int_equal(blk_file_new(&fo, &w.top, &err), 0);
    static struct world_io io[200];
    char *p = NULL;
    assert_int_equal(posix_memalign((void **)&p, 4096, 1 << 20), 0);
    memset(p, 7, 1 << 20);
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        world_start(&w, &io[i], i % 3 ? BLK_WRITE : BLK_FLUSH, 0, i * 4096, i % 3 ? p : NULL,
                    4096);
    }
    for (size_t i = 0; i < ARRAY_LEN(io); i++) {
        assert_int_equal(world_wait(&w, &io[i]), 0);
    }
    free(p);
    world_done_all(&w);
    tmpdir_done(&dir);
}

/* ---- the reserve ---- */

static int open_answer;
static void open_done(struct blk_io *io, int res)
{
    open_answer = res;
}

static int in_child(void)
{
    struct err err = ERR_INIT;
    static const struct blk_queue_opts none;
    struct blk_queue *a = NULL, *b = NULL, *c = NULL;
    if (blk_queue_reserve(2, 64, &err)) {
        return 1;
    }
    for (int round = 0; round < 200; round++) {
        if (blk_queue_new(&none, &a, &err) || blk_queue_new(&none, &b, &err)) {
            return 2;
        }
        if (blk_queue_new(&none, &c, &err) != -EMFILE) {
            return 3;
        }
        err_clear(&err);
        int fd = eventfd(1, EFD_CLOEXEC);
        unsigned n = 0, id = 0;
        if (blk_queue_watch(a, fd, counted, &n, &id)) {
            return 4;
        }
        while (n == 0) {
            (void)blk_queue_run(a, UINT64_MAX);
        }
        struct blk_msg m = {.fn = nop};
        blk_queue_post(b, &m);
        while (m.next != &m) {
            (void)blk_queue_run(b, UINT64_MAX);
        }
        close(fd);
        blk_queue_free(a); /* with its watch */
        blk_queue_free(b);
    }
    if (blk_queue_new(&none, &a, &err)) {
        return 5;
    }
    struct blk_io io = {.fn = open_done};
    struct io_uring_sqe *sqe = blk_queue_sqe(a);
    io_uring_prep_openat(sqe, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
    io_uring_sqe_set_data(sqe, &io);
    (void)blk_queue_run(a, 100 * NS_PER_MS);
    return open_answer == -EACCES ? 0 : 6;
}

/* In a process of its own: it has no other rings afterwards. */
static void test_the_reserve(void **state)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(in_child());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_post_arrives),
        cmocka_unit_test(test_timers_in_order),
        cmocka_unit_test(test_a_timer_does_not_hold_up_the_turn),
        cmocka_unit_test(test_a_wait_ends),
        cmocka_unit_test(test_eventfds),
        cmocka_unit_test(test_an_eventfd_that_was_signalled_before),
        cmocka_unit_test(test_many_watches_come_and_go),
        cmocka_unit_test(test_who_waits_longest_is_first),
        cmocka_unit_test(test_front_ends_leave_something_for_layers),
        cmocka_unit_test(test_memory_of_unused_buffers_goes_back),
        cmocka_unit_test(test_requests_that_follow_each_other),
        cmocka_unit_test(test_a_shallow_ring),
        cmocka_unit_test(test_the_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
