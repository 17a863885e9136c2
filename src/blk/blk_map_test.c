#include "blk/blk_cow.h"

#include "base/fault_sim.h"
#include "base/test.h"
#include "blk/blk_map_int.h"
#include "crypto/crc.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define GIB (UINT64_C(1) << 30)

static int map_file(uint64_t size, uint64_t source, bool is_encrypted)
{
    int fd = memfd_create("map", MFD_CLOEXEC);
    assert_true(fd >= 0);
    struct blk_map_opts o = {.size = size, .source_size = source, .is_encrypted = is_encrypted};
    assert_int_equal(blk_map_create(fd, &o, NULL), 0);
    return fd;
}

static struct blk_map *open_map(int fd, int run, const char *boot, uint64_t size)
{
    struct blk_map *m = NULL;
    struct err err = ERR_INIT;
    if (map_open(fd, run, boot, NULL, size, &m, &err)) {
        fail_msg("%s", err.msg);
    }
    return m;
}

/* ---- numbers of durable pages ---- */

static void every_durable_page_has_its_own_place(void **state)
{
    static const struct {
        enum map_kind k;
        unsigned idx;
        uint64_t block;
        uint32_t want;
    } t[] = {
        {MAP_K_TOUCH, 0, 0, MAP_FIRST_CHUNK},
        {MAP_K_SET, 0, 0, MAP_FIRST_CHUNK + 1},
        {MAP_K_SET, 4, 32255, MAP_FIRST_CHUNK + 5},
        {MAP_K_STORED, 0, 0, MAP_FIRST_CHUNK + 6},
        {MAP_K_STORED, 3, 1, MAP_FIRST_CHUNK + 9},
        {MAP_K_STATE, 0, 0, MAP_FIRST_CHUNK + 10},
        {MAP_K_STATE, 0, 125, MAP_FIRST_CHUNK + 10},
        {MAP_K_STATE, 0, 126, MAP_FIRST_CHUNK + 11},
        {MAP_K_STATE, 0, 32255, MAP_FIRST_CHUNK + 265},
        {MAP_K_TOUCH, 0, 32256, MAP_FIRST_CHUNK + 266},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        unsigned idx;
        assert_int_equal(map_no(t[i].k, t[i].idx, t[i].block), t[i].want);
        assert_int_equal(map_kind_of(t[i].want, &idx), t[i].k);
        assert_int_equal(idx, t[i].idx);
    }
    assert_int_equal(map_region_bit(251), 251);
    assert_int_equal(map_region_bit(252), 256);
}

/* ---- creating ---- */

static void maps_that_cannot_be_are_refused(void **state)
{
    static const struct blk_map_opts t[] = {
        {.size = 0},
        {.size = 4095},
        {.size = BLK_MAP_MAX_SIZE + BLK_PAGE},
        {.size = GIB, .source_size = 2 * GIB},
        {.size = GIB, .source_size = 511},
        {.size = GIB, .since = "with space"},
        {.size = GIB, .since = {'1', '2', '3', '4', '5', '6', '7', '8', '9', '0', '1', '2',
                                '3', '4', '5', '6', '7', '8', '9', '0', '1', '2', '3', '4'}},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTO_FD fd = memfd_create("map", MFD_CLOEXEC);
        struct err err = ERR_INIT;
        assert_int_equal(blk_map_create(fd, &t[i], &err), -EINVAL);
        assert_string_equal(err.name, "BadMap");
    }
}

