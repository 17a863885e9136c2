#include "viperblock/tests/block_world.h"
#include "viperblock/tests/step.h"

#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

/* kill -9 at each named step of a snapshot's life, while a guest has the volume and writes: the
 * snapshot is completed all the same, holds its point in time bit for bit, and at the end nothing
 * is left over. The programs are those of the service, built to stop at steps. */

#define VOL1  "vol-00000000000000001"
#define VOL2  "vol-00000000000000002"
#define BLOCK (512u << 10)
#define SIZE  (8u << 20) /* of the part that is written */
#define PIECE 16384u
#define MAX_N 48u
#define LIMIT (60 * NS_PER_S)

enum who { NOBODY, MANAGER, DATA, BOTH };

/* 'is_after': the point in time is over, and the guest may write while the manager stands. */
struct row {
    const char *step;
    enum who who;
    bool is_after;
};

/* In the order of a life. A process that dies four times in a short while is started again later,
 * unless the manager is another one: they alternate. */
static const struct row of_snapshots[] = {
    {"snapshot.freeze", MANAGER, false}, {"data.begin", DATA, false},
    {"data.begun", DATA, false},         {"snapshot.frozen", MANAGER, true},
    {"snapshot.frozen", DATA, true},     {"snapshot.noted", MANAGER, true},
    {"snapshot.told", MANAGER, true},    {"snapshot.begin", MANAGER, true},
    {"snapshot.begun", MANAGER, true},   {"data.reading", DATA, false},
    {"data.upload", DATA, false},        {"snapshot.reading", MANAGER, true},
    {"data.stored", DATA, false},        {"data.uploaded", DATA, false},
    {"snapshot.stored", MANAGER, true},  {"snapshot.stored", BOTH, true},
    {"snapshot.commit", MANAGER, true},  {"snapshot.committed", MANAGER, true},
    {"snapshot.committed", DATA, true},  {"data.end", DATA, false},
    {"snapshot.end", MANAGER, true},     {"data.ended", DATA, false},
    {"snapshot.ended", MANAGER, true},   {"snapshot.ended", BOTH, true},
    {"snapshot.dropped", MANAGER, true}, {"snapshot.completed", MANAGER, true},
};
/* The last of them when the volume is gone: nothing else needs what it alone had. */
static const struct row of_deletions[] = {
    {"snapshot.remove", MANAGER, false},
    {"snapshot.removed", MANAGER, false},
    {"snapshot.deleted", MANAGER, false},
    {"snapshot.collect", MANAGER, false},
};

static char **args;
static struct world w;
static struct step_gate *gate;
static char now[SIZE], *at[MAX_N];

static int setup(void **state)
{
    char path[64];
    (void)state;
    int fd = memfd_create("steps", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*gate)), 0);
    gate = mmap(NULL, sizeof(*gate), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(gate != MAP_FAILED);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
    assert_int_equal(setenv(STEP_ENV, path, 1), 0);
    world_init(&w, args);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    atomic_store(&gate->state, STEP_OFF);
    world_done(&w);
    for (size_t i = 0; i < MAX_N; i++) {
        free(at[i]);
    }
    return 0;
}

static void arm(const char *step)
{
    atomic_store(&gate->state, STEP_OFF);
    snprintf(gate->want, sizeof(gate->want), "%s", step);
    atomic_store(&gate->state, STEP_ARMED);
}

static void wait_reached(const char *step)
{
    uint64_t end = time_mono_ns() + LIMIT;
    while (atomic_load(&gate->state) != STEP_REACHED) {
        usleep(1000);
        if (time_mono_ns() > end) {
            fail_msg("nothing came to %s", step);
        }
    }
}

static void kill_them(enum who who)
{
    if (who == MANAGER || who == BOTH) {
        world_kill(&w, WORLD_BLOCK);
    }
    if (who == DATA || who == BOTH) {
        assert_true(world_kill_data(&w, INSTANCE));
    }
    atomic_store(&gate->state, STEP_OFF);
    if (who == MANAGER || who == BOTH) {
        world_restart(&w, WORLD_BLOCK);
    }
}

static void write_some(struct test_disk *d, uint64_t seed)
{
    static char p[PIECE];
    for (unsigned i = 0; i < 5; i++) {
        size_t off = (seed * 7919 + i * 104729) % (SIZE / 4096 - PIECE / 4096) * 4096;
        test_fill(p, PIECE, seed * 100 + i);
        memcpy(now + off, p, PIECE);
        assert_int_equal(test_disk_write(d, off, p, PIECE), 0);
    }
}

static const char *snap_id(size_t i)
{
    char id[40];
    snprintf(id, sizeof(id), "snap-%017zu", i + 1);
    return arena_cstr(w.a, arena_str_dup(w.a, str_c(id)));
}

static void take_and_kill(struct test_disk *d, const struct row *r, size_t i)
{
    print_message("           %s: %s\n", r->step,
                  r->who == DATA   ? "data process"
                  : r->who == BOTH ? "both"
                                   : "manager");
    write_some(d, i * 10);
    assert_int_equal(test_disk_flush(d), 0);
    at[i] = malloc(SIZE);
    assert_non_null(at[i]);
    memcpy(at[i], now, SIZE);
    arm(r->step);
    struct snapshot s = world_snapshot_rec(snap_id(i), VOL1);
    world_put_snapshot(&w, &s);
    wait_reached(r->step);
    if (r->is_after) {
        write_some(d, i * 10 + 1);
    }
    kill_them(r->who);
    world_wait_started(&w, snap_id(i));
    write_some(d, i * 10 + 2);
    world_wait_snapshot(&w, snap_id(i), "completed");
}

