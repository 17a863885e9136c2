/* Writes of a server that was killed may still be under way when the next one starts. It must
 * not touch the volume before they are over: the lock of the volume's file lasts as long as
 * they do. Large writes make the time between long. */
#include "base/time.h"
#include "blk/vu.h"
#include "blk/vu_test_world.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/wait.h>

#define SIZE     (64u << 20)
#define SIZE_ARG "size=67108864"
#define BLOCK    (1u << 20)
#define DEPTH    32u

static const char *server_exe;

/* Somebody has the file: the server waits for him, then serves; after its time it gives up. */
static void test_a_locked_volume_is_waited_for(void **state)
{
    struct vu_world w;
    vu_world_init(&w, server_exe, "vu-fence");
    int fd = open(w.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    int status = vu_world_try_start(&w, (const char *const[]){SIZE_ARG, "lock=50", NULL});
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);

    pid_t child = fork(); /* has the lock with us, lets go of it in a while */
    assert_true(child >= 0);
    if (child == 0) {
        (void)poll(NULL, 0, 300);
        _exit(0);
    }
    close(fd);
    uint64_t from = time_mono_ns();
    vu_world_start(&w, (const char *const[]){SIZE_ARG, NULL});
    assert_true(time_mono_ns() - from >= 250 * NS_PER_MS);
    assert_int_equal(waitpid(child, NULL, 0), child);
    vu_world_done(&w);
}

struct killer {
    struct vu_world *w;
    unsigned n_kills, n_outlived; /* n_outlived: the lock was still there after the process */
    bool is_over, is_stopped;
};

static bool is_locked(const struct vu_world *w)
{
    AUTO_FD fd = open(w->file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return flock(fd, LOCK_EX | LOCK_NB) != 0;
}

static void *kill_main(void *ctx)
{
    struct killer *k = ctx;
    const char *const options[] = {SIZE_ARG, NULL};
    uint64_t x = 1;
    vu_world_start(k->w, options);
    for (unsigned i = 0; !__atomic_load_n(&k->is_stopped, __ATOMIC_ACQUIRE); i++) {
        x = x * UINT64_C(6364136223846793005) + 1;
        (void)poll(NULL, 0, 20 + (int)(x >> 58));
        if (i < k->n_kills) {
            vu_world_kill(k->w);
            k->n_outlived += is_locked(k->w) ? 1 : 0;
            vu_world_start(k->w, options);
        } else {
            __atomic_store_n(&k->is_over, true, __ATOMIC_RELEASE);
        }
    }
    vu_world_kill(k->w);
    return NULL;
}

/* Large writes under kill -9; what was overwritten stays overwritten. */
static void test_large_writes_of_the_dead(void **state)
{
    struct err err = ERR_INIT;
    struct vu_world w;
    struct vu_oracle *oracle = NULL;
    struct vu_client *client = NULL;
    struct vu_verify_result r;
    pthread_t thread;
    vu_world_init(&w, server_exe, "vu-fence");
    struct killer k = {.w = &w, .n_kills = 25};
    assert_int_equal(pthread_create(&thread, NULL, kill_main, &k), 0);
    assert_int_equal(vu_oracle_new(SIZE / VU_ORACLE_BLOCK, 3, &oracle, NULL), 0);
    struct vu_client_opts co = {.path = w.sock,
                                .n_queues = 1,
                                .queue_size = 128,
                                .mem_size = (uint64_t)DEPTH * BLOCK,
                                .has_inflight = true,
                                .has_event_idx = true,
                                .has_indirect = true};
    int rc = vu_client_new(&co, &client, &err);
    struct vu_verify_opts o = {.client = client,
                               .oracle = oracle,
                               .n_queues = 1,
                               .depth = DEPTH,
                               .block = BLOCK,
                               .size = SIZE,
                               .read_pct = 30,
                               .duration_ns = 60 * NS_PER_S,
                               .has_resets = true,
                               .is_stopped = &k.is_over};
    if (rc == 0) {
        rc = vu_verify_run(&o, &r, &err);
    }
    (void)poll(NULL, 0, 200); /* for the last of the dead to write */
    if (rc == 0) {
        rc = vu_verify_all(&o, &err);
    }
    __atomic_store_n(&k.is_stopped, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    if (rc < 0) {
        fail_msg("%s", err.msg);
    }
    assert_true(r.n_resets >= k.n_kills);
    print_message("after %u of %u kills the dead were still writing\n", k.n_outlived,
                  k.n_kills);
    vu_client_free(client);
    vu_oracle_free(oracle);
    vu_world_done(&w);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return 2;
    }
    server_exe = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_locked_volume_is_waited_for),
        cmocka_unit_test(test_large_writes_of_the_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