static void the_largest_volume_costs_only_what_is_touched(void **state)
{
    AUTO_FD fd = map_file(BLK_MAP_MAX_SIZE, BLK_MAP_MAX_SIZE, true);
    AUTO_FD run = memfd_create("run", MFD_CLOEXEC);
    struct blk_map *m = open_map(fd, run, "boot", BLK_MAP_MAX_SIZE);
    uint64_t last = BLK_MAP_MAX_SIZE / BLK_PAGE - 1;
    assert_int_equal(atomic_load(&m->n_absent), last + 1);
    map_mark(m, last, 1, MAP_DATA);
    map_mark(m, 0, 1, MAP_ZERO);
    assert_int_equal(atomic_load(&m->n_absent), last - 1);
    assert_int_equal(map_write_all(m, NULL), 0);
    map_close(m);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_in_range(st.st_blocks * 512, 1, 1 << 20);
    assert_int_equal(fstat(run, &st), 0);
    /* The bitmap of dirt, a bit per block, is looked through once. */
    assert_in_range(st.st_blocks * 512, 1, 6 << 20);
    AUTO_FD other = memfd_create("run", MFD_CLOEXEC);
    m = open_map(fd, other, "boot", BLK_MAP_MAX_SIZE);
    assert_int_equal(map_state(m, last), MAP_DATA);
    assert_int_equal(map_state(m, 0), MAP_ZERO);
    assert_int_equal(atomic_load(&m->n_absent), last - 1);
    map_close(m);
}

/* ---- states ---- */

static void states_of_pages(void **state)
{
    AUTO_FD fd = map_file(GIB, GIB / 2, true);
    struct blk_map *m = open_map(fd, -1, "boot", GIB);
    uint64_t src = GIB / 2 / BLK_PAGE;
    static const struct {
        uint64_t page, n; /* relative to the end of the source */
    } t[] = {{0, 1}, {5, 40}, {31, 1}, {32, 32}, {63, 2}, {100, 300}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        for (int where = -1; where <= 1; where++) { /* below, across, above the source's end */
            uint64_t p = where < 0 ? t[i].page : where == 0 ? src - 7 : src + 64 + t[i].page;
            map_mark(m, p, t[i].n, MAP_DATA);
            assert_true(map_all_data(m, p, t[i].n));
            assert_false(map_all_data(m, p, t[i].n + 1) && where < 0 && i == 0);
            map_mark(m, p, t[i].n, MAP_ZERO);
            for (uint64_t k = p; k < p + t[i].n; k++) {
                assert_int_equal(map_state(m, k), k < src ? MAP_ZERO : MAP_ABSENT);
            }
            unsigned st;
            assert_true(map_run(m, p, t[i].n, &st) >= 1);
        }
    }
    assert_true(map_state(m, 1000) == MAP_ABSENT);
    uint64_t before = atomic_load(&m->n_absent);
    map_count_absent(m);
    assert_int_equal(atomic_load(&m->n_absent), before);
    map_close(m);
}

static void a_state_that_does_not_exist_is_refused(void **state)
{
    uint64_t w[2] = {0, 0};
    assert_true(map_states_check(w, 2));
    for (unsigned i = 0; i < 64; i += 2) {
        for (unsigned st = 0; st < 4; st++) {
            w[1] = (uint64_t)st << i;
            assert_int_equal(map_states_check(w, 2), st != 2);
        }
    }
}

/* ---- the run-time map ---- */

static void the_run_time_map_is_of_one_boot_and_one_volume(void **state)
{
    static const struct {
        const char *boot;
        bool is_other_volume, is_cut, is_adopted;
    } t[] = {{"boot-1", false, false, true},
             {"boot-2", false, false, false},
             {"boot-1", true, false, false},
             {"boot-1", false, true, false}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTO_FD fd = map_file(GIB, GIB, false);
        AUTO_FD fd2 = map_file(GIB, GIB, false);
        AUTO_FD run = memfd_create("run", MFD_CLOEXEC);
        struct blk_map *m = open_map(fd, run, "boot-1", GIB);
        assert_false(m->is_adopted);
        map_mark(m, 5, 1, MAP_DATA); /* and is killed */
        map_close(m);
        if (t[i].is_cut) {
            assert_int_equal(ftruncate(run, 4096), 0);
        }
        m = open_map(t[i].is_other_volume ? fd2 : fd, run, t[i].boot, GIB);
        assert_int_equal(m->is_adopted, t[i].is_adopted);
        assert_int_equal(map_state(m, 5), t[i].is_adopted ? MAP_DATA : MAP_ABSENT);
        assert_int_equal(atomic_load(&m->n_marks), t[i].is_adopted ? 1 : 0);
        map_close(m);
    }
}