/* Read from the store: with a volume of each of them the test would take twice the time. */
static void is_as_it_was(size_t i)
{
    static char got[BLOCK];
    char text[200];
    for (unsigned b = 0; b < SIZE / BLOCK; b++) {
        struct err err = ERR_INIT;
        int fd = -1;
        snprintf(text, sizeof(text),
                 "{\"account\":\"" ACCOUNT "\",\"snapshot_id\":\"%s\",\"block\":%u}",
                 snap_id(i), b);
        int rc = world_call(&w, "block.get", text, -1, NULL, &fd, &err);
        memset(got, 0, sizeof(got));
        if (rc == 0) {
            assert_int_equal(pread(fd, got, BLOCK, 0), BLOCK);
            close(fd);
        } else if (rc != -ENOENT) {
            fail_msg("%s: %s", snap_id(i), err.msg);
        }
        for (size_t k = 0; k < BLOCK; k++) {
            if (got[k] != at[i][(size_t)b * BLOCK + k]) {
                fail_msg("%s (killed at %s): byte %zu of block %u is another", snap_id(i),
                         of_snapshots[i].step, k, b);
            }
        }
    }
}

static void a_volume_of_it_is(size_t i)
{
    static char got[SIZE];
    struct test_disk d;
    struct volume v = world_volume(VOL2, 1);
    v.snapshot_id = str_c(snap_id(i));
    v.snapshot_account = STR(ACCOUNT);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL2, "available");
    world_open(&w, VOL2, INSTANCE, &d);
    assert_int_equal(test_disk_read(&d, 0, got, SIZE), 0);
    assert_memory_equal(got, at[i], SIZE);
    world_close(&w, VOL2, INSTANCE, &d);
    world_delete_volume(&w, &v);
}

static void delete_and_kill(const struct row *r, size_t i)
{
    print_message("           %s\n", r->step);
    struct snapshot s = world_snapshot_rec(snap_id(i), VOL1);
    s.want = STR("deleted");
    s.generation = 2;
    arm(r->step);
    world_put_snapshot(&w, &s);
    wait_reached(r->step);
    kill_them(r->who);
    world_wait_snapshot(&w, snap_id(i), "deleted");
    world_delete(&w, "snapshot", snap_id(i));
}

static void no_orphans(void)
{
    struct str answer = STR("");
    struct err err = ERR_INIT;
    const char *none = "{\"volumes\":[],\"images\":[],\"snapshots\":[],\"processes\":[]}";
    for (int i = 0; i < 3000 && !str_eqc(answer, none); i++) {
        usleep(20000);
        assert_int_equal(world_call(&w, "volume.orphans", "{}", -1, &answer, NULL, &err), 0);
    }
    assert_str(answer, none);
}

static void snapshots_survive_kills_at_every_step(void **state)
{
    const size_t n = ARRAY_LEN(of_snapshots), n_del = ARRAY_LEN(of_deletions);
    struct test_disk d;
    (void)state;
    assert_true(n <= MAX_N && n >= 2 * n_del);
    struct volume v = world_volume(VOL1, 1);
    world_put_volume(&w, &v);
    world_wait_volume(&w, VOL1, "available");
    world_open(&w, VOL1, INSTANCE, &d);
    for (size_t i = 0; i < n; i++) {
        take_and_kill(&d, &of_snapshots[i], i);
    }
    static char got[SIZE];
    assert_int_equal(test_disk_read(&d, 0, got, SIZE), 0);
    assert_memory_equal(got, now, SIZE);
    world_close(&w, VOL1, INSTANCE, &d);
    for (size_t i = 0; i < n; i++) {
        is_as_it_was(i);
    }
    no_orphans();
    /* From the middle, while the volume is there; the others when it is gone. */
    for (size_t i = 0; i < n_del; i++) {
        delete_and_kill(&of_deletions[i], n / 2 + i);
    }
    is_as_it_was(n / 2 - 1);
    a_volume_of_it_is(n / 2 + n_del);
    world_delete_volume(&w, &v);
    for (size_t i = 0; i < n; i++) {
        if (i >= n - n_del) {
            delete_and_kill(&of_deletions[i - (n - n_del)], i);
        } else if (i < n / 2 || i >= n / 2 + n_del) {
            world_delete_snapshot(&w, snap_id(i), VOL1);
        }
    }
    no_orphans();
    for (int i = 0; i < 3000 && world_objects(&w) > 0; i++) {
        usleep(20000); /* what a killed manager did not collect, the next one does */
    }
    assert_int_equal(world_objects(&w), 0);
    struct snap_usage u = world_usage(&w);
    assert_int_equal(u.n_manifests + u.n_kept + u.n_pending, 0);
    assert_int_equal(u.n_blocks + u.n_pages + u.bytes, 0);
    static const char *const folders[] = {"data/viperblock/volumes", "data/viperblock/trash",
                                          "data/viperblock/pending", "run/viperblock/maps"};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        assert_int_equal(world_count(&w, folders[i]), 0);
    }
    assert_int_equal(world_n_processes(&w), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(snapshots_survive_kills_at_every_step, setup, teardown),
    };
    if (argc < 5) {
        fprintf(stderr, "usage: %s SPX SPX-STATE SPX-PREDASTORE SPX-VIPERBLOCK-THAT-STOPS\n",
                argv[0]);
        return 2;
    }
    args = argv;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