static void what_was_being_written_at_a_kill_is_written_again(void **state)
{
    AUTO_FD fd = map_file(GIB, GIB, false);
    AUTO_FD run = memfd_create("run", MFD_CLOEXEC);
    struct blk_map *m = open_map(fd, run, "boot", GIB);
    map_mark(m, 77, 1, MAP_DATA);
    map_sweep(m); /* and is killed */
    map_close(m);
    m = open_map(fd, run, "boot", GIB);
    assert_int_equal(atomic_load(&m->n_marks), 1);
    assert_int_equal(map_write_all(m, NULL), 0);
    assert_int_equal(atomic_load(&m->n_marks), 0);
    map_close(m);
    m = open_map(fd, -1, "boot", GIB);
    assert_int_equal(map_state(m, 77), MAP_DATA);
    map_close(m);
}

static void a_clean_stop_is_not_adopted_and_keeps_dirt(void **state)
{
    AUTO_FD fd = map_file(4 * GIB, 0, false);
    AUTO_FD run = memfd_create("run", MFD_CLOEXEC);
    struct blk_map *m = open_map(fd, run, "boot", 4 * GIB);
    (void)map_bit_set(m->set[map_head(m)->cur], 1234);
    assert_int_equal(map_stop(m, NULL), 0);
    map_close(m);
    m = open_map(fd, run, "boot", 4 * GIB);
    assert_false(m->is_adopted);
    const _Atomic uint64_t *dirt = m->set[map_head(m)->cur];
    assert_int_equal(map_next_bit(dirt, 0, 8192), 1234);
    assert_int_equal(map_next_bit(dirt, 1235, 8192), 8192);
    assert_true(map_bit(m->safe, map_region_bit(1234 / MAP_REGION_BLOCKS)));
    assert_false(map_bit(m->safe, map_region_bit(0)));
    assert_false(map_bit(m->suspect, map_region_bit(1234 / MAP_REGION_BLOCKS)));
    map_close(m); /* killed, and the power goes */
    m = open_map(fd, -1, "boot", 4 * GIB);
    assert_true(map_bit(m->suspect, map_region_bit(1234 / MAP_REGION_BLOCKS)));
    map_close(m);
}

/* ---- more pages than a journal entry holds ---- */

static void a_sweep_of_many_pages_goes_in_rounds(void **state)
{
    AUTO_FD fd = map_file(64 * GIB, 64 * GIB, false);
    struct blk_map *m = open_map(fd, -1, "boot", 64 * GIB);
    uint64_t step = 126 * MAP_BLOCK_PAGES, pages = 64 * GIB / BLK_PAGE;
    for (uint64_t p = 3; p < pages; p += step) {
        map_mark(m, p, 1, MAP_DATA);
    }
    uint64_t seq = m->seq;
    assert_int_equal(map_write_all(m, NULL), 0);
    assert_true(m->seq - seq > 4);
    map_close(m);
    m = open_map(fd, -1, "boot", 64 * GIB);
    for (uint64_t p = 3; p < pages; p += step) {
        assert_int_equal(map_state(m, p), MAP_DATA);
        assert_int_equal(map_state(m, p + 1), MAP_ABSENT);
    }
    map_close(m);
}

/* ---- damage ---- */

static void damage_is_refused_and_torn_journals_are_not(void **state)
{
    static const struct {
        const char *what;
        uint64_t off;
        bool is_refused;
    } t[] = {
        {"superblock", 8, true},     {"superblock's rest", 4000, true},
        {"head", 0, true}, /* place filled in below */
        {"page of states", 1, true}, {"journal, older half", 2, false},
        {"nothing", 3, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        AUTO_FD fd = map_file(GIB, GIB, false);
        struct blk_map *m = open_map(fd, -1, "boot", GIB);
        for (unsigned n = 0; n < 5; n++) {
            map_mark(m, n, 1, MAP_DATA);
            assert_int_equal(map_write_all(m, NULL), 0);
        }
        uint64_t older = map_journal_off(m->seq + 1);
        map_close(m);
        uint64_t off = t[i].off == 0   ? map_page_off(0) + 100
                       : t[i].off == 1 ? map_page_off(map_no(MAP_K_STATE, 0, 0)) + 2000
                       : t[i].off == 2 ? older + 5000
                                       : t[i].off;
        char c;
        if (t[i].off != 3) {
            assert_int_equal(pread(fd, &c, 1, (off_t)off), 1);
            c = (char)(c ^ 0x10);
            assert_int_equal(pwrite(fd, &c, 1, (off_t)off), 1);
            if (t[i].off == 0 || t[i].off == 1) {
                /* The newest journal entry would heal it: so that it does not have the page. */
                static const char zeros[2 * MAP_JOURNAL_SIZE];
                assert_int_equal(pwrite(fd, zeros, sizeof(zeros), MAP_PAGE), sizeof(zeros));
            }
        }
        struct err err = ERR_INIT;
        int rc = map_open(fd, -1, "boot", NULL, GIB, &m, &err);
        if (t[i].is_refused) {
            assert_int_equal(rc, -EINVAL);
            assert_string_equal(err.name, "BadMap");
        } else {
            assert_int_equal(rc, 0);
            assert_int_equal(map_state(m, 4), MAP_DATA);
            map_close(m);
        }
    }
}

static void a_smaller_volume_is_refused_and_a_larger_one_grows(void **state)
{
    AUTO_FD fd = map_file(GIB, 0, false);
    struct blk_map *m = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(map_open(fd, -1, "boot", NULL, GIB - BLK_PAGE, &m, &err), -EINVAL);
    m = open_map(fd, -1, "boot", 40 * GIB);
    assert_int_equal(map_head(m)->size, 40 * GIB);
    map_close(m);
    err_clear(&err);
    assert_int_equal(map_open(fd, -1, "boot", NULL, GIB, &m, &err), -EINVAL);
}

static void a_newer_version_is_refused_as_such(void **state)
{
    struct blk_map_opts o = {.size = GIB};
    AUTO_FD fd = memfd_create("map", MFD_CLOEXEC);
    struct blk_map *m = NULL;
    struct err err = ERR_INIT;
    struct map_super sup;
    assert_int_equal(blk_map_create(fd, &o, NULL), 0);
    assert_int_equal(pread(fd, &sup, sizeof(sup), 0), sizeof(sup));
    sup.version = 9;
    assert_int_equal(pwrite(fd, &sup, sizeof(sup), 0), sizeof(sup));
    assert_int_equal(map_open(fd, -1, "boot", NULL, GIB, &m, &err), -EINVAL);
    assert_string_equal(err.name, "BadMap"); /* the checksum does not fit */
    sup.crc = 0;
    sup.crc = (uint32_t)crc_add(CRC_32C, 0, str_n((const char *)&sup, sizeof(sup)));
    assert_int_equal(pwrite(fd, &sup, sizeof(sup), 0), sizeof(sup));
    err_clear(&err);
    assert_int_equal(map_open(fd, -1, "boot", NULL, GIB, &m, &err), -EINVAL);
    assert_string_equal(err.name, "NewerFormat");
    assert_non_null(strstr(err.msg, "version 9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newer_version_is_refused_as_such),
        cmocka_unit_test(every_durable_page_has_its_own_place),
        cmocka_unit_test(maps_that_cannot_be_are_refused),
        cmocka_unit_test(the_largest_volume_costs_only_what_is_touched),
        cmocka_unit_test(states_of_pages),
        cmocka_unit_test(a_state_that_does_not_exist_is_refused),
        cmocka_unit_test(the_run_time_map_is_of_one_boot_and_one_volume),
        cmocka_unit_test(what_was_being_written_at_a_kill_is_written_again),
        cmocka_unit_test(a_clean_stop_is_not_adopted_and_keeps_dirt),
        cmocka_unit_test(a_sweep_of_many_pages_goes_in_rounds),
        cmocka_unit_test(damage_is_refused_and_torn_journals_are_not),
        cmocka_unit_test(a_smaller_volume_is_refused_and_a_larger_one_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
